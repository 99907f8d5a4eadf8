//! The arithmetic of votes.

use std::time::{Duration, Instant, SystemTime};

use super::super::super::{Acquired, Found, Renewal, Token};
use super::super::votes::{self, Votes, VotesOutcome, majority, relied_on_until};
use crate::error::StoreError;
use crate::reply::KeptReply;

fn later(millis: u64) -> Instant {
    // One moment for the whole test program.
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *START + Duration::from_millis(millis)
}

fn granted(millis: u64) -> Acquired {
    Acquired::granted(0, later(millis))
}

fn busy(owner: &str, millis: u64) -> Acquired {
    Acquired::busy(0, owner, Duration::from_millis(millis))
}

fn failed() -> Result<Acquired, StoreError> {
    Err(StoreError::refused("away"))
}

fn outcome(
    nodes: usize,
    answers: Vec<Result<Acquired, StoreError>>,
    complete: bool,
) -> VotesOutcome {
    let mut votes = Votes::of(nodes, later(0));
    for (node, answer) in answers.into_iter().enumerate() {
        votes.put(node, answer, later(0));
    }
    votes.outcome(later(0), complete)
}

#[test]
fn two_majorities_have_a_node_in_common() {
    for nodes in 3..=9 {
        assert!(2 * majority(nodes) > nodes);
        assert!(2 * (majority(nodes) - 1) <= nodes);
    }
}

#[test]
fn a_lease_may_be_relied_on_until_fewer_than_a_majority_stand_by_it() {
    let until = |untils: &[u64], nodes| {
        relied_on_until(untils.iter().map(|millis| later(*millis)).collect(), nodes)
    };
    assert_eq!(until(&[10], 3), None);
    assert_eq!(until(&[10, 30], 3), Some(later(10)));
    // One clock that is set by an hour costs the vote of its node.
    assert_eq!(until(&[10, 30, 20], 3), Some(later(20)));
    assert_eq!(until(&[1, 30, 20, 25, 3_600_000], 5), Some(later(25)));
}

#[test]
fn busy_is_said_where_a_majority_is_anothers() {
    let VotesOutcome::Refused(Acquired::Busy {
        owner, remaining, ..
    }) = outcome(
        3,
        vec![Ok(busy("a", 30)), Ok(granted(10)), Ok(busy("a", 20))],
        false,
    )
    else {
        panic!("a majority is held");
    };
    assert_eq!(
        (owner.as_str(), remaining),
        ("a", Duration::from_millis(20))
    );
    // Rivals have a vote each.
    let split = outcome(
        3,
        vec![Ok(busy("a", 30)), Ok(granted(10)), Ok(busy("b", 20))],
        false,
    );
    assert!(matches!(split, VotesOutcome::Split(Err(_), _)), "{split:?}");
    // Of four, two are not a majority, and keep the other from having one.
    let split = outcome(
        4,
        vec![
            Ok(busy("a", 30)),
            Ok(busy("a", 30)),
            Ok(granted(1)),
            Ok(granted(1)),
        ],
        false,
    );
    assert!(matches!(split, VotesOutcome::Split(Err(_), _)), "{split:?}");
}

#[test]
fn who_may_have_a_majority_among_those_that_are_silent_is_named() {
    let answers = || vec![Ok(busy("a", 30)), Ok(granted(10))];
    assert!(matches!(outcome(3, answers(), false), VotesOutcome::Open));
    let split = outcome(3, answers(), true);
    assert!(
        matches!(split, VotesOutcome::Split(Ok(Acquired::Busy { .. }), _)),
        "{split:?}"
    );
    let split = outcome(3, vec![Ok(busy("a", 30)), Ok(granted(10)), failed()], false);
    assert!(
        matches!(split, VotesOutcome::Split(Ok(Acquired::Busy { .. }), _)),
        "{split:?}"
    );
}

#[test]
fn the_reply_of_a_mark_is_that_of_any_node_which_has_it() {
    let done = |seconds, reply: Option<&str>| {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        Ok(Acquired::done(0, since).replied(reply.map(KeptReply::new)))
    };
    let given = |answers| match outcome(3, answers, false) {
        VotesOutcome::Refused(Acquired::Done { reply, .. }) => {
            reply.map(|reply| reply.as_str().to_owned())
        }
        other => panic!("{other:?}"),
    };
    let (a, b) = (Some("json 1"), Some("json 2"));
    assert_eq!(given(vec![done(1, None), done(2, a)]).as_deref(), a);
    assert_eq!(
        given(vec![done(2, a), failed(), done(1, None)]).as_deref(),
        a
    );
    assert_eq!(given(vec![done(1, None), done(2, None)]), None);
    // A mark that came late is an earlier run's.
    assert_eq!(given(vec![done(1, a), done(2, b)]).as_deref(), b);
    assert_eq!(given(vec![done(2, b), done(1, a)]).as_deref(), b);
}

