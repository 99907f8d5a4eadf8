//! `fail_fast` where a store is several servers: what is told at once is what is away.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token,
};
use lockattr::{Client, Memory, StoreError};
use tests::cluster::Cluster;
use tests::server::Server;
use tests::wait::{self, PATIENCE};
use tokio::sync::Notify;

use crate::fail_fast::{LENGTH, ask, is_told};
use crate::replicas::{unacknowledged, waits_for, with_replicas};
use crate::support::{BOUND, nap};

async fn until_granted(locks: &Client, key: &str) {
    let start = Instant::now();
    loop {
        let error = match locks.lock(key).acquire().await {
            Ok(lease) => return lease.release().await.unwrap(),
            Err(error) => error,
        };
        assert!(start.elapsed() < BOUND, "{error}");
        nap(10).await;
    }
}

#[tokio::test]
async fn a_silent_node_of_a_cluster_is_an_outage_of_its_own_locks_alone() {
    let cluster = Cluster::patient();
    let builder = Client::builder().fail_fast(LENGTH);
    let locks = builder.connect(cluster.url()).await.unwrap();
    let keys: Vec<Vec<_>> = (0..3)
        .map(|node| (0..20).map(|number| cluster.key_at(node, number)).collect())
        .collect();
    cluster.freeze(0);
    assert!(!is_told(&ask(&locks, &keys[0][0]).await));
    for ((there, one), other) in keys[0].iter().zip(&keys[1]).zip(&keys[2]).skip(1) {
        for key in [one, other] {
            let lease = locks.lock(key).acquire().await.unwrap();
            lease.release().await.unwrap();
        }
        // Answers of the others say nothing of it.
        let told = ask(&locks, there).await;
        assert!(is_told(&told), "{told}");
        nap(10).await;
    }
    let list = |nodes: [usize; 2]| locks.lock_all(nodes.map(|node| &keys[node][0])).acquire();
    assert!(!is_told(&list([0, 1]).await.unwrap_err()));
    assert!(is_told(&list([0, 1]).await.unwrap_err()));
    list([1, 2]).await.unwrap().release().await.unwrap();
    cluster.thaw(0);
    until_granted(&locks, &keys[0][0]).await;
}

async fn a_majority_is_an_outage_of_a_quorum(away: fn(&Server), back: fn(&Server)) {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let builder = Client::builder().fail_fast(LENGTH);
    let locks = builder.quorum(&urls).await.unwrap();
    away(&servers[1]);
    until_granted(&locks, "first").await;
    away(&servers[2]);
    assert!(!is_told(&ask(&locks, "first").await));
    for call in 0..20 {
        let told = ask(&locks, &format!("key:{call}")).await;
        assert!(is_told(&told), "{told}");
        // Also when the background has asked.
        nap(20).await;
    }
    back(&servers[2]);
    until_granted(&locks, "again").await;
    back(&servers[1]);
}

#[tokio::test]
async fn a_majority_that_is_gone_is_an_outage_of_a_quorum() {
    a_majority_is_an_outage_of_a_quorum(Server::kill, Server::restart).await;
}

#[tokio::test]
async fn a_majority_that_is_silent_is_an_outage_of_a_quorum() {
    a_majority_is_an_outage_of_a_quorum(Server::freeze, Server::thaw).await;
}

/// Replicas of a majority that lag are told as they are of one server, and are no outage.
#[tokio::test]
async fn a_quorum_whose_replicas_lag_says_so() {
    let nodes: Vec<_> = (0..3).map(|_| with_replicas(1)).collect();
    let urls: Vec<_> = nodes.iter().map(|(primary, _)| primary.url()).collect();
    let builder = waits_for(1, Duration::from_secs(1)).fail_fast(LENGTH);
    let start = Instant::now();
    let locks = loop {
        match builder.clone().quorum(&urls).await {
            Ok(locks) => break locks,
            // They may not be in step yet.
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    };
    nodes[0].1[0].freeze();
    until_granted(&locks, "first").await;
    nodes[1].1[0].freeze();
    for key in ["next", "last"] {
        let why = unacknowledged(locks.lock(key).acquire().await).to_string();
        assert!(why.contains("acknowledged by 0 of 1 replicas"), "{why}");
    }
}

/// One request fails after others were answered.
#[derive(Debug, Default)]
struct Late {
    memory: Memory,
    fails: Arc<Notify>,
    is_asked: Arc<AtomicBool>,
}

impl Store for Late {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        if claim.locks[0] != "lock:late" {
            return self.memory.acquire(claim, attempt);
        }
        Box::pin(async {
            self.is_asked.store(true, Ordering::SeqCst);
            self.fails.notified().await;
            Err(StoreError::in_doubt("no answer"))
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        self.memory.renew(leases, patience)
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        if claim.locks[0] == "lock:late" {
            return Box::pin(pending());
        }
        self.memory.release(claim, release)
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.memory.token(lease)
    }
}

#[tokio::test]
async fn a_request_that_fails_when_later_ones_were_answered_is_no_outage() {
    let store = Late::default();
    let (fails, is_asked) = (Arc::clone(&store.fails), Arc::clone(&store.is_asked));
    let builder = Client::builder().fail_fast(LENGTH);
    let locks = builder.store(store).unwrap();
    let late = tokio::spawn({
        let locks = locks.clone();
        async move { ask(&locks, "late").await }
    });
    wait::until("it is asked", || is_asked.load(Ordering::SeqCst)).await;
    until_granted(&locks, "other").await;
    fails.notify_one();
    assert!(!is_told(&late.await.unwrap()));
    let lease = locks.lock("other").acquire().await;
    lease.unwrap().release().await.unwrap();
}
