//! Calls that are dropped while their request is on its way, on a runtime that then does not run: the
//! request may be written late or never, and nothing is left of it.

use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, LockRequest};
use tests::proxy::{Proxy, Treatment, Way};
use tests::seed::Random;
use tests::server::Server;
use tests::wait;
use tokio::runtime::{Builder, Runtime};

use crate::support::{CLEARED, client, nap, nothing_left, polled, runtimes};

const SECOND: Duration = Duration::from_secs(1);
/// Nothing in here waits for that.
const TTL: Duration = Duration::from_secs(60);

fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

type Make = fn(&Client, u32) -> LockRequest;

/// The kinds of request, by name. Each number has locks of its own.
fn requests() -> [(&'static str, Make); 4] {
    [
        ("one lock", |locks, id| {
            locks.lock(format!("one:{id}")).ttl(TTL)
        }),
        ("slots", |locks, id| {
            locks.lock(format!("slots:{id}")).permits(3).ttl(TTL)
        }),
        ("several locks", |locks, id| {
            let keys = [format!("a:{id}"), format!("b:{id}")];
            locks.lock_all(keys).ttl(TTL)
        }),
        ("a waiter", |locks, id| {
            locks.lock(format!("w:{id}")).ttl(TTL).wait(20 * SECOND)
        }),
    ]
}

/// What comes after the call was dropped.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Its runtime is blocked in the same turn, and goes on.
    Blocked,
    /// Its runtime is not run, and runs again later.
    NotRun,
    /// Its runtime is dropped.
    RuntimeDropped,
    /// Its runtime is blocked, and dropped then.
    BlockedAndDropped,
}

/// Drops a call after so many polls. Its runtime has a connection, if `known`, or makes its first.
fn drop_in_flight(locks: &Client, request: LockRequest, polls: usize, known: bool, then: Then) {
    let runtime = current_thread();
    if known {
        runtime.block_on(has_a_connection(locks));
    }
    runtime.block_on(async {
        let mut call = Box::pin(request.acquire());
        let answered = polled(call.as_mut(), polls).await;
        drop(call);
        // Where it has been answered, that is given back like any other lease.
        drop(answered);
        if matches!(then, Then::Blocked | Then::BlockedAndDropped) {
            thread::sleep(SECOND);
        }
    });
    match then {
        Then::Blocked => {}
        Then::NotRun => thread::sleep(SECOND),
        Then::RuntimeDropped | Then::BlockedAndDropped => {
            drop(runtime);
            return;
        }
    }
    runtime.block_on(nap(300));
}

async fn has_a_connection(locks: &Client) {
    // Two may come by at the same time.
    let request = locks.lock("before").wait(20 * SECOND);
    let lease = request.acquire().await.unwrap();
    lease.release().await.unwrap();
}

