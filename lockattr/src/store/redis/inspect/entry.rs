//! What is stored under a key, as people are shown it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use crate::owner;
use crate::store::inspect::{Entry, EntryKind, Listed, Shown, Waiter};
use crate::store::redis::reply::{integer, text};
use crate::store::redis::stored::{Beside, Stored};

/// What stands under a lock.
#[derive(Debug, Default)]
pub(super) struct FoundEntries {
    entries: Vec<Entry>,
    permits: Option<u32>,
    shared: bool,
}

/// What a key holds: the text of a string, or the members of a sorted set with their scores, in that order.
pub(super) enum FoundValue {
    Text(String),
    Members(Vec<(String, f64)>),
    Other,
}

impl FoundValue {
    /// Scores come as texts, or as numbers.
    pub(super) fn read(value: &Value) -> Self {
        let Value::Array(members) = value else {
            return text(value).map_or(Self::Other, Self::Text);
        };
        let score = |value: &Value| match value {
            Value::Double(score) => Some(*score),
            value => text(value)?.parse().ok(),
        };
        let members = members.chunks_exact(2);
        let members = members.map(|pair| Some((text(&pair[0])?, score(&pair[1])?)));
        members
            .collect::<Option<_>>()
            .map_or(Self::Other, Self::Members)
    }
}

/// What is found under a lock; nothing where it has gone while it was read.
pub(super) fn found(kind: &str, value: &FoundValue, remaining: i64) -> FoundEntries {
    let one = |kind, remaining| FoundEntries {
        entries: vec![Entry::new(0, kind, remaining)],
        ..FoundEntries::default()
    };
    let remaining = match u64::try_from(remaining) {
        Ok(millis) => Some(Duration::from_millis(millis)),
        Err(_) if remaining == -1 => None,
        Err(_) => return FoundEntries::default(),
    };
    match (kind, value, remaining) {
        ("none", ..) => FoundEntries::default(),
        ("string", _, None) => one(foreign("a string without expiry"), None),
        ("string", FoundValue::Text(text), remaining) => one(of_string(text), remaining),
        ("zset", FoundValue::Members(members), Some(left)) => match together(members, left) {
            Some(found) => found,
            None => one(foreign("a zset"), remaining),
        },
        (kind, ..) => one(foreign(&format!("a {kind}")), remaining),
    }
}

/// Those who hold a lock together, the last of whom does so for this long yet.
fn together(members: &[(String, f64)], left: Duration) -> Option<FoundEntries> {
    let (_, last) = members.last()?;
    let is = |name: &str| members.iter().any(|(member, _)| member == name);
    let mut found = FoundEntries {
        shared: is("shared"),
        ..FoundEntries::default()
    };
    if !found.shared && !is("permits") {
        return None;
    }
    let until: HashMap<_, _> = members
        .iter()
        .filter(|(_, score)| *score > 0.0)
        .map(|(owner, until)| (owner.as_str(), *until))
        .collect();
    for (said, _) in members {
        let owner = said.split(' ').next().unwrap_or_default();
        let (Some(beside), Some(until)) = (Beside::read(said), until.get(owner)) else {
            continue;
        };
        if owner == said {
            continue;
        }
        let before = Duration::try_from_secs_f64((last - until).max(0.0) / 1000.0);
        found.permits = found.permits.max(beside.permits);
        // Where it is over, nobody has asked since then.
        if let Some(remaining) = left.checked_sub(before.unwrap_or_default()) {
            let entry = Entry::new(beside.slot, of(&beside.stored), Some(remaining));
            found.entries.push(entry.weight(beside.weight));
        }
    }
    found.entries.sort_by_key(|entry| entry.slot);
    Some(found)
}

fn of_string(value: &str) -> EntryKind {
    of(&Stored::read(value))
}

fn of(stored: &Stored<'_>) -> EntryKind {
    match *stored {
        Stored::Held { owner, since } => {
            let owner = owner.to_owned();
            EntryKind::Held { owner, since }
        }
        Stored::Closed { owner, since } => {
            let owner = owner.to_owned();
            EntryKind::Closed { owner, since }
        }
        Stored::Done { since } => EntryKind::Done { since },
        Stored::Other => foreign("a string that no lock has written"),
    }
}

/// A lock with what was found under it.
pub(super) fn listed(lock: &str, found: FoundEntries, waiters: u64) -> Listed {
    Listed::new(lock, found.entries, waiters)
        .permits(found.permits)
        .shared(found.shared)
}

fn foreign(found: &str) -> EntryKind {
    EntryKind::Foreign {
        found: found.to_owned(),
    }
}

/// What is stored where an entry was found, or how that begins, if it may be ended. A holder is known by its
/// owner, and what is nobody's by since when as well.
pub(super) fn stored(kind: &EntryKind) -> Option<String> {
    match kind {
        EntryKind::Held { owner, .. } | EntryKind::Closed { owner, since: None } => {
            Some(owner.clone())
        }
        EntryKind::Closed {
            owner,
            since: Some(since),
        } => Some(format!("{owner} {}", millis(*since)?)),
        EntryKind::Done { since } => Some(format!("done@{}", millis(*since)?)),
        EntryKind::Foreign { .. } => None,
    }
}

