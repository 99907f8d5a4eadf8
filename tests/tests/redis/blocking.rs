//! Functions that take their lock on a thread that waits: which threads may, and what becomes of a lease under
//! a body that cannot be stopped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause, distributed_lock};
use tests::server::Server;
use tests::wait;
use tokio::runtime::{Builder, Runtime};
use tokio::task::coop::unconstrained;
use tokio::task::{LocalSet, block_in_place, spawn_blocking, yield_now};

use crate::support::{BOUND, SLACK, is_done};

const SECOND: Duration = Duration::from_secs(1);

const LONG: Duration = Duration::from_secs(20);

/// Runs something under `job:ID`.
#[distributed_lock(key = "job:<id>", client = locks, blocking)]
fn job<T>(locks: &Client, id: u32, run: impl FnOnce() -> T) -> Result<T, Error> {
    Ok(run())
}

#[distributed_lock(key = "job:<id>", wait = "20s", ttl = "2s", client = locks, blocking)]
fn waiting_job<T>(locks: &Client, id: u32, run: impl FnOnce() -> T) -> Result<T, Error> {
    Ok(run())
}

#[distributed_lock(key = "job:<id>", client = locks)]
async fn async_job<F: Future<Output: Send>>(
    locks: &Client,
    id: u32,
    run: F,
) -> Result<F::Output, Error> {
    Ok(run.await)
}

fn pair() -> (Server, Client) {
    let server = Server::start();
    let client = Client::connect_blocking(server.url()).unwrap();
    (server, client)
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn many_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Everything that waits is refused, and waits for nothing.
async fn is_refused(locks: Client) {
    let refused = |error: Error| {
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("spawn_blocking"), "{told}");
        assert!(told.contains("`job:1`"), "{told}");
    };
    refused(job(&locks, 1, || ()).unwrap_err());
    refused(locally(&locks).unwrap_err());
    refused(locks.lock("job:1").acquire_blocking().unwrap_err());
    let lease = locks.lock("job:1").acquire().await.unwrap();
    refused(lease.token_blocking().unwrap_err());
    refused(lease.extend_blocking(SECOND).unwrap_err());
    refused(lease.release_blocking().unwrap_err());
    let error = Client::connect_blocking("memory:").unwrap_err();
    assert!(error.to_string().contains("spawn_blocking"), "{error}");
    // The runtime goes on, and so does this task.
    tokio::time::sleep(Duration::from_millis(1)).await;
    yield_now().await;
    // It is given back in the background.
    let again = locks.lock("job:1").wait(LONG).acquire().await.unwrap();
    again.release().await.unwrap();
}

#[test]
fn what_a_runtime_polls_may_not_wait_there() {
    let (_server, locks) = pair();
    let locks = &locks;
    for runtime in [one_thread(), many_threads()] {
        runtime.block_on(is_refused(locks.clone()));
        let task = runtime.spawn(is_refused(locks.clone()));
        runtime.block_on(task).unwrap();
        let task = runtime.spawn(unconstrained(is_refused(locks.clone())));
        runtime.block_on(task).unwrap();
        LocalSet::new().block_on(&runtime, async {
            is_refused(locks.clone()).await;
            tokio::task::spawn_local(is_refused(locks.clone()))
                .await
                .unwrap();
        });
    }
}

/// A thread of its own, and what may wait of a runtime's.
#[test]
fn threads_that_may_wait_do() {
    let (server, locks) = pair();
    let both = |locks: &Client| {
        job(locks, 1, || ()).unwrap();
        let lease = locks.lock("job:1").acquire_blocking().unwrap();
        let token = lease.token_blocking().unwrap();
        lease.extend_blocking(LONG).unwrap();
        lease.release_blocking().unwrap();
        token
    };
    let mut tokens = vec![both(&locks)];
    for runtime in [one_thread(), many_threads()] {
        let its = locks.clone();
        let task = async move { spawn_blocking(move || both(&its)).await.unwrap() };
        tokens.push(runtime.block_on(task));
        // Nobody runs this runtime.
        let _context = runtime.enter();
        tokens.push(both(&locks));
    }
    let runtime = many_threads();
    tokens.push(runtime.block_on(async { block_in_place(|| both(&locks)) }));
    let its = locks.clone();
    let task = runtime.spawn(async move { block_in_place(|| both(&its)) });
    tokens.push(runtime.block_on(task).unwrap());
    // What such a thread runs in turn is polled again.
    let its = locks.clone();
    let nested = runtime.spawn_blocking(move || {
        tokio::runtime::Handle::current().block_on(is_refused(its));
    });
    runtime.block_on(nested).unwrap();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(server.get("lock:job:1"), None);
}

