//! Waiting between clients: the order of grants, their cost, and what waiters leave behind.
//!
//! Each client stands for a process, as far as the store can see; where a process has to die, it is
//! a real one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::checker::turns::turns;
use tests::checker::{Rules, check};
use tests::monitor::Seen;
use tests::proxy::Proxy;
use tests::record::Record;
use tests::server::Server;
use tests::wait;
use tests::worker::Worker;

use crate::support::{Callers, LOOK, SLACK, client, nap, pair, told_of_the_end};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);

/// Commands of a section whose key is handed on and wanted again: to wait, and to give back.
const A_SECTION: f64 = 2.0;

#[tokio::test]
async fn a_release_hands_the_key_to_the_first_who_came_and_wakes_nobody_else() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    for _ in 0..6 {
        callers.arrive(&client(&server).await).await;
    }
    let mut monitor = server.monitor();
    lease.release().await.unwrap();
    assert_eq!(callers.within(SECOND, 6).await, [0, 1, 2, 3, 4, 5]);
    wait::until("all is given back", || server.size() == 0).await;
    let seen = monitor.seen();
    // One each for those who had to be told; the last release finds nobody.
    assert_eq!(seen.iter().filter(|seen| seen.is_grant()).count(), 6);
    // Whoever is first then knows it, and asks for nothing because of that.
    assert_eq!(seen.iter().filter(|seen| seen.names_front()).count(), 5);
    // Nobody asked for anything but to give it back, unless it looked for itself meanwhile.
    let steps = seen.iter().filter(|seen| seen.is_step()).count();
    assert!((7..=9).contains(&steps), "{steps}");
}

/// How many commands a section costs where so many clients come back at once.
async fn cost_of_a_section(clients: usize) -> f64 {
    let server = Server::start();
    let (sections, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let locks = client(&server).await;
        let (sections, stop) = (Arc::clone(&sections), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let lease = locks.lock("sync:42").wait(PATIENT).acquire().await.unwrap();
                sections.fetch_add(1, Ordering::SeqCst);
                nap(2).await;
                lease.release().await.unwrap();
            }
        }));
    }
    let so_far = || sections.load(Ordering::SeqCst);
    wait::until("everybody is known", || so_far() > 2 * clients).await;
    let mut monitor = server.monitor();
    let before = so_far();
    wait::until("two hundred sections", || so_far() >= before + 200).await;
    // Each section has an owner of its own, who asks for the key, waits, and gives it back.
    let mut steps: BTreeMap<String, u32> = BTreeMap::new();
    for seen in monitor.seen().iter().filter(|seen| seen.is_step()) {
        let owner = seen.words.iter().find(|word| word.get(32..33) == Some("@"));
        *steps.entry(owner.unwrap().clone()).or_default() += 1;
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    wait::until("nothing is left", || server.size() == 0).await;
    // Those of whom only the beginning or the end was seen do not count.
    steps.retain(|_, steps| *steps > 1);
    assert!(steps.len() > 100, "{steps:?}");
    let owners = f64::from(u32::try_from(steps.len()).unwrap());
    f64::from(steps.values().sum::<u32>()) / owners
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_costs_the_same_with_two_waiting_clients_and_with_fifty() {
    let few = cost_of_a_section(2).await;
    let many = cost_of_a_section(50).await;
    println!("commands a section: {few:.2} with 2 clients, {many:.2} with 50");
    for cost in [few, many] {
        assert!((cost - A_SECTION).abs() < 0.2, "{few:.2} {many:.2}");
    }
}

/// Its subscription comes first: whoever could not be told would have to ask again.
#[tokio::test]
async fn a_client_that_waits_for_the_first_time_asks_for_its_place_once() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    let mut monitor = server.monitor();
    callers.arrive(&other).await;
    nap(100).await;
    let steps = |seen: Vec<Seen>| seen.iter().filter(|seen| seen.is_step()).count();
    // A try, and the place in the queue.
    assert_eq!(steps(monitor.seen()), 2);
    lease.release().await.unwrap();
    callers.within(SECOND, 1).await;
    wait::until("all is given back", || server.size() == 0).await;
    assert_eq!(steps(monitor.seen()), 2);
}

#[tokio::test]
async fn waiters_that_were_killed_are_passed_over_in_the_same_release() {
    let (server, locks) = pair().await;
    let record = Record::new();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    let mut dead = Vec::new();
    for count in 1..=3 {
        let words = ["42", "30000", "60000", "60000"];
        dead.push(Worker::start("hold", &server.url(), &record, &words));
        wait::until("it is queued", || callers.queued() == count).await;
    }
    // They listen as well.
    callers.arrive(&client(&server).await).await;
    for worker in &mut dead {
        worker.kill();
    }
    wait::until("the server sees them go", || server.subscribers() == 1).await;
    let mut monitor = server.monitor();
    lease.release().await.unwrap();
    callers.within(SECOND, 1).await;
    wait::until("all is given back", || server.size() == 0).await;
    let steps: Vec<Seen> = monitor.seen();
    let steps = steps.iter().filter(|seen| seen.is_step()).count();
    assert!((2..=3).contains(&steps), "{steps}");
}

