//! What the words of several nodes about a lock come to.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::votes::majority;
use crate::store::{Entry, EntryKind, Listed};

/// What a majority of so many nodes has of a lock.
pub(super) fn entries(known: &[&Listed], nodes: usize) -> Vec<Entry> {
    let needed = majority(nodes);
    // By what of it is the same at every node: each has its own clock, and there may be many readers.
    let mut named: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
    for entry in known.iter().flat_map(|listed| &listed.entries) {
        let named = named.entry((entry.slot, name(&entry.kind)));
        named.or_default().push(entry);
    }
    let mut judged: Vec<Entry> = Vec::new();
    for same in named.into_values() {
        if same.len() < needed {
            continue;
        }
        let entry = same[0];
        // It stands as long as a majority has it; what never ends comes last.
        let mut remaining: Vec<_> = same.iter().map(|entry| entry.remaining).collect();
        remaining.sort_unstable_by_key(|remaining| (remaining.is_none(), *remaining));
        let remaining = remaining[remaining.len() - needed];
        let latest = same.iter().filter_map(|entry| since(&entry.kind)).max();
        let reply = same.iter().find_map(|entry| entry.reply_bytes);
        let judged_entry = Entry::new(entry.slot, of(&entry.kind, latest), remaining);
        judged.push(judged_entry.replied(reply));
    }
    judged
}

/// Whether readers hold a lock, as a majority of so many nodes has it.
pub(super) fn shared(known: &[&Listed], nodes: usize) -> bool {
    known.iter().filter(|listed| listed.shared).count() >= majority(nodes)
}

/// Whether two nodes mean the same.
#[cfg(feature = "inspect")]
pub(super) fn is_same(one: &EntryKind, other: &EntryKind) -> bool {
    name(one) == name(other)
}

fn name(kind: &EntryKind) -> (u8, &str) {
    match kind {
        EntryKind::Held { owner, .. } => (0, owner),
        EntryKind::Closed { owner, .. } => (1, owner),
        EntryKind::Done { .. } => (2, ""),
        EntryKind::Foreign { found } => (3, found),
    }
}

fn since(kind: &EntryKind) -> Option<SystemTime> {
    match kind {
        EntryKind::Held { since, .. } | EntryKind::Closed { since, .. } => *since,
        EntryKind::Done { since } => Some(*since),
        EntryKind::Foreign { .. } => None,
    }
}

/// The same since another moment.
fn of(kind: &EntryKind, latest: Option<SystemTime>) -> EntryKind {
    let mut kind = kind.clone();
    match (&mut kind, latest) {
        (EntryKind::Held { since, .. } | EntryKind::Closed { since, .. }, latest) => {
            *since = latest;
        }
        (EntryKind::Done { since }, Some(latest)) => *since = latest,
        _ => {}
    }
    kind
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn listed(owner: &str, seconds: Option<u64>) -> Listed {
        let owner = owner.to_owned();
        let kind = EntryKind::Held { owner, since: None };
        let entry = Entry::new(0, kind, seconds.map(Duration::from_secs));
        Listed::new("lock", vec![entry], 0)
    }

    #[test]
    fn a_holder_has_a_majority_for_as_long_as_a_majority_has_it() {
        let (a, b, c) = (
            listed("a", Some(9)),
            listed("a", Some(5)),
            listed("a", Some(1)),
        );
        let left = |known: &[&Listed]| {
            let entries = entries(known, 3);
            entries.first().map(|entry| entry.remaining)
        };
        assert_eq!(left(&[&c, &a, &b]), Some(Some(Duration::from_secs(5))));
        assert_eq!(left(&[&a, &c]), Some(Some(Duration::from_secs(1))));
        assert_eq!(
            left(&[&listed("a", None), &c]),
            Some(Some(Duration::from_secs(1)))
        );
        assert_eq!(left(&[&a]), None);
        assert_eq!(
            left(&[&a, &listed("b", Some(9)), &listed("c", Some(9))]),
            None
        );
    }

    #[test]
    fn a_mark_is_the_same_by_every_clock() {
        let done = |seconds| {
            let since = UNIX_EPOCH + Duration::from_secs(seconds);
            let entry = Entry::new(0, EntryKind::Done { since }, Some(Duration::from_secs(9)));
            Listed::new("lock", vec![entry], 0)
        };
        let judged = entries(&[&done(7), &done(8)], 3);
        let since = UNIX_EPOCH + Duration::from_secs(8);
        assert_eq!(judged[0].kind, EntryKind::Done { since });
    }
}
