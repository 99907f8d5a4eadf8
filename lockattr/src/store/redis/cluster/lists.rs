//! Several locks in different hash slots: one after the other, in the order of their keys.
//!
//! No script takes keys of two slots, so these steps are not atomic: others see a part of the locks held for
//! as long as the rest is asked for. What was taken is given back on a miss, before the claim waits for
//! the lock that was missing; so nobody who holds one lock waits for another, and no order of claims ends
//! in a deadlock. Locks that are in the same slot are taken in one step.

use std::time::{Duration, Instant};

use super::Cluster;
use super::slots::slot_of;
use crate::runtime::together::{Boxed, all};
use crate::store::redis::fault::Fault;
use crate::store::redis::timeouts::Deadline;
use crate::store::{Acquired, Attempt, Claim, Found, Held, Leave, Release, Token};

/// So often a claim asks for its other locks that was granted the missing one while it was about to wait.
const ROUNDS: u32 = 8;

/// The locks of a claim that are in one hash slot.
struct ListPart {
    /// Which of the claim's locks.
    indices: Vec<usize>,
    locks: Vec<String>,
}

impl ListPart {
    fn claim<'a>(&'a self, whole: Claim<'a>) -> Claim<'a> {
        Claim {
            locks: &self.locks,
            ..whole
        }
    }
}

