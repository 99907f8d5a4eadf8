//! Counting: what the answers of the nodes come to.

use std::time::{Duration, Instant, SystemTime};

use super::super::{Acquired, Found, Renewal, Renewed, Token};
use crate::error::StoreError;
use crate::reply::KeptReply;

/// How many of so many nodes are a majority: two majorities have a node in common.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Until when votes may be relied on: the last moment at which a majority of the nodes stands by its own.
pub(super) fn relied_on_until(mut untils: Vec<Instant>, nodes: usize) -> Option<Instant> {
    untils.sort_unstable_by(|left, right| right.cmp(left));
    untils.get(majority(nodes) - 1).copied()
}

/// What the votes for one claim come to.
#[derive(Debug)]
pub(super) enum VotesOutcome {
    /// It may be won yet.
    Open,
    /// It is, until then.
    Won(Instant),
    /// It cannot be: the answer says why, and is a majority's.
    Refused(Acquired),
    /// Too many of the nodes cannot be asked.
    Unavailable(StoreError),
    /// Nobody has a majority, as far as it is known: the rival who may have one among the nodes that have not
    /// answered, or else what is to be said of it; and the lock that so many nodes refuse as busy that no majority
    /// can be had, where there is one.
    Split(Result<Acquired, StoreError>, Option<usize>),
}

/// The answers of the nodes to one claim.
pub(super) struct Votes {
    answers: Vec<Option<Result<Acquired, StoreError>>>,
    /// When each was heard: what is left of a lease is less by the time that has gone by since.
    heard: Vec<Instant>,
}

impl Votes {
    pub(super) fn of(nodes: usize, now: Instant) -> Self {
        Self {
            answers: (0..nodes).map(|_| None).collect(),
            heard: vec![now; nodes],
        }
    }

    pub(super) fn put(&mut self, node: usize, answer: Result<Acquired, StoreError>, now: Instant) {
        self.answers[node] = Some(answer);
        self.heard[node] = now;
    }

    /// Whether a majority has answered.
    pub(super) fn has_majority(&self) -> bool {
        let answered = self.answers().filter(|answer| answer.is_ok());
        answered.count() >= majority(self.answers.len())
    }

    /// What they come to; `complete` where no more answers are waited for.
    pub(super) fn outcome(&self, now: Instant, complete: bool) -> VotesOutcome {
        let nodes = self.answers.len();
        let needed = majority(nodes);
        let errors: Vec<_> = self
            .answers()
            .filter_map(|one| one.as_ref().err())
            .collect();
        let silent = nodes - self.answers().count();
        let refusals: Vec<_> = self.refusals().collect();
        if let Some(until) = relied_on_until(self.granted(), nodes) {
            return VotesOutcome::Won(until);
        }
        let strongest = refusals
            .iter()
            .map(|refusal| (self.as_strong_as(refusal), *refusal))
            .max_by_key(|(strength, _)| *strength);
        if let Some((strength, refusal)) = strongest
            && strength >= needed
        {
            return VotesOutcome::Refused(self.refused(refusal, now));
        }
        if errors.len() > nodes - needed {
            return VotesOutcome::Unavailable(unavailable(nodes, &errors));
        }
        if !complete && silent > 0 {
            return VotesOutcome::Open;
        }
        let unknown = errors.len() + silent;
        let may_have_won = strongest.filter(|(strength, refusal)| {
            matches!(refusal, Acquired::Busy { .. }) && strength + unknown >= needed
        });
        let busy = refusals.iter().filter_map(|refusal| match refusal {
            Acquired::Busy { lock, .. } => Some(*lock),
            _ => None,
        });
        let busy: Vec<_> = busy.collect();
        let disputed = busy.first().filter(|_| busy.len() > nodes - needed);
        let rival = match may_have_won {
            Some((_, refusal)) => Ok(self.refused(refusal, now)),
            None if errors.is_empty() => Err(split()),
            None => Err(unavailable(nodes, &errors)),
        };
        VotesOutcome::Split(rival, disputed.copied())
    }

