//! Nodes that are started anew without their data, one after the other, under a lease that is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::wait;

use super::{KEY, LOCK, Nodes, take};
use crate::rights::{least, user};
use crate::support::nap;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_wear_no_lease_out_and_let_nobody_in() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let ttl = Duration::from_secs(2);
    let lease = locks.lock(KEY).ttl(ttl).acquire().await.unwrap();
    let owner = Some(lease.owner().to_owned());
    nodes.all_vote_for(&lease).await;

    let over = Arc::new(AtomicBool::new(false));
    let rival = tokio::spawn({
        let (others, over) = (nodes.client().await, Arc::clone(&over));
        async move {
            let mut asked = 0;
            while !over.load(Ordering::SeqCst) {
                match others.lock(KEY).ttl(ttl).acquire().await {
                    Err(Error::Busy { .. } | Error::Unavailable { .. }) => asked += 1,
                    answer => panic!("a rival was told {answer:?}"),
                }
                nap(20).await;
            }
            asked
        }
    });
    for round in 0..2 {
        for server in &nodes.servers {
            server.kill();
            nap(300).await;
            server.restart();
            let voted = || server.owner(LOCK) == owner;
            wait::within("the node votes for the lease again", 2 * ttl, voted).await;
            // The vote counts from the next renewal.
            nap(u64::try_from(ttl.as_millis()).unwrap() / 2).await;
            assert!(lease.remaining() > Duration::ZERO, "round {round}");
        }
    }
    over.store(true, Ordering::SeqCst);
    assert!(rival.await.unwrap() > 0);
    lease.release().await.unwrap();
    nodes.nothing_left().await;
    take(&locks).await.release().await.unwrap();
}

/// A node that was away when the lease was granted, and one that goes away later: there is a majority all
/// the while.
#[tokio::test]
async fn a_node_that_comes_back_takes_the_place_of_one_that_goes() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let ttl = Duration::from_secs(2);
    nodes.servers[0].kill();
    let lease = locks.lock(KEY).ttl(ttl).acquire().await.unwrap();
    nodes.servers[0].restart();
    // A renewal finds that it answers, and the next that its vote is missing.
    let voted = || nodes.servers[0].owner(LOCK).as_deref() == Some(lease.owner());
    wait::within("the node votes for the lease", 3 * ttl, voted).await;
    nap(1_000).await;
    nodes.servers[1].kill();
    nap(4_000).await;
    assert!(lease.remaining() > Duration::ZERO);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_node_that_was_started_too_early_is_refused_where_that_is_checked() {
    let nodes = Nodes::start(3);
    let checking = |ttl| Client::builder().delayed_restart(ttl).quorum(nodes.urls());
    let hour = Duration::from_secs(3_600);
    let early = checking(hour).await.unwrap_err();
    let told = early.to_string();
    assert!(matches!(early, Error::Invalid { .. }), "{early:?}");
    assert!(
        told.contains("the node at 127.0.0.1:") && told.contains("connect again in"),
        "{told}"
    );
    // One that writes down what it is told may be started at any time.
    for server in &nodes.servers[1..] {
        let _: () = server.ask("CONFIG SET appendonly yes");
    }
    let told = checking(hour).await.unwrap_err().to_string();
    assert!(
        told.contains(&nodes.servers[0].address().to_string()),
        "{told}"
    );
    let _: () = nodes.servers[0].ask("CONFIG SET appendonly yes");
    assert!(checking(hour).await.is_ok());
    // Without the check, and where all have run for long enough.
    let other = Nodes::start(3);
    assert!(Client::builder().quorum(other.urls()).await.is_ok());
    let long_ago = async || {
        let client = Client::builder().delayed_restart(Duration::from_secs(1));
        client.quorum(other.urls()).await.is_ok()
    };
    let start = Instant::now();
    while !long_ago().await {
        assert!(start.elapsed() < Duration::from_secs(20));
        nap(100).await;
    }
}

#[tokio::test]
async fn a_delayed_restart_is_of_a_quorum() {
    let builder = || Client::builder().delayed_restart(Duration::from_secs(30));
    for url in ["redis://127.0.0.1/", "memory:"] {
        let refused = builder().connect_lazily(url).unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused:?}");
        assert!(refused.to_string().contains("is for a quorum"), "{refused}");
    }
}

#[tokio::test]
async fn a_delayed_restart_needs_a_right_of_its_own() {
    let nodes = Nodes::start(3);
    let with = |rights: &str| -> Vec<String> {
        let servers = nodes.servers.iter();
        servers.map(|server| user(server, rights)).collect()
    };
    let checking = || Client::builder().delayed_restart(Duration::from_millis(10));
    let refused = checking().quorum(with(&least())).await.unwrap_err();
    assert!(refused.to_string().contains("`+info`"), "{refused}");
    nap(1_100).await;
    let allowed = with(&format!("{} +info", least()));
    assert!(checking().quorum(allowed).await.is_ok());
}
