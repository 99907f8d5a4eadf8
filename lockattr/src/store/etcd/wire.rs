//! The wire form: which keys a lock has in etcd, and what stands under them. No other file builds or reads one.
//!
//! | what | key | value | lease |
//! |---|---|---|---|
//! | who holds a lock alone | the lock key | `{owner} 1 {ttl in ms}` | the claim's |
//! | who holds some of its permits | `{prefix}claim:{{lock}}permit:{owner}` | `{owner} {weight}/{permits} {ttl in ms} {slot}` | the claim's |
//! | who reads | `{prefix}claim:{{lock}}reader:{owner}` | `{owner} shared {ttl in ms} 0` | the claim's |
//! | a place in the queue | `{prefix}claim:{{lock}}waiter:{owner}` | as of who holds it, without a slot | the claim's |
//! | what stays closed | as of its holder | as of its holder, of an owner whose id is zeros, and with the length | its own |
//! | the mark of work that is done | the lock key | `done@{ms since 1970} {length in ms}`, and behind a space the reply, if it has one | its own |
//! | what tokens are raised by | `{prefix}token:{{lock}}` | a number | none |
//!
//! Who has taken a lease over says since when it is held: ` @{ms since 1970}` ends the value. Of others the id of the
//! owner says it, by the clock of its own machine: etcd has none that could be read.
//!
//! Lock keys and prefixes have no braces, so no key is another one's, nor the start of another lock's helper
//! keys. All that stands beside a lock is one range, so that one comparison says that there is nothing. Order in a queue
//! is that of create revisions; whoever takes its only lock alone keeps its place until it gives the lock back, since
//! that is what the next one waits for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::proto::{Compare, Is, KeyValue, Of, Range, With};
use crate::reply::KeptReply;
use crate::store::{Claim, Held, Sharing};

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

    /// The key of who holds a lock so.
    pub(super) fn holder(&self, lock: &str, sharing: Sharing, owner: &str) -> Vec<u8> {
        match sharing {
            Sharing::Alone => lock.into(),
            Sharing::Permits { .. } => self.beside(lock, PERMIT, owner).into(),
            Sharing::Readers => self.beside(lock, READER, owner).into(),
        }
    }

    fn beside(&self, lock: &str, kind: &str, owner: &str) -> String {
        format!("{}claim:{{{lock}}}{kind}{owner}", self.prefix)
    }

    /// All that stands beside a lock: holders that are not alone, and places.
    pub(super) fn claims(&self, lock: &str) -> Range {
        starting_with(self.beside(lock, "", ""))
    }

    /// Those who hold permits.
    pub(super) fn permits(&self, lock: &str) -> Range {
        starting_with(self.beside(lock, PERMIT, ""))
    }

    /// All who hold it and are not alone.
    pub(super) fn holders(&self, lock: &str) -> Range {
        Range {
            key: self.permits(lock).key,
            range_end: self.queue(lock).key,
        }
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
            return Some(KeyOf::Lock(key));
        }
        let (lock, rest) = rest.strip_prefix("claim:{")?.split_once('}')?;
        if rest.starts_with(WAITER) {
            return Some(KeyOf::Place(lock));
        }
        let is_holder = rest.starts_with(PERMIT) || rest.starts_with(READER);
        is_holder.then_some(KeyOf::Holder(lock))
    }

    pub(super) fn place(&self, lock: &str, owner: &str) -> Vec<u8> {
        self.beside(lock, WAITER, owner).into()
    }

    pub(super) fn queue(&self, lock: &str) -> Range {
        starting_with(self.beside(lock, WAITER, ""))
    }

    pub(super) fn raise(&self, lock: &str) -> Vec<u8> {
        format!("{}token:{{{lock}}}", self.prefix).into()
    }

    /// The keys that a granted claim holds.
    pub(super) fn held(&self, held: &Held<'_>) -> Vec<Vec<u8>> {
        self.held_by(&held.claim, held.claim.owner)
    }

    /// The same where another owner holds it in the same way.
    pub(super) fn held_by(&self, claim: &Claim<'_>, owner: &str) -> Vec<Vec<u8>> {
        let locks = claim.locks.iter();
        let key = |lock: &String| self.holder(lock, claim.sharing(), owner);
        locks.map(key).collect()
    }
}