fn is_clear_soon(then: Then) {
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let mut number = 0;
    thread::scope(|scope| {
        for (what, make) in requests() {
            for (polls, known) in [(1, true), (2, true), (1, false), (2, false), (4, false)] {
                let (locks, request) = (&locks, make(&locks, number));
                println!("{number}: {what}, {polls} polls, connected before: {known}");
                number += 1;
                scope.spawn(move || drop_in_flight(locks, request, polls, known, then));
            }
        }
    });
    lasting.block_on(nothing_left(&server));
    // Nothing comes later either.
    thread::sleep(SECOND / 2);
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn a_call_dropped_on_a_runtime_that_is_blocked_then_leaves_nothing() {
    is_clear_soon(Then::Blocked);
}

#[test]
fn a_call_dropped_on_a_runtime_that_is_not_run_for_a_while_leaves_nothing() {
    is_clear_soon(Then::NotRun);
}

#[test]
fn a_call_dropped_on_a_runtime_that_is_dropped_leaves_nothing() {
    is_clear_soon(Then::RuntimeDropped);
}

#[test]
fn a_call_dropped_on_a_runtime_that_is_blocked_and_dropped_leaves_nothing() {
    is_clear_soon(Then::BlockedAndDropped);
}

/// A runtime that does not run for longer than anybody waits for an answer: what it writes when it
/// runs again is as late as a request can be.
#[test]
fn a_request_that_is_written_seconds_after_its_call_was_dropped_leaves_nothing() {
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    thread::scope(|scope| {
        for (_, make) in requests() {
            let locks = &locks;
            scope.spawn(move || {
                let runtime = current_thread();
                runtime.block_on(has_a_connection(locks));
                let mut call = Box::pin(make(locks, 0).acquire());
                let answered = runtime.block_on(polled(call.as_mut(), 1));
                assert!(answered.is_none());
                drop(call);
                thread::sleep(4 * SECOND);
                runtime.block_on(nap(200));
            });
        }
    });
    lasting.block_on(nothing_left(&server));
}

/// What has left the machine is on its way for a while, on a connection that is not the one on which
/// the locks are given back, or that has ended since.
fn is_clear_after_a_long_way(then: Then) {
    const LATE: Duration = Duration::from_secs(2);
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(Client::connect(proxy.url())).unwrap();
    let waiting: Vec<_> = (0..)
        .zip(requests())
        .map(|(number, (_, make))| {
            let runtime = current_thread();
            runtime.block_on(has_a_connection(&locks));
            (runtime, Box::pin(make(&locks, number).acquire()))
        })
        .collect();
    proxy.treat(Way::Requests, Treatment::Delay(LATE));
    let sent = Instant::now();
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|(runtime, mut call)| {
            // Long enough for it to be written.
            let answered =
                runtime.block_on(async { tokio::time::timeout(SECOND / 10, call.as_mut()).await });
            assert!(answered.is_err(), "it is on its way");
            (runtime, call)
        })
        .collect();
    proxy.heal();
    let mut kept = Vec::new();
    for (runtime, call) in waiting {
        if matches!(then, Then::RuntimeDropped) {
            drop(runtime);
        } else {
            kept.push(runtime);
        }
        drop(call);
    }
    assert!(sent.elapsed() < LATE, "too slow to show anything");
    thread::sleep((LATE + SECOND / 2).saturating_sub(sent.elapsed()));
    lasting.block_on(nothing_left(&server));
}

#[test]
fn a_request_that_arrives_late_from_a_runtime_that_is_not_run_leaves_nothing() {
    is_clear_after_a_long_way(Then::NotRun);
}

#[test]
fn a_request_that_arrives_late_from_a_runtime_that_was_dropped_leaves_nothing() {
    is_clear_after_a_long_way(Then::RuntimeDropped);
}

/// A caller of another runtime has the lock as soon as that is so.
#[test]
fn the_next_caller_has_the_lock_of_a_call_that_was_dropped_on_a_blocked_runtime() {
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let runtime = current_thread();
    runtime.block_on(has_a_connection(&locks));
    for polls in 1..4 {
        let blocked_until = runtime.block_on(async {
            let mut call = Box::pin(locks.lock("sync:42").ttl(TTL).acquire());
            drop(polled(call.as_mut(), polls).await);
            drop(call);
            thread::sleep(SECOND);
            Instant::now()
        });
        runtime.block_on(nap(200));
        let next = locks.lock("sync:42").ttl(TTL).wait(20 * SECOND);
        let lease = lasting.block_on(next.acquire()).unwrap();
        let took = blocked_until.elapsed();
        assert!(took < CLEARED, "{polls} polls: {took:?}");
        lasting.block_on(lease.release()).unwrap();
    }
    wait::block_until("nothing is left", || server.size() == 0);
}

/// Dropped on another thread at the moment at which its runtime runs again, and writes what it has.
#[test]
fn a_call_dropped_while_its_runtime_begins_to_run_again_leaves_nothing() {
    let mut random = Random::announced("a drop and a runtime");
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let runtime = current_thread();
    for (number, (what, make)) in (0..40).zip(requests().into_iter().cycle()) {
        runtime.block_on(has_a_connection(&locks));
        let mut call = Box::pin(make(&locks, number).acquire());
        let answered = runtime.block_on(polled(call.as_mut(), 1));
        assert!(answered.is_none());
        let moment = Duration::from_micros(random.below(400));
        println!("{number}: {what}, {moment:?}");
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(moment);
                drop(call);
            });
            runtime.block_on(nap(20));
        });
        lasting.block_on(nothing_left(&server));
    }
}
