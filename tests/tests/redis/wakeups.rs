//! Lost wake-ups, and waiters and holders that are frozen or killed: what they cost the other waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::checker::turns::turns;
use tests::checker::{Rules, check, idle};
use tests::proxy::Proxy;
use tests::record::{self, Event, Record};
use tests::seed::Random;
use tests::server::Server;
use tests::turn::{Scribe, TurnOptions};
use tests::version::has_channel_rights;
use tests::worker::Worker;
use tests::{log, wait};

use crate::support::{Callers, LOOK, SLACK, client, nap, pair};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);

/// The delay between the polls of successive waiters, from the front of the queue on.
const LATER: Duration = Duration::from_millis(200);

#[tokio::test]
async fn killed_subscriptions_before_a_release_cost_at_most_one_look_and_mostly_less() {
    let (server, locks) = pair().await;
    let mut fastest = LOOK;
    for _ in 0..4 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let mut callers = Callers::new(&server, "sync:42");
        for _ in 0..3 {
            callers.arrive(&client(&server).await).await;
        }
        let killed: usize = server.ask("CLIENT KILL TYPE pubsub");
        assert_eq!(killed, 3);
        let released = Instant::now();
        lease.release().await.unwrap();
        callers.within(LOOK + SLACK, 3).await;
        fastest = fastest.min(callers.served()[0].1 - released);
        wait::until("all is given back", || server.size() == 0).await;
    }
    // Who has lost its subscription looks at once, and not when it would have looked anyway.
    assert!(fastest < LOOK / 4, "{fastest:?}");
}

#[tokio::test]
async fn a_subscription_that_is_killed_long_before_a_release_is_made_again() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    for _ in 0..3 {
        callers.arrive(&client(&server).await).await;
    }
    let _: usize = server.ask("CLIENT KILL TYPE pubsub");
    wait::within("they are back", LOOK + SLACK, || {
        server.subscribers() == 3 && callers.queued() == 3
    })
    .await;
    nap(200).await;
    lease.release().await.unwrap();
    // In their order, which the loss has not changed.
    assert_eq!(callers.within(LOOK / 2, 3).await, [0, 1, 2]);
}

