//! What stands under a lock: what a store answers to whoever asks without taking it.

use std::time::{Duration, SystemTime};

/// A lock, as a list has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The whole lock key.
    pub lock: String,
    /// What stands under it: one entry, or one for each slot that is taken of a lock with `permits`, by
    /// slot; none where there are only callers that wait.
    pub entries: Vec<Entry>,
    /// How many holders it may have at a time, where that is known and is more than one.
    pub permits: Option<u32>,
    /// How many wait for it.
    pub waiters: u64,
}

impl Listed {
    /// A lock that has one holder at a time.
    #[must_use]
    pub fn new(lock: impl Into<String>, entries: Vec<Entry>, waiters: u64) -> Self {
        Self {
            lock: lock.into(),
            entries,
            permits: None,
            waiters,
        }
    }

    /// A lock that has as many holders at a time.
    #[must_use]
    pub fn permits(mut self, permits: Option<u32>) -> Self {
        self.permits = permits.filter(|permits| *permits > 1);
        self
    }
}

/// What stands under a lock, or in one of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Which slot; 0 where there is one.
    pub slot: usize,
    /// What it is.
    pub kind: EntryKind,
    /// For how long it stands there unless something happens; `None` where it never ends by itself.
    pub remaining: Option<Duration>,
    /// How many bytes the reply has that is kept beside a mark, where one is. Nothing shows the reply itself.
    pub reply_bytes: Option<usize>,
}

impl Entry {
    /// What stands in a slot for so long.
    #[must_use]
    pub fn new(slot: usize, kind: EntryKind, remaining: Option<Duration>) -> Self {
        Self {
            slot,
            kind,
            remaining,
            reply_bytes: None,
        }
    }

    /// With a reply of so many bytes beside the mark.
    #[must_use]
    pub fn replied(mut self, bytes: Option<usize>) -> Self {
        self.reply_bytes = bytes;
        self
    }
}

/// What may stand under a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// Somebody holds it.
    Held {
        /// The whole owner, which lets whoever knows it end the hold.
        owner: String,
        /// Since when, by the store's clock, or the holder's where the store does not say.
        since: Option<SystemTime>,
    },
    /// A holder has left it closed for a while: `min_hold`.
    Closed {
        /// The owner that stands there, of whom nobody renews anything.
        owner: String,
        /// Since when.
        since: Option<SystemTime>,
    },
    /// Its work is done: `once`.
    Done {
        /// Since when.
        since: SystemTime,
    },
    /// Something that is not a lock.
    Foreign {
        /// What it is, as in `a hash`.
        found: String,
    },
}
