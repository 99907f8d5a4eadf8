//! `permits = 3` under many contenders, some of which are killed; and who gets a slot that is free.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease};
use tests::checker::{self, KILL, idle};
use tests::record::{Event, Record};
use tests::server::Server;
use tests::wait;
use tests::worker::{self, Worker};

use crate::support::{LOOK, SLACK, client, pair};

const PERMITS: u32 = 3;
const TTL: Duration = Duration::from_secs(1);
const WORKERS: usize = 5;
const KILLS: usize = 6;

/// How long a slot may stay free: what a lost wake-up costs, and room for a busy machine.
const GAP: Duration = Duration::from_millis(2_500);

fn contenders(server: &Server, record: &Record) -> Worker {
    let words = ["geo", "3", "1000", "30", "10"];
    let mut worker = Worker::start("turns", &server.url(), record, &words);
    worker.says("ready");
    worker.tell("go");
    worker
}

/// The place of a worker that holds a slot at this moment.
fn some_holder(server: &Server, workers: &[Worker]) -> usize {
    let mut found = None;
    wait::block_until("somebody holds a slot", || {
        let owner = server.owner("lock:turns:geo").unwrap_or_default();
        let process = owner.rsplit(':').next().and_then(|id| id.parse().ok());
        found = workers
            .iter()
            .position(|worker| Some(worker.id()) == process);
        found.is_some()
    });
    found.unwrap_or_default()
}

#[test]
fn fifty_contenders_of_whom_some_are_killed_use_three_slots_and_leave_none_free() {
    let server = Server::start();
    let record = Record::new();
    let pen = record.pen();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| contenders(&server, &record)).collect();
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(500));
        let place = some_holder(&server, &workers);
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        workers[place] = contenders(&server, &record);
    }
    std::thread::sleep(Duration::from_millis(500));
    worker::stop_all(&mut workers);
    let entries = record.entries();
    let findings = checker::check(
        &entries,
        checker::Rules {
            ttl: TTL,
            longest_call: Duration::from_secs(20),
        },
    );
    let rules = idle::Rules {
        permits: 3,
        ttl: TTL,
        gap: GAP,
    };
    let used = idle::check(&entries, rules);
    println!(
        "{KILLS} kills, {} bodies, a slot was free for {:?} at most",
        findings.bodies, used.longest
    );
    findings.assert_clean();
    used.assert_clean();
    assert_eq!(used.most, 3);
    // Three slots and 30 ms each: a hundred a second, were nobody killed.
    assert!(findings.bodies > 100, "{}", findings.bodies);
    wait::block_until("the last ttl is over", || server.size() == 0);
}

/// A caller that waits for a slot. It is in the wait queue on the server when this returns.
async fn arrives(
    server: &Server,
    locks: Client,
    number: usize,
    order: &Arc<Mutex<Vec<(usize, usize)>>>,
) -> tokio::task::JoinHandle<Lease> {
    let before = server.waiters("lock:geo");
    let order = Arc::clone(order);
    let call = tokio::spawn(async move {
        let request = locks.lock("geo").permits(PERMITS);
        let lease = request.wait(Duration::from_secs(30)).acquire().await;
        let lease = lease.unwrap();
        order.lock().unwrap().push((number, lease.slot()));
        lease
    });
    wait::until("it is queued", || server.waiters("lock:geo") > before).await;
    call
}

