//! The names of the wire format: the keys of a lock, and how a claim stands in a queue.
//!
//! A lock is stored under its own key; what is stored there, `stored` says. Every helper key is `{prefix}{kind}:{{lock}}{rest}`: under the
//! client's prefix, so that one rule of an ACL covers it, and with the whole lock key as its hash tag, so
//! that a cluster keeps it in the lock's own hash slot. No other file of the crate builds such a name;
//! the scripts are given theirs.

use std::borrow::Cow;
use std::io::Write;

use redis::{RedisWrite, ToRedisArgs};

use super::millis;
use crate::store::Claim;

/// The names that one client uses.
#[derive(Clone)]
pub(super) struct Names {
    prefix: String,
    channel: String,
}

impl Names {
    /// Those of a client with this prefix and this id.
    pub(super) fn new(prefix: &str, client: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            channel: format!("{prefix}wake:{client}"),
        }
    }

    /// The channel on which the client is told of what it waits for.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// The queue of those who wait for a lock.
    pub(super) fn queue<'a>(&'a self, lock: &'a str) -> QueueName<'a> {
        let prefix = &self.prefix;
        QueueName { prefix, lock }
    }

    /// The queues of a claim: one for each lock.
    pub(super) fn queues<'a>(&'a self, claim: &Claim<'a>) -> Vec<QueueName<'a>> {
        claim.locks.iter().map(|lock| self.queue(lock)).collect()
    }

    /// What a key belongs to, by its name alone: `None` for the counter of a lock's tokens, which outlives
    /// the lock, and for what can be no lock, since it has braces or nothing behind the prefix.
    #[cfg(feature = "inspect")]
    pub(super) fn read<'a>(&self, key: &'a str) -> Option<NamedKey<'a>> {
        let kind = key.strip_prefix(self.prefix.as_str())?;
        let Some((kind, tagged)) = kind.split_once('{') else {
            return (!kind.is_empty() && !kind.contains('}')).then_some(NamedKey::Lock(key));
        };
        let (lock, rest) = tagged.split_once('}')?;
        let is_lock = |lock: &str| !lock.contains('{') && lock.len() > self.prefix.len();
        if !is_lock(lock) || !lock.starts_with(self.prefix.as_str()) {
            return None;
        }
        match (kind, rest) {
            ("wait:", "") => Some(NamedKey::Queue(lock)),
            _ => None,
        }
    }

    /// The counter of a lock's tokens.
    pub(super) fn counter(&self, lock: &str) -> String {
        format!("{}token:{{{lock}}}", self.prefix)
    }

    /// The entry of a claim in a queue, which says all that is needed to grant it.
    pub(super) fn entry(&self, claim: &Claim<'_>) -> String {
        let Claim { owner, ttl, .. } = claim;
        let (wish, channel) = (wish(claim), self.channel());
        format!("{owner} {} {wish} {channel}", millis(*ttl))
    }
}

/// A key, by the lock that it belongs to.
#[cfg(feature = "inspect")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedKey<'a> {
    Lock(&'a str),
    Queue(&'a str),
}

/// How a claim wants its lock, in the words of the scripts.
pub(super) fn wish(claim: &Claim<'_>) -> Cow<'static, str> {
    claim.sharing().wish("/")
}

/// The first of a claim's locks, or its only one.
pub(super) fn lock<'a>(claim: &Claim<'a>) -> &'a str {
    claim.locks.first().map_or("", String::as_str)
}

/// The key of a queue, written straight into a command.
pub(super) struct QueueName<'a> {
    prefix: &'a str,
    lock: &'a str,
}

impl QueueName<'_> {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    fn parts(&self) -> [&str; 4] {
        [self.prefix, "wait:{", self.lock, "}"]
    }
}

impl ToRedisArgs for QueueName<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let mut name = out.writer_for_next_arg();
        for part in self.parts() {
            // It goes into memory, which does not fail.
            let _ = name.write_all(part.as_bytes());
        }
    }
}

#[cfg(all(test, feature = "inspect"))]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_lock_in_its_name() {
        let names = Names::new("lock:", "client");
        for (key, read) in [
            ("lock:sync:42", Some(NamedKey::Lock("lock:sync:42"))),
            ("lock:slot:geo", Some(NamedKey::Lock("lock:slot:geo"))),
            ("lock:wait:{lock:geo}", Some(NamedKey::Queue("lock:geo"))),
            ("lock:token:{lock:geo}", None),
            ("lock:", None),
            ("other", None),
            ("lock:{a}", None),
            ("lock:slot:{lock:geo}2", None),
            ("lock:wait:{other}", None),
            ("lock:wait:{lock:geo}1", None),
        ] {
            assert_eq!(names.read(key), read, "{key}");
        }
    }
}
