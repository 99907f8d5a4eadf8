//! Keep-alives that end in silence, and leases that others end (14).

use std::time::{Duration, Instant};

use crate::support::{
    Meanwhile, SLACK, TTL, client, client_at, nap, nothing_left, take, told_within,
};
use lockattr::{Client, Lease, LossCause};
use tests::etcd::Etcd;
use tests::proxy::{Proxy, Treatment, Way};
use tests::wait;

/// A cluster of one member, a proxy before it, and a client that is connected through the proxy.
async fn behind_a_proxy() -> (Etcd, Proxy, Client) {
    let cluster = Etcd::start(1);
    let proxy = Proxy::before(cluster.addresses()[0]);
    let client = client_at(&cluster.url_of(&[proxy.address()])).await;
    (cluster, proxy, client)
}

async fn lives_for(lease: &Lease, length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        assert!(
            lease.remaining() > Duration::ZERO,
            "lost after {:?}",
            start.elapsed()
        );
        nap(50).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_14_connections_that_are_cut_twice_a_second_lose_no_lease() {
    let (cluster, proxy, locks) = behind_a_proxy().await;
    let lease = take(&locks, "k").await;
    let cutting = Meanwhile::every(Duration::from_millis(500), move || proxy.cut());
    lives_for(&lease, 2 * TTL).await;
    drop(cutting);
    assert!(cluster.get("lock:k").is_some());
    // The proxy has gone with the thread.
    drop(lease);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_14_answers_that_are_swallowed_are_asked_for_on_another_connection() {
    let (cluster, proxy, locks) = behind_a_proxy().await;
    let lease = take(&locks, "k").await;
    proxy.treat(Way::Replies, Treatment::Swallow);
    nap(400).await;
    proxy.heal();
    // What was swallowed stays silent for ever.
    lives_for(&lease, 2 * TTL).await;
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_14_a_restart_of_the_server_loses_no_lease() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let lease = take(&locks, "k").await;
    cluster.restart(0);
    lives_for(&lease, 2 * TTL).await;
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_14_answers_that_come_at_the_end_of_a_lease_are_too_late() {
    let (cluster, proxy, locks) = behind_a_proxy().await;
    let lease = take(&locks, "k").await;
    proxy.treat(Way::Replies, Treatment::Delay(TTL * 29 / 30));
    let start = Instant::now();
    assert_eq!(told_within(TTL, &lease).await, LossCause::Expired);
    assert!(start.elapsed() >= TTL / 2);
    proxy.heal();
    let other = client(&cluster).await;
    let request = other.lock("k").ttl(TTL).wait(Duration::from_secs(10));
    request.acquire().await.unwrap().release().await.unwrap();
}

/// Of a hundred leases one is ended by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_14_the_end_of_one_lease_is_told_of_that_one_and_soon() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let mut leases = Vec::new();
    for number in 0..100 {
        leases.push(take(&locks, &format!("k{number}")).await);
    }
    cluster.revoke(cluster.get("lock:k7").expect("it is held").lease);
    let lost = leases.remove(7);
    assert_eq!(told_within(TTL / 3, &lost).await, LossCause::Deleted);
    nap(3_000).await;
    assert!(
        leases
            .iter()
            .all(|lease| lease.remaining() > Duration::ZERO)
    );
    for lease in leases {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// A key that somebody deletes, or writes over, is told at the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_gone_or_taken_is_told_within_a_third_of_the_ttl() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let (gone, taken) = (take(&locks, "gone").await, take(&locks, "taken").await);
    cluster.delete("lock:gone");
    cluster.put("lock:taken", "something else");
    assert_eq!(told_within(TTL / 3, &gone).await, LossCause::Deleted);
    assert_eq!(told_within(TTL / 3, &taken).await, LossCause::Taken);
    assert_eq!(cluster.get("lock:taken").unwrap().value, "something else");
    let foreign = locks.lock("taken").ttl(TTL).acquire().await;
    assert!(
        matches!(foreign, Err(lockattr::Error::Foreign { .. })),
        "{foreign:?}"
    );
}

/// Fifty leases for six seconds: a keep-alive each for a third of the ttl, on one stream, and one look for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_14_what_is_held_costs_a_keep_alive_for_a_third_of_its_ttl() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let mut leases = Vec::new();
    for number in 0..50 {
        leases.push(take(&locks, &format!("k{number}")).await);
    }
    let before = (cluster.received("LeaseKeepAlive"), cluster.received("Txn"));
    nap(6_000).await;
    let kept = cluster.received("LeaseKeepAlive") - before.0;
    let seen = cluster.received("Txn") - before.1;
    println!("{kept} keep-alives and {seen} looks");
    assert!(
        (200..=400).contains(&kept),
        "{kept} keep-alives, and 300 are due"
    );
    assert!(seen <= kept, "{seen}");
    drop(leases);
    nothing_left(&cluster).await;
}

/// A ttl that is extended needs another lease, under the same holder all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_extended_and_shortened_without_a_gap() {
    let cluster = Etcd::start(1);
    let (locks, others) = (client(&cluster).await, client(&cluster).await);
    let lease = take(&locks, "k").await;
    let trying = tokio::spawn(async move {
        for _ in 0..40 {
            let other = others.lock("k").ttl(TTL).acquire().await;
            assert!(
                matches!(other, Err(lockattr::Error::Busy { .. })),
                "{other:?}"
            );
            nap(20).await;
        }
    });
    for ttl in [60, 2, 30, 5] {
        lease.extend(Duration::from_secs(ttl)).await.unwrap();
        assert!(lease.remaining() <= Duration::from_secs(ttl));
        assert!(lease.remaining() > Duration::from_secs(ttl) / 2);
    }
    trying.await.unwrap();
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

/// What was asked for and not waited for is carried out, or is not: the lease lives, and so does whoever has it next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_that_are_given_up_half_way_cost_no_lease() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    for round in 0..60 {
        let lease = take(&locks, "k").await;
        for ttl in [60, 1] {
            let extending = lease.extend(Duration::from_secs(ttl));
            let patience = Duration::from_micros(200 * (round % 20));
            let _ = tokio::time::timeout(patience, extending).await;
        }
        nap(5).await;
        let released = lease.release().await;
        assert!(released.is_ok(), "{round}: {released:?}");
    }
    nothing_left(&cluster).await;
}

/// One member is gone, and the next one is silent. Already the first keep-alive that it is sent finds that out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_keep_alive_of_a_stream_finds_out_that_a_member_is_silent() {
    let cluster = Etcd::start(1);
    let proxies = [(); 3].map(|()| Proxy::before(cluster.addresses()[0]));
    let url = cluster.url_of(&proxies.each_ref().map(Proxy::address));
    let locks = client_at(&url).await;
    let ttl = Duration::from_secs(12);
    let lease = locks.lock("k").ttl(ttl).acquire().await.unwrap();
    let start = Instant::now();
    // Which one a client begins with is drawn.
    let asked = proxies.iter().position(|proxy| proxy.accepted() > 0);
    let asked = asked.expect("one was asked");
    proxies[(asked + 1) % 3].swallow_all();
    proxies[asked].refuse();
    let before = cluster.received("LeaseKeepAlive");
    wait::until("the lease is renewed", || {
        cluster.received("LeaseKeepAlive") > before
    })
    .await;
    // It is asked after two seconds, waited for for one, and asked again half a second later.
    let took = start.elapsed();
    assert!(took < Duration::from_millis(3_500) + SLACK, "{took:?}");
    lease.release().await.unwrap();
}
