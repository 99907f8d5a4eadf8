//! The wire form: which keys a lock has in etcd, and what stands under them. No other file builds or reads one.
//!
//! | what | key | value | lease |
//! |---|---|---|---|
//! | lock, or its first slot | the lock key | `{owner} {permits} {ttl in ms}` | the claim's |
//! | another slot | `{prefix}slot:{{lock}}{slot}` | the same | the claim's |
//! | a place in the queue | `{prefix}wait:{{lock}}{owner}` | the same | the claim's |
//! | a lock that stays closed | as a lock | the same of an owner whose id is zeros, and the length | its own |
//! | the mark of work that is done | as a lock | `done@{ms since 1970} {length in ms}`, and behind a space the reply, if it has one | its own |
//! | what tokens are raised by | `{prefix}token:{{lock}}` | a number | none |
//!
//! Lock keys and prefixes have no braces, so no key is another one's, nor the start of another lock's helper
//! keys. Order in a queue is that of create revisions; whoever takes its only lock from there keeps its place until
//! it gives the lock back, since that is what the next one waits for. The id of an owner says since when, by the clock of
//! its own machine: etcd has none that could be read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::proto::{Compare, Is, KeyValue, Of, Range, With};
use crate::reply::KeptReply;
use crate::store::{Claim, Held};

/// The names of one client's helper keys.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { prefix }
    }

    /// The key of a lock's slot. The first one is the lock itself: applications that count different
    /// numbers of holders then exclude each other as far as their numbers go.
    pub(super) fn slot(&self, lock: &str, slot: usize) -> Vec<u8> {
        if slot == 0 {
            lock.into()
        } else {
            format!("{}slot:{{{lock}}}{slot}", self.prefix).into()
        }
    }

    /// All slots of a lock but the first.
    pub(super) fn more_slots(&self, lock: &str) -> Range {
        starting_with(format!("{}slot:{{{lock}}}", self.prefix))
    }

    /// Which slot of a lock a key is.
    pub(super) fn slot_of(&self, lock: &str, key: &[u8]) -> Option<usize> {
        if key == lock.as_bytes() {
            return Some(0);
        }
        let rest = key.strip_prefix(self.more_slots(lock).key.as_slice())?;
        std::str::from_utf8(rest).ok()?.parse().ok()
    }

    /// What the prefix of every key is.
    #[cfg(feature = "inspect")]
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Which key of which lock this is, if it may be one.
    pub(super) fn read<'k>(&self, key: &'k [u8]) -> Option<KeyOf<'k>> {
        let key = std::str::from_utf8(key).ok()?;
        let rest = key.strip_prefix(&self.prefix)?;
        if !rest.contains(['{', '}']) {
            return Some(KeyOf::Slot(key, 0));
        }
        let (kind, rest) = rest.split_once(":{")?;
        let (lock, rest) = rest.split_once('}')?;
        match kind {
            "slot" => Some(KeyOf::Slot(lock, rest.parse().ok()?)),
            "wait" => Some(KeyOf::Place(lock)),
            _ => None,
        }
    }

    pub(super) fn place(&self, lock: &str, owner: &str) -> Vec<u8> {
        format!("{}wait:{{{lock}}}{owner}", self.prefix).into()
    }

    pub(super) fn queue(&self, lock: &str) -> Range {
        starting_with(format!("{}wait:{{{lock}}}", self.prefix))
    }

    pub(super) fn raise(&self, lock: &str) -> Vec<u8> {
        format!("{}token:{{{lock}}}", self.prefix).into()
    }

    /// The keys that a granted claim holds.
    pub(super) fn held(&self, held: &Held<'_>) -> Vec<Vec<u8>> {
        match held.claim.locks {
            [lock] => vec![self.slot(lock, held.slot)],
            locks => locks.iter().map(|lock| self.slot(lock, 0)).collect(),
        }
    }
}

/// What a key is of a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyOf<'k> {
    Slot(&'k str, usize),
    Place(&'k str),
}

/// All keys that start so. What they start with ends in `}`, which has a next character.
fn starting_with(start: String) -> Range {
    let key = start.into_bytes();
    let mut range_end = key.clone();
    if let Some(last) = range_end.last_mut() {
        *last += 1;
    }
    Range { key, range_end }
}

/// What stands under the key of a lock, a slot or a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    Claimed {
        owner: &'a str,
        permits: u32,
        /// Of a lock that stays closed, for how long.
        ttl: Duration,
    },
    Done {
        since: SystemTime,
        length: Duration,
        reply: Option<&'a str>,
    },
    Foreign(&'static str),
}

