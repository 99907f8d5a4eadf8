//! What a store is asked. Implementers read it, and what is added to it later does not break them.

use std::time::Duration;

use super::Sharing;

/// One acquisition, in every step of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// The whole lock keys, the client's prefix included. Never none; where there are several, all are
    /// wanted.
    pub locks: &'a [String],
    /// How many permits the lock has; more than one only of one lock. With one, it has one holder at a time.
    pub permits: u32,
    /// How many of the permits are wanted; from 1 to as many as there are.
    pub weight: u32,
    /// Whether others may hold the lock beside it who want the same: readers. Only of one lock, and without
    /// permits.
    pub shared: bool,
    /// Who asks for it, or holds it.
    pub owner: &'a str,
    /// For how long.
    pub ttl: Duration,
}

impl<'a> Claim<'a> {
    /// A claim to all of the locks, for one holder at a time.
    #[must_use]
    pub fn new(locks: &'a [String], owner: &'a str, ttl: Duration) -> Self {
        Self {
            locks,
            permits: 1,
            weight: 1,
            shared: false,
            owner,
            ttl,
        }
    }

    /// To a lock with as many permits.
    #[must_use]
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// To as many of the permits.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Beside others who want the same.
    #[must_use]
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    pub(crate) fn with(self, sharing: Sharing) -> Self {
        let alone = Self {
            permits: 1,
            weight: 1,
            shared: false,
            ..self
        };
        match sharing {
            Sharing::Alone => alone,
            Sharing::Readers => alone.shared(true),
            Sharing::Permits { permits, weight } => alone.permits(permits).weight(weight),
        }
    }

    pub(crate) fn sharing(&self) -> Sharing {
        match *self {
            Self { shared: true, .. } => Sharing::Readers,
            Self { permits: 0 | 1, .. } => Sharing::Alone,
            Self {
                permits, weight, ..
            } => Sharing::Permits { permits, weight },
        }
    }

    /// What is held of it: all of its locks, or a slot of the only one.
    #[must_use]
    pub fn held(self, slot: usize) -> Held<'a> {
        Held {
            claim: self,
            slot,
            shortens: false,
            at_least: 0,
        }
    }
}

/// What a granted claim holds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Held<'a> {
    /// The claim.
    pub claim: Claim<'a>,
    /// Which slot, of a lock with `permits`: its number among the holders; 0 where there is one, and of readers.
    pub slot: usize,
    /// Whether a renewal is to shorten what is left. If not, it never does: it may be carried out later
    /// than one that was asked for after it.
    pub shortens: bool,
    /// A token that is drawn is no smaller than this.
    pub at_least: u64,
}

impl Held<'_> {
    /// To be renewed for a ttl that may be shorter than what is left.
    #[must_use]
    pub fn shortening(mut self) -> Self {
        self.shortens = true;
        self
    }

    /// To draw a token that is no smaller than one that was drawn elsewhere.
    #[must_use]
    pub fn at_least(mut self, token: u64) -> Self {
        self.at_least = token;
        self
    }
}

/// How a claim is asked for.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Attempt {
    /// Whether it may have been asked for before: after a busy answer, or one that never came.
    pub again: bool,
    /// For how long it will be waited yet where a lock is busy. With zero, a claim that stood in the
    /// store's queue stands there no more.
    pub wait: Duration,
}

impl Attempt {
    /// The first attempt of a claim, which will wait that long.
    #[must_use]
    pub fn first(wait: Duration) -> Self {
        Self { again: false, wait }
    }

    /// A later attempt, which will wait that much longer.
    #[must_use]
    pub fn again(wait: Duration) -> Self {
        Self { again: true, wait }
    }
}

/// What is given back of a claim.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Release<'a> {
    /// Which slot is held of it; where that is not known, whatever was granted: a request may be on its
    /// way yet, and a store that has to ask twice answers what it finds the second time, instead of
    /// taking it that the first time has done it.
    pub slot: Option<usize>,
    /// What is to be left under each of the locks, or under the slot; empty where that is nothing.
    pub leave: &'a [Leave],
    /// Whether a mark of work that is done is to be left also where nothing is there any more: it was
    /// done in time, and the release could not be asked then.
    pub keep_marks: bool,
    /// Whether the claim may stand in the store's queue, in which it is then as it was asked for, its
    /// ttl included.
    pub may_queue: bool,
}

impl<'a> Release<'a> {
    /// Of a lease that holds a slot.
    #[must_use]
    pub fn held(slot: usize, leave: &'a [Leave]) -> Self {
        Self {
            slot: Some(slot),
            leave,
            ..Self::default()
        }
    }

    /// Of a claim of which it is not known what it holds, if anything.
    #[must_use]
    pub fn whatever(may_queue: bool) -> Self {
        Self {
            may_queue,
            ..Self::default()
        }
    }

    /// With marks that are kept where the lock is gone.
    #[must_use]
    pub fn keeping_marks(mut self) -> Self {
        self.keep_marks = true;
        self
    }
}

/// What a release leaves under a lock. A store that does not know one of these keeps no promise, so a
/// new one is a breaking change on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Nothing: the lock is free.
    Nothing,
    /// A lock that nobody holds any more, for this long.
    Closed(Duration),
    /// The mark that the work is done, for this long.
    Done(Duration),
}