/// What the rest of a key beside a lock begins with, in their order.
const PERMIT: &str = "permit:";
const READER: &str = "reader:";
const WAITER: &str = "waiter:";

/// What a key is of a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyOf<'k> {
    /// The lock itself.
    Lock(&'k str),
    /// Of somebody who holds it and is not alone.
    Holder(&'k str),
    Place(&'k str),
}

/// All keys that start so. What they start with ends in `}` or `:`, which have a next character.
fn starting_with(start: String) -> Range {
    let key = start.into_bytes();
    let mut range_end = key.clone();
    if let Some(last) = range_end.last_mut() {
        *last += 1;
    }
    Range { key, range_end }
}

/// What stands under a key of a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    Claimed {
        owner: &'a str,
        sharing: Sharing,
        /// Of what stays closed, for how long.
        ttl: Duration,
        /// Of who holds it and is not alone; 0 of all others.
        slot: usize,
        /// Since when it is held, where the owner does not say it.
        since: Option<SystemTime>,
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
        let mut fields = text.split(' ').peekable();
        let owner = fields.next().filter(|owner| !owner.is_empty())?;
        let sharing = Sharing::of_wish(fields.next()?, OF)?;
        let ttl = millis(fields.next()?)?;
        let slot = match fields.next_if(|field| !field.starts_with('@')) {
            Some(slot) => slot.parse().ok()?,
            None => 0,
        };
        let since = match fields.next() {
            Some(since) => Some(UNIX_EPOCH.checked_add(millis(since.strip_prefix('@')?)?)?),
            None => None,
        };
        fields.next().is_none().then_some(Self::Claimed {
            owner,
            sharing,
            ttl,
            slot,
            since,
        })
    }

    /// How it is held, or waited for; nothing of what is no claim.
    pub(super) fn sharing(&self) -> Option<Sharing> {
        match self {
            Self::Claimed { sharing, .. } => Some(*sharing),
            Self::Done { .. } | Self::Foreign(_) => None,
        }
    }

    pub(super) fn slot(&self) -> usize {
        match self {
            Self::Claimed { slot, .. } => *slot,
            Self::Done { .. } | Self::Foreign(_) => 0,
        }
    }

    pub(super) fn is_by(&self, name: &str) -> bool {
        matches!(self, Self::Claimed { owner, .. } if *owner == name)
    }
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// Between the permits that one wants, and all.
const OF: &str = "/";

/// A place in a queue.
pub(super) fn waits(claim: &Claim<'_>) -> Vec<u8> {
    let Claim { owner, ttl, .. } = claim;
    format!("{owner} {} {}", claim.sharing().wish(OF), ttl.as_millis()).into()
}

/// Of who holds a lock, in this slot, and since then where the owner does not say it.
pub(super) fn claimed(claim: &Claim<'_>, slot: usize, since: Option<SystemTime>) -> Vec<u8> {
    let mut value = waits(claim);
    if !claim.sharing().is_alone() {
        value.extend(format!(" {slot}").into_bytes());
    }
    if let Some(since) = since {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        value.extend(format!(" @{}", since.as_millis()).into_bytes());
    }
    value
}

/// What nobody holds any more: the same host and process, but an id that no lease has.
pub(super) fn closed(claim: &Claim<'_>, slot: usize, length: Duration) -> Vec<u8> {
    let origin = claim.owner.split_once('@').map_or("", |(_, origin)| origin);
    let nobody = format!("{:032}@{origin}", 0);
    let claim = Claim {
        owner: &nobody,
        ttl: length,
        ..*claim
    };
    claimed(&claim, slot, None)
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

/// Whether no key in a range was created after this revision.
pub(super) fn none_after(range: Range, revision: i64) -> Compare {
    let Range { key, range_end } = range;
    let with = With::Create(revision + 1);
    Compare {
        range_end,
        ..compare(&key, Is::Less, Of::Create, with)
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
mod tests;
