//! Rivals and waiters, of one process and of several.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::firing::fire;
use tests::wait;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{KEY, Nodes, is_busy, take};
use crate::support::{Section, nap};

/// "In time": of a release, or of the moment when a fault is over.
const IN_TIME: Duration = Duration::from_millis(1_500);

async fn clients(nodes: &Nodes, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(nodes.client().await);
    }
    clients
}

#[tokio::test]
async fn of_rivals_at_one_barrier_one_wins_and_the_others_are_told_busy() {
    let nodes = Nodes::start(3);
    for count in [2, 10, 50] {
        let rivals = clients(&nodes, count).await;
        for _ in 0..5 {
            let barrier = Arc::new(Barrier::new(count));
            let mut calls = JoinSet::new();
            for rival in rivals.clone() {
                let barrier = Arc::clone(&barrier);
                calls.spawn(async move {
                    barrier.wait().await;
                    rival.lock(KEY).acquire().await
                });
            }
            let answers = calls.join_all().await;
            let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
            assert_eq!(won.len(), 1, "of {count}");
            assert!(lost.iter().all(is_busy), "{lost:?}");
            drop(won);
            nodes.nothing_left().await;
        }
    }
}

/// Nobody starves, and nobody is inside with another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_have_their_turn() {
    let nodes = Nodes::start(3);
    for count in [2, 10, 50] {
        let section = Arc::new(Section::default());
        let mut calls = JoinSet::new();
        for client in clients(&nodes, count).await {
            let section = Arc::clone(&section);
            calls.spawn(async move {
                for _ in 0..3 {
                    let lease = client.lock(KEY).wait(Duration::from_secs(60));
                    let lease = lease.acquire().await?;
                    section.run(1).await;
                    lease.release().await?;
                }
                Ok::<_, Error>(())
            });
        }
        for call in calls.join_all().await {
            call.expect("it had its turn");
        }
        assert_eq!(section.most(), 1);
        assert_eq!(section.runs(), 3 * count);
        nodes.nothing_left().await;
    }
}

#[tokio::test]
async fn a_release_wakes_who_waits() {
    let nodes = Nodes::start(3);
    let (holder, waiter) = (nodes.client().await, nodes.client().await);
    for _ in 0..5 {
        let lease = take(&holder).await;
        let waits = tokio::spawn(waiter.lock(KEY).wait(Duration::from_secs(30)).acquire());
        let queued = || {
            nodes
                .servers
                .iter()
                .any(|server| server.waiters("lock:sync:42") > 0)
        };
        wait::until("it is queued", queued).await;
        nap(50).await;
        let released = Instant::now();
        lease.release().await.unwrap();
        let next = waits.await.unwrap().unwrap();
        // Sooner than by its own look.
        assert!(
            released.elapsed() < Duration::from_millis(600),
            "{:?}",
            released.elapsed()
        );
        next.release().await.unwrap();
        nodes.nothing_left().await;
    }
}

/// The node whose queue it is goes away under those who wait.
#[tokio::test]
async fn who_waits_is_woken_in_time_when_any_node_is_away() {
    for frozen in [true, false] {
        let nodes = Nodes::start(3);
        let (holder, waiter) = (nodes.client().await, nodes.client().await);
        for server in &nodes.servers {
            let lease = take(&holder).await;
            let waits = tokio::spawn(waiter.lock(KEY).wait(Duration::from_secs(30)).acquire());
            let queued = || {
                nodes
                    .servers
                    .iter()
                    .any(|server| server.waiters("lock:sync:42") > 0)
            };
            wait::until("it is queued", queued).await;
            if frozen {
                server.freeze();
            } else {
                server.kill();
            }
            nap(100).await;
            let released = Instant::now();
            lease.release().await.unwrap();
            let next = waits.await.unwrap().unwrap();
            assert!(released.elapsed() < 2 * IN_TIME, "{:?}", released.elapsed());
            next.release().await.unwrap();
            if frozen {
                server.thaw();
            } else {
                server.restart();
            }
            nodes.nothing_left().await;
        }
    }
}

#[tokio::test]
async fn a_wait_ends_by_its_own_time() {
    let nodes = Nodes::start(3);
    let (holder, waiter) = (nodes.client().await, nodes.client().await);
    let lease = take(&holder).await;
    let start = Instant::now();
    let wait = Duration::from_millis(700);
    assert!(is_busy(&waiter.lock(KEY).wait(wait).acquire().await));
    assert!(start.elapsed() >= wait && start.elapsed() < wait + IN_TIME);
    lease.release().await.unwrap();
    nodes.nothing_left().await;
}

#[test]
fn processes_exclude_each_other() {
    let nodes = Nodes::start(3);
    let fired = fire(3, &nodes.url(), 50, 3);
    assert!(fired.count("done") >= 50);
}
