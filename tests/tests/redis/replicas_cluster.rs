//! Grants that count once replicas have acknowledged them, on several servers: each shard of a cluster, also
//! while a hash slot moves, and each node of a quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockattr::{Client, Error};
use tests::cluster::Cluster;
use tests::version::version;
use tests::wait::{self, PATIENCE};

use crate::replicas::{connected, unacknowledged, waits_for, with_replicas};
use crate::support::{BOUND, nap};

/// For how long replicas are waited for where they answer: not reached.
const LONG: Duration = Duration::from_secs(20);

/// The same where they do not.
const SHORT: Duration = Duration::from_secs(1);

async fn take(locks: &Client, key: &str) {
    let lease = locks.lock(key).acquire().await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn each_shard_has_its_own_replicas() {
    let cluster = Cluster::start(3, 1);
    let locks = connected(1, SHORT, &cluster.url()).await;
    let keys: Vec<_> = (0..3).map(|primary| cluster.key_at(primary, 0)).collect();
    let replica = &cluster.nodes()[cluster.replica_of(0)];
    replica.freeze();
    let why = unacknowledged(locks.lock(&keys[0]).acquire().await).to_string();
    let address = cluster.primary(0).address().to_string();
    assert!(
        why.contains(&address) && why.contains("by 0 of 1 replicas"),
        "{why}"
    );
    take(&locks, &keys[1]).await;
    let list = locks.lock_all([&keys[2], &keys[0]]).acquire().await;
    unacknowledged(list);
    locks
        .lock_all(&keys[1..])
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    replica.thaw();
    wait::within("nothing is left", BOUND, || cluster.left().is_empty()).await;
}

#[tokio::test]
async fn a_grant_is_acknowledged_at_every_stage_of_a_move_of_its_slot() {
    let cluster = Cluster::start(3, 1);
    let locks = connected(1, LONG, &cluster.url()).await;
    let (key, beside) = (cluster.key_at(0, 0), cluster.key_at(0, 1));
    let lock = format!("lock:{key}");
    let held = locks.lock(&key).acquire().await.unwrap();
    let moving = cluster.begin_to_move(&lock, 1);
    take(&locks, &beside).await;
    moving.key(&lock);
    held.release().await.unwrap();
    // The node that it moves to alone may be asked for it.
    take(&locks, &key).await;
    take(&locks, &beside).await;
    moving.end();
    take(&locks, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_their_slot_moves_to_and_fro() {
    let cluster = Cluster::start(3, 1);
    let locks = connected(1, LONG, &cluster.url()).await;
    let key = cluster.key_at(0, 0);
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..4 {
        let (locks, key, over) = (locks.clone(), key.clone(), Arc::clone(&over));
        callers.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let lease = locks.lock(&key).wait(PATIENCE).acquire().await?;
                lease.release().await?;
            }
            Ok::<_, Error>(())
        }));
    }
    let lock = format!("lock:{key}");
    for to in [1, 0, 1, 0] {
        nap(200).await;
        let moving = cluster.begin_to_move(&lock, to);
        nap(200).await;
        moving.key(&lock);
        nap(200).await;
        tokio::task::block_in_place(|| moving.end());
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    wait::within("nothing is left", BOUND, || cluster.left().is_empty()).await;
}

#[tokio::test]
async fn a_ttl_that_would_be_over_before_its_grant_counts_is_refused_everywhere() {
    let cluster = Cluster::start(3, 1);
    let keys: Vec<_> = (0..2).map(|primary| cluster.key_at(primary, 0)).collect();
    let nodes: Vec<_> = (0..3).map(|_| with_replicas(1)).collect();
    let urls = nodes.iter().map(|(primary, _)| primary.url());
    let quorum = waits_for(1, LONG).quorum_lazily(urls).unwrap();
    for locks in [connected(1, LONG, &cluster.url()).await, quorum] {
        for keys in [&keys[..1], &keys] {
            let request = locks.lock_all(keys).ttl(LONG);
            match request.acquire().await {
                Err(Error::Invalid { reason, .. }) => {
                    assert!(reason.contains("replicas"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A user who may write a key and not read it is granted what cannot be acknowledged.
#[tokio::test]
async fn a_grant_that_the_server_refuses_to_look_at_is_refused_alone() {
    if version() < (7, 0) {
        return;
    }
    let (primary, _replicas) = with_replicas(1);
    let rights = "reset on >worker allcommands ~lock:a* ~lock:wait:* ~lock:token:* ~lock:connect* %W~lock:b &*";
    primary.set_user("worker", rights);
    let locks = connected(1, LONG, &primary.url_as("worker", "worker")).await;
    for round in 0..20 {
        let others: Vec<_> = (0..10)
            .map(|key| tokio::spawn(locks.lock(format!("a:{round}:{key}")).acquire()))
            .collect();
        let refused = unacknowledged(locks.lock("b").acquire().await).to_string();
        assert!(refused.contains("NOPERM"), "{refused}");
        for other in others {
            other.await.unwrap().unwrap().release().await.unwrap();
        }
        primary.ask::<()>("DEL lock:b");
    }
}
