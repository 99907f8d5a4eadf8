//! What the words of several nodes about a lock come to.

use std::time::SystemTime;

use super::votes::majority;
use crate::store::{Entry, EntryKind, Listed};

/// What a majority of so many nodes has of a lock.
pub(super) fn entries(known: &[&Listed], nodes: usize) -> Vec<Entry> {
    let needed = majority(nodes);
    let all: Vec<_> = known.iter().flat_map(|listed| &listed.entries).collect();
    let mut judged: Vec<Entry> = Vec::new();
    for entry in &all {
        let is_it = |other: &Entry| other.slot == entry.slot && is_same(&other.kind, &entry.kind);
        if judged.iter().any(is_it) {
            continue;
        }
        let same: Vec<_> = all.iter().filter(|other| is_it(other)).collect();
        if same.len() < needed {
            continue;
        }
        // It stands as long as a majority has it; what never ends comes last.
        let mut remaining: Vec<_> = same.iter().map(|entry| entry.remaining).collect();
        remaining.sort_unstable_by_key(|remaining| (remaining.is_none(), *remaining));
        let remaining = remaining[remaining.len() - needed];
        let latest = same.iter().filter_map(|entry| since(&entry.kind)).max();
        let reply = same.iter().find_map(|entry| entry.reply_bytes);
        let judged_entry = Entry::new(entry.slot, of(&entry.kind, latest), remaining);
        judged.push(judged_entry.replied(reply));
    }
    judged.sort_by_key(|entry| entry.slot);
    judged
}

/// Whether two nodes mean the same: each has its own clock.
pub(super) fn is_same(one: &EntryKind, other: &EntryKind) -> bool {
    match (one, other) {
        (EntryKind::Held { owner, .. }, EntryKind::Held { owner: other, .. })
        | (EntryKind::Closed { owner, .. }, EntryKind::Closed { owner: other, .. }) => {
            owner == other
        }
        (EntryKind::Done { .. }, EntryKind::Done { .. }) => true,
        (one, other) => one == other,
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
