//! What a node is asked with, for as long as that takes: a node that is slow answers when the call that
//! has asked is over.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Claim, Held, Leave, Release, Sharing};

/// A [`Claim`].
#[derive(Debug)]
pub(super) struct OwnedClaim {
    pub(super) locks: Vec<String>,
    pub(super) sharing: Sharing,
    pub(super) owner: String,
    pub(super) ttl: Duration,
}

impl OwnedClaim {
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim::new(&self.locks, &self.owner, self.ttl).with(self.sharing)
    }

    /// Of somebody who holds nothing.
    pub(super) fn of_nobody(&self) -> Self {
        self.of("nobody")
    }

    /// The same of another owner.
    pub(super) fn of(&self, owner: &str) -> Self {
        Self {
            locks: self.locks.clone(),
            sharing: self.sharing,
            owner: owner.to_owned(),
            ttl: self.ttl,
        }
    }
}

impl From<Claim<'_>> for OwnedClaim {
    fn from(claim: Claim<'_>) -> Self {
        Self {
            locks: claim.locks.to_vec(),
            sharing: claim.sharing(),
            owner: claim.owner.to_owned(),
            ttl: claim.ttl,
        }
    }
}

/// A [`Held`].
#[derive(Debug)]
pub(super) struct OwnedHeld {
    pub(super) claim: Arc<OwnedClaim>,
    shortens: bool,
}

impl OwnedHeld {
    pub(super) fn held(&self) -> Held<'_> {
        let held = self.claim.claim().held(0);
        if self.shortens {
            held.shortening()
        } else {
            held
        }
    }
}

impl From<&Held<'_>> for OwnedHeld {
    fn from(held: &Held<'_>) -> Self {
        Self {
            claim: Arc::new(held.claim.into()),
            shortens: held.shortens,
        }
    }
}

/// A [`Release`].
#[derive(Debug, Default)]
pub(super) struct OwnedRelease {
    pub(super) slot: Option<usize>,
    leave: Vec<Leave>,
    keep_marks: bool,
    may_queue: bool,
}

impl OwnedRelease {
    /// Of whatever a call has got that has ended.
    pub(super) fn whatever() -> Self {
        Self {
            may_queue: true,
            ..Self::default()
        }
    }

    /// The same for a node that is asked again and again for as long as its marks would stand, where a majority has the
    /// replies: all of them would be kept in memory for as long, and any other majority has a node with each.
    pub(super) fn without_replies(&self) -> Self {
        let leave = self.leave.iter().map(|leave| match leave {
            Leave::Replied(length, _) => Leave::Done(*length),
            other => other.clone(),
        });
        Self {
            slot: self.slot,
            leave: leave.collect(),
            keep_marks: self.keep_marks,
            may_queue: self.may_queue,
        }
    }

    pub(super) fn release(&self) -> Release<'_> {
        Release {
            slot: self.slot,
            leave: &self.leave,
            keep_marks: self.keep_marks,
            may_queue: self.may_queue,
        }
    }

    /// For how long there is any sense in it: as long as what is held lasts, or as what is to be left.
    pub(super) fn lasts(&self, ttl: Duration) -> Duration {
        let left = self.leave.iter().map(Leave::length);
        left.fold(ttl, Duration::max)
    }
}

impl From<Release<'_>> for OwnedRelease {
    fn from(release: Release<'_>) -> Self {
        Self {
            slot: release.slot,
            leave: release.leave.to_vec(),
            keep_marks: release.keep_marks,
            may_queue: release.may_queue,
        }
    }
}
