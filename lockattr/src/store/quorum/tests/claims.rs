//! What a node may have of a claim, as answers come in any order.

use std::sync::Arc;
use std::time::Instant;

use super::super::super::{Acquired, Found};
use super::super::claims::{Claims, Phase};
use super::super::node::QuorumNode;
use super::{Setup, TTL, is_pending};

const OWNER: &str = "owner";

fn granted() -> Acquired {
    Acquired::granted(0, Instant::now() + TTL)
}

async fn asked(node: &QuorumNode, waits: bool, answer: Acquired) {
    let asking = node.claims.begin(OWNER, Phase::Asking, waits).await;
    asking.answered(&Ok(answer));
}

fn node() -> Arc<QuorumNode> {
    Arc::clone(&Setup::new(3).quorum.nodes[0])
}

#[tokio::test]
async fn a_vote_that_a_release_has_not_found_may_have_been_given_after_it() {
    for (found, may_come) in [
        (Found::Ours, false),
        (Found::Nothing, true),
        (Found::Another, true),
    ] {
        let node = node();
        asked(&node, false, granted()).await;
        node.claims.end(OWNER);
        assert_eq!(node.claims.released(OWNER, found), may_come, "{found:?}");
    }
}

#[tokio::test]
async fn a_request_whose_grant_was_taken_back_already_owes_nothing_when_it_is_answered() {
    let node = node();
    let asking = node.claims.begin(OWNER, Phase::Asking, false).await;
    node.claims.end(OWNER);
    assert!(!node.claims.released(OWNER, Found::Ours));
    node.claims.returned(OWNER);
    asking.answered(&Ok(granted()));
    assert!(!node.claims.is_known(OWNER));
    // One that may be carried out twice does.
    let asking = node.claims.begin(OWNER, Phase::Asking, false).await;
    node.claims.end(OWNER);
    assert!(!node.claims.released(OWNER, Found::Ours));
    asking.answered(&Ok(granted().doubtful()));
    assert!(node.claims.is_owed(OWNER));
}

/// It may be told when its turn has come, though it was not when it asked.
#[tokio::test]
async fn one_that_waits_may_stand_in_the_queue_whatever_place_it_was_told() {
    for place in [None, Some(3)] {
        let node = node();
        let mut busy = Acquired::busy(0, "another", TTL);
        if let Some(place) = place {
            busy = busy.queued(place);
        }
        asked(&node, true, busy).await;
        // A lease stands in no queue.
        node.claims.hold(OWNER, Instant::now() + TTL);
        assert!(node.claims.is_owed(OWNER), "{place:?}");
        assert!(node.claims.released(OWNER, Found::Another), "{place:?}");
    }
}

#[tokio::test]
async fn a_claim_is_given_back_once_at_a_time_and_asks_for_nothing_meanwhile() {
    let node = node();
    asked(&node, false, granted()).await;
    node.claims.end(OWNER);
    let returning = Claims::begin_return(&node, OWNER).expect("there is a vote");
    assert!(Claims::begin_return(&node, OWNER).is_none());
    let mut begin = Box::pin(node.claims.begin(OWNER, Phase::Asking, false));
    assert!(is_pending(begin.as_mut()).await);
    node.claims.returned(OWNER);
    drop(returning);
    begin.await.answered(&Ok(granted()));
    assert!(node.claims.is_known(OWNER));
}

/// What is over is not made a lease again by a vote that is added to it.
#[tokio::test]
async fn a_claim_that_has_ended_is_held_no_more() {
    let node = node();
    asked(&node, false, granted()).await;
    node.claims.hold(OWNER, Instant::now() + TTL);
    assert!(node.claims.is_held(OWNER));
    node.claims.end(OWNER);
    let asking = node.claims.begin(OWNER, Phase::Held, false).await;
    assert!(!node.claims.is_held(OWNER));
    asking.answered(&Ok(granted()));
    assert!(node.claims.is_owed(OWNER));
}

/// A wake-up may be told late: after what it brings was given back by a call that goes on.
#[tokio::test]
async fn a_wake_up_brings_no_vote_that_was_given_back() {
    let until = Instant::now() + TTL;
    let node = node();
    asked(&node, true, Acquired::busy(0, "another", TTL)).await;
    node.claims.handed(OWNER, until);
    assert_eq!(node.claims.take_handed(OWNER), Some(until));
    node.claims.end(OWNER);
    let returning = Claims::begin_return(&node, OWNER).expect("there is a vote");
    node.claims.handed(OWNER, until);
    assert_eq!(node.claims.take_handed(OWNER), None);
    assert!(!node.claims.released(OWNER, Found::Ours));
    node.claims.returned(OWNER);
    drop(returning);
    node.claims.handed(OWNER, until);
    assert_eq!(node.claims.take_handed(OWNER), None);
    // It may be there all the same.
    node.claims.end(OWNER);
    assert!(node.claims.is_owed(OWNER));
    // Asked for anew, it is a vote.
    let node = self::node();
    asked(&node, true, Acquired::busy(0, "another", TTL)).await;
    node.claims.handed(OWNER, until);
    assert_eq!(node.claims.take_handed(OWNER), Some(until));
}
