//! The wait queue within one client: callers of one key in one process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::checker::turns::turns;
use tests::checker::{Rules, check};
use tests::proxy::Proxy;
use tests::record::Record;
use tests::seed::Random;
use tests::server::Server;
use tests::turn::{Scribe, TurnOptions};
use tests::wait;

use crate::support::{Call, SLACK, client, nap, pair, polled, queued_call, told_of_the_end};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);

/// How often a lease goes from one caller to the next before the store is asked again.
const IN_A_ROW: usize = 4;

/// Commands of one grant, however many callers it serves: one to take the key, one to give it back.
const A_GRANT: usize = 2;

#[tokio::test]
async fn callers_are_granted_the_lock_in_the_order_of_their_arrival() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for number in 0..30 {
        let (call, order) = (queued_call(&locks, PATIENT).await, Arc::clone(&order));
        calls.push(tokio::spawn(async move {
            let lease = call.await.unwrap();
            order.lock().unwrap().push(number);
            nap(1).await;
            lease.release().await.unwrap();
        }));
    }
    lease.release().await.unwrap();
    for call in calls {
        call.await.unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..30), "{order:?}");
    assert_eq!(server.size(), 0);
}

/// The commands of so many callers, of whom the first holds the key while the others come.
async fn cost_of(callers: usize) -> usize {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    let first = locks.lock("sync:42").acquire().await.unwrap();
    let mut calls = Vec::new();
    for _ in 1..callers {
        calls.push(queued_call(&locks, PATIENT).await);
    }
    first.release().await.unwrap();
    for call in calls {
        call.await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.size(), 0);
    monitor.seen().iter().filter(|seen| seen.is_step()).count()
}

#[tokio::test]
async fn a_lease_goes_from_caller_to_caller_without_a_command_a_bounded_number_of_times() {
    assert_eq!(cost_of(1).await, A_GRANT);
    assert_eq!(cost_of(2).await, A_GRANT);
    assert_eq!(cost_of(1 + IN_A_ROW).await, A_GRANT);
    assert_eq!(cost_of(2 + IN_A_ROW).await, 2 * A_GRANT);
    assert_eq!(cost_of(10 * (1 + IN_A_ROW)).await, 10 * A_GRANT);
}

/// Leases that are dropped are handed on as well.
#[tokio::test]
async fn a_dropped_lease_goes_to_the_next_caller_without_a_command() {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    let first = locks.lock("sync:42").acquire().await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..IN_A_ROW {
        calls.push(queued_call(&locks, PATIENT).await);
    }
    drop(first);
    for call in calls {
        drop(call.await.unwrap());
    }
    wait::until("it is given back", || server.size() == 0).await;
    let steps = monitor.seen().iter().filter(|seen| seen.is_step()).count();
    assert_eq!(steps, A_GRANT);
}

#[tokio::test]
async fn each_holder_of_a_lease_that_was_handed_on_has_a_larger_token() {
    let (server, locks) = pair().await;
    let first = locks.lock("sync:42").acquire().await.unwrap();
    let mut tokens = vec![first.token().await.unwrap()];
    let mut owners = vec![first.owner().to_owned()];
    let mut calls = Vec::new();
    for _ in 0..2 * IN_A_ROW {
        calls.push(queued_call(&locks, PATIENT).await);
    }
    first.release().await.unwrap();
    for (number, call) in calls.into_iter().enumerate() {
        let lease = call.await.unwrap();
        assert_eq!(server.owner("lock:sync:42").as_deref(), Some(lease.owner()));
        owners.push(lease.owner().to_owned());
        // Not everybody draws one.
        if number % 3 != 1 {
            tokens.push(lease.token().await.unwrap());
        }
        lease.release().await.unwrap();
    }
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
    // They were handed on indeed.
    owners.dedup();
    assert_eq!(owners.len(), 2, "{owners:?}");
}

