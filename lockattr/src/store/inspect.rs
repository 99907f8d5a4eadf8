//! What a store shows to people: which locks there are, who holds them and who waits, and how the
//! servers are.
//!
//! Nothing here is on the way of a call. What is told is what was there when it was read: a lock that
//! is taken or given back meanwhile may be shown either way.

use std::time::{Duration, SystemTime};

use super::Reply;
use crate::error::StoreError;

/// A store that can be looked into.
pub trait Inspect: Send + Sync {
    /// What people know it by where it is one of several: the address of its server.
    fn part(&self) -> String {
        String::new()
    }

    /// Begins to list the locks whose whole key starts with `prefix`, and of which the rest matches
    /// `pattern`, as [`matches()`] has it.
    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a>;

    /// One lock, with everybody who waits for it.
    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown>;

    /// Ends what was found under a lock: only where the same still stands there, whose owner is told
    /// that it has lost it, and whose next waiter is granted it.
    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended>;

    /// Looks at the servers for what harms locks.
    fn diagnose(&self) -> Reply<'_, Vec<Finding>>;
}

/// A list of locks, a page at a time.
pub trait Listing: Send {
    /// The next page; `None` after the last. Each lock is listed once. No server is kept busy for more
    /// than a few milliseconds at a time.
    ///
    /// An error of a part of the store does not end the list: the page tells it, and what that part
    /// has is missing.
    fn next(&mut self) -> Reply<'_, Option<Page>>;
}

/// A part of a list.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// In no particular order.
    pub locks: Vec<Listed>,
    /// Parts of the store whose locks are not listed.
    pub missing: Vec<Missing>,
}

impl Page {
    /// A page with these locks, of a store that has answered whole.
    #[must_use]
    pub fn new(locks: Vec<Listed>) -> Self {
        Self {
            locks,
            missing: Vec::new(),
        }
    }

    /// The same without the locks of a part of the store.
    #[must_use]
    pub fn without(mut self, part: impl Into<String>, error: StoreError) -> Self {
        let part = part.into();
        self.missing.push(Missing { part, error });
        self
    }
}

/// A part of a store that did not answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Missing {
    /// The address of a server.
    pub part: String,
    /// Why.
    pub error: StoreError,
}

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
        }
    }

    /// Which takes so many permits.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
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

/// A lock, and who waits for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shown {
    /// The lock, as a list has it.
    pub listed: Listed,
    /// Those who wait, in their order; the first thousand.
    pub queue: Vec<Waiter>,
    /// What each server has of it, where it is kept on several.
    pub parts: Vec<Part>,
}

impl Shown {
    /// A lock that is kept in one place.
    #[must_use]
    pub fn new(listed: Listed, queue: Vec<Waiter>) -> Self {
        Self {
            listed,
            queue,
            parts: Vec::new(),
        }
    }

    /// A lock that is kept on several servers.
    #[must_use]
    pub fn on(mut self, parts: Vec<Part>) -> Self {
        self.parts = parts;
        self
    }
}

/// One that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The whole owner that it will be.
    pub owner: String,
    /// Since when it has asked, where that is known.
    pub since: Option<SystemTime>,
    /// The ttl that it asks for, where that is known.
    pub ttl: Option<Duration>,
}

impl Waiter {
    /// One that waits.
    #[must_use]
    pub fn new(owner: impl Into<String>, since: Option<SystemTime>, ttl: Option<Duration>) -> Self {
        Self {
            owner: owner.into(),
            since,
            ttl,
        }
    }
}

/// What one of several servers has of a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Part {
    /// The address of the server.
    pub part: String,
    /// What it has, or why that is not known.
    pub entries: Result<Vec<Entry>, StoreError>,
}

impl Part {
    /// What a server has.
    #[must_use]
    pub fn new(part: impl Into<String>, entries: Result<Vec<Entry>, StoreError>) -> Self {
        Self {
            part: part.into(),
            entries,
        }
    }
}

/// What came of an attempt to end something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It stood there, and has been ended.
    Ended,
    /// Nothing stood there any more.
    Gone,
    /// Something else stood there, which was left as it is.
    Changed,
}

/// What was found on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The address of the server; empty where it is about the store as a whole.
    pub part: String,
    /// What it is about, in a word or two of the same form everywhere, as in `eviction`.
    pub topic: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in a sentence.
    pub found: String,
    /// What to do about it; empty where nothing is to be done.
    pub advice: String,
}

impl Finding {
    /// What was found, with advice where there is something to do.
    #[must_use]
    pub fn new(
        part: impl Into<String>,
        topic: &'static str,
        severity: Severity,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            part: part.into(),
            topic,
            severity,
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// How bad a finding is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Good,
    /// It could not be found out.
    Unknown,
    /// It could be better.
    Advice,
    /// Locks may be lost by it.
    Warning,
    /// Locks do not work with it.
    Fault,
}

/// Whether a key matches a pattern: `*` stands for any text, `?` for one character, and everything else
/// for itself; the whole key has to match. An empty pattern matches every key.
#[must_use]
pub fn matches(pattern: &str, key: &str) -> bool {
    if pattern.is_empty() {
        return true;
    }
    let (pattern, key): (Vec<char>, Vec<char>) = (pattern.chars().collect(), key.chars().collect());
    let (mut at, mut in_key) = (0, 0);
    // Where the last `*` stands, and how much of the key it has taken.
    let mut star: Option<(usize, usize)> = None;
    while in_key < key.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_key));
                at += 1;
            }
            Some(&c) if c == '?' || c == key[in_key] => {
                at += 1;
                in_key += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                (at, in_key) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_keys() {
        for (pattern, key) in [
            ("", "sync:42"),
            ("*", ""),
            ("sync:*", "sync:42"),
            ("*:42", "sync:42"),
            ("s*c:?2", "sync:42"),
            ("a*b*c", "axbxbyc"),
            ("größe:?", "größe:ß"),
            ("[a]", "[a]"),
        ] {
            assert!(matches(pattern, key), "{pattern} {key}");
        }
        for (pattern, key) in [
            ("sync", "sync:42"),
            ("sync:?", "sync:42"),
            ("a*b*c", "axbxby"),
            ("[a]", "a"),
            ("?", ""),
        ] {
            assert!(!matches(pattern, key), "{pattern} {key}");
        }
    }
}
