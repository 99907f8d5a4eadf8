//! Setup that are silent, refuse or lose what they answer: a minority costs nothing, and what comes late goes
//! back.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::super::{Acquired, Attempt, Found, Release, Renewal, Store, Token};
use super::super::health::MOST_LATE;
use super::stand_in::{BOUND, Mode, StandIn};
use super::{Setup, TTL, is_granted};

/// What a caller waits at most for a node that others have outvoted.
const AT_ONCE: Duration = Duration::from_millis(50);

const CALLS: usize = 300;

/// How soon after a node goes on nothing is left there.
const CLEARED: Duration = Duration::from_millis(500);

#[tokio::test(start_paused = true)]
async fn a_minority_that_is_away_slows_nobody_and_is_hardly_asked() {
    for mode in [Mode::Frozen, Mode::LosesReplies, Mode::Refuses] {
        for first_of_all in [true, false] {
            let nodes = Setup::new(3);
            let away = &nodes.nodes[if first_of_all { 0 } else { 2 }];
            away.set(mode);
            let start = Instant::now();
            for call in 0..CALLS {
                let owner = format!("holder-{call}");
                assert!(is_granted(&nodes.acquire(&owner).await));
                let claim = nodes.claim(&owner);
                let token = nodes.quorum.token(claim.held(0)).await;
                assert!(matches!(token, Ok(Token::Drawn(_))), "{token:?}");
                let leases = [claim.held(0)];
                let renewed = nodes.quorum.renew(&leases, BOUND).await.expect("an answer");
                assert!(
                    matches!(renewed[..], [Ok(Renewal::Until(_))]),
                    "{renewed:?}"
                );
                assert_eq!(nodes.release(&owner).await, Found::Ours);
            }
            assert!(start.elapsed() < AT_ONCE, "{mode:?}: {:?}", start.elapsed());
            if mode != Mode::Refuses {
                assert!(away.acquires() <= MOST_LATE, "{}", away.acquires());
                let requests = away.requests();
                // A minute of calls is a probe at a time.
                for call in 0..600 {
                    let owner = format!("later-{call}");
                    assert!(is_granted(&nodes.acquire(&owner).await));
                    assert_eq!(nodes.release(&owner).await, Found::Ours);
                    sleep(Duration::from_millis(100)).await;
                }
                let more = away.requests() - requests;
                assert!(more <= 64 + MOST_LATE * 8, "{mode:?}: {more} requests");
                assert!(nodes.known() <= MOST_LATE, "{mode:?}: {}", nodes.known());
            }
            away.set(Mode::InOrder);
            sleep(CLEARED).await;
            assert_eq!(nodes.holders(), [None, None, None], "{mode:?}");
            sleep(TTL).await;
            assert_eq!(nodes.known(), 0, "{mode:?}");
            // It has its vote again.
            assert!(is_granted(&nodes.acquire("last").await));
            sleep(AT_ONCE).await;
            assert!(nodes.holders().iter().all(Option::is_some));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_is_away_is_unavailable_in_time_and_never_busy() {
    for mode in [Mode::Frozen, Mode::LosesReplies, Mode::Refuses] {
        let nodes = Setup::new(5);
        for node in &nodes.nodes[..3] {
            node.set(mode);
        }
        for call in 0..100 {
            let owner = format!("caller-{call}");
            let start = Instant::now();
            let answer = nodes
                .quorum
                .acquire(nodes.claim(&owner), Attempt::default());
            let error = answer.await.expect_err("a majority is away");
            assert!(start.elapsed() <= nodes.quorum.limits().longest_answer);
            let text = error.to_string();
            assert!(text.contains("3 of 5 nodes cannot be asked"), "{text}");
            if error.is_in_doubt() {
                // As the keeper does.
                let claim = nodes.claim(&owner);
                let _ = nodes.quorum.release(claim, Release::whatever(false)).await;
            }
        }
        for node in &nodes.nodes[..3] {
            node.set(Mode::InOrder);
        }
        sleep(CLEARED).await;
        assert!(
            nodes.holders().iter().all(Option::is_none),
            "{mode:?}: {:?}",
            nodes.holders()
        );
        assert!(is_granted(&nodes.acquire("last").await), "{mode:?}");
    }
}

/// Votes of a call that has failed are given back at each node at its own pace.
#[tokio::test(start_paused = true)]
async fn what_a_node_grants_late_is_given_back_where_its_call_has_ended() {
    let nodes = Setup::new(3);
    let (holder, other) = ("holder", "other");
    nodes.nodes[0].set(Mode::Frozen);
    assert!(is_granted(&nodes.acquire(holder).await));
    // The first node has been asked for it and is silent; then it is over.
    assert_eq!(nodes.release(holder).await, Found::Ours);
    assert!(is_granted(&nodes.acquire(other).await));
    sleep(2 * TTL).await;
    nodes.nodes[0].set(Mode::InOrder);
    sleep(CLEARED).await;
    // The second one's lease has expired at the others, and its late vote is a vote of its call.
    let holders = nodes.holders();
    assert_ne!(holders[0].as_deref(), Some(holder));
    nodes.release(other).await;
    sleep(CLEARED).await;
    assert_eq!(nodes.holders(), [None, None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_late_vote_counts_for_a_lease_that_is_held_yet() {
    let nodes = Setup::new(3);
    nodes.nodes[2].set(Mode::Frozen);
    assert!(is_granted(&nodes.acquire("holder").await));
    nodes.nodes[2].set(Mode::InOrder);
    sleep(AT_ONCE).await;
    // One of the first is lost, and the lease has a majority all the same.
    nodes.nodes[0].memory.expire(super::LOCK);
    nodes.nodes[0].set(Mode::Refuses);
    let leases = [nodes.claim("holder").held(0)];
    let renewed = nodes.quorum.renew(&leases, BOUND).await.expect("an answer");
    assert!(
        matches!(renewed[..], [Ok(Renewal::Until(_))]),
        "{renewed:?}"
    );
    let refused = nodes.acquire("other").await;
    assert!(matches!(refused, Acquired::Busy { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_vote_is_taken_at_a_renewal_and_counts_from_the_next() {
    let nodes = Setup::new(3);
    assert!(is_granted(&nodes.acquire("holder").await));
    let renew = async || {
        let leases = [nodes.claim("holder").held(0)];
        let renewed = nodes.quorum.renew(&leases, BOUND).await.expect("an answer");
        sleep(AT_ONCE).await;
        renewed
            .into_iter()
            .next()
            .expect("one answer")
            .expect("an answer")
    };
    // Each is started anew without its data, one after the other.
    for round in 0..6 {
        nodes.nodes[round % 3].memory.expire(super::LOCK);
        let until = renew().await;
        assert!(matches!(until, Renewal::Until(_)), "{until:?}");
        assert!(nodes.holders().iter().all(Option::is_some), "round {round}");
    }
    // Two at a time are too many.
    nodes.nodes[0].memory.expire(super::LOCK);
    nodes.nodes[1].memory.expire(super::LOCK);
    assert_eq!(renew().await, Renewal::Gone);
    assert_eq!(
        nodes.holders().iter().flatten().count(),
        1,
        "nothing is created anew"
    );
}

/// A release that comes while a missing vote is being taken takes it back.
#[tokio::test(start_paused = true)]
async fn no_vote_is_added_to_a_lease_that_is_over() {
    let nodes = Setup::new(3);
    assert!(is_granted(&nodes.acquire("holder").await));
    nodes.nodes[1].memory.expire(super::LOCK);
    let leases = [nodes.claim("holder").held(0)];
    let renewed = nodes.quorum.renew(&leases, BOUND).await.expect("an answer");
    assert!(
        matches!(renewed[..], [Ok(Renewal::Until(_))]),
        "{renewed:?}"
    );
    nodes.nodes[1].set(Mode::Frozen);
    assert_eq!(nodes.release("holder").await, Found::Ours);
    sleep(Duration::from_secs(1)).await;
    nodes.nodes[1].set(Mode::InOrder);
    sleep(CLEARED).await;
    assert_eq!(nodes.holders(), [None, None, None]);
}

/// A node that is farther away than the others has lost its vote as well as any.
#[tokio::test(start_paused = true)]
async fn a_missing_vote_is_taken_at_the_slowest_node_too() {
    let nodes = Setup::of(vec![
        StandIn::default(),
        StandIn::default(),
        StandIn::slow(Duration::from_millis(20)),
    ]);
    assert!(is_granted(&nodes.acquire("holder").await));
    sleep(AT_ONCE).await;
    nodes.nodes[2].memory.expire(super::LOCK);
    let leases = [nodes.claim("holder").held(0)];
    let renewed = nodes.quorum.renew(&leases, BOUND).await.expect("an answer");
    assert!(
        matches!(renewed[..], [Ok(Renewal::Until(_))]),
        "{renewed:?}"
    );
    sleep(AT_ONCE).await;
    assert!(nodes.holders().iter().all(Option::is_some));
}