#[test]
fn threads_exclude_each_other_and_are_woken() {
    let server = Server::start();
    let start = Instant::now();
    tests::threads::exclude_each_other(&server.url());
    assert!(start.elapsed() < SECOND + SLACK, "{:?}", start.elapsed());
    assert_eq!(server.get("lock:threads"), None);
}

#[test]
fn a_body_keeps_its_lease_for_as_long_as_it_runs() {
    #[distributed_lock(key = "long", ttl = "300ms", client = locks, bind = lease, blocking)]
    fn long(locks: &Client) -> Result<Duration, Error> {
        thread::sleep(SECOND);
        lease.check()?;
        Ok(lease.remaining())
    }
    let (_server, locks) = pair();
    assert!(!long(&locks).unwrap().is_zero());
    assert_eq!(locks.stats().lost, 0);
}

/// Takes the key from under a body, and waits until its client knows.
fn lose(server: &Server, lease: &lockattr::Lease) {
    let _: u64 = server.ask("DEL lock:lost");
    wait::block_until("the loss is known", || lease.check().is_err());
}

#[test]
fn a_loss_is_answered_after_the_body() {
    type Answer = Result<u8, String>;
    #[distributed_lock(key = "lost", ttl = "600ms", client = locks, bind = lease, blocking)]
    fn cancelled(server: &Server, locks: &Client, answer: Answer) -> anyhow::Result<u8> {
        lose(server, lease);
        answer.map_err(anyhow::Error::msg)
    }
    #[distributed_lock(key = "lost", ttl = "600ms", client = locks, bind = lease, on_lost = continue, blocking)]
    fn continued(server: &Server, locks: &Client) -> Result<u8, Error> {
        lose(server, lease);
        Ok(1)
    }
    #[distributed_lock(key = "lost", ttl = "600ms", client = locks, bind = lease, on_lost = return Ok(2), blocking)]
    fn returned(server: &Server, locks: &Client) -> Result<u8, Error> {
        lose(server, lease);
        Ok(1)
    }
    #[distributed_lock(key = "lost", ttl = "600ms", client = locks, bind = lease, once = "1h", on_done = error, blocking)]
    fn once(server: &Server, locks: &Client) -> Result<u8, Error> {
        lose(server, lease);
        lease.check()?;
        Ok(1)
    }
    let (server, locks) = pair();
    let lost = cancelled(&server, &locks, Ok(1)).unwrap_err();
    let lost = lost.downcast_ref::<Error>().unwrap();
    assert!(
        matches!(
            lost,
            Error::Lost {
                cause: LossCause::Deleted,
                ..
            }
        ),
        "{lost}"
    );
    let own = cancelled(&server, &locks, Err("mine".to_owned())).unwrap_err();
    assert_eq!(own.to_string(), "mine");
    assert_eq!(continued(&server, &locks).unwrap(), 1);
    assert_eq!(returned(&server, &locks).unwrap(), 2);
    for _ in 0..2 {
        let lost = once(&server, &locks).unwrap_err();
        assert!(matches!(lost, Error::Lost { .. }), "{lost}");
    }
    assert_eq!(locks.stats().lost, 6);
}