#[tokio::test]
async fn who_does_not_wait_is_told_without_a_command_that_this_process_holds_the_key() {
    let (server, locks) = pair().await;
    let lease = locks
        .lock("sync:42")
        .ttl(10 * SECOND)
        .acquire()
        .await
        .unwrap();
    let here = lease.owner().split_once('@').unwrap().1.to_owned();
    let mut monitor = server.monitor();
    for _ in 0..100 {
        match locks.lock("sync:42").acquire().await {
            Err(Error::Busy {
                key,
                holder,
                remaining,
                ..
            }) => {
                assert_eq!((key.as_str(), holder.as_str()), ("sync:42", here.as_str()));
                assert!(
                    remaining > 5 * SECOND && remaining <= 10 * SECOND,
                    "{remaining:?}"
                );
            }
            told => panic!("{told:?}"),
        }
    }
    assert_eq!(monitor.seen(), []);
    assert_eq!(locks.stats().busy, 100);
    lease.release().await.unwrap();
    // And not told any longer than it is true.
    drop(locks.lock("sync:42").acquire().await.unwrap());
}

#[tokio::test]
async fn who_does_not_wait_asks_where_the_lease_of_this_process_is_lost() {
    let (server, locks) = pair().await;
    let ttl = SECOND / 2;
    let request = locks.lock("sync:42").ttl(ttl).renew(false);
    let lease = request.acquire().await.unwrap();
    let _: usize = server.ask("DEL lock:sync:42");
    nap(600).await;
    assert_eq!(lease.remaining(), Duration::ZERO);
    let next = locks.lock("sync:42").acquire().await.unwrap();
    assert_ne!(next.owner(), lease.owner());
    drop(lease);
    nap(50).await;
    assert_eq!(server.owner("lock:sync:42").as_deref(), Some(next.owner()));
}

