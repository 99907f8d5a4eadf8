//! What is to be left under the locks of a lease when it is given back: each bears the marks of the
//! calls that named it, and no others.

use std::time::{Duration, Instant, SystemTime};

use crate::store::Leave;

#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<Mark>);

/// The mark of one lock.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Which of the locks.
    lock: usize,
    /// Until when it stays closed.
    closed: Option<Instant>,
    /// A success under it.
    done: Option<Done>,
}

/// A success that keeps a lock from being taken again.
#[derive(Clone, Copy, Debug)]
struct Done {
    since: SystemTime,
    until: Instant,
}

impl Marks {
    /// These locks are to stay closed until then.
    pub(crate) fn close(&mut self, locks: impl IntoIterator<Item = usize>, until: Instant) {
        for lock in locks {
            let closed = &mut self.of(lock).closed;
            *closed = (*closed).max(Some(until));
        }
    }

    /// The work of these locks is done, and is not to be done again until then.
    pub(crate) fn done(&mut self, locks: impl IntoIterator<Item = usize>, until: Instant) {
        let since = SystemTime::now();
        for lock in locks {
            let done = &mut self.of(lock).done;
            if done.is_none_or(|known| known.until < until) {
                *done = Some(Done { since, until });
            }
        }
    }

    fn of(&mut self, lock: usize) -> &mut Mark {
        let known = self.0.iter().position(|mark| mark.lock == lock);
        let index = known.unwrap_or_else(|| {
            self.0.push(Mark {
                lock,
                closed: None,
                done: None,
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// Since when the work of any of these locks is done.
    pub(crate) fn done_since(&self, locks: &[usize]) -> Option<SystemTime> {
        let of_these = self.0.iter().filter(|mark| locks.contains(&mark.lock));
        of_these.filter_map(|mark| Some(mark.done?.since)).min()
    }

    /// Until when any of the locks is to stay closed.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        self.0.iter().filter_map(|mark| mark.closed).max()
    }

    /// Until when a success keeps any of the locks from being taken again.
    pub(crate) fn done_until(&self) -> Option<Instant> {
        self.0
            .iter()
            .filter_map(|mark| Some(mark.done?.until))
            .max()
    }

    /// What a release at this moment leaves under each of so many locks; empty where that is nothing.
    pub(crate) fn leaves(&self, locks: usize, now: Instant) -> Vec<Leave> {
        let leaves = (0..locks).map(|lock| {
            let mark = self.0.iter().find(|mark| mark.lock == lock);
            mark.map_or(Leave::Nothing, |mark| mark.leaves(now))
        });
        let leaves: Vec<_> = leaves.collect();
        if leaves.iter().all(|leave| *leave == Leave::Nothing) {
            return Vec::new();
        }
        leaves
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Mark {
    fn leaves(&self, now: Instant) -> Leave {
        let left = |until: Option<Instant>| until.map_or(Duration::ZERO, |until| left(until, now));
        let closed = left(self.closed);
        let done = left(self.done.map(|done| done.until));
        if !done.is_zero() {
            Leave::Done(done.max(closed))
        } else if closed.is_zero() {
            Leave::Nothing
        } else {
            Leave::Closed(closed)
        }
    }
}

/// What is left of a time, in milliseconds: stores count in these, and nothing is to end too early.
fn left(until: Instant, now: Instant) -> Duration {
    let nanos = until.saturating_duration_since(now).as_nanos();
    Duration::from_millis(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
