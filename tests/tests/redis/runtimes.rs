//! Where connections are driven: on the runtimes that call, and what becomes of them there.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, Memory};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;
use tokio::runtime::Builder;

use crate::support::{BOUND, LOOK, SLACK, by_hand, client, nap, polled, runtimes};

const SECOND: Duration = Duration::from_secs(1);

async fn call(locks: &Client, key: &str) {
    let lease = locks.lock(key).acquire().await.unwrap();
    lease.release().await.unwrap();
}

#[test]
fn a_client_has_a_connection_on_each_runtime_that_calls_and_one_for_renewals() {
    let server = Server::start();
    let [first, second] = runtimes();
    let locks = first.block_on(client(&server));
    wait::block_until("two connections are left", || server.clients() == 2);
    for calls in 0..3 {
        first.block_on(call(&locks, &format!("a:{calls}")));
    }
    assert_eq!(server.clients(), 2);
    for _ in 0..3 {
        second.block_on(call(&locks, "b"));
    }
    assert_eq!(server.clients(), 3);
    // The connection of what is given back outside of every runtime.
    drop(first.block_on(locks.lock("c").acquire()).unwrap());
    wait::block_until("it is given back", || server.size() == 0);
    assert_eq!(server.clients(), 4);

    drop(second);
    wait::block_until("its connection goes with it", || server.clients() == 3);
    first.block_on(call(&locks, "d"));
    assert_eq!(server.clients(), 3);
    drop(first);
    wait::block_until("its connection goes with it", || server.clients() == 2);
    by_hand(call(&locks, "e"));
    drop(locks);
    wait::block_until("all are gone", || server.clients() == 0);
}

#[test]
fn of_thousands_of_calls_at_once_each_gets_its_own_reply() {
    const CALLS: usize = 5_000;
    let server = Server::start();
    for runtime in runtimes() {
        let locks = runtime.block_on(client(&server));
        runtime.block_on(async {
            // Some keys are held, so that answers differ from call to call.
            let mut held = Vec::new();
            for call in (0..CALLS).step_by(7) {
                held.push(locks.lock(format!("other:{call}")).acquire().await.unwrap());
            }
            let other = client(&server).await;
            let asking: Vec<_> = (0..CALLS)
                .map(|call| {
                    let (locks, other) = (locks.clone(), other.clone());
                    tokio::spawn(async move {
                        let lease = locks.lock(format!("own:{call}")).acquire().await.unwrap();
                        let taken = other.lock(format!("other:{call}")).acquire().await;
                        (lease, taken)
                    })
                })
                .collect();
            for (call, asked) in asking.into_iter().enumerate() {
                let (lease, taken) = asked.await.unwrap();
                let owner = server.get(&format!("lock:own:{call}"));
                assert_eq!(owner.as_deref(), Some(lease.owner()));
                lease.release().await.unwrap();
                if call % 7 == 0 {
                    assert!(matches!(taken, Err(Error::Busy { .. })), "{taken:?}");
                } else {
                    taken.unwrap().release().await.unwrap();
                }
            }
            drop(held);
        });
        wait::block_until("all is given back", || server.size() == 0);
    }
}

