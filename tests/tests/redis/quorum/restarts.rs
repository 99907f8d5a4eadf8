//! Nodes that are started anew without their data, one after the other, under a lease that is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockattr::Error;
use tests::wait;

use super::{KEY, LOCK, Nodes, take};
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
            let voted = || server.get(LOCK) == owner;
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
    let voted = || nodes.servers[0].get(LOCK).as_deref() == Some(lease.owner());
    wait::within("the node votes for the lease", 3 * ttl, voted).await;
    nap(1_000).await;
    nodes.servers[1].kill();
    nap(4_000).await;
    assert!(lease.remaining() > Duration::ZERO);
    lease.release().await.unwrap();
}
