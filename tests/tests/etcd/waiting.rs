//! Those who wait: order, what wakes them, and places that are lost (12, 13).

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockattr::{Client, Lease};
use tests::etcd::{Etcd, Key};
use tests::record::Record;
use tests::reruns::a_burst_costs_two_runs;
use tests::wait;
use tests::worker::Worker;

use crate::support::{Callers, Meanwhile, SLACK, TTL, client, nap, nothing_left, queued, take};

async fn clients<const COUNT: usize>(cluster: &Etcd) -> [Client; COUNT] {
    let mut all = Vec::new();
    for _ in 0..COUNT {
        all.push(client(cluster).await);
    }
    all.try_into().expect("so many")
}

fn places(cluster: &Etcd) -> Vec<Key> {
    cluster.keys("lock:claim:{lock:k}waiter:")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_clients_are_served_in_the_order_in_which_they_came() {
    let cluster = Etcd::start(1);
    let locks = clients::<6>(&cluster).await;
    let held = take(&locks[0], "k").await;
    let mut callers = Callers::of("k");
    for locks in &locks[1..] {
        callers.arrive(&cluster, locks).await;
    }
    held.release().await.unwrap();
    let order = callers.within(SLACK, 5).await;
    assert_eq!(order, [0, 1, 2, 3, 4]);
    callers.end().await;
    nothing_left(&cluster).await;
}

/// Ten hand-overs between eleven clients: what each costs does not grow with those who wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_is_woken_and_costs_a_few_requests_however_many_wait() {
    let cluster = Etcd::start(1);
    let locks = clients::<11>(&cluster).await;
    let held = take(&locks[0], "k").await;
    let mut callers = Callers::of("k");
    for locks in &locks[1..] {
        callers.arrive(&cluster, locks).await;
    }
    let count = |cluster: &Etcd| {
        [
            "Txn",
            "LeaseGrant",
            "LeaseRevoke",
            "LeaseTimeToLive",
            "LeaseKeepAlive",
        ]
        .map(|method| cluster.received(method))
        .iter()
        .sum::<u64>()
    };
    let before = count(&cluster);
    let start = Instant::now();
    held.release().await.unwrap();
    callers.within(SLACK, 10).await;
    let took = start.elapsed();
    callers.end().await;
    let all = count(&cluster) - before;
    println!("{all} requests for ten hand-overs in {took:?}");
    // One takes the lock, one gives it back, and one keeps a lease alive that has run for a while.
    assert!(all <= 40, "{all} requests for ten hand-overs, in {took:?}");
    nothing_left(&cluster).await;
}

/// The lease of a waiter ends under it: it queues again, at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_12_a_waiter_whose_lease_was_revoked_queues_again_at_the_end() {
    let cluster = Etcd::start(1);
    let locks = clients::<4>(&cluster).await;
    let held = take(&locks[0], "k").await;
    let mut callers = Callers::of("k");
    for locks in &locks[1..] {
        callers.arrive(&cluster, locks).await;
    }
    let first = places(&cluster).remove(0);
    cluster.revoke(first.lease);
    wait::until("it stands at the end", || {
        let places = places(&cluster);
        places.len() == 3 && places[2].name == first.name
    })
    .await;
    held.release().await.unwrap();
    assert_eq!(callers.within(SLACK, 3).await, [1, 2, 0]);
    callers.end().await;
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_12_a_waiter_whose_place_was_deleted_queues_again_at_the_end() {
    let cluster = Etcd::start(1);
    let locks = clients::<3>(&cluster).await;
    let held = take(&locks[0], "k").await;
    let mut callers = Callers::of("k");
    for locks in &locks[1..] {
        callers.arrive(&cluster, locks).await;
    }
    let first = places(&cluster).remove(0);
    cluster.delete(&first.name);
    wait::until("it stands at the end", || {
        let places = places(&cluster);
        places.len() == 2 && places[1].name == first.name
    })
    .await;
    held.release().await.unwrap();
    assert_eq!(callers.within(SLACK, 2).await, [1, 0]);
    callers.end().await;
    nothing_left(&cluster).await;
}

