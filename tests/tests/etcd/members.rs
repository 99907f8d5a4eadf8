//! Members that are cut off, frozen or gone, and the leader among them (16).

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause};
use tests::etcd::Etcd;
use tests::proxy::Proxy;
use tests::wait;

use crate::support::{
    BOUND, Callers, ELECTION, SLACK, TTL, client, client_at, nap, nothing_left, take, told_within,
};

/// Locks, renewals and wake-ups go on around a fault.
async fn goes_on_around(cluster: &Etcd, locks: [&Client; 2], fault: impl FnOnce()) {
    let [one, two] = locks;
    let ttl = Duration::from_secs(8);
    let held = one.lock("held").ttl(ttl).acquire().await.unwrap();
    let waited_for = one.lock("k").ttl(ttl).acquire().await.unwrap();
    let mut callers = Callers::of("k");
    callers.arrive(cluster, two).await;
    fault();
    let start = Instant::now();
    while start.elapsed() < ELECTION {
        assert!(held.remaining() > Duration::ZERO);
        nap(50).await;
    }
    waited_for.release().await.unwrap();
    callers.within(BOUND + SLACK, 1).await;
    callers.end().await;
    until_granted(two, "other").await.release().await.unwrap();
    nap(4_500).await;
    assert!(
        held.remaining() > Duration::ZERO,
        "renewed by those who are left"
    );
    held.release().await.unwrap();
}

async fn until_granted(locks: &Client, key: &str) -> Lease {
    let start = Instant::now();
    loop {
        match locks.lock(key).ttl(TTL).acquire().await {
            Err(Error::Unavailable { .. }) if start.elapsed() < ELECTION => {}
            lease => return lease.expect("a majority is there"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_a_leader_that_stands_still_loses_no_lease_and_no_waiter() {
    let cluster = Etcd::start(3);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let leader = cluster.leader();
    goes_on_around(&cluster, [&one, &two], || cluster.freeze(leader)).await;
    cluster.thaw(leader);
    cluster.wait_until_serving();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_a_follower_that_stands_still_loses_no_lease_and_no_waiter() {
    let cluster = Etcd::start(3);
    // It is the first of its URL for both; which one a client begins with is drawn.
    let follower = (cluster.leader() + 1) % 3;
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    goes_on_around(&cluster, [&one, &two], || cluster.freeze(follower)).await;
    cluster.thaw(follower);
    cluster.wait_until_serving();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_a_leader_that_is_killed_loses_no_lease_and_no_waiter() {
    let cluster = Etcd::start(3);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let leader = cluster.leader();
    goes_on_around(&cluster, [&one, &two], || cluster.kill(leader)).await;
    cluster.restart(leader);
    cluster.wait_until_serving();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_an_address_that_never_answers_is_left_for_another() {
    let cluster = Etcd::start(1);
    let addresses = cluster.addresses();
    let hole = Proxy::before(addresses[0]);
    hole.swallow_all();
    let url = cluster.url_of(&[hole.address(), addresses[0]]);
    for _ in 0..4 {
        let start = Instant::now();
        let locks = client_at(&url).await;
        let took = start.elapsed();
        assert!(took < BOUND + SLACK, "{took:?}");
        let start = Instant::now();
        take(&locks, "k").await.release().await.unwrap();
        let took = start.elapsed();
        assert!(took < SLACK, "it is asked no more: {took:?}");
    }
    nothing_left(&cluster).await;
}

/// A member without the others has no say, and says so itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_without_a_majority_it_is_an_outage_until_there_is_one() {
    let cluster = Etcd::start(3);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let lease = take(&one, "k").await;
    let mut callers = Callers::of("k");
    callers.arrive(&cluster, &two).await;
    cluster.freeze(0);
    cluster.freeze(1);
    let start = Instant::now();
    let told = one.lock("other").ttl(TTL).acquire().await;
    let took = start.elapsed();
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    assert!(took < BOUND + SLACK, "{took:?}");
    assert_eq!(told_within(TTL, &lease).await, LossCause::Expired);
    drop(lease);
    cluster.thaw(0);
    cluster.thaw(1);
    cluster.wait_until_serving();
    let lease = until_granted(&one, "other").await;
    lease.release().await.unwrap();
    // Whoever waited was told of the outage, or has it now.
    wait::until("nothing stands in the way", || {
        cluster.get("lock:k").is_none()
    })
    .await;
    drop(callers);
    let locks = client(&cluster).await;
    take(&locks, "k").await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cluster_is_an_outage_within_the_bound() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    cluster.kill(0);
    for _ in 0..2 {
        let start = Instant::now();
        let told = locks.lock("k").ttl(TTL).acquire().await;
        assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
        assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
    }
    cluster.restart(0);
    cluster.wait_until_serving();
    until_granted(&locks, "k").await.release().await.unwrap();
}
