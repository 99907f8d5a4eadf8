//! Acquiring: all nodes at once where nobody is known to contend, and the first node first where somebody
//! does.
//!
//! The nodes have an order, which is the same for all clients. Who contends asks the first one that answers
//! and goes on to the others with its vote in hand: of many rivals one has it, and the others stand aside, so
//! that votes are seldom split. Who waits stands in that node's queue, and is handed its vote by a release.
//! The one that has it, and finds the others held, keeps it, so that those behind it stay behind it, and
//! queues at the others as well.
//!
//! Readers hold the lock beside one another, and may be many. They ask the first node first in any case, since it has
//! the queue: of all nodes at once a majority would grant them the lock past a writer that waits. So neither they nor
//! writers starve, by the order of that node; where clients do not agree on which one that is, by that of all nodes
//! in whose queues those stand who have their first node's vote. A majority that refuses a claim may name a reader
//! each, and two nodes may refuse one that waits behind others for different reasons: who holds the lock is asked for
//! then.
//!
//! A call that ends without a lease gives back what it has got: at once where a node has answered, and when
//! it answers where it has not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Acquired, Attempt};
use super::Quorum;
use super::health::SILENT;
use super::owned::OwnedClaim;
use super::requests::Requests;
use super::votes::{self, Votes, VotesOutcome};
use crate::error::StoreError;
use crate::runtime::jitter::between;
use crate::store::relied_on;

/// The pauses between rounds in which nobody has won.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Votes that are older than this belong to somebody who has won.
const NEW: Duration = Duration::from_millis(50);

/// So many looks at the first node find it in changing hands before all nodes are asked: somebody may have
/// won without it.
const LOOKS: u32 = 3;

/// What is left of a ttl is told in whole milliseconds.
const STEP: Duration = Duration::from_millis(1);

/// For how long the others are waited for once a majority has answered in a time and nobody has won.
type Grace = fn(Duration) -> Duration;

/// The one of a call that contends: who is far from a node wins less often, and is not to be kept from it.
fn patient(_: Duration) -> Duration {
    SILENT
}

/// What the first node that answers says to one that contends.
enum First {
    /// Its vote, until then.
    Granted(usize, Instant),
    Refused(Acquired),
    /// None has answered.
    Silent,
}

/// Who was found to have a majority of the votes, and until when.
struct Rival {
    owner: String,
    until: Instant,
}

impl Rival {
    /// Whether it has the votes that it had before: then it is not giving them back.
    fn is_still(&self, before: Option<&Self>) -> bool {
        before.is_some_and(|before| before.owner == self.owner && self.until <= before.until + STEP)
    }
}

impl Quorum {
    pub(super) async fn acquire_votes(
        &self,
        claim: Arc<OwnedClaim>,
        attempt: Attempt,
    ) -> Result<Acquired, StoreError> {
        let begun = self.context.now();
        let mut seen = None;
        if claim.sharing.is_alone() && (attempt.wait.is_zero() || !attempt.again) {
            let now = Attempt {
                wait: Duration::ZERO,
                ..attempt
            };
            match self.ask_all(&claim, now, votes::grace).await {
                VotesOutcome::Won(until) => return Ok(self.won(&claim, until)),
                VotesOutcome::Refused(Acquired::Busy { .. }) if !attempt.wait.is_zero() => {}
                VotesOutcome::Refused(refusal) => {
                    seen = self.is_new(&refusal, claim.ttl, begun);
                    if seen.is_none() {
                        return Ok(refusal);
                    }
                }
                VotesOutcome::Unavailable(error) => return Err(error),
                VotesOutcome::Open | VotesOutcome::Split(..) => {}
            }
        }
        Box::pin(self.contend(&claim, attempt.wait, begun, seen)).await
    }

    /// A rival whose votes are so new that it may be giving them back: they were read one after the other,
    /// and it may have had each at another time.
    fn is_new(&self, refusal: &Acquired, ttl: Duration, asked: Instant) -> Option<Rival> {
        let Acquired::Busy { remaining, .. } = refusal else {
            return None;
        };
        let taken = self.context.now().saturating_duration_since(asked);
        let new = (4 * taken).max(NEW);
        let is_new = *remaining <= ttl && *remaining + new >= ttl;
        is_new.then(|| self.rival(refusal))
    }

    fn rival(&self, refusal: &Acquired) -> Rival {
        let (owner, remaining) = match refusal {
            Acquired::Busy {
                owner, remaining, ..
            } => (owner.clone(), *remaining),
            _ => (String::new(), Duration::ZERO),
        };
        Rival {
            owner,
            until: self.context.now() + remaining,
        }
    }