#[tokio::test]
async fn a_waiter_whose_connection_is_gone_is_passed_over_in_the_same_release() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    let away = Client::connect(proxy.url()).await.unwrap();
    callers.arrive(&away).await;
    callers.arrive(&client(&server).await).await;
    proxy.refuse();
    wait::until("the server sees it go", || server.subscribers() == 1).await;
    lease.release().await.unwrap();
    assert_eq!(callers.within(SECOND, 1).await, [1]);
    // It is told that it cannot know, rather than that somebody holds the key.
    let away = callers.calls.remove(0).await.unwrap();
    assert!(matches!(away, Err(Error::Unavailable { .. })), "{away:?}");
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_waiter_that_is_dropped_leaves_nothing_and_does_not_stall_the_next() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    callers.arrive(&client(&server).await).await;
    callers.calls[0].abort();
    wait::within("it leaves the queue", SECOND / 2 + SLACK, || {
        server.keys() == ["lock:sync:42"]
    })
    .await;
    // The first and the third of four.
    for _ in 0..4 {
        callers.arrive(&client(&server).await).await;
    }
    callers.calls[1].abort();
    callers.calls[3].abort();
    lease.release().await.unwrap();
    assert_eq!(callers.within(SECOND, 2).await, [2, 4]);
    wait::within("nothing is left", SECOND, || server.size() == 0).await;
}

#[tokio::test]
async fn a_waiter_whose_time_is_over_leaves_nothing_and_does_not_stall_the_next() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    for wait in [SECOND * 3 / 10, SECOND / 2] {
        let other = client(&server).await;
        let start = Instant::now();
        callers.call(&other, wait);
        let told = callers.calls.pop().unwrap().await.unwrap();
        let took = start.elapsed();
        assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
        assert!(took >= wait && took < wait + SLACK, "{took:?}");
        // By then, and not some time later.
        assert_eq!(server.keys(), ["lock:sync:42"]);
    }
    // In front of one who has more time.
    let brief = client(&server).await;
    callers.call(&brief, SECOND / 2);
    wait::until("it is queued", || callers.queued() == 1).await;
    callers.arrive(&client(&server).await).await;
    let told = callers.calls.remove(0).await.unwrap();
    assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
    assert_eq!(callers.queued(), 1);
    lease.release().await.unwrap();
    callers.within(SECOND, 1).await;
    wait::within("nothing is left", SECOND, || server.size() == 0).await;
}

/// Right when it is woken, a waiter may be dropped, or its time may be over.
#[tokio::test]
async fn a_waiter_that_goes_at_the_moment_of_its_turn_passes_the_key_on() {
    let (server, locks) = pair().await;
    let (one, two) = (client(&server).await, client(&server).await);
    let mut random = tests::seed::Random::announced("going at its turn");
    for round in 0..40 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let mut callers = Callers::new(&server, "sync:42");
        callers.arrive(&one).await;
        callers.arrive(&two).await;
        let going = &callers.calls[0];
        let (before, after) = (random.below(100), random.below(100));
        let release = async {
            for _ in 0..before {
                tokio::task::yield_now().await;
            }
            lease.release().await.unwrap();
        };
        let drop = async {
            for _ in 0..after {
                tokio::task::yield_now().await;
            }
            going.abort();
        };
        tokio::join!(release, drop);
        let limit = SECOND / 2 + SLACK;
        let what = format!("the next is served in round {round}");
        wait::within(&what, limit, || {
            callers.served().iter().any(|(number, _)| *number == 1)
        })
        .await;
        wait::within("nothing is left", limit, || server.size() == 0).await;
    }
}

