//! What stands at a lock: who holds it, who waits in which order, and what a release has left there.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::names::{Child, Place, child};
use crate::reply::KeptReply;

/// The children of a lock's node.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// In the order in which they came.
    pub(super) places: Vec<Place>,
    /// The slots that are held of a lock with permits.
    pub(super) slots: Vec<usize>,
    /// The names of marks, with their slots, and whether each says that work is done.
    pub(super) marks: Vec<(String, usize, bool)>,
    /// The name of something that is none of this.
    pub(super) foreign: Option<String>,
}

/// What a release has left at a slot, and still counts.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) slot: usize,
    pub(super) is_done: bool,
    pub(super) since: SystemTime,
    pub(super) remaining: Duration,
    /// What was left with it.
    pub(super) reply: Option<KeptReply>,
}

/// What a claim finds that has a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It may hold the lock, or a slot of it.
    Free,
    /// The work is done, since then, and this was left with it.
    Done(SystemTime, Option<KeptReply>),
    /// It stays closed, since then and for so long.
    Closed(SystemTime, Duration),
    /// Others are before it.
    Busy {
        holder: String,
        ttl: Duration,
        /// How many wait before it.
        before: usize,
        /// The place before its own.
        previous: String,
    },
    /// It has no place here.
    Missing,
}

impl Listing {
    pub(super) fn new(names: &[String]) -> Self {
        let mut listing = Self::default();
        for name in names {
            match child(name) {
                Child::Place(place) => listing.places.push(place),
                Child::Slot(slot) => listing.slots.push(slot),
                Child::Mark { is_done, slot } => {
                    listing.marks.push((name.clone(), slot, is_done));
                }
                Child::Token => {}
                Child::Foreign => listing.foreign = Some(name.clone()),
            }
        }
        // The numbers wrap, and those of one queue are close to each other: they are in order as distances
        // from one of them.
        if let Some(from) = listing.places.first().map(|place| place.number) {
            listing
                .places
                .sort_by_key(|place| place.number.wrapping_sub(from));
        }
        listing
    }

    /// Who holds the lock, as far as the order says: the first.
    pub(super) fn first_but(&self, owner: &str) -> Option<&Place> {
        self.places.iter().find(|place| place.owner != owner)
    }

    /// What an owner finds who wants one of so many slots.
    pub(super) fn find(&self, owner: &str, permits: usize, marks: &[Mark]) -> Finding {
        let marks = || marks.iter().filter(|mark| mark.slot < permits);
        // A slot may have several: one that is left late replaces no other.
        let slots: HashSet<_> = marks().map(|mark| mark.slot).collect();
        let open = permits.saturating_sub(slots.len());
        if open == 0 {
            if let Some(mark) = marks().find(|mark| mark.is_done) {
                return Finding::Done(mark.since, mark.reply.clone());
            }
            let soonest = marks().min_by_key(|mark| mark.remaining);
            let (since, remaining) = soonest.map_or((UNIX_EPOCH, Duration::ZERO), |mark| {
                (mark.since, mark.remaining)
            });
            return Finding::Closed(since, remaining);
        }
        let Some(position) = self.places.iter().position(|place| place.owner == owner) else {
            return Finding::Missing;
        };
        if position < open {
            return Finding::Free;
        }
        let first = &self.places[0];
        Finding::Busy {
            holder: first.owner.clone(),
            ttl: first.ttl,
            before: position - open,
            previous: self.places[position - 1].name.clone(),
        }
    }

    /// The first slot that nobody holds and nothing is left at.
    pub(super) fn free_slot(&self, permits: usize, marks: &[Mark]) -> Option<usize> {
        (0..permits)
            .find(|slot| !self.slots.contains(slot) && !marks.iter().any(|mark| mark.slot == *slot))
    }
}

/// A moment of the leader's clock.
pub(super) fn server_time(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(numbers: &[i32]) -> Listing {
        let names: Vec<_> = numbers
            .iter()
            .map(|number| format!("o{number}+10+1-{number:010}"))
            .collect();
        Listing::new(&names)
    }

    #[test]
    fn field_store_21_the_order_holds_where_the_numbers_wrap() {
        let listing = listing(&[i32::MIN + 1, i32::MAX, i32::MIN, i32::MAX - 1]);
        let order: Vec<_> = listing.places.iter().map(|place| place.number).collect();
        assert_eq!(order, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
        assert_eq!(
            listing.find(&format!("o{}", i32::MAX - 1), 1, &[]),
            Finding::Free
        );
    }

    #[test]
    fn each_finds_those_before_it() {
        let listing = listing(&[7, 5, 9]);
        assert_eq!(listing.find("o5", 1, &[]), Finding::Free);
        let busy = |before, previous: &str| Finding::Busy {
            holder: "o5".to_owned(),
            ttl: Duration::from_millis(10),
            before,
            previous: previous.to_owned(),
        };
        assert_eq!(listing.find("o7", 1, &[]), busy(0, "o5+10+1-0000000005"));
        assert_eq!(listing.find("o9", 1, &[]), busy(1, "o7+10+1-0000000007"));
        assert_eq!(listing.find("o9", 2, &[]), busy(0, "o7+10+1-0000000007"));
        assert_eq!(listing.find("o1", 1, &[]), Finding::Missing);
    }

    #[test]
    fn marks_take_slots_away() {
        let listing = listing(&[5]);
        let mark = |slot, is_done| Mark {
            slot,
            is_done,
            since: UNIX_EPOCH,
            remaining: Duration::from_secs(1),
            reply: None,
        };
        let closed = Finding::Closed(UNIX_EPOCH, Duration::from_secs(1));
        assert_eq!(listing.find("o5", 1, &[mark(0, false)]), closed);
        assert_eq!(listing.find("o5", 2, &[mark(0, true)]), Finding::Free);
        let both = [mark(0, false), mark(1, true)];
        let done = Finding::Done(UNIX_EPOCH, None);
        assert_eq!(listing.find("o5", 2, &both), done);
        assert_eq!(listing.free_slot(2, &[mark(0, true)]), Some(1));
        let twice = [mark(0, true), mark(0, false)];
        assert_eq!(listing.find("o5", 2, &twice), Finding::Free);
    }
}