#[test]
fn a_maximum_hold_ends_the_lease_and_not_the_body() {
    #[distributed_lock(key = "held", max_hold = "200ms", client = locks, bind = lease, blocking)]
    fn held(locks: &Client, went_on: &AtomicUsize) -> Result<(), Error> {
        wait::block_until("its time is over", || lease.check().is_err());
        went_on.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    #[distributed_lock(key = "job:<id>", max_hold = "200ms", client = locks, bind = lease, blocking)]
    fn inside(locks: &Client, id: u32) -> Result<(), Error> {
        wait::block_until("its time is over", || lease.check().is_err());
        Ok(())
    }
    let (server, locks) = pair();
    let went_on = AtomicUsize::new(0);
    let too_long = |answer: Result<(), Error>| match answer {
        Err(Error::Lost {
            cause: LossCause::HeldTooLong,
            held,
            ..
        }) => {
            assert!(held >= Duration::from_millis(200), "{held:?}");
        }
        other => panic!("{other:?}"),
    };
    too_long(held(&locks, &went_on));
    assert_eq!(went_on.load(Ordering::SeqCst), 1);
    wait::block_until("it is given back", || server.get("lock:held").is_none());
    // One that has joined is past its own time, and the lease around it goes on.
    too_long(job(&locks, 1, || inside(&locks, 1)).unwrap());
    assert_eq!(locks.stats().lost, 2);
}

#[test]
fn calls_inside_join_on_the_same_thread() {
    let (server, locks) = pair();
    let commands = server.commands();
    let nested = job(&locks, 1, || {
        job(&locks, 1, || waiting_job(&locks, 1, || 7))
    });
    assert_eq!(nested.unwrap().unwrap().unwrap(), 7);
    assert_eq!(server.commands().since(&commands).of("set"), 1);
    let runtime = many_threads();
    // What a body has a runtime run, on its own thread.
    let inside = || runtime.block_on(async_job(&locks, 1, async { 7 }));
    assert_eq!(job(&locks, 1, inside).unwrap().unwrap(), 7);
    // What waits within an async body, on the body's thread.
    let inside = async { block_in_place(|| job(&locks, 1, || 7)) };
    let outer = runtime.block_on(async_job(&locks, 1, inside));
    assert_eq!(outer.unwrap().unwrap(), 7);
    // On another thread it is another call, which finds the key busy.
    let its = locks.clone();
    let inside = async { spawn_blocking(move || job(&its, 1, || ())).await.unwrap() };
    let outer = runtime.block_on(async_job(&locks, 1, inside)).unwrap();
    assert!(matches!(outer, Err(Error::Busy { .. })), "{outer:?}");
    let outer = job(&locks, 1, || {
        thread::scope(|scope| scope.spawn(|| job(&locks, 1, || ())).join().unwrap())
    });
    let inner = outer.unwrap();
    assert!(matches!(inner, Err(Error::Busy { .. })), "{inner:?}");
}

#[test]
fn marks_and_minimum_holds_are_left() {
    #[distributed_lock(key = "once:<id>", once = "1h", client = locks, blocking)]
    fn once(locks: &Client, id: u32, answer: Result<u8, Error>) -> Result<Option<u8>, Error> {
        answer.map(Some)
    }
    #[distributed_lock(key = "tick", min_hold = "1h", on_busy = skip, client = locks, blocking)]
    fn tick(locks: &Client) -> Option<()> {
        Some(())
    }
    let (server, locks) = pair();
    once(&locks, 1, Err(Error::NotInstalled)).unwrap_err();
    assert_eq!(once(&locks, 1, Ok(1)).unwrap(), Some(1));
    assert!(is_done(&server, "lock:once:1"));
    assert_eq!(once(&locks, 1, Ok(1)).unwrap(), None);
    assert_eq!(tick(&locks), Some(()));
    assert_eq!(tick(&locks), None);
}

#[distributed_lock(key = "job:1", on_unavailable = local, client = locks, blocking)]
fn locally(locks: &Client) -> Result<bool, Error> {
    Ok(job(locks, 1, || ()).is_ok())
}

#[test]
fn an_outage_is_answered_within_its_bound() {
    let (server, locks) = pair();
    server.freeze();
    let start = Instant::now();
    let error = job(&locks, 1, || ()).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
    // What is inside joins the lock of this process.
    assert!(locally(&locks).unwrap());
    server.thaw();
}

#[test]
fn a_shutdown_waits_for_a_body_and_not_for_longer_than_its_lease() {
    #[distributed_lock(key = "ended:<id>", ttl = "1s", client = locks, bind = lease, blocking)]
    fn until_lost(locks: &Client, id: u32, runs: &Barrier, rest: Duration) -> Result<(), Error> {
        runs.wait();
        wait::block_until("it is shut down", || lease.check().is_err());
        thread::sleep(rest);
        Ok(())
    }
    for (rest, longest) in [(Duration::ZERO, SECOND), (3 * SECOND, SECOND)] {
        let (_server, locks) = pair();
        let (its, runs) = (locks.clone(), Arc::new(Barrier::new(2)));
        let begun = Arc::clone(&runs);
        let body = thread::spawn(move || until_lost(&its, 1, &begun, rest));
        runs.wait();
        let start = Instant::now();
        locks.shutdown_blocking();
        assert!(start.elapsed() < longest + SLACK, "{:?}", start.elapsed());
        let ended = body.join().unwrap();
        assert!(
            matches!(
                ended,
                Err(Error::Lost {
                    cause: LossCause::Shutdown,
                    ..
                })
            ),
            "{ended:?}"
        );
        let late = job(&locks, 1, || ()).unwrap_err();
        assert!(matches!(late, Error::Unavailable { .. }), "{late}");
    }
}

/// A waker that comes late, or for the one who waited before, is no wake-up that is missed.
#[test]
fn a_thread_that_is_unparked_by_others_waits_on() {
    let (_server, locks) = pair();
    let held = locks.lock("job:1").acquire_blocking().unwrap();
    let its = locks.clone();
    let waiter = Arc::new(thread::spawn(move || {
        waiting_job(&its, 1, || thread::park_timeout(LONG))
    }));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        waiter.thread().unpark();
        thread::sleep(Duration::from_millis(1));
    }
    held.release_blocking().unwrap();
    wait::block_until("its body waits", || {
        locks.lock("job:1").acquire_blocking().is_err()
    });
    waiter.thread().unpark();
    let Ok(waiter) = Arc::try_unwrap(waiter) else {
        unreachable!("nobody else has it")
    };
    waiter.join().unwrap().unwrap();
    assert!(start.elapsed() < LONG);
}