/// The parts of a claim, in the order of their first keys.
fn parts(claim: &Claim<'_>) -> Vec<ListPart> {
    let mut order: Vec<_> = claim.locks.iter().enumerate().collect();
    order.sort_by_key(|(_, lock)| *lock);
    let mut parts: Vec<(u16, ListPart)> = Vec::new();
    for (index, lock) in order {
        let slot = slot_of(lock);
        let known = parts.iter().position(|(known, _)| *known == slot);
        let at = known.unwrap_or_else(|| {
            let (indices, locks) = (Vec::new(), Vec::new());
            parts.push((slot, ListPart { indices, locks }));
            parts.len() - 1
        });
        let (_, part) = &mut parts[at];
        part.indices.push(index);
        part.locks.push(lock.clone());
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

impl Cluster {
    pub(super) async fn acquire_list(
        &self,
        claim: Claim<'_>,
        mut attempt: Attempt,
    ) -> Result<Acquired, Fault> {
        let parts = parts(&claim);
        // As long again is left to give back what was taken.
        let mut deadline = self.deadline();
        let mut in_doubt = false;
        for round in 1.. {
            let (at, answer) = match self.take(claim, attempt, &parts, &mut deadline).await {
                Ok(until) => return Ok(granted(until, in_doubt)),
                Err(missed) => missed,
            };
            in_doubt |= !self.leave_others(claim, attempt, &parts, at).await;
            let waits = !attempt.wait.is_zero();
            let answer = match answer {
                // Nothing was held when that of the first was refused, so that it waits already.
                Ok(Acquired::Busy { .. }) if waits && at > 0 && round < ROUNDS => {
                    let missing = parts[at].claim(claim);
                    self.acquire_in_slot(missing, attempt, &mut deadline).await
                }
                answer => answer,
            };
            match answer {
                Ok(Acquired::Granted { in_doubt: late, .. }) => in_doubt |= late,
                Ok(answer) => {
                    let answer = of_whole(answer, &parts[at]);
                    return Ok(if in_doubt { answer.doubtful() } else { answer });
                }
                Err(fault) => return Err(fault.after(in_doubt)),
            }
            attempt.again = true;
        }
        unreachable!("the last round ends with its answer")
    }

    /// Takes one part after the other. The answer is until when all may be relied on; or which part could
    /// not be taken, and why.
    async fn take(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        parts: &[ListPart],
        deadline: &mut Deadline<'_>,
    ) -> Result<Taken, (usize, Result<Acquired, Fault>)> {
        let mut taken: Option<Taken> = None;
        for (at, part) in parts.iter().enumerate() {
            let asked = match at {
                0 => attempt,
                // What waits holds nothing.
                _ => Attempt {
                    wait: Duration::ZERO,
                    ..attempt
                },
            };
            let answer = self.acquire_in_slot(part.claim(claim), asked, deadline);
            match Box::pin(answer).await {
                Ok(Acquired::Granted {
                    until, in_doubt, ..
                }) => {
                    let earlier = taken.map_or((until, in_doubt), |taken| {
                        (taken.0.min(until), taken.1 || in_doubt)
                    });
                    taken = Some(earlier);
                }
                answer => return Err((at, answer)),
            }
        }
        Ok(taken.unwrap_or((Instant::now(), false)))
    }

    /// Gives back what was taken before one part was missed, and the places of the others in their queues.
    /// The answer is whether all is known to be given back.
    async fn leave_others(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        parts: &[ListPart],
        missed: usize,
    ) -> bool {
        let others = parts.iter().enumerate().filter(|(at, _)| {
            // What was asked for before may be held, or waited for, behind the one that was missed.
            *at < missed || attempt.again && *at != missed
        });
        let leaving = others.map(|(_, part)| {
            Box::pin(async move {
                let own = part.claim(claim);
                let mut deadline = self.deadline();
                if attempt.again {
                    let heard = self.nodes.waiters.heard(claim.owner);
                    if !heard.is_empty()
                        && self.leave_queue(own, &heard, &mut deadline).await.is_err()
                    {
                        return false;
                    }
                }
                let release = Release::whatever(false);
                let released = self.release_in_slot(own, release, &mut deadline).await;
                released.is_ok()
            }) as Boxed<'_, bool>
        });
        all(leaving.collect()).await.into_iter().all(|left| left)
    }

    pub(super) async fn release_list(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, Fault> {
        let parts = parts(&claim);
        let leave: Vec<Vec<Leave>> = parts
            .iter()
            .map(|part| {
                let left = part.indices.iter();
                left.filter_map(|index| release.leave.get(*index).cloned())
                    .collect()
            })
            .collect();
        let releasing = parts.iter().zip(&leave).map(|(part, leave)| {
            Box::pin(async move {
                let own = Release { leave, ..release };
                let mut deadline = self.deadline();
                self.release_in_slot(part.claim(claim), own, &mut deadline)
                    .await
            }) as Boxed<'_, _>
        });
        let answers = all(releasing.collect()).await;
        combined(answers, release.slot.is_some())
    }

    /// Draws a token on each part, and raises the counters of the others to the largest: so it is larger
    /// than every token before of any lock, and every later one is larger.
    pub(super) async fn token_of_list(
        &self,
        lease: Held<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Token, Fault> {
        let parts = parts(&lease.claim);
        let mut largest = 0;
        let mut from = 0;
        for (at, part) in parts.iter().enumerate() {
            match self.token_of(part, lease, deadline).await? {
                Token::Drawn(token) if token > largest => (largest, from) = (token, at),
                Token::Drawn(_) => {}
                Token::NotHeld(found) => return Ok(Token::NotHeld(found)),
            }
        }
        let raising = lease.at_least(largest);
        for (_, part) in parts.iter().enumerate().filter(|(at, _)| *at != from) {
            if let Token::NotHeld(found) = self.token_of(part, raising, deadline).await? {
                return Ok(Token::NotHeld(found));
            }
        }
        Ok(Token::Drawn(largest))
    }

    async fn token_of(
        &self,
        part: &ListPart,
        lease: Held<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Token, Fault> {
        let own = Held {
            claim: part.claim(lease.claim),
            ..lease
        };
        self.token_in_slot(own, deadline).await
    }
}

/// Until when all parts may be relied on, and whether an earlier request may still be carried out.
type Taken = (Instant, bool);

fn granted((until, late): Taken, in_doubt: bool) -> Acquired {
    let granted = Acquired::granted(0, until);
    if late || in_doubt {
        granted.doubtful()
    } else {
        granted
    }
}

/// The answer to a part, in the terms of the whole claim.
fn of_whole(mut answer: Acquired, part: &ListPart) -> Acquired {
    if let Acquired::Busy { lock, .. }
    | Acquired::Done { lock, .. }
    | Acquired::Foreign { lock, .. } = &mut answer
    {
        *lock = part.indices.get(*lock).copied().unwrap_or(*lock);
    }
    answer
}

/// What a release has found of all parts: of a lease whether it held all, and of a claim of which that is
/// not known whether it held any.
fn combined(answers: Vec<Result<Found, Fault>>, held: bool) -> Result<Found, Fault> {
    let count = answers.len();
    let (found, faults): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    let found: Vec<_> = found.into_iter().flatten().collect();
    if let Some(fault) = faults.into_iter().find_map(Result::err) {
        // For the others it was done.
        return Err(fault.after(!found.is_empty()));
    }
    let times = |what: Found| found.iter().filter(|one| **one == what).count();
    let ours = times(Found::Ours);
    Ok(if ours == count || !held && ours > 0 {
        Found::Ours
    } else if times(Found::Another) > 0 {
        Found::Another
    } else {
        Found::Nothing
    })
}
