//! What is stored under a key, as people are shown it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use crate::owner;
use crate::store::EntryKind;
use crate::store::inspect::{Shown, Waiter};
use crate::store::redis::reply::{integer, text};
use crate::store::redis::standing::{listed, read_lock};

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
    let [stands, waiters, Value::Array(queue)] = parts.as_slice() else {
        return None;
    };
    let found = read_lock(stands)?;
    let waiters = u64::try_from(integer(waiters)?).ok()?;
    let queue = queue.iter().filter_map(|entry| waiting(&text(entry)?));
    Some(Shown::new(listed(lock, found, waiters), queue.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Entry;
    use crate::store::redis::standing::{FoundValue, foreign, found};

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
            (
                "done@7 json [1, 2]".to_owned(),
                EntryKind::Done { since: at(7) },
            ),
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
    fn of_a_reply_its_length_is_told() {
        for (value, bytes) in [
            ("done@7", None),
            ("done@7 json [1, 2]", Some(6)),
            ("done@7 too-large 70000", None),
        ] {
            let found = found("string", &FoundValue::Text(value.to_owned()), 5);
            assert_eq!(found.entries[0].reply_bytes, bytes, "{value}");
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
