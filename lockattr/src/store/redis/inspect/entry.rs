//! What is stored under a key, as people are shown it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use crate::owner;
use crate::store::EntryKind;
use crate::store::inspect::{Shown, Waiter};
use crate::store::redis::reply::{integer, text};
use crate::store::redis::standing::{listed, read_slots};

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
    let [Value::Array(slots), waiters, Value::Array(queue)] = parts.as_slice() else {
        return None;
    };
    let in_slots = read_slots(slots)?;
    let waiters = u64::try_from(integer(waiters)?).ok()?;
    let queue = queue.iter().filter_map(|entry| waiting(&text(entry)?));
    Some(Shown::new(listed(lock, in_slots, waiters), queue.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::standing::{foreign, found, nobody};

    #[test]
    fn what_is_stored_is_shown_and_found_again() {
        let owner = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@host:7".to_owned();
        let closed = nobody("host:7");
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let held = |since| {
            let owner = owner.clone();
            EntryKind::Held { owner, since }
        };
        let left_closed = |since| {
            let owner = closed.clone();
            EntryKind::Closed { owner, since }
        };
        for (value, kind, permits) in [
            (owner.clone(), held(Some(at(0x019a_d5b1_f9c0))), None),
            (format!("{owner} 7"), held(Some(at(7))), None),
            (format!("{owner} 7 3"), held(Some(at(7))), Some(3)),
            (closed.clone(), left_closed(None), None),
            (format!("{closed} 7"), left_closed(Some(at(7))), None),
            (format!("{closed} 7 3"), left_closed(Some(at(7))), None),
            ("done@7".to_owned(), EntryKind::Done { since: at(7) }, None),
            (
                "done@7 json [1, 2]".to_owned(),
                EntryKind::Done { since: at(7) },
                None,
            ),
        ] {
            let in_slot = found(3, "string", &value, 5).expect("something");
            let stored = stored(&kind).expect("it may be ended");
            assert_eq!((in_slot.entry.kind, in_slot.permits), (kind, permits));
            let is_found = value == stored || value.starts_with(&format!("{stored} "));
            assert!(is_found, "{value} {stored}");
            assert!(found(3, "string", &value, -2).is_none(), "{value}");
        }
    }

    #[test]
    fn of_a_reply_its_length_is_told() {
        for (value, bytes) in [
            ("done@7", None),
            ("done@7 json [1, 2]", Some(6)),
            ("done@7 too-large 70000", None),
        ] {
            let in_slot = found(0, "string", value, 5).expect("something");
            assert_eq!(in_slot.entry.reply_bytes, bytes, "{value}");
        }
    }

    #[test]
    fn what_is_not_a_locks_is_told_as_what_it_is() {
        for (kind, value, remaining, what) in [
            ("hash", "", 5, "a hash"),
            ("string", "done@7", -1, "a string without expiry"),
            ("string", "done@x", 5, "a string that no lock has written"),
            ("string", "somebody", 5, "a string that no lock has written"),
        ] {
            let in_slot = found(0, kind, value, remaining).expect("something");
            assert_eq!(in_slot.entry.kind, foreign(what), "{value}");
            assert_eq!(stored(&in_slot.entry.kind), None);
        }
        assert!(found(0, "none", "", -2).is_none());
    }
}