#[test]
fn a_runtime_that_ends_in_the_middle_of_a_request_leaves_no_key() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::builder().connect_lazily(proxy.url()).unwrap();
    for way in [Way::Requests, Way::Replies] {
        for runtime in runtimes() {
            runtime.block_on(call(&locks, "warm"));
            proxy.treat(way, Treatment::Delay(Duration::from_millis(60)));
            for key in 0..20 {
                let locks = locks.clone();
                runtime.spawn(async move {
                    let _lease = locks.lock(format!("k:{key}")).acquire().await.unwrap();
                    std::future::pending::<()>().await;
                });
            }
            runtime.block_on(nap(30));
            let start = Instant::now();
            drop(runtime);
            assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
            proxy.heal();
            // Granted late or not at all: nothing is left, and nothing comes later.
            thread::sleep(Duration::from_millis(150));
            wait::block_until("all are given back", || server.size() == 0);
            thread::sleep(Duration::from_millis(300));
            assert_eq!(server.keys(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_runtime_without_io_is_passed_by() {
    let server = Server::start();
    let locks = Client::builder().connect_lazily(server.url()).unwrap();
    let bare = Builder::new_current_thread().build().unwrap();
    for _ in 0..3 {
        bare.block_on(call(&locks, "a"));
    }
    assert_eq!(server.size(), 0);
}

#[test]
fn a_runtime_that_is_not_run_is_passed_by() {
    let server = Server::start();
    let locks = Client::builder().connect_lazily(server.url()).unwrap();
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let bound = BOUND + SLACK;
    let timed = |what: &str| {
        let _entered = idle.enter();
        let start = Instant::now();
        by_hand(call(&locks, what));
        assert!(start.elapsed() < bound, "{what}: {:?}", start.elapsed());
        start.elapsed()
    };
    timed("before it ever ran");
    // It begins to connect, and may be stopped in the middle of that.
    idle.block_on(call(&locks, "while it runs"));
    timed("with a connection that is never made");
    idle.block_on(call(&locks, "while it runs"));
    idle.block_on(nap(100));
    timed("with a connection that nobody drives");
    let later = timed("known by now");
    assert!(later < SECOND, "{later:?}");
    // What is dropped there goes back all the same.
    idle.block_on(call(&locks, "while it runs"));
    let lease = idle.block_on(locks.lock("b").acquire()).unwrap();
    let entered = idle.enter();
    drop(lease);
    drop(entered);
    wait::block_until("it is given back", || server.size() == 0);
    assert_eq!(locks.stats().lost, 0);
    idle.block_on(call(&locks, "it runs again"));
}

#[test]
fn a_release_on_a_blocked_runtime_arrives_before_the_lease_ends() {
    let server = Arc::new(Server::start());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let free = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let locks = client(&server).await;
        let lease = locks.lock("a").ttl(SECOND).acquire().await.unwrap();
        let mut release = Box::pin(lease.release());
        assert!(polled(release.as_mut(), 1).await.is_none());
        let watching = {
            let (server, free) = (Arc::clone(&server), Arc::clone(&free));
            let start = Instant::now();
            thread::spawn(move || {
                wait::block_until("the key is free", || server.size() == 0);
                free.store(true, Ordering::SeqCst);
                start.elapsed()
            })
        };
        thread::sleep(3 * SECOND);
        assert!(free.load(Ordering::SeqCst));
        watching.join().unwrap();
        release.await.unwrap();
        assert_eq!((locks.stats().lost, locks.stats().released), (0, 1));
        call(&locks, "a").await;
    });
}

#[test]
fn a_blocked_runtime_does_not_take_its_late_replies_for_lost() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = client(&server).await;
        // Once what it was connected by to see whether it may subscribe is closed.
        wait::until("two connections are left", || server.clients() == 2).await;
        for _ in 0..3 {
            let mut acquire = Box::pin(locks.lock("a").acquire());
            assert!(polled(acquire.as_mut(), 1).await.is_none());
            // The reply comes in the meantime, and is not read before the end of it.
            tokio::task::yield_now().await;
            thread::sleep(3 * SECOND / 2);
            let lease = acquire.await.unwrap();
            lease.release().await.unwrap();
        }
        assert_eq!(server.clients(), 2);
        assert_eq!(locks.stats().release_failed, 0);
    });
}

/// Waits for a key that another client holds; the answer is when it was had.
async fn waits(locks: Client, key: &'static str) -> Instant {
    let lease = locks.lock(key).wait(60 * SECOND).acquire().await.unwrap();
    let had = Instant::now();
    lease.release().await.unwrap();
    had
}

