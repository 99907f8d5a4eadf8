//! Members that are cut off from each other and not from their clients (16).
//!
//! Each member is a machine of its own, which takes the rights of root; without them there is nothing to see.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease};
use tests::etcd::Etcd;

use crate::support::{ELECTION, SLACK, TTL, client, client_at, nap, nothing_left, take};

fn three_machines() -> Option<Etcd> {
    let cluster = Etcd::on_machines(3);
    if cluster.is_none() {
        eprintln!("not tested: this process may not make networks (`ip netns`)");
    }
    cluster
}

/// A client that knows this member alone.
async fn client_of(cluster: &Etcd, member: usize) -> Client {
    client_at(&cluster.url_of(&[cluster.addresses()[member]])).await
}

/// Long enough for another leader to be elected, and to be renewed there.
const LONG: Duration = Duration::from_secs(9);

/// Takes a key that another holds, at that one's end at the latest.
async fn take_over(locks: &Client, key: &str, held: &Lease) -> Lease {
    let start = Instant::now();
    loop {
        match locks.lock(key).ttl(LONG).acquire().await {
            Ok(lease) => {
                let left = held.remaining();
                assert!(left.is_zero(), "two hold it, the first for {left:?}");
                return lease;
            }
            Err(Error::Busy { .. } | Error::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(start.elapsed() < 4 * TTL + ELECTION, "it is never free");
        nap(20).await;
    }
}

/// What it goes on answering by itself is believed by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_a_leader_without_its_followers_keeps_no_lease_alive() {
    let Some(cluster) = three_machines() else {
        return;
    };
    let leader = cluster.leader();
    let there = client_of(&cluster, leader).await;
    let elsewhere = client_of(&cluster, (leader + 1) % 3).await;
    let held = take(&there, "k").await;
    let other = elsewhere.lock("other").ttl(LONG).acquire().await.unwrap();
    cluster.network().cut_off(leader);
    let next = take_over(&elsewhere, "k", &held).await;
    assert!(other.remaining() > Duration::ZERO, "its members are most");
    // And the same once more, when it is back.
    cluster.network().rejoin(leader);
    cluster.wait_until_serving();
    let start = Instant::now();
    let busy = loop {
        match there.lock("k").ttl(TTL).acquire().await {
            Err(Error::Unavailable { .. }) if start.elapsed() < ELECTION + SLACK => {}
            answer => break answer,
        }
    };
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    next.release().await.unwrap();
    other.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_16_a_follower_on_its_own_costs_those_nothing_who_know_others() {
    let Some(cluster) = three_machines() else {
        return;
    };
    let leader = cluster.leader();
    let alone = (leader + 1) % 3;
    let there = client_of(&cluster, alone).await;
    let everywhere = [client(&cluster).await, client(&cluster).await];
    let held = take(&there, "k").await;
    let mut kept = Vec::new();
    for (number, locks) in everywhere.iter().enumerate() {
        let lock = locks.lock(format!("kept:{number}")).ttl(LONG);
        kept.push(lock.acquire().await.unwrap());
    }
    cluster.network().cut_off(alone);
    let next = take_over(&everywhere[0], "k", &held).await;
    nap(2_000).await;
    for lease in kept {
        assert!(lease.remaining() > Duration::ZERO, "renewed by the others");
        lease.release().await.unwrap();
    }
    // Its term is the highest by then, and the others elect anew.
    cluster.network().rejoin(alone);
    cluster.wait_until_serving();
    next.release().await.unwrap();
    nothing_left(&cluster).await;
}