#[tokio::test]
async fn slots_are_given_to_waiters_in_the_order_of_their_arrival() {
    let (server, locks) = pair().await;
    let mut held = Vec::new();
    for _ in 0..PERMITS {
        let lease = locks.lock("geo").permits(PERMITS).acquire().await;
        held.push(lease.unwrap());
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for number in 0..3 {
        let other = client(&server).await;
        calls.push(arrives(&server, other, number, &order).await);
    }
    let released = Instant::now();
    let mut expected = Vec::new();
    for (number, place) in [1, 2, 0].into_iter().enumerate() {
        let slot = place;
        let lease = held.iter().position(|lease| lease.slot() == slot);
        held.remove(lease.unwrap()).release().await.unwrap();
        expected.push((number, slot));
        wait::until("it is given to somebody", || {
            order.lock().unwrap().len() > number
        })
        .await;
    }
    assert_eq!(*order.lock().unwrap(), expected);
    assert!(released.elapsed() < SLACK, "{:?}", released.elapsed());
    assert_eq!(server.waiters("lock:geo"), 0);
    for call in calls {
        call.await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.size(), 0);
}

/// Slots that become free together, and a queue of which only the front waiter is alive.
#[tokio::test]
async fn a_free_slot_is_not_kept_for_a_waiter_that_was_killed() {
    let (server, locks) = pair().await;
    let record = Record::new();
    let mut held = Vec::new();
    for _ in 0..2 {
        let request = locks.lock("turns:geo").permits(2).ttl(2 * TTL).renew(false);
        held.push(request.acquire().await.unwrap());
    }
    let queued = || server.waiters("lock:turns:geo");
    let alive = client(&server).await;
    let request = alive.lock("turns:geo").permits(2);
    let alive = tokio::spawn(request.wait(Duration::from_secs(30)).acquire());
    wait::until("it is queued", || queued() == 1).await;
    let words = ["geo", "2", "30000", "30", "1"];
    let mut dead = Worker::start("turns", &server.url(), &record, &words);
    dead.says("ready");
    dead.tell("go");
    wait::until("both are queued", || queued() == 2).await;
    dead.kill();
    wait::until("the server sees it go", || server.subscribers() == 1).await;
    let first = alive.await.unwrap().unwrap();
    let start = Instant::now();
    let second = locks.lock("turns:geo").permits(2);
    let second = second
        .wait(Duration::from_secs(40))
        .acquire()
        .await
        .unwrap();
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    assert_ne!(first.slot(), second.slot());
    drop((first, second, held));
}

/// What the server does for a call does not grow with the permits, and little with the holders.
#[tokio::test]
async fn a_million_permits_cost_no_more_than_ten() {
    let (server, locks) = pair().await;
    let mut costs = Vec::new();
    for (key, permits) in [("ten", 10), ("million", 1_000_000)] {
        let ask = |weight| locks.lock(key).permits(permits).weight(weight).acquire();
        let first = ask(1).await.unwrap();
        let before = server.commands();
        let second = ask(permits - 1).await.unwrap();
        assert_eq!(second.slot(), 1);
        let granted = server.commands().since(&before).total();
        ask(1).await.unwrap_err();
        let refused = server.commands().since(&before).total() - granted;
        second.release().await.unwrap();
        let all = server.commands().since(&before).total();
        costs.push((granted, refused, all - granted - refused));
        first.release().await.unwrap();
    }
    assert_eq!(costs[0], costs[1]);
    let (granted, refused, released) = costs[0];
    println!(
        "commands, in scripts as well: {granted} granted, {refused} refused, {released} released"
    );
    assert!(
        granted <= 16 && refused <= 14 && released <= 16,
        "{costs:?}"
    );
}

#[tokio::test]
async fn what_is_not_a_lock_is_told_as_what_it_is() {
    let (server, locks) = pair().await;
    for (make, found) in [
        ("HSET lock:geo f v", "a hash"),
        ("ZADD lock:geo 1 somebody", "a zset"),
        ("SET lock:geo x", "a string without expiry"),
    ] {
        let _: redis::Value = server.ask(make);
        let alone = locks.lock("geo").acquire().await.unwrap_err();
        let reader = locks.lock("geo").shared().acquire().await.unwrap_err();
        let slot = locks.lock("geo").permits(3).acquire().await.unwrap_err();
        for error in [alone, reader, slot] {
            assert!(matches!(&error, Error::Foreign { .. }), "{error:?}");
            assert!(error.to_string().contains(found), "{error}");
        }
        let _: usize = server.ask("DEL lock:geo");
    }
}

/// Its holder has died, so nobody is told.
#[tokio::test]
async fn the_slot_among_many_whose_lease_ends_goes_to_who_waits() {
    let (server, locks) = pair().await;
    let of = |locks: &Client| locks.lock("geo").permits(200);
    let mut held = Vec::new();
    for slot in 0..200 {
        let ttl = if slot == 70 { TTL / 2 } else { 60 * TTL };
        let request = of(&locks).ttl(ttl).renew(slot != 70);
        held.push(request.acquire().await.unwrap());
    }
    let start = Instant::now();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let other = client(&server).await;
        let request = of(&other).wait(Duration::from_secs(30));
        calls.push(tokio::spawn(async move { request.acquire().await }));
    }
    for _ in 0..3 {
        wait::within("one is served", TTL / 2 + LOOK + SLACK, || {
            calls.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
        let ended = calls.iter().position(tokio::task::JoinHandle::is_finished);
        let lease = calls.swap_remove(ended.unwrap()).await.unwrap().unwrap();
        assert_eq!(lease.slot(), 70);
        lease.release().await.unwrap();
    }
    assert!(
        start.elapsed() < TTL / 2 + LOOK + SLACK,
        "{:?}",
        start.elapsed()
    );
    assert_eq!(server.waiters("lock:geo"), 0);
    assert_eq!(server.holders("lock:geo").len(), 199);
    drop(held);
}
