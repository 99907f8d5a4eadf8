//! What one node has, or may yet get, of each claim.
//!
//! A claim is known here from before the node is asked for it until the node has confirmed that nothing is
//! left of it. So what comes late is counted where it is still wanted, and given back where it is not; and a
//! node that was never asked for a claim owes nothing when it comes back.
//!
//! What is given back of a claim must not meet what the same claim asks for anew. So a node is asked for one
//! thing of a claim at a time.
//!
//! A lease that is handed off is never given back here: it is forgotten some time after its votes have expired.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::super::{Acquired, Found};
use super::node::QuorumNode;
use crate::error::StoreError;

/// As many claims are known at least before those whose time is over are looked for.
pub(super) const SWEPT_FROM: usize = 1024;

/// The claims of one node, by owner.
#[derive(Default)]
pub(super) struct Claims {
    entries: Mutex<HashMap<String, ClaimedVote>>,
    /// With so many claims those whose time is over are taken out.
    sweep_at: AtomicUsize,
    /// A request or a release was answered.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its call goes on.
    Asking,
    /// It is a lease.
    Held,
    /// Nobody wants it any more.
    Ended,
    /// The same, and the node has taken back what it had granted: a request that was carried out before that
    /// may be answered after it.
    TakenBack,
}

#[derive(Debug)]
struct ClaimedVote {
    phase: Phase,
    /// A request is on its way.
    asking: bool,
    /// Whatever there is of it is on its way back.
    returning: bool,
    /// A request was not answered, and may still be carried out.
    in_doubt: bool,
    standing: Standing,
    /// Of a lease, when its votes expire unless they are renewed.
    until: Option<Instant>,
}

/// What a claim was answered last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    /// It stands in the node's queue.
    Queued,
    /// It has the node's vote; and until when it may be relied on where a wake-up has brought it, and
    /// nobody has counted it yet.
    Granted(Option<Instant>),
}

impl ClaimedVote {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            asking: false,
            returning: false,
            in_doubt: false,
            standing: Standing::Nothing,
            until: None,
        }
    }

    fn may_be_there(&self) -> bool {
        self.in_doubt || self.standing != Standing::Nothing
    }
}

fn is_queued(entry: &ClaimedVote) -> bool {
    entry.standing == Standing::Queued
}