/// The place is gone, and the lock is given back before the waiter knows: it is woken, and takes it under a
/// lease that lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_12_a_grant_never_counts_from_a_lease_that_has_ended() {
    let cluster = Etcd::start(1);
    let [one, two, three] = clients::<3>(&cluster).await;
    let held = take(&one, "k").await;
    let waiter = two.lock("k").ttl(TTL).wait(Duration::from_secs(60));
    let waiter = tokio::spawn(waiter.acquire());
    wait::until("it is queued", || queued(&cluster, "k") == 1).await;
    cluster.revoke(places(&cluster)[0].lease);
    held.release().await.unwrap();
    let lease: Lease = waiter.await.unwrap().unwrap();
    for _ in 0..80 {
        nap(50).await;
        let other = three.lock("k").ttl(TTL).acquire().await;
        assert!(other.is_err() && lease.remaining() > Duration::ZERO);
    }
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

/// A waiter that stands still has no place any more when its lease ends, and those behind it keep their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_12_a_frozen_waiter_costs_the_others_no_more_than_its_lease() {
    let cluster = Etcd::start(1);
    let record = Record::new();
    let [one, two] = clients::<2>(&cluster).await;
    let held = take(&one, "sync:42").await;
    let words = ["42", "1000", "0", "60000"];
    let mut frozen = Worker::start("hold", &cluster.url(), &record, &words);
    wait::until("it is queued", || queued(&cluster, "sync:42") == 1).await;
    let mut callers = Callers::of("sync:42");
    callers.arrive(&cluster, &two).await;
    frozen.freeze();
    held.release().await.unwrap();
    // Its lease runs for two seconds, and the server takes up to a second more to end it.
    callers.within(Duration::from_secs(3) + SLACK, 1).await;
    callers.end().await;
    frozen.thaw();
    let outcome = frozen.says("outcome");
    assert!(outcome.contains("Ok"), "{outcome}");
    assert!(frozen.finish().success());
    nothing_left(&cluster).await;
}

/// The newest revision is compacted all the time, and each release wakes the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_13_waiters_are_woken_while_the_history_is_compacted() {
    let cluster = Arc::new(Etcd::start(1));
    let locks = clients::<6>(&cluster).await;
    let compacted = Arc::clone(&cluster);
    let compacting = Meanwhile::every(Duration::from_millis(20), move || {
        compacted.put("other", "x");
        compacted.compact();
    });
    for _ in 0..3 {
        let held = take(&locks[0], "k").await;
        let mut callers = Callers::of("k");
        for locks in &locks[1..] {
            callers.arrive(&cluster, locks).await;
        }
        held.release().await.unwrap();
        assert_eq!(callers.within(SLACK * 2, 5).await, [0, 1, 2, 3, 4]);
        callers.end().await;
    }
    drop(compacting);
    nothing_left(&cluster).await;
}

/// A waiter that stops waiting, in each of the ways in which one does, leaves no place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_waiters_that_give_up_or_are_dropped() {
    let cluster = Etcd::start(1);
    let [one, two, three] = clients::<3>(&cluster).await;
    let held = take(&one, "k").await;
    let patient = tokio::spawn(
        two.lock("k")
            .ttl(TTL)
            .wait(Duration::from_secs(60))
            .acquire(),
    );
    wait::until("it is queued", || queued(&cluster, "k") == 1).await;
    let busy = three
        .lock("k")
        .ttl(TTL)
        .wait(Duration::from_millis(300))
        .acquire()
        .await;
    assert!(
        matches!(busy, Err(lockattr::Error::Busy { .. })),
        "{busy:?}"
    );
    patient.abort();
    wait::within("their places go", SLACK, || queued(&cluster, "k") == 0).await;
    held.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[test]
fn threads_without_a_runtime_exclude_each_other() {
    let cluster = Etcd::start(1);
    tests::threads::exclude_each_other(&cluster.url());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_events_during_a_run_one_is_seen_to_after_it() {
    let cluster = Etcd::start(1);
    let (locks, others) = (client(&cluster).await, client(&cluster).await);
    a_burst_costs_two_runs(&locks, &others, TTL).await;
}