    /// Asks the first node first, until somebody has won.
    async fn contend(
        &self,
        claim: &Arc<OwnedClaim>,
        wait: Duration,
        begun: Instant,
        mut seen: Option<Rival>,
    ) -> Result<Acquired, StoreError> {
        let last = begun + self.longest_answer / 2;
        let waits = !wait.is_zero();
        let mut pause = FIRST_PAUSE;
        let (mut first_seen, mut looks): (Option<Rival>, u32) = (None, 0);
        loop {
            let asked = self.context.now();
            let outcome = match self.ask_first(claim, wait).await {
                First::Granted(node, until) => {
                    self.ask_others(claim, wait, (node, until), begun).await
                }
                First::Refused(busy @ Acquired::Busy { .. }) if waits => return Ok(busy),
                First::Refused(busy @ Acquired::Busy { .. }) => {
                    let first = self.rival(&busy);
                    looks += 1;
                    // One that may stand behind a writer asks no other node before it is known to be none.
                    if let Some(held) = self.stands_behind(claim, &busy).await {
                        self.give_up(claim);
                        return Ok(held);
                    }
                    if first.is_still(first_seen.as_ref()) || looks % LOOKS == 0 {
                        let asked = self.ask_all(claim, Attempt::again(Duration::ZERO), patient);
                        self.named(claim, asked.await, begun).await
                    } else {
                        // Whoever has that vote goes on to ask for the others, which is not to be disturbed.
                        // It asks for this one anew as long as it goes on.
                        first_seen = Some(first);
                        let taken = self.context.now().saturating_duration_since(asked);
                        self.context.sleep(between(2 * taken, 4 * taken)).await;
                        VotesOutcome::Split(Err(votes::split()), None)
                    }
                }
                First::Refused(_) | First::Silent => {
                    let asked = self.ask_all(claim, Attempt::again(Duration::ZERO), patient);
                    self.named(claim, asked.await, begun).await
                }
            };
            let rival = match outcome {
                VotesOutcome::Won(until) => return Ok(self.won(claim, until)),
                VotesOutcome::Refused(refusal) => match self.is_new(&refusal, claim.ttl, asked) {
                    Some(rival) if !waits && !rival.is_still(seen.as_ref()) => {
                        seen = Some(rival);
                        Ok(refusal)
                    }
                    _ => return Ok(refusal),
                },
                VotesOutcome::Unavailable(error) => return Err(error),
                VotesOutcome::Open => Err(votes::split()),
                VotesOutcome::Split(rival, _) => rival,
            };
            if self.context.now() >= last {
                self.give_up(claim);
                return rival;
            }
            self.context.sleep(between(Duration::ZERO, pause)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Asks all nodes at once. Without a majority everything is given back.
    async fn ask_all(
        &self,
        claim: &Arc<OwnedClaim>,
        attempt: Attempt,
        grace: Grace,
    ) -> VotesOutcome {
        let asked = self.nodes.iter().enumerate();
        let asked = asked.map(|(index, node)| (index, node.acquire(claim, attempt)));
        let votes = Votes::of(self.nodes.len(), self.context.now());
        let outcome = self.count(claim, votes, Requests::new(asked), grace).await;
        if !matches!(outcome, VotesOutcome::Won(_)) {
            self.give_up(claim);
        }
        outcome
    }

    /// Asks the nodes in their order, until one answers.
    async fn ask_first(&self, claim: &Arc<OwnedClaim>, wait: Duration) -> First {
        for (index, node) in self.nodes.iter().enumerate() {
            let handed = node.claims.take_handed(&claim.owner);
            // What has run out by half is asked for anew.
            if let Some(until) = handed
                && self.context.now() + relied_on(claim.ttl) / 2 < until
            {
                return First::Granted(index, until);
            }
            if !node.is_open() {
                continue;
            }
            // What a reader is asked for first is not to be looked for in a queue.
            let again = claim.sharing.is_alone() || node.claims.is_known(&claim.owner);
            let mut request = node.acquire(claim, Attempt { again, wait });
            let answer = self.context.within(SILENT, request.answer.as_mut()).await;
            match answer {
                Ok(Ok(Acquired::Granted { until, .. })) => return First::Granted(index, until),
                Ok(Ok(refusal)) => return First::Refused(refusal),
                Ok(Err(_)) => {}
                Err(_) => node.go_on(claim, request),
            }
        }
        First::Silent
    }

    /// Goes on to the other nodes with the vote of one.
    async fn ask_others(
        &self,
        claim: &Arc<OwnedClaim>,
        wait: Duration,
        (first, until): (usize, Instant),
        begun: Instant,
    ) -> VotesOutcome {
        let mut votes = Votes::of(self.nodes.len(), self.context.now());
        votes.put(first, Ok(Acquired::granted(0, until)), self.context.now());
        let mut asked = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if index == first {
                continue;
            }
            if let Some(until) = node.claims.take_handed(&claim.owner) {
                votes.put(index, Ok(Acquired::granted(0, until)), self.context.now());
            } else {
                let again = node.claims.is_known(&claim.owner);
                let attempt = Attempt { again, wait };
                asked.push((index, node.acquire(claim, attempt)));
            }
        }
        let requests = Requests::new(asked.into_iter());
        let outcome = self.count(claim, votes, requests, patient).await;
        let outcome = self.named(claim, outcome, begun).await;
        match outcome {
            VotesOutcome::Won(_) => outcome,
            // It stays the first of those who wait.
            VotesOutcome::Refused(busy @ Acquired::Busy { .. }) if !wait.is_zero() => {
                VotesOutcome::Refused(busy.queued(0))
            }
            // It goes on asking with this vote in hand.
            VotesOutcome::Split(..) | VotesOutcome::Open => {
                // One alone has that of the first node, and keeps what it has got.
                for (index, node) in self.nodes.iter().enumerate() {
                    if first > 0 && index != first {
                        node.claims.end(&claim.owner);
                        node.give_back_what_is_owed(claim);
                    }
                }
                outcome
            }
            VotesOutcome::Refused(_) | VotesOutcome::Unavailable(_) => {
                self.give_up(claim);
                outcome
            }
        }
    }

    /// Counts the answers until it is known who has won, or a majority has answered and the others let wait
    /// for themselves. What is not answered by then goes on by itself.
    async fn count(
        &self,
        claim: &Arc<OwnedClaim>,
        mut votes: Votes,
        mut requests: Requests<Acquired>,
        grace: Grace,
    ) -> VotesOutcome {
        let begun = self.context.now();
        let outcome = loop {
            match votes.outcome(self.context.now(), false) {
                VotesOutcome::Open => {}
                outcome => break outcome,
            }
            let next = if votes.has_majority() {
                if !requests.are_sent() {
                    break votes.outcome(self.context.now(), true);
                }
                let taken = self.context.now().saturating_duration_since(begun);
                let next = self.context.within(grace(taken), requests.next());
                next.await.unwrap_or(None)
            } else {
                requests.next().await
            };
            let Some((node, answer)) = next else {
                break votes.outcome(self.context.now(), true);
            };
            votes.put(node, answer, self.context.now());
        };
        for (node, request) in requests.into_pending() {
            if let Some(node) = self.nodes.get(node) {
                node.go_on(claim, request);
            }
        }
        outcome
    }

    /// A split is a refusal where somebody has a majority after all, whom those who refuse do not name.
    async fn named(
        &self,
        claim: &OwnedClaim,
        outcome: VotesOutcome,
        begun: Instant,
    ) -> VotesOutcome {
        let VotesOutcome::Split(_, disputed) = &outcome else {
            return outcome;
        };
        // Rivals to have it alone may be giving their votes back.
        let is_soon = claim.sharing.is_alone() && self.context.now() < begun + NEW;
        let lock = disputed.filter(|lock| !is_soon && *lock < claim.locks.len());
        let Some(lock) = lock else {
            return outcome;
        };
        let held = self.held_by_majority(lock, &claim.locks[lock], None).await;
        held.map_or(outcome, VotesOutcome::Refused)
    }

    /// Who holds the lock that a reader was refused by its first node, unless that may not be so at the others.
    async fn stands_behind(&self, claim: &OwnedClaim, refusal: &Acquired) -> Option<Acquired> {
        let Acquired::Busy { lock, owner, .. } = refusal else {
            return None;
        };
        if claim.sharing.is_alone() {
            return None;
        }
        let key = claim.locks.get(*lock)?;
        self.held_by_majority(*lock, key, Some(owner)).await
    }

    fn won(&self, claim: &Arc<OwnedClaim>, until: Instant) -> Acquired {
        for node in self.nodes.iter() {
            node.claims.hold(&claim.owner, until);
            // It stands in no queue any more.
            node.give_back_what_is_owed(claim);
        }
        Acquired::granted(0, until)
    }

    /// Gives back at every node what the claim has got, or gets yet.
    pub(super) fn give_up(&self, claim: &Arc<OwnedClaim>) {
        for node in self.nodes.iter() {
            node.claims.end(&claim.owner);
            node.give_back_what_is_owed(claim);
        }
    }
}