fn millis(since: SystemTime) -> Option<u128> {
    let since = since.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_millis())
}

/// One that waits, by its entry in a queue.
pub(super) fn waiting(entry: &str) -> Option<Waiter> {
    let mut words = entry.split(' ');
    let (owner, ttl) = (words.next()?, words.next()?);
    let ttl = Duration::from_millis(ttl.parse().ok()?);
    Some(Waiter::new(owner, owner::since(owner), Some(ttl)))
}

/// What `inspect.lua` has answered.
pub(super) fn shown(lock: &str, answer: &Value) -> Option<Shown> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [Value::Array(stands), waiters, Value::Array(queue)] = parts.as_slice() else {
        return None;
    };
    let found = match stands.as_slice() {
        [] => FoundEntries::default(),
        [kind, value, remaining] => {
            found(&text(kind)?, &FoundValue::read(value), integer(remaining)?)
        }
        _ => return None,
    };
    let waiters = u64::try_from(integer(waiters)?).ok()?;
    let queue = queue.iter().filter_map(|entry| waiting(&text(entry)?));
    Some(Shown::new(listed(lock, found, waiters), queue.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@host:7";

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn held(owner: &str, since: u64) -> EntryKind {
        EntryKind::Held {
            owner: owner.to_owned(),
            since: Some(at(since)),
        }
    }

    #[test]
    fn what_is_stored_is_shown_and_found_again() {
        let nobody = format!("{:032}@host:7", 0);
        let left_closed = |since| {
            let owner = nobody.clone();
            EntryKind::Closed { owner, since }
        };
        for (value, kind) in [
            (OWNER.to_owned(), held(OWNER, 0x019a_d5b1_f9c0)),
            (format!("{OWNER} 7"), held(OWNER, 7)),
            (nobody.clone(), left_closed(None)),
            (format!("{nobody} 7"), left_closed(Some(at(7)))),
            ("done@7".to_owned(), EntryKind::Done { since: at(7) }),
        ] {
            let text = FoundValue::Text(value.clone());
            let found_there = found("string", &text, 5);
            let [entry] = &found_there.entries[..] else {
                panic!("{found_there:?}")
            };
            assert_eq!(entry.kind, kind);
            let stored = stored(&kind).expect("it may be ended");
            let is_found = value == stored || value.starts_with(&format!("{stored} "));
            assert!(is_found, "{value} {stored}");
            assert!(found("string", &text, -2).entries.is_empty(), "{value}");
        }
    }

    #[test]
    fn those_who_hold_a_lock_together_are_shown_each() {
        let other = "019ad5b1f9c07c3f9d0a1b2c3d4e5f61@host:7";
        let nobody = format!("{:032}@host:7", 3);
        let member = |name: &str, score: f64| (name.to_owned(), score);
        let members = FoundValue::Members(vec![
            member("1", -2e15 + 1.0),
            member("permits", -1e15 - 6.0),
            member(&format!("{OWNER} 7 0 2 10"), -9.0),
            member(&format!("{other} 8 2 3 12"), -8.0),
            member(&format!("{nobody} 9 3 1 10"), -7.0),
            member(other, 40.0),
            member(OWNER, 1_000.0),
            member(&nobody, 5_000.0),
        ]);
        let together = found("zset", &members, 4_900);
        assert_eq!((together.permits, together.shared), (Some(12), false));
        // Who has ended already at this moment is not shown.
        let [first, last] = &together.entries[..] else {
            panic!("{together:?}")
        };
        let of = |entry: &Entry| (entry.slot, entry.weight, entry.remaining);
        let millis = |ms| Some(Duration::from_millis(ms));
        assert_eq!(of(first), (0, 2, millis(900)));
        assert_eq!(first.kind, held(OWNER, 7));
        assert_eq!(of(last), (3, 1, millis(4_900)));
        assert_eq!(stored(&last.kind), Some(format!("{nobody} 9")));

        let readers = FoundValue::Members(vec![
            member("shared", -1e15),
            member(&format!("{OWNER} 7"), -9.0),
            member(OWNER, 5_000.0),
        ]);
        let readers = found("zset", &readers, 60);
        assert!(readers.shared && readers.permits.is_none());
        assert_eq!(readers.entries[0].kind, held(OWNER, 7));
        let others = FoundValue::Members(vec![member("x", 1.0)]);
        assert_eq!(
            found("zset", &others, 60).entries[0].kind,
            foreign("a zset")
        );
    }

    #[test]
    fn what_is_not_a_locks_is_told_as_what_it_is() {
        for (kind, value, remaining, what) in [
            ("hash", "", 5, "a hash"),
            ("string", "done@7", -1, "a string without expiry"),
            ("string", "done@x", 5, "a string that no lock has written"),
            ("string", "somebody", 5, "a string that no lock has written"),
        ] {
            let text = FoundValue::Text(value.to_owned());
            let found = found(kind, &text, remaining);
            assert_eq!(found.entries[0].kind, foreign(what), "{value}");
            assert_eq!(stored(&found.entries[0].kind), None);
        }
        let nothing = found("none", &FoundValue::Other, -2);
        assert!(nothing.entries.is_empty());
    }
}
