//! What stands under a lock: what a store answers to whoever asks without taking it.

use std::time::{Duration, SystemTime};

/// A lock, as a list has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The whole lock key.
    pub lock: String,
    /// What stands under it: one entry, or one for each holder of a lock that has several, those with
    /// `permits` by slot; none where there are only callers that wait.
    pub entries: Vec<Entry>,
    /// How many permits it has, where that is known and is more than one.
    pub permits: Option<u32>,
    /// Whether readers hold it beside one another.
    pub shared: bool,
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
            shared: false,
            waiters,
        }
    }

    /// A lock that readers hold beside one another.
    #[must_use]
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// A lock with as many permits.
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
    /// Which slot; 0 where there is one, and of readers.
    pub slot: usize,
    /// How many of the lock's permits it takes; 1 where there are none.
    pub weight: u32,
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
            weight: 1,
            kind,
            remaining,
            reply_bytes: None,
        }
    }

    /// Which takes so many permits.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
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