impl<'a> Stored<'a> {
    pub(super) fn read(kv: &'a KeyValue) -> Self {
        if kv.lease == 0 {
            return Self::Foreign("a value without a lease");
        }
        std::str::from_utf8(&kv.value)
            .ok()
            .and_then(|text| Self::done(text).or_else(|| Self::claimed(text)))
            .unwrap_or(Self::Foreign("a value of another form"))
    }

    fn done(text: &'a str) -> Option<Self> {
        let (since, rest) = text.strip_prefix("done@")?.split_once(' ')?;
        let (length, reply) = match rest.split_once(' ') {
            Some((length, reply)) => (length, Some(reply)),
            None => (rest, None),
        };
        let since = UNIX_EPOCH.checked_add(millis(since)?)?;
        let length = millis(length)?;
        Some(Self::Done {
            since,
            length,
            reply,
        })
    }

    fn claimed(text: &'a str) -> Option<Self> {
        let mut fields = text.split(' ');
        let (owner, permits) = (fields.next()?, fields.next()?.parse().ok()?);
        let ttl = millis(fields.next()?)?;
        let is_whole = fields.next().is_none() && !owner.is_empty();
        is_whole.then_some(Self::Claimed {
            owner,
            permits,
            ttl,
        })
    }

    pub(super) fn is_by(&self, name: &str) -> bool {
        matches!(self, Self::Claimed { owner, .. } if *owner == name)
    }
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

pub(super) fn claimed(claim: &Claim<'_>) -> Vec<u8> {
    let Claim { owner, permits, .. } = claim;
    format!("{owner} {permits} {}", claim.ttl.as_millis()).into()
}

/// A lock that nobody holds: the same host and process, but an id that no lease has.
pub(super) fn closed(claim: &Claim<'_>, length: Duration) -> Vec<u8> {
    let origin = claim.owner.split_once('@').map_or("", |(_, origin)| origin);
    format!(
        "{:032}@{origin} {} {}",
        0,
        claim.permits,
        length.as_millis()
    )
    .into()
}

pub(super) fn done(since: SystemTime, length: Duration, reply: Option<&KeptReply>) -> Vec<u8> {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut value = format!("done@{} {}", since.as_millis(), length.as_millis());
    if let Some(reply) = reply {
        value.push(' ');
        value.push_str(reply.as_str());
    }
    value.into()
}

/// Whether a key is held by, or a place of, this owner, whatever else its value says.
pub(super) fn is_by(key: &[u8], owner: &str) -> [Compare; 2] {
    // An owner has no space, and `!` comes next.
    [(Is::Greater, ' '), (Is::Less, '!')].map(|(is, end)| {
        let value = format!("{owner}{end}").into();
        compare(key, is, Of::Value, With::Value(value))
    })
}

/// Whether there is nothing under a key.
pub(super) fn is_free(key: &[u8]) -> Compare {
    was_created_at(key, 0)
}

/// Whether a key is the one that was created at this revision.
pub(super) fn was_created_at(key: &[u8], revision: i64) -> Compare {
    compare(key, Is::Equal, Of::Create, With::Create(revision))
}

/// Whether a key is as it was written at this revision.
pub(super) fn was_written_at(key: &[u8], revision: i64) -> Compare {
    compare(key, Is::Equal, Of::Mod, With::Mod(revision))
}

/// Whether no key is in a range.
pub(super) fn is_empty(range: Range) -> Compare {
    let Range { key, range_end } = range;
    Compare {
        range_end,
        ..is_free(&key)
    }
}

/// Whether no key in a range was created before this revision.
pub(super) fn none_before(range: Range, revision: i64) -> Compare {
    let Range { key, range_end } = range;
    let with = With::Create(revision - 1);
    Compare {
        range_end,
        ..compare(&key, Is::Greater, Of::Create, with)
    }
}

fn compare(key: &[u8], is: Is, of: Of, with: With) -> Compare {
    Compare {
        result: is.into(),
        target: of.into(),
        key: key.into(),
        with: Some(with),
        range_end: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-7:42";

    fn kv(value: &[u8]) -> KeyValue {
        KeyValue {
            value: value.into(),
            lease: 7,
            ..KeyValue::default()
        }
    }

    fn claim(locks: &[String]) -> Claim<'_> {
        Claim::new(locks, OWNER, Duration::from_secs(30)).permits(3)
    }

    #[test]
    fn keys_are_frozen() {
        let names = Names::new("lock:");
        assert_eq!(names.slot("lock:sync:42", 0), b"lock:sync:42");
        let third = b"lock:slot:{lock:sync:42}2";
        assert_eq!(names.slot("lock:sync:42", 2), third);
        assert_eq!(names.slot_of("lock:sync:42", third), Some(2));
        assert_eq!(names.slot_of("lock:sync:42", b"lock:sync:42"), Some(0));
        assert_eq!(names.slot_of("lock:sync:4", third), None);
        let place = names.place("lock:sync:42", OWNER);
        assert_eq!(
            String::from_utf8_lossy(&place),
            format!("lock:wait:{{lock:sync:42}}{OWNER}")
        );
        let queue = names.queue("lock:sync:42");
        assert_eq!(queue.key, b"lock:wait:{lock:sync:42}");
        assert_eq!(queue.range_end, b"lock:wait:{lock:sync:42~");
        assert_eq!(names.raise("lock:sync:42"), b"lock:token:{lock:sync:42}");
    }

    #[test]
    fn keys_are_read_as_they_were_made() {
        for prefix in ["lock:", ""] {
            let names = Names::new(prefix);
            let lock = format!("{prefix}sync:42");
            for slot in [0, 2] {
                let key = names.slot(&lock, slot);
                assert_eq!(names.read(&key), Some(KeyOf::Slot(&lock, slot)));
            }
            let place = names.place(&lock, OWNER);
            assert_eq!(names.read(&place), Some(KeyOf::Place(&lock)));
            assert_eq!(names.read(&names.raise(&lock)), None);
        }
        let names = Names::new("lock:");
        for key in [
            "other:a",
            "lock:{a}",
            "lock:slot:{lock:a}",
            "lock:slot:{lock:a}x",
        ] {
            assert_eq!(names.read(key.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn values_are_frozen() {
        let locks = ["lock:sync:42".to_owned()];
        let claim = claim(&locks);
        let of = |value: Vec<u8>| String::from_utf8(value).expect("text");
        assert_eq!(of(claimed(&claim)), format!("{OWNER} 3 30000"));
        assert_eq!(
            of(closed(&claim, Duration::from_millis(1500))),
            "00000000000000000000000000000000@web-7:42 3 1500"
        );
        let since = UNIX_EPOCH + Duration::from_millis(1_764_000_000_123);
        assert_eq!(
            of(done(since, Duration::from_secs(60), None)),
            "done@1764000000123 60000"
        );
        let reply = KeptReply::new("json [1, 2]");
        assert_eq!(
            of(done(since, Duration::from_secs(60), Some(&reply))),
            "done@1764000000123 60000 json [1, 2]"
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let locks = ["lock:sync:42".to_owned()];
        let claim = claim(&locks);
        let read = kv(&claimed(&claim));
        let read = Stored::read(&read);
        assert!(read.is_by(OWNER) && !read.is_by("019ad5b1"));
        let ttl = Duration::from_secs(30);
        let (owner, permits) = (OWNER, 3);
        assert_eq!(
            read,
            Stored::Claimed {
                owner,
                permits,
                ttl
            }
        );
        let since = UNIX_EPOCH + Duration::from_millis(5);
        let length = Duration::from_millis(7);
        for kept in [None, Some("json [1, 2]")] {
            let reply = kept.map(KeptReply::new);
            assert_eq!(
                Stored::read(&kv(&done(since, length, reply.as_ref()))),
                Stored::Done {
                    since,
                    length,
                    reply: kept
                }
            );
        }
    }

    #[test]
    fn what_is_no_lock_is_foreign() {
        for value in ["", "x", "x 1", "x 1 2 3", "x one 2", " 1 2", "done@x 1"] {
            let found = kv(value.as_bytes());
            assert!(
                matches!(Stored::read(&found), Stored::Foreign(_)),
                "{value}"
            );
        }
        assert!(matches!(Stored::read(&kv(b"\xff 1 2")), Stored::Foreign(_)));
        let without_lease = KeyValue {
            lease: 0,
            ..kv(b"x 1 2")
        };
        assert!(matches!(Stored::read(&without_lease), Stored::Foreign(_)));
    }
}
