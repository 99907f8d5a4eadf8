//! Leases that one process hands off and another takes up, by a majority.

use std::time::{Duration, Instant};

use lockattr::LossCause;
use tests::hand_offs::{Heir, is_lost, taken_up_by_one};
use tests::wait;

use super::{CLEARED, KEY, LOCK, Nodes, is_unavailable, take};
use crate::support::{BOUND, SLACK, nap};

const TTL: Duration = Duration::from_secs(2);

#[test]
fn a_child_goes_on_with_what_its_parent_held_when_that_is_killed() {
    let nodes = Nodes::start(3);
    let heir = Heir::of_a_killed_parent(&nodes.url(), 2000, || {});
    // Longer than the ttl: it is renewed, by all nodes.
    std::thread::sleep(TTL + TTL / 2);
    for server in &nodes.servers {
        let now = server.owner("lock:heritage").expect("it is held");
        assert!(now.ends_with(&format!(":{}", heir.id())), "{now}");
    }
    heir.release();
}

#[tokio::test]
async fn of_many_who_take_it_up_one_has_it_also_where_a_node_is_away() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let mut heirs = Vec::new();
    for _ in 0..4 {
        heirs.push(nodes.client().await);
    }
    for round in 0..12 {
        let away = (round % 4 < 3).then(|| &nodes.servers[round % 4]);
        let lease = take(&locks).await;
        // A bare majority has it where a node had forgotten it.
        if round % 2 == 0 {
            nodes.all_vote_for(&lease).await;
            let _: i64 = nodes.servers[round % 3].ask(&format!("DEL {LOCK}"));
        } else if let Some(server) = away {
            nodes.all_vote_for(&lease).await;
            server.freeze();
        }
        let text = lease.hand_off().unwrap().to_string();
        let taken = taken_up_by_one(&text, &heirs, LossCause::Taken).await;
        if round % 2 == 1
            && let Some(server) = away
        {
            server.thaw();
        }
        taken.release().await.unwrap();
        if round % 2 == 1 {
            // A node that was away has the vote of the owner before until its ttl is over.
            for server in &nodes.servers {
                let _: i64 = server.ask(&format!("DEL {LOCK}"));
            }
            nodes.all_vote_again(&locks).await;
        }
        nodes.nothing_left().await;
        is_lost(locks.take_up(&text).await, LossCause::Deleted);
    }
}

#[tokio::test]
async fn what_nobody_takes_up_ends_with_its_ttl() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let lease = locks.lock(KEY).ttl(TTL).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let begun = Instant::now();
    let next = locks.lock(KEY).wait(Duration::from_secs(30)).acquire();
    let next = next.await.unwrap();
    let took = begun.elapsed();
    assert!(took < TTL + SLACK && took > TTL / 2, "{took:?}");
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    next.release().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    assert_eq!(locks.stats().lost, 0);
    nodes.nothing_left().await;
}

/// The nodes go away on the way of a take-over, and it is given back, or the text is as good as before.
#[tokio::test]
async fn a_majority_that_goes_away_leaves_nothing_half_done() {
    let nodes = Nodes::start(3);
    let (locks, heir) = (nodes.client().await, nodes.client().await);
    let warm = take(&locks).await;
    let warm = heir.take_up(warm.hand_off().unwrap()).await.unwrap();
    warm.release().await.unwrap();
    let lease = take(&locks).await;
    nodes.all_vote_for(&lease).await;
    let text = lease.hand_off().unwrap();
    for server in &nodes.servers[1..] {
        server.freeze();
    }
    let begun = Instant::now();
    let told = heir.take_up(&text).await;
    assert!(is_unavailable(&told), "{told:?}");
    assert!(begun.elapsed() < 2 * BOUND + SLACK, "{:?}", begun.elapsed());
    for server in &nodes.servers[1..] {
        server.thaw();
    }
    let left = || nodes.votes().into_iter().flatten().count();
    wait::within("it is given back", CLEARED + BOUND, || left() == 0).await;
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    // The same of one that is dropped at any of its polls.
    for polls in 1..8 {
        let lease = take(&locks).await;
        let text = lease.hand_off().unwrap();
        let mut call = Box::pin(heir.take_up(&text));
        let taken = crate::support::polled(call.as_mut(), polls);
        let taken = tokio::time::timeout(Duration::from_millis(200), taken).await;
        drop(call);
        let done = matches!(taken, Ok(Some(_)));
        drop(taken);
        if !done {
            nap(50).await;
            if let Ok(lease) = locks.take_up(&text).await {
                lease.release().await.unwrap();
            }
        }
        nodes.nothing_left().await;
    }
}

#[tokio::test]
async fn a_reader_goes_on_elsewhere_beside_other_readers() {
    let nodes = Nodes::start(3);
    let (locks, heir) = (nodes.client().await, nodes.client().await);
    let request = || locks.lock(KEY).shared().ttl(TTL);
    let other = request().acquire().await.unwrap();
    let lease = request().acquire().await.unwrap();
    let token = lease.token().await.unwrap();
    let text = lease.hand_off().unwrap();
    let lease = heir.take_up(&text).await.unwrap();
    assert_eq!(lease.token().await.unwrap(), token);
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    nap(2_500).await;
    assert!(lease.remaining() > Duration::ZERO);
    other.release().await.unwrap();
    assert!(super::is_busy(&locks.lock(KEY).acquire().await));
    lease.release().await.unwrap();
    nodes.nothing_left().await;
}