impl Claims {
    /// A request begins, which may wait in the node's queue, once no other of the same claim is on its way, nor anything on its way back.
    pub(super) async fn begin(
        &self,
        owner: &str,
        phase: Phase,
        waits: bool,
    ) -> OutstandingRequest<'_> {
        loop {
            let changed = self.changed.notified();
            if self.try_begin(owner, phase) {
                return OutstandingRequest {
                    claims: self,
                    owner: owner.to_owned(),
                    waits,
                    is_answered: false,
                };
            }
            changed.await;
        }
    }

    fn try_begin(&self, owner: &str, phase: Phase) -> bool {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(owner) {
            if entry.asking || entry.returning {
                return false;
            }
            // What is over does not become a lease again.
            if phase == Phase::Asking || matches!(entry.phase, Phase::Asking | Phase::Held) {
                entry.phase = phase;
            }
            entry.asking = true;
            return true;
        }
        let mut entry = ClaimedVote::new(phase);
        entry.asking = true;
        entries.insert(owner.to_owned(), entry);
        true
    }

    fn answered(&self, owner: &str, waits: bool, answer: Option<&Result<Acquired, StoreError>>) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(owner) {
            entry.asking = false;
            match answer {
                Some(Ok(answer)) => {
                    entry.standing = match answer {
                        Acquired::Granted { .. } => Standing::Granted(None),
                        // Also where it is not known whether it will be told when its turn comes.
                        Acquired::Busy { .. } if waits => Standing::Queued,
                        _ => Standing::Nothing,
                    };
                    entry.in_doubt |= answer.is_in_doubt();
                }
                Some(Err(error)) => entry.in_doubt |= error.is_in_doubt(),
                None => entry.in_doubt = true,
            }
            let is_granted = matches!(entry.standing, Standing::Granted(_));
            if entry.phase == Phase::TakenBack && is_granted && !entry.in_doubt {
                entry.standing = Standing::Nothing;
            }
            if !entry.may_be_there() && !entry.returning {
                entries.remove(owner);
            }
        }
        drop(entries);
        self.changed.notify_waiters();
    }

    /// A wake-up has brought the node's vote. Of a claim that stands in no queue it is one that was given back
    /// before the wake-up was told, or may have been: it counts once the node says so.
    pub(super) fn handed(&self, owner: &str, until: Instant) {
        let mut entries = self.entries();
        let entry = entries.entry(owner.to_owned());
        let entry = entry.or_insert_with(|| ClaimedVote::new(Phase::Asking));
        let is_known = !entry.returning && entry.standing != Standing::Nothing;
        entry.standing = Standing::Granted(is_known.then_some(until));
    }

    /// Until when a vote may be relied on that a wake-up has brought since the last time.
    pub(super) fn take_handed(&self, owner: &str) -> Option<Instant> {
        let mut entries = self.entries();
        let entry = entries.get_mut(owner)?;
        let Standing::Granted(handed) = &mut entry.standing else {
            return None;
        };
        let handed = handed.take();
        handed.filter(|_| !entry.returning && !entry.asking)
    }

    pub(super) fn is_known(&self, owner: &str) -> bool {
        self.entries().contains_key(owner)
    }

    /// Whether something of it is on its way, in either direction.
    pub(super) fn is_busy(&self, owner: &str) -> bool {
        let entries = self.entries();
        entries
            .get(owner)
            .is_some_and(|entry| entry.asking || entry.returning)
    }

    /// Whether it is a lease that has this node's vote.
    pub(super) fn is_held(&self, owner: &str) -> bool {
        let entries = self.entries();
        entries.get(owner).is_some_and(|entry| {
            entry.phase == Phase::Held && matches!(entry.standing, Standing::Granted(_))
        })
    }

    /// The claim is a lease from now on.
    pub(super) fn hold(&self, owner: &str, until: Instant) {
        if let Some(entry) = self.entries().get_mut(owner) {
            entry.phase = Phase::Held;
            entry.until = Some(until);
        }
    }

    /// The node's votes for leases last until then.
    pub(super) fn renewed<'a>(&self, owners: impl Iterator<Item = (&'a str, Instant)>) {
        let mut entries = self.entries();
        for (owner, until) in owners {
            if let Some(entry) = entries.get_mut(owner) {
                entry.until = entry.until.max(Some(until));
            }
        }
    }

    /// Takes out leases that nobody has given back, long enough after their votes have expired.
    pub(super) fn sweep(&self, now: Instant) {
        let mut entries = self.entries();
        if entries.len() < self.sweep_at.load(Ordering::Relaxed).max(SWEPT_FROM) {
            return;
        }
        entries.retain(|_, entry| {
            let is_idle = !entry.asking && !entry.returning && !entry.in_doubt;
            let is_over = entry.until.is_some_and(|until| until < now);
            !(is_idle && is_over && entry.phase == Phase::Held)
        });
        let left = entries.len();
        self.sweep_at.store(2 * left, Ordering::Relaxed);
    }

    /// Another owner has the votes of a lease now.
    pub(super) fn taken_over(&self, owner: &str) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(owner) {
            if entry.asking || entry.returning || entry.in_doubt {
                entry.phase = Phase::Ended;
            } else {
                entries.remove(owner);
            }
        }
    }

    /// Nobody wants it any more: what is on its way is given back when it comes.
    pub(super) fn end(&self, owner: &str) {
        if let Some(entry) = self.entries().get_mut(owner) {
            entry.phase = Phase::Ended;
        }
    }

    pub(super) fn has_ended(&self, owner: &str) -> bool {
        let entries = self.entries();
        entries
            .get(owner)
            .is_some_and(|entry| matches!(entry.phase, Phase::Ended | Phase::TakenBack))
    }

    /// Whether something of it is to be given back now: of one that has ended all that may be there, of a
    /// lease its place in the queue.
    pub(super) fn is_owed(&self, owner: &str) -> bool {
        let entries = self.entries();
        entries.get(owner).is_some_and(|entry| {
            !entry.asking
                && match entry.phase {
                    Phase::Asking => false,
                    Phase::Held => entry.standing == Standing::Queued,
                    Phase::Ended | Phase::TakenBack => entry.may_be_there(),
                }
        })
    }

    /// Begins to give back what there is, until the answer is dropped; `None` where that has begun before,
    /// or there is nothing.
    pub(super) fn begin_return(node: &Arc<QuorumNode>, owner: &str) -> Option<Returning> {
        match node.claims.entries().get_mut(owner) {
            Some(entry) if !entry.returning => entry.returning = true,
            _ => return None,
        }
        Some(Returning {
            node: Arc::clone(node),
            owner: owner.to_owned(),
        })
    }

    fn end_return(&self, owner: &str) {
        if let Some(entry) = self.entries().get_mut(owner) {
            entry.returning = false;
        }
        self.changed.notify_waiters();
    }

    /// A release was answered: it has found something, or not. The answer is whether something may come of
    /// the claim yet.
    pub(super) fn released(&self, owner: &str, found: Found) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(owner) else {
            return false;
        };
        let had_nothing = entry.standing == Standing::Nothing;
        if entry.asking && found == Found::Ours && had_nothing && !entry.in_doubt {
            entry.phase = Phase::TakenBack;
            return false;
        }
        // A vote that was not found may have been given after the release was carried out, and a release of a
        // lease leaves no queue.
        entry.asking
            || entry.in_doubt
            || !(had_nothing || found == Found::Ours && !is_queued(entry))
    }

    /// Nothing of it is there any more, nor may come.
    pub(super) fn returned(&self, owner: &str) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(owner) {
            if entry.asking {
                entry.in_doubt = false;
                entry.standing = Standing::Nothing;
            } else {
                entries.remove(owner);
            }
        }
        drop(entries);
        self.changed.notify_waiters();
    }

    /// Waits until no request of a claim is on its way.
    pub(super) async fn is_answered(&self, owner: &str) {
        loop {
            let changed = self.changed.notified();
            let asking = |entry: &ClaimedVote| entry.asking;
            if !self.entries().get(owner).is_some_and(asking) {
                return;
            }
            changed.await;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, ClaimedVote>> {
        // Every change is done or not begun when something panics.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is on its way. Dropped before it is answered, it may still be carried out.
pub(super) struct OutstandingRequest<'a> {
    claims: &'a Claims,
    owner: String,
    /// Whether it may be put into the node's queue.
    waits: bool,
    is_answered: bool,
}

impl OutstandingRequest<'_> {
    pub(super) fn answered(mut self, answer: &Result<Acquired, StoreError>) {
        self.is_answered = true;
        self.claims.answered(&self.owner, self.waits, Some(answer));
    }
}

impl Drop for OutstandingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.claims.answered(&self.owner, self.waits, None);
        }
    }
}

/// Whatever there is of a claim is on its way back.
pub(super) struct Returning {
    node: Arc<QuorumNode>,
    owner: String,
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.node.claims.end_return(&self.owner);
    }
}