#[tokio::test]
async fn a_client_listens_on_one_connection_for_all_its_keys_and_on_none_before_it_waits() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let mut held = Vec::new();
    for user in 0..5 {
        let key = format!("sync:{user}");
        held.push(locks.lock(&key).acquire().await.unwrap());
        assert!(matches!(
            other.lock(&key).acquire().await,
            Err(Error::Busy { .. })
        ));
    }
    assert_eq!(server.subscribers(), 0);
    let connections = server.clients();
    let calls: Vec<_> = (0..5)
        .map(|user| {
            let request = other.lock(format!("sync:{user}")).wait(PATIENT);
            tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    let queued = |user: usize| server.waiters(&format!("lock:sync:{user}"));
    wait::until("all are queued", || (0..5).all(|user| queued(user) == 1)).await;
    assert_eq!(server.subscribers(), 1);
    assert_eq!(server.clients(), connections + 1);
    for lease in held {
        lease.release().await.unwrap();
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn shutting_down_ends_all_waits_at_once_and_leaves_nothing() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let held = [
        locks.lock("sync:42").acquire().await.unwrap(),
        locks.lock("sync:43").acquire().await.unwrap(),
    ];
    // Some are the front waiters of their client, some wait behind them.
    let calls: Vec<_> = (0..10)
        .map(|call| {
            let request = other.lock(format!("sync:{}", 42 + call % 2)).wait(PATIENT);
            tokio::spawn(async move { request.acquire().await.map(drop) })
        })
        .collect();
    let queued = |user: u32| server.waiters(&format!("lock:sync:{user}"));
    wait::until("they are queued", || queued(42) + queued(43) == 2).await;
    let start = Instant::now();
    other.shutdown().await;
    for call in calls {
        told_of_the_end(call.await.unwrap());
    }
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    assert_eq!(server.keys(), ["lock:sync:42", "lock:sync:43"]);
    drop(held);
}

#[test]
fn fifty_tasks_in_two_processes_that_come_back_at_once_have_equal_turns() {
    const TASKS: usize = 50;
    let server = Server::start();
    let record = Record::new();
    let words = ["fair", "1", "30000", "2", "25"];
    let mut workers = [(), ()].map(|()| Worker::start("turns", &server.url(), &record, &words));
    for worker in &workers {
        worker.says("ready");
    }
    for worker in &mut workers {
        worker.tell("go");
    }
    std::thread::sleep(3 * SECOND);
    for worker in &mut workers {
        worker.tell("stop");
    }
    for worker in &mut workers {
        worker.says("finished");
    }
    let entries = record.entries();
    let rules = Rules {
        ttl: 30 * SECOND,
        longest_call: 20 * SECOND,
    };
    check(&entries, rules).assert_clean();
    let found = turns(&entries);
    let (fewest, most) = found.range();
    println!(
        "{fewest} to {most} turns each, {} others before one's turn at most; \
         longest wait {:?} of a fair {:?}",
        found.passed, found.longest, found.fair
    );
    assert_eq!(found.of.len(), TASKS);
    assert!(fewest >= 5, "{fewest}");
    assert!(most - fewest <= 3 + most / 10, "{fewest} to {most}");
    // In turns the bound does not depend on how busy the machine is; in time it does.
    assert!(found.passed <= TASKS * 3 / 2, "{}", found.passed);
    assert!(
        found.longest < found.fair * 3 / 2 + SLACK / 2,
        "{:?} of {:?}",
        found.longest,
        found.fair
    );
    wait::block_until("nothing is left", || server.size() == 0);
}

/// The lease of a holder that died is over, and nobody was told: those who have waited for that come
/// before one who comes just then and knows that others want the key.
#[tokio::test]
async fn a_newcomer_does_not_pass_those_who_wait_for_a_lease_to_end() {
    let server = Server::start();
    let newcomer = client(&server).await;
    for waits in [false, true] {
        let _: () = server.ask("SET lock:sync:42 somebody PX 30000");
        let told = newcomer.lock("sync:42").acquire().await;
        assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
        let mut callers = Callers::new(&server, "sync:42");
        for _ in 0..3 {
            callers.arrive(&client(&server).await).await;
        }
        let _: usize = server.ask("DEL lock:sync:42");
        callers.call(&newcomer, if waits { PATIENT } else { Duration::ZERO });
        if waits {
            assert_eq!(callers.within(LOOK, 4).await, [0, 1, 2, 3]);
        } else {
            assert_eq!(callers.within(LOOK, 3).await, [0, 1, 2]);
            let told = callers.calls.pop().unwrap().await.unwrap();
            assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
        }
        wait::until("all is given back", || server.size() == 0).await;
    }
}

/// A release cannot be missed by a caller that joins the queue at the same moment.
#[tokio::test]
async fn a_caller_that_comes_while_the_key_is_given_back_is_not_forgotten() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    for round in 0..100 {
        let start = Instant::now();
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let release = async {
            for _ in 0..round % 25 {
                tokio::task::yield_now().await;
            }
            lease.release().await.unwrap();
        };
        let request = other.lock("sync:42").wait(PATIENT);
        let ((), next) = tokio::join!(release, request.acquire());
        next.unwrap().release().await.unwrap();
        // A lost wake-up would cost half a second at least.
        assert!(start.elapsed() < LOOK * 9 / 20, "{:?}", start.elapsed());
    }
    assert_eq!(server.size(), 0);
}