/// One subscription serves both: a wake-up for the second runtime must not be left to the first.
#[test]
fn a_blocked_runtime_does_not_keep_wake_ups_from_the_callers_of_another() {
    let server = Server::start();
    let [first, second] = runtimes();
    let locks = second.block_on(client(&server));
    let holder = second.block_on(client(&server));
    let held = |key| second.block_on(holder.lock(key).acquire()).unwrap();
    let (kept, given) = (held("a"), held("b"));
    let queued = |key: &str| server.waiters(&format!("lock:{key}")) == 1;
    let free = Arc::new(AtomicBool::new(false));
    let blocked = {
        let (locks, free) = (locks.clone(), Arc::clone(&free));
        thread::spawn(move || {
            first.spawn(waits(locks, "a"));
            first.block_on(wait::until("it is subscribed", || {
                free.load(Ordering::SeqCst)
            }));
            // Its callers are not polled any more, nor what it drives.
            while free.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
        })
    };
    wait::block_until("the first is queued", || queued("a"));
    wait::block_until("it is subscribed", || server.subscribers() == 1);
    free.store(true, Ordering::SeqCst);
    thread::sleep(Duration::from_millis(100));
    let call = second.spawn(waits(locks.clone(), "b"));
    wait::block_until("the second is queued", || queued("b"));
    thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    second.block_on(given.release()).unwrap();
    let took = second.block_on(call).unwrap() - start;
    assert!(took < LOOK / 3, "{took:?}");
    free.store(false, Ordering::SeqCst);
    blocked.join().unwrap();
    second.block_on(kept.release()).unwrap();
    wait::block_until("nothing is left", || server.size() == 0);
}