/// Callers of clients of their own that come back at once, and the record of their turns.
struct Contenders {
    record: Record,
    scribe: Arc<Scribe>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Contenders {
    async fn of(size: usize, server: &Server, options: &TurnOptions) -> Self {
        let record = Record::new();
        let scribe = Arc::new(Scribe::new(record.pen()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..size {
            let locks = client(server).await;
            let (scribe, stop, options) = (Arc::clone(&scribe), Arc::clone(&stop), options.clone());
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    match scribe.turn(&locks, &options, &number.to_string()).await {
                        Ok(()) => {}
                        Err(Error::Unavailable { .. } | Error::Lost { .. }) => nap(20).await,
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }));
        }
        Self {
            record,
            scribe,
            stop,
            tasks,
        }
    }

    /// Ends the run after a last turn of each, and checks its history.
    async fn checked(self, ttl: Duration, gap: Duration) {
        self.stop.store(true, Ordering::SeqCst);
        let size = self.tasks.len();
        for task in self.tasks {
            task.await.unwrap();
        }
        let entries = self.record.entries();
        let rules = Rules {
            ttl,
            longest_call: 20 * SECOND,
        };
        let findings = check(&entries, rules);
        let rules = idle::Rules {
            permits: 1,
            ttl,
            gap,
        };
        let used = idle::check(&entries, rules);
        let turns = turns(&entries);
        println!(
            "{:?}, {:?} turns each, the key was free for {:?} at most, longest wait {:?}",
            findings.outcomes,
            turns.range(),
            used.longest,
            turns.longest
        );
        findings.assert_clean();
        used.assert_clean();
        // Nobody starved.
        assert_eq!(turns.of.len(), size);
    }
}

fn short_turns(ttl: Duration) -> TurnOptions {
    TurnOptions {
        ttl,
        length: Duration::from_millis(3),
        ..TurnOptions::of("42")
    }
}

/// How long something is done again and again, and the milliseconds between which its pauses are.
struct Often {
    length: Duration,
    pauses: (u64, u64),
}

impl Often {
    async fn disturb(self, what: &str, mut disturb: impl FnMut(&mut Random)) {
        let mut random = Random::announced(what);
        let start = Instant::now();
        while start.elapsed() < self.length {
            let (shortest, longest) = self.pauses;
            tokio::time::sleep(random.millis(shortest, longest)).await;
            disturb(&mut random);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_whose_subscriptions_are_killed_all_the_time_go_on() {
    let server = Server::start();
    let ttl = 5 * SECOND;
    let options = TurnOptions {
        fenced: true,
        ..short_turns(ttl)
    };
    let contenders = Contenders::of(20, &server, &options).await;
    let often = Often {
        length: 3 * SECOND,
        pauses: (5, 200),
    };
    let kill = |_: &mut Random| {
        let _: usize = server.ask("CLIENT KILL TYPE pubsub");
    };
    often.disturb("killed subscriptions", kill).await;
    contenders.checked(ttl, LOOK + SLACK).await;
    wait::until("nothing is left but tokens", || {
        server
            .keys()
            .iter()
            .all(|key| key.starts_with("lock:token:"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_whose_connections_are_all_killed_now_and_then_go_on() {
    let server = Server::start();
    let ttl = 5 * SECOND;
    let contenders = Contenders::of(20, &server, &short_turns(ttl)).await;
    let often = Often {
        length: 2 * SECOND,
        pauses: (50, 400),
    };
    let kill = |random: &mut Random| {
        server.drop_clients();
        if random.below(2) == 0 {
            let _: usize = server.ask("CLIENT KILL TYPE pubsub");
        }
    };
    often.disturb("killed connections", kill).await;
    contenders.checked(ttl, LOOK + SLACK).await;
    wait::within("nothing is left", ttl + SLACK, || server.size() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_whose_wait_queue_is_deleted_all_the_time_go_on() {
    let server = Server::start();
    let ttl = 5 * SECOND;
    let contenders = Contenders::of(20, &server, &short_turns(ttl)).await;
    let often = Often {
        length: 2 * SECOND,
        pauses: (5, 400),
    };
    let delete = |_: &mut Random| {
        contenders.scribe.fault("-", "the wait queue is deleted");
        let _: usize = server.ask("DEL lock:wait:{lock:turns:42}");
    };
    often.disturb("a deleted wait queue", delete).await;
    // At the end nobody comes back, and each has to look for itself.
    contenders.checked(ttl, LOOK + 20 * LATER + SLACK).await;
    wait::within("nothing is left", SLACK, || server.size() == 0).await;
}

/// Its key expires, or somebody deletes it.
#[tokio::test]
async fn a_wait_queue_that_was_forgotten_costs_at_most_one_look_a_caller() {
    for forget in ["DEL", "PEXPIRE"] {
        let (server, locks) = pair().await;
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let mut callers = Callers::new(&server, "sync:42");
        for _ in 0..4 {
            callers.arrive(&client(&server).await).await;
        }
        let queue = "lock:wait:{lock:sync:42}";
        assert!(server.pttl(queue) > 0, "it always expires");
        // One that looks just then prolongs it again.
        wait::until("it is gone", || {
            let _: usize = match forget {
                "DEL" => server.ask(&format!("DEL {queue}")),
                _ => server.ask(&format!("PEXPIRE {queue} 1")),
            };
            callers.queued() == 0
        })
        .await;
        let released = Instant::now();
        lease.release().await.unwrap();
        callers.within(4 * LOOK + SLACK, 4).await;
        let mut before = released;
        for (_, at) in callers.served() {
            assert!(at - before < LOOK + SLACK, "{forget}: {:?}", at - before);
            before = at;
        }
        wait::until("nothing is left", || server.size() == 0).await;
    }
}

/// Whether it keeps its data or not, a server that was killed and started again is asked again.
#[tokio::test]
async fn waiters_get_on_after_a_restart() {
    for keeps in [true, false] {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Server::with(if keeps { &options } else { &[] });
        let holder = client(&server).await;
        let lease = holder.lock("turns:42").acquire().await.unwrap();
        let record = Record::new();
        let scribe = Arc::new(Scribe::new(record.pen()));
        let mut tasks = Vec::new();
        for number in 0..4 {
            let locks = client(&server).await;
            let scribe = Arc::clone(&scribe);
            tasks.push(tokio::spawn(async move {
                let options = TurnOptions {
                    length: Duration::from_millis(10),
                    ..TurnOptions::of("42")
                };
                // Who asks while the server is away is told so, and asks again.
                loop {
                    match scribe.turn(&locks, &options, &number.to_string()).await {
                        Ok(()) => return,
                        Err(Error::Unavailable { .. }) => nap(20).await,
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }));
        }
        let queued = || server.waiters("lock:turns:42");
        wait::until("they are queued", || queued() == 4).await;
        server.kill();
        nap(300).await;
        server.restart();
        let start = Instant::now();
        if keeps {
            wait::within("they are queued again", LOOK + SLACK, || {
                server.subscribers() == 4 && queued() == 4
            })
            .await;
            lease.release().await.unwrap();
        }
        for task in tasks {
            task.await.unwrap();
        }
        let took = start.elapsed();
        assert!(took < 2 * LOOK + SLACK, "keeps: {keeps}, {took:?}");
        let rules = Rules {
            ttl: 30 * SECOND,
            longest_call: 20 * SECOND,
        };
        check(&record.entries(), rules).assert_clean();
        wait::until("nothing is left", || server.size() == 0).await;
    }
}

/// A black hole that swallows what a subscriber is told and asks, while other connections work.
#[tokio::test]
async fn a_subscriber_behind_a_black_hole_costs_at_most_one_look() {
    let (server, locks) = pair().await;
    for from_the_start in [false, true] {
        let proxy = Proxy::before(server.address());
        let behind = Client::connect(proxy.url()).await.unwrap();
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let mut callers = Callers::new(&server, "sync:42");
        if from_the_start {
            proxy.swallow_subscriptions();
        }
        callers.enqueue(&behind).await;
        callers.enqueue(&client(&server).await).await;
        proxy.swallow_subscriptions();
        lease.release().await.unwrap();
        callers.within(LOOK + SLACK, 2).await;
        proxy.heal();
        wait::until("nothing is left", || server.size() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_waiter_costs_at_most_its_ttl_and_runs_on_no_lease_that_is_over() {
    let server = Server::start();
    let record = Record::new();
    let pen = record.pen();
    let locks = client(&server).await;
    let ttl = SECOND;
    for _ in 0..2 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let words = ["42", "1000", "200", "60000"];
        let mut frozen = Worker::start("hold", &server.url(), &record, &words);
        wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
        let next = client(&server).await;
        let next = tokio::spawn(async move {
            let lease = next.lock("sync:42").wait(PATIENT).acquire().await;
            (lease.unwrap(), record::now())
        });
        wait::until("both are queued", || server.waiters("lock:sync:42") == 2).await;
        frozen.freeze();
        let start = Instant::now();
        lease.release().await.unwrap();
        let owner = server.owner("lock:sync:42").unwrap_or_default();
        assert!(owner.ends_with(&format!(":{}", frozen.id())), "{owner}");
        let (lease, entered) = next.await.unwrap();
        let took = start.elapsed();
        assert!(took < ttl + LOOK + SLACK, "{took:?}");
        assert!(took > ttl / 2, "its ttl was not waited for: {took:?}");
        pen.write_at(entered, 1, Event::Enter, "sync:42", "");
        frozen.thaw();
        nap(500).await;
        pen.write(1, Event::Leave, "sync:42", "");
        pen.write(1, Event::Outcome, "-", "done");
        assert!(frozen.lines().is_empty(), "{:?}", frozen.lines());
        lease.release().await.unwrap();
        // It has not given up, and has its turn in the end.
        let outcome = frozen.says("outcome");
        assert!(outcome.contains("Ok"), "{outcome}");
        assert!(frozen.finish().success());
        let rules = Rules {
            ttl,
            longest_call: 20 * SECOND,
        };
        check(&record.entries(), rules).assert_clean();
        assert_eq!(server.size(), 0);
    }
}

/// Thawed while the lease it was given still runs, a waiter may run on it, and not for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_frozen_for_less_than_its_ttl_runs_in_what_is_left() {
    let server = Server::start();
    let record = Record::new();
    let locks = client(&server).await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let words = ["42", "4000", "200", "60000"];
    let mut frozen = Worker::start("hold", &server.url(), &record, &words);
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    frozen.freeze();
    lease.release().await.unwrap();
    nap(700).await;
    let start = Instant::now();
    frozen.thaw();
    let outcome = frozen.says("outcome");
    assert!(outcome.contains("Ok"), "{outcome}");
    assert!(start.elapsed() < LOOK + SLACK, "{:?}", start.elapsed());
    assert!(frozen.finish().success());
    assert_eq!(server.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_waiters_of_a_killed_holder_get_on_after_its_ttl_in_order() {
    let server = Server::start();
    let record = Record::new();
    let ttl = 2 * SECOND;
    let mut holder = Worker::start(
        "hold",
        &server.url(),
        &record,
        &["42", "2000", "60000", "0"],
    );
    holder.says("entered");
    let mut callers = Callers::new(&server, "sync:42");
    for _ in 0..8 {
        callers.arrive(&client(&server).await).await;
    }
    let mut monitor = server.monitor();
    holder.kill();
    let order = callers.within(ttl + LOOK + SLACK, 8).await;
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    wait::until("nothing is left", || server.size() == 0).await;
    // One release each, and a few looks while the lease of the dead ran.
    let steps = monitor.seen().iter().filter(|seen| seen.is_step()).count();
    assert!(steps <= 8 * 6, "{steps}");
    println!("{steps} commands");
}

/// What a waiter learned of the queue and the holder when it arrived is long out of date.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_joined_a_long_queue_looks_as_often_as_the_others_once_that_has_moved() {
    let server = Server::start();
    let record = Record::new();
    let locks = client(&server).await;
    let ttl = SECOND;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    for _ in 0..12 {
        callers.arrive(&client(&server).await).await;
    }
    let words = ["42", "1000", "60000", "60000"];
    let mut holder = Worker::start("hold", &server.url(), &record, &words);
    wait::until("it is queued", || callers.queued() == 13).await;
    callers.arrive(&client(&server).await).await;
    lease.release().await.unwrap();
    callers.within(SECOND, 12).await;
    holder.says("entered");
    holder.kill();
    // Alone in the queue, behind a lease of a second.
    callers.within(ttl + LOOK + SLACK, 13).await;
    wait::until("nothing is left", || server.size() == 0).await;
}

#[tokio::test]
async fn a_user_without_channels_waits_by_looking_and_is_warned_once() {
    log::listen();
    let server = Server::start();
    let rights = if has_channel_rights() {
        "on >pw resetchannels ~* +@all"
    } else {
        "on >pw ~* +@all -subscribe"
    };
    server.set_user("unsubscribed", rights);
    let url = server.url_as("unsubscribed", "pw");
    // A prefix of their own, so that what is told of their channels is told apart.
    let client = || Client::builder().prefix("unsubscribed:");
    let locks = client().connect(&url).await.unwrap();
    let other = client().connect(&url).await.unwrap();
    let third = client().connect(server.url()).await.unwrap();
    for round in 0..3 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let mut callers = Callers::new(&server, "sync:42");
        callers.call(&other, PATIENT);
        if round == 1 {
            callers.call(&third, PATIENT);
        }
        nap(200).await;
        let released = Instant::now();
        lease.release().await.unwrap();
        let count = callers.calls.len();
        callers.within(2 * LOOK + SLACK, count).await;
        let took = callers.served()[0].1 - released;
        assert!(took < LOOK + SLACK, "{took:?}");
        wait::until("nothing is left", || server.size() == 0).await;
    }
    // Once each.
    let told = log::about("unsubscribed:wake:");
    assert_eq!(told.len(), 2, "{told:?}");
    let warns = |told: &log::Told| told.level == tracing::Level::WARN;
    assert!(told.iter().all(warns), "{told:?}");
}
