//! Executors other than tokio's: one whose wakers poll their task at once, on whatever thread wakes,
//! and wakers that are the last handle of a task, whose end comes back into the client.
//!
//! Woken or dropped under a lock of the client's, such a waker would stop the thread for good; on the
//! client's own thread that would end every renewal.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use lockattr::store::{Claim, Store};
use lockattr::{Client, Error, Lease, Memory};
use tests::server::Server;
use tests::wait;

use crate::support::{by_hand, polled, told_of_the_end};

const TTL: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(30);

/// A task that is polled in its waker; its handles are its wakers alone.
struct Inline {
    work: Mutex<Option<Work>>,
    state: AtomicU8,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
/// Woken while it was being polled.
const AGAIN: u8 = 2;

fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    let task = Arc::new(Inline {
        work: Mutex::new(Some(Box::pin(work))),
        state: AtomicU8::new(IDLE),
    });
    task.poll();
}

impl Inline {
    fn poll(self: &Arc<Self>) {
        let begin = |state| Some(if state == IDLE { POLLED } else { AGAIN });
        let order = Ordering::AcqRel;
        if self.state.fetch_update(order, Ordering::Acquire, begin) != Ok(IDLE) {
            return;
        }
        loop {
            let Some(mut work) = self.work.lock().unwrap().take() else {
                return;
            };
            let waker = Waker::from(Arc::clone(self));
            if work
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
            {
                return;
            }
            *self.work.lock().unwrap() = Some(work);
            let idle = self
                .state
                .compare_exchange(POLLED, IDLE, order, Ordering::Acquire);
            if idle.is_ok() {
                return;
            }
            self.state.store(POLLED, Ordering::Release);
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// A waker that unparks its thread, and comes back into its client when its last handle is gone.
struct Last {
    thread: Thread,
    client: Client,
    /// A lease of the client's, given back there with the last one.
    lease: Lease,
}

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        self.thread.unpark();
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(!self.lease.key().is_empty());
        let _ = pin!(self.lease.lost()).poll(&mut cx);
        for key in ["sync:1", "sync:2", "another"] {
            for wait in [Duration::ZERO, WAIT] {
                let request = self.client.lock(key).ttl(TTL).wait(wait);
                let _ = pin!(request.acquire()).poll(&mut cx);
            }
        }
    }
}

/// Runs a future, each poll of it with a waker of its own, the last handle of which is the client's.
fn with_last_wakers<F: Future>(client: &Client, lease: &Lease, work: F) -> F::Output {
    let mut work = pin!(work);
    loop {
        let waker = Waker::from(Arc::new(Last {
            thread: thread::current(),
            client: client.clone(),
            lease: lease.share(),
        }));
        let mut cx = Context::from_waker(&waker);
        if let Poll::Ready(output) = work.as_mut().poll(&mut cx) {
            return output;
        }
        drop(waker);
        // A waker that is replaced or dropped wakes nobody any more.
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// A thread that may stand still for good fails the test instead.
fn within_bounds<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    thread::spawn(move || tell.send(work()));
    received(what, &told)
}

fn received<T>(what: &str, told: &Receiver<T>) -> T {
    told.recv_timeout(WAIT)
        .unwrap_or_else(|problem| panic!("{what}: {problem}"))
}

async fn take(locks: &Client, key: &str, wait: Duration) -> Result<Lease, Error> {
    locks.lock(key).ttl(TTL).wait(wait).acquire().await
}

/// The client's thread goes on renewing.
fn renews(locks: &Client) {
    let locks = locks.clone();
    within_bounds("a lease is renewed", move || {
        let before = locks.stats().renewed;
        let lease = by_hand(take(&locks, "canary", Duration::ZERO)).unwrap();
        wait::block_until("it is renewed", || locks.stats().renewed > before + 1);
        by_hand(lease.release()).unwrap();
    });
}

/// Two clients of one server, and two of one memory.
fn pairs() -> (Server, [[Client; 2]; 2]) {
    let server = Server::start();
    let connect = || by_hand(Client::connect(server.url())).unwrap();
    let memory = Memory::new();
    let open = || Client::builder().store(memory.clone()).unwrap();
    let pairs = [[connect(), connect()], [open(), open()]];
    (server, pairs)
}

/// The first who waits makes the client subscribe.
#[test]
fn a_first_waiter_is_woken() {
    let (_server, pairs) = pairs();
    for [locks, other] in pairs {
        let held = by_hand(take(&other, "sync:1", Duration::ZERO)).unwrap();
        let (tell, told) = channel();
        let waits = locks.clone();
        spawn(async move {
            let lease = take(&waits, "sync:1", WAIT).await.unwrap();
            tell.send(lease.release().await).unwrap();
        });
        renews(&locks);
        by_hand(held.release()).unwrap();
        received("the waiter is served", &told).unwrap();
        renews(&locks);
    }
}

#[test]
fn callers_of_two_clients_take_turns() {
    const CALLERS: usize = 100;
    let (_server, pairs) = pairs();
    for pair in pairs {
        let inside = Arc::new(AtomicUsize::new(0));
        let (tell, told) = channel();
        for number in 0..CALLERS {
            let (locks, inside) = (pair[number % 2].clone(), Arc::clone(&inside));
            let tell = tell.clone();
            spawn(async move {
                let lease = take(&locks, "sync:1", WAIT).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0);
                lease.token().await.unwrap();
                lease.extend(2 * TTL).await.unwrap();
                inside.fetch_sub(1, Ordering::AcqRel);
                // Half of them give back by hand, the others by dropping.
                if number % 3 == 0 {
                    drop(lease);
                } else {
                    lease.release().await.unwrap();
                }
                tell.send(()).unwrap();
            });
        }
        for _ in 0..CALLERS {
            received("everybody has a turn", &told);
        }
        pair.iter().for_each(renews);
    }
}

/// Many at once, which one task of the client's thread finds and tells.
#[test]
fn losses_are_told() {
    const LEASES: usize = 300;
    let (server, [[redis, _], _]) = pairs();
    let memory = Memory::new();
    let in_memory = Client::builder().store(memory.clone()).unwrap();
    let keys: Vec<_> = (0..LEASES).map(|number| format!("sync:{number}")).collect();
    for locks in [redis, in_memory] {
        let (tell, told) = channel();
        for key in keys.clone() {
            let (locks, tell) = (locks.clone(), tell.clone());
            spawn(async move {
                let lease = take(&locks, &key, Duration::ZERO).await.unwrap();
                let shared = lease.share();
                let error = shared.lost().await;
                // What follows a loss happens in the waker of the one who noticed it.
                drop((lease, shared));
                let again = take(&locks, &key, WAIT).await.unwrap();
                again.release().await.unwrap();
                tell.send(error).unwrap();
            });
        }
        let all = u64::try_from(LEASES).unwrap();
        wait::block_until("all hold", || locks.stats().granted == all);
        let _: () = server.ask("FLUSHALL");
        for key in &keys {
            memory.expire(&format!("lock:{key}"));
        }
        for _ in 0..LEASES {
            let error = received("the loss is told", &told);
            assert!(matches!(error, Error::Lost { .. }), "{error:?}");
        }
        renews(&locks);
    }
}

#[test]
fn a_client_is_shut_down() {
    let (_server, pairs) = pairs();
    for [locks, other] in pairs {
        let held = by_hand(take(&other, "sync:1", Duration::ZERO)).unwrap();
        let own = by_hand(take(&locks, "sync:2", Duration::ZERO)).unwrap();
        let (tell, told) = channel();
        for key in ["sync:1", "sync:1", "sync:2"] {
            let (locks, tell) = (locks.clone(), tell.clone());
            spawn(async move {
                let error = take(&locks, key, WAIT).await.unwrap_err();
                // It comes back at once.
                let again = take(&locks, key, WAIT).await.unwrap_err();
                tell.send((error, again)).unwrap();
            });
        }
        let down = locks.clone();
        let (ended, end) = channel();
        spawn(async move {
            down.shutdown().await;
            ended.send(()).unwrap();
        });
        for _ in 0..3 {
            let (first, again) = received("they are told of the end", &told);
            told_of_the_end::<()>(Err(first));
            told_of_the_end::<()>(Err(again));
        }
        received("the client is shut down", &end);
        drop((held, own));
    }
}

#[test]
fn wakers_that_come_back_when_they_are_dropped() {
    let (_server, pairs) = pairs();
    for [locks, other] in pairs {
        let (client, rival) = (locks.clone(), other.clone());
        within_bounds("every step is taken", move || {
            let kept = by_hand(take(&client, "kept", Duration::ZERO)).unwrap();
            let run = |key: &'static str| {
                let work = async {
                    let lease = take(&client, key, WAIT).await.unwrap();
                    lease.token().await.unwrap();
                    lease.extend(2 * TTL).await.unwrap();
                    lease.release().await
                };
                with_last_wakers(&client, &kept, work).unwrap();
            };
            run("sync:1");
            // What comes back looks at this very lease.
            let lost = async { polled(pin!(kept.lost()), 3).await };
            assert!(with_last_wakers(&client, &kept, lost).is_none());
            // The same while others hold the key: a rival, then this client itself.
            for holder in [&rival, &client] {
                let held = by_hand(take(holder, "sync:2", Duration::ZERO)).unwrap();
                let mut gives_back = Some(held);
                let waits = take(&client, "sync:2", WAIT);
                let mut polls = 0;
                let mut waits = pin!(waits);
                let work = std::future::poll_fn(|cx| {
                    polls += 1;
                    if polls == 20 {
                        drop(gives_back.take());
                    }
                    waits.as_mut().poll(cx)
                });
                let lease = with_last_wakers(&client, &kept, work).unwrap();
                with_last_wakers(&client, &kept, lease.release()).unwrap();
            }
        });
        renews(&locks);
        let client = locks.clone();
        within_bounds("it is shut down", move || {
            let kept = by_hand(take(&client, "kept", WAIT)).unwrap();
            with_last_wakers(&client, &kept, client.shutdown());
        });
    }
}

/// Whether it is replaced by another waker, by the owner's next wake-ups, or not at all.
#[test]
fn a_last_waker_in_memory() {
    struct Looks(Memory);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Looks {
        fn drop(&mut self) {
            assert_eq!(self.0.holder("lock:sync:1"), None);
        }
    }
    within_bounds("every waker is dropped", || {
        let memory = Memory::new();
        let locks = ["lock:a".to_owned()];
        let claim = Claim::new(&locks, "owner", Duration::from_secs(60));
        let mut wakeups = memory.wakeups(claim);
        for _ in 0..2 {
            let waker = Waker::from(Arc::new(Looks(memory.clone())));
            let polled = wakeups.poll_next(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        let mut next = memory.wakeups(claim);
        let waker = Waker::from(Arc::new(Looks(memory.clone())));
        let polled = next.poll_next(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(waker);
        drop(next);
    });
}