#[test]
fn a_runtime_that_is_subscribed_and_ends_takes_no_wake_ups_of_others_with_it() {
    let server = Server::start();
    let [ending, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let holder = lasting.block_on(client(&server));
    let lease = lasting.block_on(holder.lock("a").acquire()).unwrap();
    let waiters = || server.waiters("lock:a");
    let gone = ending.spawn(waits(locks.clone(), "a"));
    ending.block_on(wait::until("it is queued", || waiters() == 1));
    drop(ending);
    let call = lasting.spawn(waits(locks.clone(), "a"));
    wait::block_until("it is subscribed again", || {
        server.subscribers() == 1 && waiters() == 1
    });
    thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    lasting.block_on(lease.release()).unwrap();
    let took = lasting.block_on(call).unwrap() - start;
    assert!(took < LOOK / 3, "{took:?}");
    assert!(lasting.block_on(gone).unwrap_err().is_cancelled());
    wait::block_until("nothing is left", || server.size() == 0);
}

/// A task that nobody but its waker knows, as of an executor of one's own: it ends with it.
struct Forgotten {
    _holds: Mutex<Boxed>,
}

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Wake for Forgotten {
    fn wake(self: Arc<Self>) {}
}

/// A future that goes from one task to another takes the last that was known of the first with it.
#[test]
fn a_call_that_goes_to_another_task_ends_the_first_one() {
    fn poll(future: Pin<&mut (impl Future + ?Sized)>, waker: &Waker) -> bool {
        future.poll(&mut Context::from_waker(waker)).is_ready()
    }
    async fn by_turns(locks: Client, held: Lease) {
        let wait = |key: &str| locks.lock(key).wait(10 * SECOND).acquire();
        let mut calls: Vec<Boxed> = Vec::new();
        // One is asked, one waits for another client, one for the end of a lease.
        for key in ["free", "held"] {
            let call = wait(key);
            calls.push(Box::pin(async move { drop(call.await) }));
        }
        let lease = held.share();
        calls.push(Box::pin(async move { drop(lease.lost().await) }));
        for turn in 0..60 {
            let mut other: Boxed = {
                let call = wait("held too");
                let lease = held.share();
                Box::pin(async move {
                    let call = pin!(call);
                    let lost = pin!(lease.lost());
                    tokio::select! { _ = call => {} _ = lost => {} }
                })
            };
            let _ = poll(other.as_mut(), Waker::noop());
            let first = Waker::from(Arc::new(Forgotten {
                _holds: Mutex::new(other),
            }));
            let chosen = turn % calls.len();
            let mut over = poll(calls[chosen].as_mut(), &first);
            drop(first);
            over = over || poll(calls[chosen].as_mut(), Waker::noop());
            if over {
                drop(calls.swap_remove(chosen));
            }
            nap(u64::from(turn % 5 == 0)).await;
        }
    }
    let server = Server::start();
    let url = server.url();
    let (over, end) = mpsc::channel();
    // On a thread of its own: where it waits for itself, the test does not.
    thread::spawn(move || {
        let memory = Memory::new();
        let [runtime, _] = runtimes();
        for in_memory in [false, true] {
            let connect = async || {
                if in_memory {
                    return Client::builder().store(memory.clone()).unwrap();
                }
                Client::connect(&url).await.unwrap()
            };
            runtime.block_on(async {
                let (locks, other) = (connect().await, connect().await);
                let _theirs = other.lock("held").acquire().await.unwrap();
                let _others = other.lock("held too").acquire().await.unwrap();
                let held = locks.lock("mine").acquire().await.unwrap();
                by_turns(locks, held).await;
            });
        }
        over.send(()).unwrap();
    });
    end.recv_timeout(10 * SECOND).expect("it comes to an end");
}

/// A request that is handed to the connection, and whose caller goes away before it is written.
#[test]
fn a_call_that_was_dropped_as_its_runtime_is_blocked_leaves_nothing() {
    let server = Server::start();
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let locks = Client::builder()
            .reply_timeout(SECOND * 3 / 10)
            .connect(server.url())
            .await
            .unwrap();
        call(&locks, "a").await;
        let dropping = tokio::spawn(async move {
            let mut asked = Box::pin(locks.lock("a").acquire());
            // Whoever sends it gets a turn in between, and whoever writes it does not.
            let mut turns = 0;
            poll_fn(|cx| {
                turns += 1;
                if turns > 1 {
                    return Poll::Ready(());
                }
                assert!(asked.as_mut().poll(cx).is_pending());
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            drop(asked);
            thread::sleep(SECOND);
            locks
        });
        let _locks = dropping.await.unwrap();
        nap(100).await;
        wait::within("it is given back", 3 * SECOND, || server.size() == 0).await;
    });
}

/// The connections end with their runtime, the subscribed one among them, whatever is in flight.
#[test]
fn a_caller_goes_on_while_runtimes_end_around_it() {
    let server = Server::start();
    let [_, home] = runtimes();
    let locks = home.block_on(client(&server));
    let other = home.block_on(client(&server));
    for round in 0..12 {
        let held = home.block_on(other.lock("held").wait(BOUND).acquire());
        let held = held.unwrap();
        let [current, multi] = runtimes();
        let ending = if round % 2 == 0 { current } else { multi };
        ending.block_on(async {
            for number in 0..200 {
                let key = match number % 4 {
                    0 => "held".to_owned(),
                    _ => format!("free:{}", number % 23),
                };
                let call = locks.lock(key).wait(10 * SECOND).acquire();
                tokio::spawn(async move {
                    let lease = call.await?;
                    nap(number % 3).await;
                    lease.release().await
                });
            }
            nap(round).await;
        });
        let waiting = home.spawn(locks.lock("held").wait(10 * SECOND).acquire());
        thread::sleep(Duration::from_millis(round % 7));
        if round % 3 == 0 {
            drop(held);
            ending.shutdown_background();
        } else {
            ending.shutdown_background();
            drop(held);
        }
        let begun = Instant::now();
        drop(home.block_on(waiting).unwrap().unwrap());
        let waited = begun.elapsed();
        assert!(waited < LOOK + SLACK, "{waited:?} in round {round}");
        wait::block_until("all is given back", || server.size() == 0);
    }
}
