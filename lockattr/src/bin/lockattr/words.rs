//! How locks, holders and times are called, for people and for machines.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use lockattr::store::inspect::{Entry, EntryKind, Listed, Missing};
use serde_json::{Value, json};

/// What a lock is in, for a list: held where anybody holds it, or else the state of its first entry, or that
/// callers alone are there.
pub(crate) fn state(listed: &Listed) -> &'static str {
    let entries = &listed.entries;
    let held = entries.iter().find(|entry| is_held(entry));
    let entry = held.or(entries.first());
    entry.map_or("waiting", |entry| kind(&entry.kind))
}

/// Whether somebody holds it, or one of its slots.
pub(crate) fn is_held(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Held { .. })
}

/// The word for what stands under a lock.
pub(crate) fn kind(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::Held { .. } => "held",
        EntryKind::Closed { .. } => "closed",
        EntryKind::Done { .. } => "done",
        EntryKind::Foreign { .. } => "foreign",
        // Kinds that a later library knows.
        _ => "unknown",
    }
}

/// Since when it stands there.
pub(crate) fn since(kind: &EntryKind) -> Option<SystemTime> {
    match kind {
        EntryKind::Held { since, .. } | EntryKind::Closed { since, .. } => *since,
        EntryKind::Done { since } => Some(*since),
        _ => None,
    }
}

/// Who put it there, as `host:pid`.
pub(crate) fn holder(kind: &EntryKind) -> Option<&str> {
    match kind {
        EntryKind::Held { owner, .. } | EntryKind::Closed { owner, .. } => Some(origin(owner)),
        _ => None,
    }
}

/// The part of an owner that may be shown: whoever knows the rest can end the hold.
pub(crate) fn origin(owner: &str) -> &str {
    owner
        .split_once('@')
        .map_or("unknown", |(_, origin)| origin)
}

/// A length in the two largest units that it has, as in `2m 3s`; never longer than it is.
pub(crate) fn length(length: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let seconds = length.as_secs();
    if seconds < 10 {
        let tenths = length.subsec_millis() / 100;
        return match (seconds, tenths) {
            (0, 0) => format!("{}ms", length.as_millis()),
            _ => format!("{seconds}.{tenths}s"),
        };
    }
    let mut left = seconds;
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        if left >= size && parts.len() < 2 {
            parts.push(format!("{}{unit}", left / size));
            left %= size;
        } else if !parts.is_empty() {
            // `1d 7s` would read as if the hours were forgotten.
            break;
        }
    }
    parts.join(" ")
}

/// For how long something stands there by now. Clocks differ, and nothing is younger than new.
pub(crate) fn age(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

/// A moment, in UTC; anybody may have stored one that no calendar has.
pub(crate) fn moment(at: SystemTime) -> String {
    let mut text = String::new();
    match write!(text, "{}", humantime::format_rfc3339_seconds(at)) {
        Ok(()) => text,
        Err(_) => "after the year 9999".to_owned(),
    }
}

/// A moment for machines: in ms since 1970.
pub(crate) fn since_ms(at: SystemTime) -> u64 {
    millis(
        at.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// One line for people where a server or an application has put control characters into what it says.
pub(crate) fn one_line(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| {
        let breaks =
            c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let escape = breaks.then(|| c.escape_default());
        let plain = (!breaks).then_some(c);
        escape.into_iter().flatten().chain(plain)
    });
    escaped.collect()
}

/// How many permits are taken.
pub(crate) fn taken(listed: &Listed) -> u64 {
    let weights = listed.entries.iter().map(|entry| u64::from(entry.weight));
    weights.sum()
}

/// A lock for machines; `docs/schema/lock.json` describes it.
pub(crate) fn lock_json(listed: &Listed, now: SystemTime) -> Value {
    let entries = listed.entries.iter().map(|entry| entry_json(entry, now));
    json!({
        "key": listed.lock,
        "state": state(listed),
        "entries": entries.collect::<Vec<_>>(),
        "permits": listed.permits,
        "shared": listed.shared,
        "waiters": listed.waiters,
    })
}

/// What stands under a lock, for machines.
pub(crate) fn entry_json(entry: &Entry, now: SystemTime) -> Value {
    let since = since(&entry.kind);
    let found = match &entry.kind {
        EntryKind::Foreign { found } => Some(found),
        _ => None,
    };
    json!({
        "slot": entry.slot,
        "weight": entry.weight,
        "state": kind(&entry.kind),
        "holder": holder(&entry.kind),
        "since_ms": since.map(since_ms),
        "age_ms": since.map(|since| millis(age(since, now))),
        "remaining_ms": entry.remaining.map(millis),
        "found": found,
    })
}

/// A part of the store that did not answer, for machines.
pub(crate) fn missing_json(missing: &Missing) -> Value {
    json!({ "part": missing.part, "error": missing.error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_at_a_glance() {
        for (millis, told) in [
            (0, "0ms"),
            (99, "99ms"),
            (100, "0.1s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (123_000, "2m 3s"),
            (3_600_000, "1h"),
            (3_661_000, "1h 1m"),
            (86_407_000, "1d"),
            (90_000_000_000, "1041d 16h"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), told, "{millis}");
        }
    }

    #[test]
    fn a_lock_is_held_where_any_of_its_slots_is() {
        let since = None;
        let owner = "0190aabb@web-3:4711".to_owned();
        let closed = EntryKind::Closed {
            owner: owner.clone(),
            since,
        };
        let closed = Entry::new(0, closed, None);
        let held = Entry::new(1, EntryKind::Held { owner, since }, None);
        let of = |entries| state(&Listed::new("k", entries, 0));
        assert_eq!(of(vec![closed.clone(), held]), "held");
        assert_eq!(of(vec![closed]), "closed");
        assert_eq!(of(Vec::new()), "waiting");
    }

    #[test]
    fn moments_are_told_however_far_away() {
        let at = |millis| moment(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(u64::MAX), "after the year 9999");
    }

    #[test]
    fn owners_are_shown_by_where_they_are() {
        assert_eq!(origin("0190aabb@web-3:4711"), "web-3:4711");
        assert_eq!(origin("secret"), "unknown");
    }

    #[test]
    fn nothing_breaks_a_line() {
        assert_eq!(one_line("a\nb\u{202e}c"), "a\\nb\\u{202e}c");
    }
}
