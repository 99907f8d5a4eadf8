//! What is to be left under the locks of a lease when it is given back: each bears the marks of the
//! calls that named it, and no others.

use std::time::{Duration, Instant, SystemTime};

use super::{Acquisition, More};
use crate::reply::KeptReply;
use crate::store::Leave;

#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<Mark>);

/// The mark of one lock.
#[derive(Debug)]
struct Mark {
    /// Which of the locks.
    lock: usize,
    /// Until when it stays closed.
    closed: Option<Instant>,
    /// A success under it.
    done: Option<Done>,
}

/// A success that keeps a lock from being taken again.
#[derive(Debug)]
struct Done {
    since: SystemTime,
    until: Instant,
    reply: Option<KeptReply>,
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
    pub(crate) fn done(
        &mut self,
        locks: impl IntoIterator<Item = usize>,
        until: Instant,
        reply: Option<&KeptReply>,
    ) {
        let since = SystemTime::now();
        for lock in locks {
            let done = &mut self.of(lock).done;
            if done.as_ref().is_none_or(|known| known.until < until) {
                *done = Some(Done {
                    since,
                    until,
                    reply: reply.cloned(),
                });
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

    /// Since when the work of any of these locks is done, and what was left with it.
    pub(crate) fn done_since(&self, locks: &[usize]) -> Option<(SystemTime, Option<KeptReply>)> {
        let of_these = self.0.iter().filter(|mark| locks.contains(&mark.lock));
        let done = of_these.filter_map(|mark| mark.done.as_ref());
        let first = done.min_by_key(|done| done.since)?;
        Some((first.since, first.reply.clone()))
    }

    /// Until when any of the locks is to stay closed.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        self.0.iter().filter_map(|mark| mark.closed).max()
    }

    /// Until when a success keeps any of the locks from being taken again.
    pub(crate) fn done_until(&self) -> Option<Instant> {
        self.0
            .iter()
            .filter_map(|mark| Some(mark.done.as_ref()?.until))
            .max()
    }

    /// How many bytes of replies there are.
    #[cfg(feature = "serde")]
    pub(crate) fn reply_bytes(&self) -> usize {
        let done = self.0.iter().filter_map(|mark| mark.done.as_ref());
        let replies = done.filter_map(|done| done.reply.as_ref()?.bytes());
        replies.sum()
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
        let done = left(self.done.as_ref().map(|done| done.until));
        let reply = self.done.as_ref().and_then(|done| done.reply.clone());
        if !done.is_zero() {
            let length = done.max(closed);
            match reply {
                Some(reply) => Leave::Replied(length, reply),
                None => Leave::Done(length),
            }
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

impl Acquisition {
    /// A success is to keep these locks from being taken again for so long.
    pub(crate) fn mark_done(
        &self,
        locks: impl IntoIterator<Item = usize>,
        length: Duration,
        reply: Option<&KeptReply>,
    ) {
        // What is done under a lease that has ended counts for nothing; what was done before does.
        if self.loss().is_none() {
            let until = self.clock.now() + length;
            self.aside().more().marks.done(locks, until, reply);
        }
    }

    /// Since when the work of any of these locks is done, if a call under this lease has done it, and what was
    /// left with it.
    pub(crate) fn done_since(&self, locks: &[usize]) -> Option<(SystemTime, Option<KeptReply>)> {
        self.aside().more.as_ref()?.marks.done_since(locks)
    }

    /// How many bytes of replies are to be left already.
    #[cfg(feature = "serde")]
    pub(crate) fn reply_bytes(&self) -> usize {
        let aside = self.aside();
        let more = aside.more.as_ref();
        more.map_or(0, |more| more.marks.reply_bytes())
    }

    /// These locks are to stay closed for so long from now on.
    pub(crate) fn close_for(&self, locks: impl IntoIterator<Item = usize>, length: Duration) {
        if !length.is_zero() {
            let until = self.clock.now() + length;
            self.aside().more().marks.close(locks, until);
        }
    }

    /// For how long any of the locks is to stay closed yet.
    pub(crate) fn closed(&self) -> Duration {
        let aside = self.aside();
        let until = aside
            .more
            .as_ref()
            .and_then(|more| more.marks.closed_until());
        drop(aside);
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(self.clock.now())
        })
    }

    /// For how long a success keeps any of the locks from being taken again.
    pub(crate) fn done_for(&self) -> Option<Duration> {
        let until = self.aside().more.as_ref()?.marks.done_until()?;
        Some(until.saturating_duration_since(self.clock.now()))
    }

    /// What a release at this moment leaves under each of the locks; empty where that is nothing.
    pub(crate) fn leaves(&self) -> Vec<Leave> {
        let has_none = |more: &More| more.marks.is_empty();
        if self.aside().more.as_deref().is_none_or(has_none) {
            return Vec::new();
        }
        let now = self.clock.now();
        let aside = self.aside();
        let marks = aside.more.as_ref().map(|more| &more.marks);
        marks.map_or_else(Vec::new, |marks| marks.leaves(self.keys.locks().len(), now))
    }
}
