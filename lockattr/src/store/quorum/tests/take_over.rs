//! Votes that go from one owner to another.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::super::super::{Acquired, Attempt, Found, Renewal, Store};
use super::super::Quorum;
use super::super::claims::{Claims, Phase, SWEPT_FROM};
use super::stand_in::{BOUND, Mode};
use super::{LOCK, Setup, TTL, is_granted};
use crate::error::StoreError;

impl Setup {
    async fn takes_over(&self, quorum: &Quorum, heir: &str) -> Result<Renewal, StoreError> {
        quorum.take_over(self.claim("holder").held(0), heir).await
    }
}

fn is_taken_over(answer: &Result<Renewal, StoreError>) -> bool {
    matches!(answer, Ok(Renewal::Until(_)))
}

/// Also of a lease that has no more than the votes of a majority, which two who had one each would break.
#[tokio::test(start_paused = true)]
async fn of_two_that_take_over_one_has_it() {
    for without in [None, Some(0), Some(1), Some(2)] {
        for round in 0..20 {
            let setup = Setup::new(3);
            assert!(is_granted(&setup.acquire("holder").await));
            sleep(Duration::from_millis(10)).await;
            if let Some(node) = without {
                setup.nodes[node].memory.expire(LOCK);
            }
            let far = |seed: u64| -> Quorum {
                let delay = |node: u64| Duration::from_millis((seed * 7 + node * 5) % 11 + 1);
                let nodes = setup.nodes.iter().zip(0..);
                let nodes: Vec<_> = nodes.map(|(node, index)| node.at(delay(index))).collect();
                Setup::quorum_of(&nodes, &setup.background)
            };
            let (one, other) = (far(round), far(round + 3));
            let answers = tokio::join!(
                setup.takes_over(&one, "one"),
                setup.takes_over(&other, "other")
            );
            let answers = [answers.0, answers.1];
            let taken = answers.iter().filter(|answer| is_taken_over(answer));
            assert_eq!(
                taken.count(),
                1,
                "round {round} without {without:?}: {answers:?}"
            );
            sleep(Duration::from_secs(1)).await;
            let heir = if is_taken_over(&answers[0]) {
                "one"
            } else {
                "other"
            };
            let votes = setup.holders();
            let votes = votes.iter().flatten();
            assert!(votes.clone().all(|owner| owner == heir), "{votes:?}");
            assert!(votes.count() >= 2);
        }
    }
}

/// It has taken one vote, and is not heard of again.
#[tokio::test(start_paused = true)]
async fn one_that_dies_on_its_way_leaves_a_majority_to_the_next() {
    let setup = Setup::new(3);
    assert!(is_granted(&setup.acquire("holder").await));
    sleep(Duration::from_millis(10)).await;
    let lease = setup.claim("holder").held(0);
    let died = setup.nodes[0].memory.take_over(lease, "died").await;
    assert!(is_taken_over(&died));
    let next = setup.another();
    assert!(is_taken_over(&setup.takes_over(&next, "heir").await));
    assert!(matches!(
        setup.takes_over(&next, "late").await,
        Ok(Renewal::Taken)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_is_away_is_not_waited_for_and_a_majority_is_an_outage() {
    for away in 0..3 {
        let setup = Setup::new(3);
        assert!(is_granted(&setup.acquire("holder").await));
        sleep(Duration::from_millis(10)).await;
        setup.nodes[away].set(Mode::Frozen);
        let begun = tokio::time::Instant::now();
        let heir = setup.another();
        assert!(is_taken_over(&setup.takes_over(&heir, "heir").await));
        assert!(begun.elapsed() < BOUND / 4, "{:?}", begun.elapsed());
        setup.nodes[(away + 1) % 3].set(Mode::Frozen);
        let answer = setup.takes_over(&setup.another(), "late").await;
        let error = answer.expect_err("a majority is away");
        assert!(error.is_in_doubt(), "{error}");
        for node in &setup.nodes {
            node.set(Mode::InOrder);
        }
        // Nothing is left of the one that was told that it is not known.
        sleep(Duration::from_secs(5)).await;
        assert!(
            setup
                .holders()
                .iter()
                .flatten()
                .all(|owner| owner == "heir")
        );
        let claim = setup.claim("heir");
        let release = super::super::super::Release::held(0, &[]);
        assert_eq!(
            heir.release(claim, release).await.expect("an answer"),
            Found::Ours
        );
    }
}

/// A reader among readers.
#[tokio::test(start_paused = true)]
async fn a_reader_takes_over_from_a_reader_alone() {
    let setup = Setup::new(5);
    for reader in ["holder", "another"] {
        let claim = setup.claim(reader).shared(true);
        let acquired = setup.quorum.acquire(claim, Attempt::default()).await;
        assert!(acquired.as_ref().is_ok_and(is_granted), "{acquired:?}");
    }
    sleep(Duration::from_millis(10)).await;
    let lease = setup.claim("holder").shared(true).held(0);
    let heir = setup.another();
    assert!(is_taken_over(&heir.take_over(lease, "heir").await));
    let late = heir.take_over(lease, "late").await;
    assert!(matches!(late, Ok(Renewal::Gone)), "{late:?}");
    let answer = setup.acquire("writer").await;
    assert!(matches!(answer, Acquired::Busy { .. }), "{answer:?}");
}

/// A lease that is handed off is never given back where it was granted.
#[tokio::test(start_paused = true)]
async fn leases_that_have_gone_elsewhere_are_forgotten() {
    let node = std::sync::Arc::clone(&Setup::new(3).quorum.nodes[0]);
    let now = Instant::now();
    let fill = async |name: &str, until| {
        for number in 0..SWEPT_FROM {
            let owner = format!("{name}-{number}");
            let asking = node.claims.begin(&owner, Phase::Asking, false).await;
            asking.answered(&Ok(Acquired::granted(0, until)));
            node.claims.hold(&owner, until);
        }
    };
    fill("holder", now + TTL).await;
    let renewed = now + 3 * TTL;
    node.claims.renewed([("holder-7", renewed)].into_iter());
    node.claims.sweep(now + TTL / 2);
    assert_eq!(node.claims.len(), SWEPT_FROM);
    // They are looked for when there are twice as many.
    fill("later", now + 9 * TTL).await;
    node.claims.sweep(now + 2 * TTL);
    assert_eq!(node.claims.len(), SWEPT_FROM + 1);
    assert!(Claims::begin_return(&node, "holder-7").is_some());
}