    fn answers(&self) -> impl Iterator<Item = &Result<Acquired, StoreError>> {
        self.answers.iter().flatten()
    }

    fn granted(&self) -> Vec<Instant> {
        let until = |answer: &Result<Acquired, StoreError>| match answer {
            Ok(Acquired::Granted { until, .. }) => Some(*until),
            _ => None,
        };
        self.answers().filter_map(until).collect()
    }

    fn refusals(&self) -> impl Iterator<Item = &Acquired> {
        let refusals = self.answers().filter_map(|answer| answer.as_ref().ok());
        refusals.filter(|answer| !matches!(answer, Acquired::Granted { .. }))
    }

    /// How many nodes refuse for the same reason.
    fn as_strong_as(&self, refusal: &Acquired) -> usize {
        self.refusals()
            .filter(|other| agree(refusal, other))
            .count()
    }

    /// The same refusal as all who agree on it have it.
    fn refused(&self, refusal: &Acquired, now: Instant) -> Acquired {
        let nodes = self.answers.iter().zip(&self.heard);
        let same = nodes.filter_map(|(answer, heard)| {
            let answer = answer.as_ref()?.as_ref().ok()?;
            agree(refusal, answer).then_some((answer, heard))
        });
        match refusal {
            Acquired::Busy {
                lock, owner, since, ..
            } => {
                let untils = same.filter_map(|(one, heard)| match one {
                    Acquired::Busy { remaining, .. } => Some(*heard + *remaining),
                    _ => None,
                });
                // It is over when a majority has let go of it.
                let mut untils: Vec<_> = untils.collect();
                untils.sort_unstable_by(|left, right| right.cmp(left));
                let until = untils[majority(self.answers.len()).min(untils.len()) - 1];
                let remaining = until.saturating_duration_since(now);
                let busy = Acquired::busy(*lock, owner.clone(), remaining);
                match since {
                    Some(since) => busy.since(*since),
                    None => busy,
                }
            }
            Acquired::Done { lock, .. } => {
                let marks = same.filter_map(|(one, _)| match one {
                    Acquired::Done { since, reply, .. } => Some((*since, reply.as_ref())),
                    _ => None,
                });
                let marks: Vec<_> = marks.collect();
                let since = marks.iter().map(|(since, _)| *since).min();
                let done = Acquired::done(*lock, since.unwrap_or(SystemTime::UNIX_EPOCH));
                done.replied(reply(&marks).cloned())
            }
            other => other.clone(),
        }
    }
}

/// The reply that most of the marks bear, and of those the one that was left last. A majority has borne it, so
/// that of every other majority some node does; the others may have heard of the mark alone.
fn reply<'a>(marks: &[(SystemTime, Option<&'a KeptReply>)]) -> Option<&'a KeptReply> {
    let borne = |one: &KeptReply| {
        let same = marks.iter().filter(|(_, reply)| *reply == Some(one));
        same.count()
    };
    let replies = marks
        .iter()
        .filter_map(|(since, reply)| Some((*since, (*reply)?)));
    let most = replies.max_by_key(|(since, reply)| (borne(reply), *since))?;
    Some(most.1)
}

/// What is said where nobody has a majority.
pub(super) fn split() -> StoreError {
    StoreError::refused("the votes of the nodes are split, and nobody has a majority of them")
}

/// Whether two nodes refuse for the same reason.
fn agree(left: &Acquired, right: &Acquired) -> bool {
    match (left, right) {
        (Acquired::Busy { owner, .. }, Acquired::Busy { owner: other, .. }) => owner == other,
        (Acquired::Done { .. }, Acquired::Done { .. })
        | (Acquired::Foreign { .. }, Acquired::Foreign { .. }) => true,
        _ => false,
    }
}

/// What a release has found at the nodes that have answered, if that is enough to know.
pub(super) fn found(answers: &[Option<Result<Found, StoreError>>]) -> Option<Found> {
    let nodes = answers.len();
    let count = |is: fn(Found) -> bool| {
        let found = answers.iter().flatten().flatten();
        found.filter(|found| is(**found)).count()
    };
    if count(|found| found == Found::Ours) >= majority(nodes) {
        return Some(Found::Ours);
    }
    not_held(
        nodes,
        count(|found| found == Found::Nothing),
        count(|found| found == Found::Another),
    )
}

