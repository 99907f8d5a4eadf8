//! Locks between clients and processes: exclusion, order, wake-ups, and holders that die.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockattr::{Client, Error, distributed_lock};
use tests::checker::{Rules, check, turns};
use tests::firing::fire;
use tests::record::Record;
use tests::reruns::a_burst_costs_two_runs;
use tests::worker::Worker;
use tests::zookeeper::{Control, Ensemble};

use crate::support::{
    SLACK, a_client, client, millis, nodes, nothing_left, queued, seconds, shared,
};

#[test]
fn four_processes_exclude_each_other() {
    let fired = fire(4, &shared().url(), 30, 3);
    assert!(fired.count("busy") > 0, "{:?}", fired.findings.outcomes);
    let mut control = Control::of(shared().address(0));
    for user in 0..30 {
        assert_eq!(nodes(&mut control, &format!("sync:{user}")), [""; 0]);
    }
}

#[test]
fn processes_that_wait_take_turns() {
    let record = Record::new();
    let words = ["processes", "1", "20000", "5", "2"];
    let start = || Worker::start("turns", &shared().url(), &record, &words);
    let mut workers = [start(), start(), start()];
    for worker in &workers {
        worker.says("ready");
    }
    for worker in &mut workers {
        worker.tell("go");
    }
    tests::wait::block_until("some turns", || {
        record.count(tests::record::Event::Leave) > 60
    });
    for worker in &mut workers {
        worker.tell("stop");
    }
    for worker in &mut workers {
        assert!(worker.finish().success());
    }
    let entries = record.entries();
    let rules = Rules {
        ttl: seconds(20),
        longest_call: seconds(20),
    };
    let findings = check(&entries, rules);
    findings.assert_clean();
    // Each of the six waits for its turn.
    assert_eq!(findings.outcomes.keys().collect::<Vec<_>>(), ["done"]);
    let (fewest, most) = turns::turns(&entries).range();
    assert!(fewest * 2 > most, "{fewest} to {most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_blocks_others_for_its_session() {
    let record = Record::new();
    let locks = client(&shared().url(), seconds(20)).await;
    let words = ["1007", "2000", "60000", "0", "ttl=2000"];
    let mut holder = Worker::start("hold", &shared().url(), &record, &words);
    holder.says("entered");
    holder.kill();
    let killed = Instant::now();
    let asked = locks.lock("sync:1007").wait(seconds(10)).acquire().await;
    let took = killed.elapsed();
    assert!(took > millis(700) && took < seconds(2) + SLACK, "{took:?}");
    asked.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_clients_are_served_in_their_order_and_woken() {
    let mut control = Control::of(shared().address(0));
    let holder = a_client().await;
    let lease = holder.lock("order").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..5 {
        let locks = a_client().await;
        let order = Arc::clone(&order);
        waiters.push(tokio::spawn(async move {
            let lease = locks.lock("order").wait(seconds(30)).acquire().await;
            order.lock().unwrap().push((number, Instant::now()));
            lease.unwrap().release().await.unwrap();
        }));
        queued(&mut control, "order", number + 2).await;
    }
    let released = Instant::now();
    lease.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let order = std::mem::take(&mut *order.lock().unwrap());
    let numbers: Vec<_> = order.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    // One that looked by itself would have waited for most of a second each time.
    let took = order[4].1 - released;
    assert!(took < seconds(2), "{took:?}");
    nothing_left(&mut control, "order", seconds(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_lock_is_told_with_its_holder() {
    let (one, two) = (a_client().await, a_client().await);
    let lease = one.lock("told").acquire().await.unwrap();
    let error = two.lock("told").acquire().await.unwrap_err();
    let pid = std::process::id().to_string();
    match error {
        Error::Busy {
            holder, remaining, ..
        } => {
            assert!(holder.ends_with(&pid), "{holder}");
            assert!(remaining <= seconds(20));
        }
        other => panic!("{other}"),
    }
    lease.release().await.unwrap();
    let next = two.lock("told").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_for_as_long_as_it_is_held_and_ends_with_its_own_ttl() {
    let (one, two) = (a_client().await, a_client().await);
    let held = one.lock("renewed").ttl(seconds(1)).acquire().await.unwrap();
    let left = one.lock("left").ttl(seconds(1)).renew(false);
    let left = left.acquire().await.unwrap();
    tokio::time::sleep(millis(2500)).await;
    assert!(held.remaining() > millis(300), "{:?}", held.remaining());
    assert!(matches!(
        two.lock("renewed").acquire().await,
        Err(Error::Busy { .. })
    ));
    // Its client has deleted it, though its session lives.
    let next = two.lock("left").acquire().await.unwrap();
    next.release().await.unwrap();
    assert!(left.release().await.is_err());
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_and_slots_are_waited_for() {
    let (one, two) = (a_client().await, a_client().await);
    let b = one.lock("list:b").acquire().await.unwrap();
    let both = two.lock_all(["list:a", "list:b"]).wait(seconds(20));
    let both = tokio::spawn(async move { both.acquire().await });
    let mut control = Control::of(shared().address(0));
    queued(&mut control, "list:a", 1).await;
    b.release().await.unwrap();
    let both = both.await.unwrap().unwrap();
    assert!(one.lock("list:a").acquire().await.is_err());
    both.release().await.unwrap();

    let slots = |client: &Client| client.lock("slots").permits(2).wait(seconds(20));
    let first = slots(&one).acquire().await.unwrap();
    let second = slots(&two).acquire().await.unwrap();
    assert_ne!(first.slot(), second.slot());
    let third = slots(&one);
    let third = tokio::spawn(async move { third.acquire().await });
    let begun = Instant::now();
    tokio::time::sleep(millis(200)).await;
    let freed = second.slot();
    second.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    assert_eq!(third.slot(), freed);
    assert!(begun.elapsed() < seconds(1), "{:?}", begun.elapsed());
    first.release().await.unwrap();
    third.release().await.unwrap();

    // A slot that stays closed for a while is none to wait beside.
    let closes = one.lock("slots").permits(2).min_hold(seconds(1));
    let closes = closes.acquire().await.unwrap();
    let second = slots(&two).acquire().await.unwrap();
    closes.release().await.unwrap();
    let third = slots(&one).acquire().await.unwrap();
    assert_ne!(third.slot(), second.slot());
    second.release().await.unwrap();
    third.release().await.unwrap();
    tokio::time::sleep(millis(600)).await;
    nothing_left(&mut control, "slots", seconds(1)).await;
}

#[distributed_lock(key = "once", once = "1500ms", on_done = error, client = locks)]
async fn once(locks: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_ends_by_the_clock_of_the_leader() {
    let (one, two) = (a_client().await, a_client().await);
    let mut control = Control::of(shared().address(0));
    once(&one).await.unwrap();
    let left = nodes(&mut control, "once");
    assert!(
        left.len() == 1 && left[0].starts_with("done-0-"),
        "{left:?}"
    );
    let again = once(&two).await.unwrap_err();
    assert!(matches!(again, Error::Done { .. }), "{again}");

    let held = one.lock("held").min_hold(seconds(1));
    held.acquire().await.unwrap().release().await.unwrap();
    let begun = Instant::now();
    let next = two.lock("held").wait(seconds(10)).acquire().await.unwrap();
    let took = begun.elapsed();
    assert!(took > millis(600) && took < seconds(1) + SLACK, "{took:?}");
    next.release().await.unwrap();
    nothing_left(&mut control, "held", seconds(1)).await;

    tokio::time::sleep(millis(600)).await;
    let next = two.lock("once").acquire().await.unwrap();
    next.release().await.unwrap();
    nothing_left(&mut control, "once", seconds(1)).await;
}

/// The session is kept on the client's own thread.
#[test]
fn a_client_outlives_runtimes_and_a_blocked_one_loses_nothing() {
    let server = Ensemble::single();
    let run = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let locks = run().block_on(client(&server.url(), seconds(2)));
    let lease = run().block_on(async {
        let lease = locks.lock("blocked").acquire().await.unwrap();
        std::thread::sleep(seconds(5));
        assert!(lease.remaining() > millis(500));
        lease
    });
    drop(lease);
    let next = run().block_on(locks.lock("blocked").wait(seconds(2)).acquire());
    run().block_on(next.unwrap().release()).unwrap();
}

/// Servers end the connection on which a request of more than a megabyte comes, whatever else it serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_more_than_a_request_may_have_are_told_before_they_are_sent() {
    let locks = a_client().await;
    let mut control = Control::of(shared().address(0));
    let keys = |count: usize| (0..count).map(|number| format!("{number:01000}"));
    let refused = locks.lock_all(keys(900)).acquire().await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    // With what is left by its release, which is as much again.
    let lease = locks.lock_all(keys(400)).once(millis(1)).acquire();
    let lease = lease.await.unwrap();
    lease.mark_done();
    lease.release().await.unwrap();
    let first = keys(1).next().unwrap_or_default();
    tokio::time::sleep(millis(50)).await;
    let one = locks.lock(&first).acquire().await.unwrap();
    one.release().await.unwrap();
    nothing_left(&mut control, &first, seconds(1)).await;
}

#[test]
fn threads_without_a_runtime_exclude_each_other() {
    tests::threads::exclude_each_other(&shared().url());
}

#[tokio::test]
async fn of_many_events_during_a_run_one_is_seen_to_after_it() {
    let (locks, others) = (a_client().await, a_client().await);
    a_burst_costs_two_runs(&locks, &others, seconds(5)).await;
}
