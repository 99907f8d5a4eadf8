//! What a store answers. Implementers build it, and what is added to it later does not break them.

use std::time::{Duration, Instant, SystemTime};

use crate::error::{LossCause, StoreError};
use crate::reply::KeptReply;

/// The answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquired {
    /// The owner holds all locks, or a slot of the only one.
    #[non_exhaustive]
    Granted {
        /// Which slot.
        slot: usize,
        /// Until when that may be relied on, by the clock of the caller: the store has allowed for how
        /// long the answer took, and for clocks that drift; see [`relied_on_until`].
        until: Instant,
        /// Whether an earlier request of the owner may still be carried out.
        in_doubt: bool,
    },
    /// Somebody else holds one of them.
    #[non_exhaustive]
    Busy {
        /// Which of the locks.
        lock: usize,
        /// The owner that was found.
        owner: String,
        /// How long its lease still runs.
        remaining: Duration,
        /// Since when that owner holds it, if the store says it: by the store's clock, and not from when the
        /// owner has begun to wait for it.
        since: Option<SystemTime>,
        /// How many stand before the claim in the store's queue, if it stands there: it will be granted
        /// the lock, or told to look again.
        place: Option<u64>,
        /// Whether an earlier request of the asking owner may still be carried out.
        in_doubt: bool,
    },
    /// One of them bears the mark of work that is done.
    #[non_exhaustive]
    Done {
        /// Which of the locks.
        lock: usize,
        /// Since when.
        since: SystemTime,
        /// What was left beside the mark.
        reply: Option<KeptReply>,
        /// Whether an earlier request of the asking owner may still be carried out.
        in_doubt: bool,
    },
    /// Something that is not a lock is stored under one of them.
    #[non_exhaustive]
    Foreign {
        /// Which of the locks.
        lock: usize,
        /// What it is, as in `a hash`.
        found: String,
    },
}

impl Acquired {
    /// Granted, until then.
    #[must_use]
    pub fn granted(slot: usize, until: Instant) -> Self {
        Self::Granted {
            slot,
            until,
            in_doubt: false,
        }
    }

    /// Busy: this of the locks is somebody else's for so long.
    #[must_use]
    pub fn busy(lock: usize, owner: impl Into<String>, remaining: Duration) -> Self {
        Self::Busy {
            lock,
            owner: owner.into(),
            remaining,
            since: None,
            place: None,
            in_doubt: false,
        }
    }

    /// Done: this of the locks bears the mark of work that was done then.
    #[must_use]
    pub fn done(lock: usize, since: SystemTime) -> Self {
        Self::Done {
            lock,
            since,
            reply: None,
            in_doubt: false,
        }
    }

    /// With what was left beside the mark, where the work is done.
    #[must_use]
    pub fn replied(mut self, kept: impl Into<Option<KeptReply>>) -> Self {
        if let Self::Done { reply, .. } = &mut self {
            *reply = kept.into();
        }
        self
    }

    /// Something that is not a lock is stored under this of them: what, as in `a hash`.
    #[must_use]
    pub fn foreign(lock: usize, found: impl Into<String>) -> Self {
        Self::Foreign {
            lock,
            found: found.into(),
        }
    }

    /// Held since then, where the lock is busy.
    ///
    /// Of a store that does not say it, an owner that is a UUID of version 7 tells when its acquisition was
    /// drawn, which is right but for those who waited.
    #[must_use]
    pub fn since(mut self, moment: SystemTime) -> Self {
        if let Self::Busy { since, .. } = &mut self {
            *since = Some(moment);
        }
        self
    }

    /// With a place in the store's queue, where the lock is busy.
    #[must_use]
    pub fn queued(mut self, before: u64) -> Self {
        if let Self::Busy { place, .. } = &mut self {
            *place = Some(before);
        }
        self
    }

    /// Where an earlier request of the asking owner may still be carried out.
    #[must_use]
    pub fn doubtful(mut self) -> Self {
        if let Self::Granted { in_doubt, .. }
        | Self::Busy { in_doubt, .. }
        | Self::Done { in_doubt, .. } = &mut self
        {
            *in_doubt = true;
        }
        self
    }

    /// Whether an earlier request of the asking owner may still be carried out.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        match self {
            Self::Granted { in_doubt, .. }
            | Self::Busy { in_doubt, .. }
            | Self::Done { in_doubt, .. } => *in_doubt,
            Self::Foreign { .. } => false,
        }
    }
}

/// Until when a ttl may be relied on whose request was sent at a moment of the same clock.
///
/// Clocks of two machines run at different speeds, and a store expires keys in steps of a
/// millisecond: a hundredth and two milliseconds are left out, as in the description of Redlock.
#[must_use]
pub fn relied_on_until(sent: Instant, ttl: Duration) -> Instant {
    sent + relied_on(ttl)
}

/// How much of a ttl is relied on.
pub(crate) fn relied_on(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}

/// What a renewal has found of one lease.
pub type Renewed = Result<Renewal, StoreError>;

/// What was found of a lease that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// It may be relied on until then.
    Until(Instant),
    /// One of its keys was gone.
    Gone,
    /// One of its keys stood under another owner, or under something that is not a lock. It was left as
    /// it was.
    Taken,
}

/// What a release found: there is no fourth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The owner, and did its work.
    Ours,
    /// Nothing.
    Nothing,
    /// Another owner, or something that is not a lock. It was left as it was.
    Another,
}

impl Found {
    /// How a lease was lost of which this was found.
    pub(crate) fn loss(self) -> LossCause {
        match self {
            Self::Another => LossCause::Taken,
            Self::Ours | Self::Nothing => LossCause::Deleted,
        }
    }
}

/// The answer to a token's draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Token {
    /// The lease's token.
    Drawn(u64),
    /// The owner does not hold all of it, so there is none.
    NotHeld(Found),
}