/// What a lease has come to that so many nodes have nothing of, and so many another's; `None` where it may
/// still have a majority.
fn not_held(nodes: usize, gone: usize, taken: usize) -> Option<Found> {
    let lost = gone + taken > nodes - majority(nodes);
    lost.then_some(if taken >= gone {
        Found::Another
    } else {
        Found::Nothing
    })
}

/// What the nodes that have answered know of a lease, if that is enough: it is renewed by a majority, and
/// lost when none can be had any more.
pub(super) fn renewal(answers: &[Option<Renewed>]) -> Option<Renewal> {
    let nodes = answers.len();
    let known = || answers.iter().flatten().flatten();
    let untils = known().filter_map(|renewal| match renewal {
        Renewal::Until(until) => Some(*until),
        Renewal::Gone | Renewal::Taken => None,
    });
    if let Some(until) = relied_on_until(untils.collect(), nodes) {
        return Some(Renewal::Until(until));
    }
    let count = |is: Renewal| known().filter(|renewal| **renewal == is).count();
    match not_held(nodes, count(Renewal::Gone), count(Renewal::Taken))? {
        Found::Another => Some(Renewal::Taken),
        Found::Ours | Found::Nothing => Some(Renewal::Gone),
    }
}

/// The largest token of a majority, or that a majority is not held; `None` where neither is known.
pub(super) fn token(answers: &[Option<Result<Token, StoreError>>]) -> Option<Token> {
    let nodes = answers.len();
    let known = || answers.iter().flatten().flatten();
    let drawn: Vec<u64> = known()
        .filter_map(|token| match token {
            Token::Drawn(token) => Some(*token),
            Token::NotHeld(_) => None,
        })
        .collect();
    if drawn.len() >= majority(nodes) {
        return drawn.into_iter().max().map(Token::Drawn);
    }
    let count = |is: Found| {
        known()
            .filter(|token| **token == Token::NotHeld(is))
            .count()
    };
    let lost = not_held(nodes, count(Found::Nothing), count(Found::Another));
    lost.map(Token::NotHeld)
}

/// The errors among the answers of nodes.
pub(super) fn errors<T>(answers: &[Option<Result<T, StoreError>>]) -> Vec<&StoreError> {
    let answered = answers.iter().flatten();
    answered
        .filter_map(|answer| answer.as_ref().err())
        .collect()
}

/// Why a majority cannot be asked. It is in doubt where one of them is, by replicas where nothing else is; and
/// an outage where those that are away would be missed by every call.
pub(super) fn unavailable(nodes: usize, errors: &[&StoreError]) -> StoreError {
    let count = |is: fn(&StoreError) -> bool| errors.iter().filter(|error| is(error)).count();
    let in_doubt = count(StoreError::is_in_doubt);
    let unacknowledged = count(StoreError::is_unacknowledged);
    let missed = nodes - majority(nodes);
    // What so many nodes never take, whatever their state, the quorum does not either.
    let invalid = errors.iter().find(|error| error.is_invalid());
    if count(StoreError::is_invalid) > missed
        && let Some(invalid) = invalid
    {
        return (*invalid).clone();
    }
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let why = format!(
        "{} of {nodes} nodes cannot be asked, and a majority has to agree: {}",
        errors.len(),
        texts.join("; ")
    );
    if unacknowledged > missed || unacknowledged > 0 && unacknowledged == in_doubt {
        StoreError::unacknowledged(why)
    } else if in_doubt > 0 {
        StoreError::in_doubt(why)
    } else if count(StoreError::is_outage) > missed {
        StoreError::unreachable(why)
    } else {
        StoreError::refused(why)
    }
}

/// For how long the answers of the others are waited for once a majority has answered and nobody has won:
/// a few times as long as the majority has taken.
pub(super) fn grace(taken: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(5);
    (4 * taken).clamp(SHORTEST, super::health::SILENT)
}
