//! Rivals that meet with uneven delays: somebody wins, and nobody is told busy by nobody.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::super::super::{Acquired, Attempt, Claim, Release, Store};
use super::stand_in::{BOUND, StandIn};
use super::{LOCK, Setup, TTL, is_granted};
use crate::runtime::background::Background;
use crate::runtime::jitter::between;

/// Clients of their own, each of which sees the nodes at other distances.
fn clients(count: usize) -> (Vec<StandIn>, Vec<super::Quorum>) {
    let background = Background::start().expect("a thread");
    let nodes: Vec<_> = (0..3).map(|_| StandIn::default()).collect();
    let clients = (0..count).map(|_| {
        let far = nodes.iter().map(|node| {
            let delay = between(Duration::from_millis(1), Duration::from_millis(20));
            node.at(delay)
        });
        Setup::quorum_of(&far.collect::<Vec<_>>(), &background)
    });
    let clients = clients.collect();
    (nodes, clients)
}

#[tokio::test(start_paused = true)]
async fn of_rivals_at_one_barrier_one_wins() {
    for count in [2, 10, 50] {
        let (nodes, rivals) = clients(count);
        let rivals: Vec<_> = rivals.into_iter().map(Arc::new).collect();
        let (mut without, mut slowest) = (0, Duration::ZERO);
        for round in 0..20 {
            let start = Instant::now();
            let mut calls = JoinSet::new();
            for (number, rival) in rivals.iter().enumerate() {
                let rival = Arc::clone(rival);
                calls.spawn(async move {
                    let locks = [LOCK.to_owned()];
                    let owner = format!("rival-{round}-{number}");
                    let claim = Claim::new(&locks, &owner, TTL);
                    let answer = rival.acquire(claim, Attempt::default()).await;
                    (number, owner.clone(), answer)
                });
            }
            let mut winners = Vec::new();
            let mut named = Vec::new();
            for (number, owner, answer) in calls.join_all().await {
                match answer.expect("it is known who has won") {
                    Acquired::Granted { .. } => winners.push((number, owner)),
                    Acquired::Busy { owner, .. } => named.push(owner),
                    other => panic!("{other:?}"),
                }
            }
            assert!(winners.len() <= 1, "{winners:?}");
            slowest = slowest.max(start.elapsed());
            let Some((number, owner)) = winners.pop() else {
                without += 1;
                continue;
            };
            assert!(
                named.iter().all(|name| *name == owner),
                "busy by another than the winner"
            );
            let locks = [LOCK.to_owned()];
            let claim = Claim::new(&locks, &owner, TTL);
            let release = Release::held(0, &[]);
            rivals[number]
                .release(claim, release)
                .await
                .expect("an answer");
            sleep(Duration::from_millis(500)).await;
            for node in &nodes {
                assert_eq!(node.memory.holder(LOCK), None);
            }
        }
        // Everybody asks three nodes, some of them again, and gives way to whoever has the first vote.
        let asked: usize = nodes.iter().map(StandIn::acquires).sum();
        assert!(
            asked < 30 * 20 * count,
            "{asked} requests of {count} rivals"
        );
        assert!(slowest < BOUND, "a call took {slowest:?}");
        assert_eq!(without, 0, "rounds of {count} rivals without a winner");
    }
}

#[tokio::test(start_paused = true)]
async fn busy_is_told_by_who_has_a_majority() {
    let nodes = Setup::new(3);
    // A vote each that nobody wants any more.
    nodes.nodes[0].memory.take(LOCK, "left-behind", TTL);
    assert!(is_granted(&nodes.acquire("holder").await));
    match nodes.acquire("other").await {
        Acquired::Busy { owner, .. } => assert_eq!(owner, "holder"),
        other => panic!("{other:?}"),
    }
    nodes.release("holder").await;
    // Two that are stuck keep everybody out, and are not a holder.
    nodes.nodes[1].memory.take(LOCK, "stuck", TTL);
    let another = nodes.another();
    let answer = another
        .acquire(nodes.claim("other"), Attempt::default())
        .await;
    let error = answer.expect_err("nobody holds it");
    assert!(error.to_string().contains("split"), "{error}");
    assert!(!error.is_in_doubt());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(nodes.holders()[2], None);
}
