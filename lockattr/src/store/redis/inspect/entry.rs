//! What is stored under a key, as people are shown it.

use std::time::{Duration, UNIX_EPOCH};

use redis::Value;

use crate::owner;
use crate::store::inspect::{Entry, EntryKind, Waiting};
use crate::store::redis::reply::{integer, text};

/// The id of a lock that was left closed, which no owner has.
const NOBODY: &str = "00000000000000000000000000000000@";

/// What is found in a slot; `None` where it has gone while it was read.
pub(super) fn found(slot: usize, kind: &str, value: &str, remaining: i64) -> Option<Entry> {
    let remaining = match u64::try_from(remaining) {
        Ok(millis) => Some(Duration::from_millis(millis)),
        Err(_) if remaining == -1 => None,
        Err(_) => return None,
    };
    let kind = match kind {
        "none" => return None,
        "string" if remaining.is_none() => foreign("a string without expiry"),
        "string" => of_string(value),
        kind => foreign(&format!("a {kind}")),
    };
    Some(Entry::new(slot, kind, remaining))
}

fn of_string(value: &str) -> EntryKind {
    if let Some(since) = value.strip_prefix("done@") {
        let since = since.parse().ok().map(Duration::from_millis);
        if let Some(since) = since.and_then(|since| UNIX_EPOCH.checked_add(since)) {
            return EntryKind::Done { since };
        }
    } else if value.starts_with(NOBODY) {
        return EntryKind::Closed {
            owner: value.to_owned(),
            since: None,
        };
    } else if owner::is_owner(value) {
        return EntryKind::Held {
            owner: value.to_owned(),
            since: owner::since(value),
        };
    }
    foreign("a string that no lock has written")
}

fn foreign(found: &str) -> EntryKind {
    EntryKind::Foreign {
        found: found.to_owned(),
    }
}

/// What is stored where an entry was found, if it may be ended.
pub(super) fn stored(kind: &EntryKind) -> Option<String> {
    match kind {
        EntryKind::Held { owner, .. } | EntryKind::Closed { owner, .. } => Some(owner.clone()),
        EntryKind::Done { since } => {
            let since = since.duration_since(UNIX_EPOCH).ok()?;
            Some(format!("done@{}", since.as_millis()))
        }
        EntryKind::Foreign { .. } => None,
    }
}

/// One that waits, by its entry in a queue.
pub(super) fn waiting(entry: &str) -> Option<Waiting> {
    let mut words = entry.split(' ');
    let (owner, ttl) = (words.next()?, words.next()?);
    let ttl = Duration::from_millis(ttl.parse().ok()?);
    Some(Waiting::new(owner, owner::since(owner), Some(ttl)))
}

/// What `inspect.lua` has answered: what stands there, how many wait, and the first of them.
pub(super) fn read(answer: &Value) -> Option<(Vec<Entry>, u64, Vec<Waiting>)> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [Value::Array(slots), waiters, Value::Array(queue)] = parts.as_slice() else {
        return None;
    };
    let mut entries = Vec::with_capacity(slots.len());
    for slot in slots {
        let Value::Array(parts) = slot else {
            return None;
        };
        let [slot, kind, value, remaining] = parts.as_slice() else {
            return None;
        };
        let slot = usize::try_from(integer(slot)?).ok()?;
        let (kind, value) = (text(kind)?, text(value)?);
        entries.extend(found(slot, &kind, &value, integer(remaining)?));
    }
    let waiters = u64::try_from(integer(waiters)?).ok()?;
    let queue = queue
        .iter()
        .filter_map(|entry| waiting(&text(entry)?))
        .collect();
    Some((entries, waiters, queue))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn what_is_stored_is_shown_and_found_again() {
        let owner = format!("{}@host:7", OWNER.replace('-', ""));
        let since = Some(UNIX_EPOCH + Duration::from_millis(0x0189_0a5d_ac96));
        let closed = format!("{NOBODY}host:7");
        let done = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let shown = |kind, value, remaining| found(3, kind, value, remaining).map(|one| one.kind);
        for (value, kind) in [
            (
                owner.as_str(),
                EntryKind::Held {
                    owner: owner.clone(),
                    since,
                },
            ),
            (
                closed.as_str(),
                EntryKind::Closed {
                    owner: closed.clone(),
                    since: None,
                },
            ),
            ("done@1700000000123", EntryKind::Done { since: done }),
        ] {
            assert_eq!(shown("string", value, 5), Some(kind.clone()), "{value}");
            assert_eq!(stored(&kind).as_deref(), Some(value));
            assert_eq!(shown("string", value, -2), None, "{value}");
        }
        for (kind, value, remaining, what) in [
            ("hash", "", 5, "a hash"),
            ("string", owner.as_str(), -1, "a string without expiry"),
            ("string", "done@x", 5, "a string that no lock has written"),
            ("string", "somebody", 5, "a string that no lock has written"),
        ] {
            assert_eq!(
                shown(kind, value, remaining),
                Some(foreign(what)),
                "{value}"
            );
        }
    }
}