#[tokio::test]
async fn a_lease_is_handed_on_with_at_least_half_of_its_ttl() {
    let (server, locks) = pair().await;
    let ttl = 2 * SECOND;
    let request = || locks.lock("sync:42").ttl(ttl).wait(PATIENT);
    for (held, early) in [(200, true), (1_300, false)] {
        let first = request().renew(false).acquire().await.unwrap();
        let owner = first.owner().to_owned();
        let mut call: Call = Box::pin(request().acquire());
        assert!(polled(call.as_mut(), 1).await.is_none());
        nap(held).await;
        first.release().await.unwrap();
        let next = call.await.unwrap();
        assert_eq!(next.owner() == owner, early);
        assert!(next.remaining() >= ttl / 2, "{:?}", next.remaining());
        let left = Duration::from_millis(u64::try_from(server.pttl("lock:sync:42")).unwrap());
        assert!(left + SECOND / 10 >= next.remaining(), "{left:?}");
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn who_does_not_renew_gets_a_whole_ttl() {
    let (server, locks) = pair().await;
    let first = locks.lock("sync:42").ttl(2 * SECOND).acquire().await;
    let first = first.unwrap();
    let owner = first.owner().to_owned();
    let request = locks.lock("sync:42").ttl(2 * SECOND).wait(PATIENT);
    let mut call: Call = Box::pin(request.renew(false).acquire());
    assert!(polled(call.as_mut(), 1).await.is_none());
    first.release().await.unwrap();
    let next = call.await.unwrap();
    assert_ne!(next.owner(), owner);
    assert_eq!(server.owner("lock:sync:42").as_deref(), Some(next.owner()));
}

#[tokio::test]
async fn a_lease_with_another_ttl_is_not_handed_on() {
    let (server, locks) = pair().await;
    let first = locks.lock("sync:42").ttl(60 * SECOND).acquire().await;
    let first = first.unwrap();
    let request = locks.lock("sync:42").ttl(5 * SECOND).wait(PATIENT);
    let mut call: Call = Box::pin(request.acquire());
    assert!(polled(call.as_mut(), 1).await.is_none());
    let owner = first.owner().to_owned();
    first.release().await.unwrap();
    let next = call.await.unwrap();
    assert_ne!(next.owner(), owner);
    assert!(server.pttl("lock:sync:42") <= 5_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_want_the_key_all_the_time_both_get_turns() {
    let server = Server::start();
    let record = Record::new();
    let scribe = Arc::new(Scribe::new(record.pen()));
    let stop = Arc::new(AtomicBool::new(false));
    let (crowded, single) = (client(&server).await, client(&server).await);
    let mut tasks = Vec::new();
    for number in 0..9 {
        let (name, locks) = match number {
            0 => ("single".to_owned(), single.clone()),
            _ => (format!("crowded {number}"), crowded.clone()),
        };
        let (scribe, stop) = (Arc::clone(&scribe), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let options = TurnOptions {
                length: Duration::from_millis(2),
                fenced: true,
                ..TurnOptions::of("42")
            };
            while !stop.load(Ordering::SeqCst) {
                scribe.turn(&locks, &options, &name).await.unwrap();
            }
        }));
    }
    nap(1_500).await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let entries = record.entries();
    let rules = Rules {
        ttl: 30 * SECOND,
        longest_call: 20 * SECOND,
    };
    check(&entries, rules).assert_clean();
    let found = turns(&entries);
    println!("{found:?}");
    let all: usize = found.of.values().sum();
    let single = found.of[&(std::process::id(), "single".to_owned())];
    let others = all - single;
    // One of them at least for each time that the others may have gone on among themselves.
    assert!(single >= others / (2 + IN_A_ROW), "{single} of {all}");
    assert!(others >= single, "{single} of {all}");
    assert!(found.range().0 >= all / 9 / 3, "{found:?}");
}

/// Dropped at each position of the queue, before and after the grant.
#[tokio::test]
async fn a_caller_that_is_dropped_in_the_queue_or_with_its_grant_unpolled_loses_no_lease() {
    let (server, locks) = pair().await;
    for handed in [false, true] {
        for dropped in 0..3 {
            let first = locks.lock("sync:42").acquire().await.unwrap();
            let mut calls = Vec::new();
            for _ in 0..3 {
                calls.push(queued_call(&locks, PATIENT).await);
            }
            if !handed {
                drop(calls.remove(dropped));
            }
            first.release().await.unwrap();
            if handed {
                // The first of them has it by now, and has not been polled since.
                drop(calls.remove(dropped));
            }
            for call in calls {
                let lease = tokio::time::timeout(SECOND, call).await;
                lease.expect("its turn").unwrap().release().await.unwrap();
            }
            wait::within("nothing is left", SECOND, || server.size() == 0).await;
        }
        // And all of them.
        let first = locks.lock("sync:42").acquire().await.unwrap();
        let calls = [
            queued_call(&locks, PATIENT).await,
            queued_call(&locks, PATIENT).await,
        ];
        if handed {
            first.release().await.unwrap();
            drop(calls);
        } else {
            drop(calls);
            first.release().await.unwrap();
        }
        wait::within("nothing is left", SECOND, || server.size() == 0).await;
    }
}

async fn pause(turns: u64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// Callers of two clients, each of which may be dropped at any moment of the others' turns.
#[tokio::test]
async fn callers_that_are_dropped_at_random_moments_lose_no_lease() {
    let server = Server::start();
    let clients = [client(&server).await, client(&server).await];
    let mut random = Random::announced("dropped callers");
    for round in 0..80 {
        let first = clients[0].lock("sync:42").acquire().await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..6 {
            let locks = clients[usize::try_from(random.below(2)).unwrap()].clone();
            let (before, during) = (random.below(40), random.below(40));
            let request = locks.lock("sync:42").wait(PATIENT);
            calls.push(tokio::spawn(async move {
                pause(before).await;
                let lease = request.acquire().await.unwrap();
                pause(during).await;
                drop(lease);
            }));
        }
        let mut drops: Vec<(u64, usize)> = (0..6).map(|place| (random.below(240), place)).collect();
        drops.sort_unstable();
        // The later half is not dropped at all.
        drops.truncate(3);
        let release = random.below(80);
        let dropping = async {
            let mut passed = 0;
            for (at, place) in drops {
                pause(at - passed).await;
                passed = at;
                calls[place].abort();
            }
        };
        let releasing = async {
            pause(release).await;
            drop(first);
        };
        tokio::join!(dropping, releasing);
        let start = Instant::now();
        for call in calls {
            match call.await {
                Ok(()) => {}
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        // One lost wake-up or lease would cost a second, or thirty.
        let took = start.elapsed();
        assert!(took < SECOND / 2, "round {round}: {took:?}");
        wait::within("nothing is left", SECOND, || server.size() == 0).await;
    }
}

#[tokio::test]
async fn a_caller_whose_wait_is_over_leaves_the_queue_as_busy() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let here = lease.owner().split_once('@').unwrap().1.to_owned();
    let patient = queued_call(&locks, PATIENT).await;
    let start = Instant::now();
    let brief = queued_call(&locks, SECOND / 2).await;
    let last = queued_call(&locks, PATIENT).await;
    match brief.await {
        Err(Error::Busy { holder, .. }) => assert_eq!(holder, here),
        told => panic!("{told:?}"),
    }
    let took = start.elapsed();
    assert!(took >= SECOND / 2 && took < SECOND / 2 + SLACK, "{took:?}");
    lease.release().await.unwrap();
    for call in [patient, last] {
        call.await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_thousand_callers_at_once_that_do_not_wait_cost_a_handful_of_commands() {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    let calls: Vec<_> = (0..1_000)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.lock("sync:42").acquire().await })
        })
        .collect();
    let mut held = Vec::new();
    for call in calls {
        match call.await.unwrap() {
            Ok(lease) => held.push(lease),
            Err(Error::Busy { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(held.len(), 1);
    let steps = monitor.seen().iter().filter(|seen| seen.is_step()).count();
    assert!(steps <= 8, "{steps}");
    drop(held);
    wait::until("it is given back", || server.size() == 0).await;
}

#[tokio::test]
async fn a_hundred_queued_callers_are_told_of_an_outage_together() {
    let server = Server::start();
    let brief = Duration::from_millis(400);
    let builder = || {
        Client::builder()
            .connect_timeout(brief)
            .reply_timeout(brief)
    };
    // Asked at most twice, for both timeouts each; after a look that comes within a second.
    let bound = 4 * brief + SECOND;
    for frozen in [true, false] {
        let proxy = Proxy::before(server.address());
        let holder = client(&server).await;
        let lease = holder.lock("sync:42").acquire().await.unwrap();
        let locks = builder().connect(proxy.url()).await.unwrap();
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let locks = locks.clone();
                tokio::spawn(async move { locks.lock("sync:42").wait(PATIENT).acquire().await })
            })
            .collect();
        wait::until("they are queued", || server.waiters("lock:sync:42") == 1).await;
        if frozen {
            proxy.swallow_all();
        } else {
            proxy.refuse();
        }
        let start = Instant::now();
        for call in calls {
            let told = call.await.unwrap();
            assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
        }
        let took = start.elapsed();
        println!("told after {took:?}");
        assert!(took < bound + SLACK, "{took:?}");
        proxy.heal();
        lease.release().await.unwrap();
        // What it may have been given meanwhile comes back long before its ttl is over.
        wait::within("nothing is left", 10 * SECOND, || server.size() == 0).await;
        // An attempt to connect that began in the outage may have to end first.
        let start = Instant::now();
        while let Err(told) = locks.lock("sync:42").acquire().await {
            assert!(start.elapsed() < bound, "{told:?}");
            nap(20).await;
        }
        wait::until("nothing is left", || server.size() == 0).await;
    }
}

#[tokio::test]
async fn shutting_down_ends_the_wait_queue_of_a_key_that_this_process_holds() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..10 {
        calls.push(tokio::spawn(queued_call(&locks, PATIENT).await));
    }
    let start = Instant::now();
    locks.shutdown().await;
    for call in calls {
        told_of_the_end(call.await.unwrap());
    }
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    assert_eq!(server.size(), 0);
    drop(lease);
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// One client, callers of several runtimes: the front waiter may end with its own runtime.
#[test]
fn callers_of_a_runtime_that_ends_leave_the_queue_to_those_of_another() {
    let lasting = runtime();
    let server = Server::start();
    let (locks, other) = lasting.block_on(async { (client(&server).await, client(&server).await) });
    for of_this_client in [true, false] {
        let holder = if of_this_client { &locks } else { &other };
        let ending = runtime();
        let lease = lasting.block_on(holder.lock("sync:42").acquire()).unwrap();
        ending.block_on(async {
            for _ in 0..3 {
                tokio::spawn(queued_call(&locks, PATIENT).await);
            }
            if !of_this_client {
                wait::until("they are queued", || server.waiters("lock:sync:42") == 1).await;
            }
        });
        let last = lasting.spawn(lasting.block_on(queued_call(&locks, PATIENT)));
        drop(ending);
        lasting.block_on(async {
            nap(50).await;
            lease.release().await.unwrap();
            let start = Instant::now();
            last.await.unwrap().unwrap().release().await.unwrap();
            assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
            wait::within("nothing is left", SECOND, || server.size() == 0).await;
        });
    }
}

/// A caller whose thread is blocked when its turn comes costs the others its ttl, and runs on no lease
/// that is over.
#[test]
fn a_caller_whose_runtime_is_blocked_does_not_run_on_what_it_was_given_long_ago() {
    for of_this_client in [true, false] {
        let server = Server::start();
        let record = Record::new();
        let scribe = Scribe::new(record.pen());
        let options = TurnOptions {
            ttl: SECOND,
            length: Duration::from_millis(300),
            ..TurnOptions::of("42")
        };
        let (blocked, lasting) = (runtime(), runtime());
        let (locks, other) =
            lasting.block_on(async { (client(&server).await, client(&server).await) });
        let holder = if of_this_client { &locks } else { &other };
        let request = holder.lock("turns:42").ttl(SECOND);
        let lease = lasting.block_on(request.acquire()).unwrap();
        std::thread::scope(|scope| {
            let (tell_queued, is_queued) = std::sync::mpsc::channel();
            let (locks, scribe, options, server) = (&locks, &scribe, &options, &server);
            let first = scope.spawn(move || {
                blocked.block_on(async {
                    let mut call = Box::pin(scribe.turn(locks, options, "blocked"));
                    assert!(polled(call.as_mut(), 1).await.is_none());
                    if !of_this_client {
                        let arrives = async {
                            let queued = || server.waiters("lock:turns:42") == 1;
                            wait::until("it is queued", queued).await;
                            // Its own reply has to be read as well.
                            nap(100).await;
                        };
                        tokio::select! {
                            _ = call.as_mut() => unreachable!("somebody holds the key"),
                            () = arrives => {}
                        }
                    }
                    tell_queued.send(()).unwrap();
                    std::thread::sleep(3 * SECOND);
                    call.await
                })
            });
            is_queued.recv().unwrap();
            lasting.block_on(async {
                nap(50).await;
                lease.release().await.unwrap();
                let start = Instant::now();
                scribe.turn(&other, options, "next").await.unwrap();
                let took = start.elapsed();
                assert!(took < 2 * SECOND + SLACK, "{took:?}");
                // Again, at the time when the first comes to.
                for _ in 0..4 {
                    scribe.turn(&other, options, "next").await.unwrap();
                }
            });
            first.join().unwrap().unwrap();
        });
        let rules = Rules {
            ttl: SECOND,
            longest_call: 20 * SECOND,
        };
        check(&record.entries(), rules).assert_clean();
        wait::block_until("nothing is left", || server.size() == 0);
    }
}
