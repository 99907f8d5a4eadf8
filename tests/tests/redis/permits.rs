//! `permits = 3` under many contenders, some of which are killed; and who gets a slot that is free.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease};
use tests::checker::{self, KILL, idle};
use tests::record::{Event, Record};
use tests::server::Server;
use tests::wait;
use tests::worker::Worker;

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
    for worker in &mut workers {
        worker.tell("stop");
    }
    for worker in &mut workers {
        worker.says("finished");
        assert!(worker.finish().success());
    }
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

/// Takes so many slots of a key for somebody else.
fn take_slots(server: &Server, key: &str, count: usize, ttl: &str) {
    let owner = "0123456789abcdef0123456789abcdef@web-7:4711";
    let mut take = redis::pipe();
    for slot in 0..count {
        let name = match slot {
            0 => format!("lock:{key}"),
            slot => format!("lock:slot:{{lock:{key}}}{slot}"),
        };
        take.cmd("SET").arg(name).arg(owner).arg("PX").arg(ttl);
    }
    let client = redis::Client::open(server.url()).unwrap();
    take.exec(&mut client.get_connection().unwrap()).unwrap();
}

/// What the server does for one call grows with the slots by no more than reading them at once.
#[tokio::test]
async fn a_thousand_slots_are_read_with_a_few_commands() {
    let (server, locks) = pair().await;
    let ask = || locks.lock("geo").permits(1_000);
    take_slots(&server, "geo", 1_000, "600000");
    ask().acquire().await.unwrap_err();
    let before = server.commands();
    let refused = ask().acquire().await.unwrap_err();
    let used = server.commands().since(&before);
    assert!(used.total() < 10, "{used:?}");
    let Error::Busy {
        holder, remaining, ..
    } = &refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(holder, "web-7:4711");
    assert!(*remaining > Duration::from_secs(500), "{remaining:?}");

    // One that is free is found, and further ones are not asked about.
    for slot in [1, 500, 999] {
        let _: usize = server.ask(&format!("DEL lock:slot:{{lock:geo}}{slot}"));
    }
    let before = server.commands();
    let lease = ask().acquire().await.unwrap();
    let used = server.commands().since(&before);
    assert!(used.total() < 12, "{used:?}");
    assert_eq!(lease.slot(), 1);
    let next = ask().acquire().await.unwrap();
    assert_eq!(next.slot(), 500);
    drop((lease, next));
}

#[tokio::test]
async fn what_is_not_a_lock_among_many_slots_is_passed_over() {
    let (server, locks) = pair().await;
    let ask = || locks.lock("geo").permits(1_000);
    take_slots(&server, "geo", 1_000, "600000");
    let slot = |number: usize| format!("lock:slot:{{lock:geo}}{number}");
    let _: () = server.words(&["SET", &slot(3), "x"]).unwrap();
    let _: usize = server.words(&["DEL", &slot(7), &slot(9)]).unwrap();
    let _: usize = server.words(&["HSET", &slot(7), "f", "v"]).unwrap();
    let lease = ask().acquire().await.unwrap();
    assert_eq!(lease.slot(), 9);
    let busy = ask().acquire().await.unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy:?}");
    // It speaks of the first that is taken.
    let _: usize = server.ask("DEL lock:geo");
    let _: usize = server.ask("HSET lock:geo f v");
    let foreign = ask().acquire().await.unwrap_err();
    assert!(matches!(foreign, Error::Foreign { .. }), "{foreign:?}");
    lease.release().await.unwrap();
}

/// Its holder has died, so nobody is told.
#[tokio::test]
async fn the_slot_among_many_whose_lease_ends_goes_to_who_waits() {
    let server = Server::start();
    take_slots(&server, "geo", 1_000, "600000");
    let dying = ["PEXPIRE", "lock:slot:{lock:geo}700", "300"];
    let _: usize = server.words(&dying).unwrap();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let other = client(&server).await;
        let request = other
            .lock("geo")
            .permits(1_000)
            .wait(Duration::from_secs(30));
        calls.push(tokio::spawn(async move { request.acquire().await }));
    }
    let start = Instant::now();
    for _ in 0..3 {
        wait::within("one is served", LOOK + SLACK, || {
            calls.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
        let ended = calls.iter().position(tokio::task::JoinHandle::is_finished);
        let lease = calls.swap_remove(ended.unwrap()).await.unwrap().unwrap();
        assert_eq!(lease.slot(), 700);
        lease.release().await.unwrap();
    }
    assert!(start.elapsed() < LOOK + SLACK, "{:?}", start.elapsed());
    assert_eq!(server.waiters("lock:geo"), 0);
}