#[test]
fn what_is_done_foreign_or_away_counts_where_a_majority_says_so() {
    let done = || Ok(Acquired::done(0, SystemTime::UNIX_EPOCH));
    let foreign = || Ok(Acquired::foreign(0, "a hash"));
    let answer = outcome(3, vec![done(), failed(), done()], false);
    assert!(
        matches!(answer, VotesOutcome::Refused(Acquired::Done { .. })),
        "{answer:?}"
    );
    let answer = outcome(3, vec![foreign(), Ok(granted(1)), foreign()], false);
    assert!(
        matches!(answer, VotesOutcome::Refused(Acquired::Foreign { .. })),
        "{answer:?}"
    );
    let answer = outcome(3, vec![foreign(), Ok(granted(1)), Ok(granted(2))], false);
    assert!(matches!(answer, VotesOutcome::Won(_)), "{answer:?}");
    let answer = outcome(3, vec![done(), Ok(granted(1)), Ok(granted(2))], false);
    assert!(matches!(answer, VotesOutcome::Won(_)), "{answer:?}");
    let answer = outcome(3, vec![failed(), Ok(busy("a", 1)), failed()], false);
    assert!(matches!(answer, VotesOutcome::Unavailable(_)), "{answer:?}");
}

#[test]
fn a_lease_is_lost_when_no_majority_can_be_had_any_more() {
    let until = |millis| Some(Ok(Renewal::Until(later(millis))));
    let (gone, taken) = (Some(Ok(Renewal::Gone)), Some(Ok(Renewal::Taken)));
    let failed = || Some(Err(StoreError::refused("away")));
    let of = |answers: &[_]| votes::renewal(answers);
    assert_eq!(
        of(&[until(5), until(7), None]),
        Some(Renewal::Until(later(5)))
    );
    assert_eq!(of(&[until(5), gone.clone(), None]), None);
    assert_eq!(of(&[until(5), gone.clone(), failed()]), None);
    assert_eq!(
        of(&[until(5), gone.clone(), gone.clone()]),
        Some(Renewal::Gone)
    );
    assert_eq!(
        of(&[failed(), taken.clone(), taken.clone()]),
        Some(Renewal::Taken)
    );
    assert_eq!(
        of(&[failed(), gone.clone(), taken.clone()]),
        Some(Renewal::Taken)
    );
    // Of four, two are too few to go on with.
    assert_eq!(
        of(&[until(5), gone.clone(), gone, until(5)]),
        Some(Renewal::Gone)
    );
}

#[test]
fn released_lost_anothers_and_unknown_are_told_apart() {
    let ok = |found| Some(Ok(found));
    let failed = || Some(Err(StoreError::refused("away")));
    let (ours, nothing, another) = (ok(Found::Ours), ok(Found::Nothing), ok(Found::Another));
    let of = |answers: &[_]| votes::found(answers);
    assert_eq!(of(&[ours.clone(), ours.clone(), None]), Some(Found::Ours));
    assert_eq!(
        of(&[ours.clone(), another.clone(), ours.clone()]),
        Some(Found::Ours)
    );
    assert_eq!(
        of(&[ours.clone(), nothing.clone(), nothing.clone()]),
        Some(Found::Nothing)
    );
    assert_eq!(
        of(&[another.clone(), another.clone(), None]),
        Some(Found::Another)
    );
    assert_eq!(of(&[ours.clone(), failed(), nothing.clone()]), None);
    assert_eq!(of(&[ours, failed(), failed()]), None);
}

#[test]
fn a_token_is_a_majoritys() {
    let drawn = |token| Some(Ok(Token::Drawn(token)));
    let not_held = || Some(Ok(Token::NotHeld(Found::Nothing)));
    assert_eq!(votes::token(&[drawn(5), None, None]), None);
    assert_eq!(
        votes::token(&[drawn(5), None, drawn(9)]),
        Some(Token::Drawn(9))
    );
    assert_eq!(
        votes::token(&[not_held(), not_held(), drawn(9)]),
        Some(Token::NotHeld(Found::Nothing))
    );
}
