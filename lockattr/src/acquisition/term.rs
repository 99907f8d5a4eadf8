//! Until when an acquisition may be relied on: its ttl, its deadline, and how both change.
//!
//! A deadline is only ever what the store has confirmed, and no later than the shortest ttl that it may
//! have been asked for since. When to ask is the keeper's affair.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use super::shortenings::Shortenings;
use super::{Acquisition, Aside};
use crate::store::{relied_on, relied_on_until};

/// A ttl that the store is being asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    ttl: Duration,
    /// Whether it may leave the lease with less than it had.
    pub(crate) shortens: bool,
    ended: u32,
}

impl Acquisition {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Acquire))
    }

    fn keep_queued_ttl(&self, aside: &mut Aside) {
        if self.may_queue() {
            aside.more().queued_ttl.get_or_insert(self.ttl());
        }
    }

    /// The ttl that was asked for with the place that it may have in the store's queue.
    pub(crate) fn queued_ttl(&self) -> Duration {
        let known = |aside: &Aside| aside.more.as_ref()?.queued_ttl;
        known(&self.aside()).unwrap_or_else(|| self.ttl())
    }

    pub(super) fn store_ttl(&self, ttl: Duration) {
        let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.ttl_ms.store(ms, Ordering::Release);
    }

    /// The ttl that the store is asked for: a lock that is to stay closed for longer than the lease
    /// does so also where its holder dies.
    pub(crate) fn ttl_to_ask(&self, ttl: Duration) -> Duration {
        ttl.max(self.closed())
    }

    /// Until when it may be relied on, unless it is renewed.
    pub(crate) fn deadline(&self) -> Instant {
        self.granted + Duration::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// When the ttl was started last.
    pub(crate) fn started(&self) -> Instant {
        let deadline = self.deadline();
        deadline
            .checked_sub(relied_on(self.ttl()))
            .unwrap_or(deadline)
    }

    /// It may be relied on until then, whatever was known before.
    pub(crate) fn runs_until(&self, until: Instant) {
        self.deadline.store(self.nanos(until), Ordering::Release);
    }

    /// The store is going to be asked for another ttl. Where that is shorter, it may not be heard to
    /// confirm it: from now on no more than that is relied on, nor asked for.
    pub(crate) fn begin_extension(&self, ttl: Duration) -> Extension {
        let until = self.nanos(relied_on_until(self.clock.now(), ttl));
        let mut aside = self.aside();
        self.keep_queued_ttl(&mut aside);
        let shortenings = aside.shortenings();
        shortenings.begin(self.renewing.load(Ordering::Relaxed));
        if !shortenings.are_outstanding() {
            shortenings.kept_ttl = self.ttl();
            shortenings.kept_deadline = self.deadline.load(Ordering::Acquire);
        }
        let shortens = until < shortenings.kept_deadline || ttl < shortenings.kept_ttl;
        if shortens {
            shortenings.ask(ttl);
            self.deadline.fetch_min(until, Ordering::AcqRel);
            self.keep_ttl(shortenings);
        }
        let ended = shortenings.ended();
        Extension {
            ttl,
            shortens,
            ended,
        }
    }

    /// It is waited for no more, and whatever was told of it has been told.
    pub(crate) fn end_extension(&self) {
        self.aside().shortenings().end();
    }

    /// The store has confirmed it. Says whether it may be relied on in full: it may not where a shorter
    /// ttl was on its way at the same time, which the store may carry out after it.
    pub(crate) fn extended(&self, extension: Extension, confirmed: Confirmed) -> bool {
        let Extension {
            ttl,
            shortens,
            ended,
        } = extension;
        let mut aside = self.aside();
        let shortenings = aside.shortenings();
        let longest = shortenings.longest_since(ended);
        if shortens {
            shortenings.carried_out(ttl);
            // Whatever was confirmed for longer may have been shortened by this.
            shortenings.kept_deadline = self.deadline.load(Ordering::Acquire);
        }
        shortenings.kept_ttl = ttl;
        self.confirm(shortenings, confirmed, longest);
        self.keep_ttl(shortenings);
        let in_full = longest >= ttl && shortenings.shortest().is_none_or(|other| other >= ttl);
        let outstanding = shortenings.are_outstanding();
        drop(aside);
        if !outstanding {
            self.wake();
        }
        in_full
    }

    /// The store has refused it, and nothing has changed.
    pub(crate) fn extension_refused(&self, extension: Extension) {
        if !extension.shortens {
            return;
        }
        let mut aside = self.aside();
        let shortenings = aside.shortenings();
        shortenings.refused(extension.ttl);
        self.keep_ttl(shortenings);
        let outstanding = shortenings.are_outstanding();
        if !outstanding {
            let kept = shortenings.kept_deadline;
            self.deadline.fetch_max(kept, Ordering::AcqRel);
        }
        drop(aside);
        if !outstanding {
            self.wake();
        }
    }

    /// Nobody waits for the answer any more, and the store may carry it out at any later time.
    pub(crate) fn give_up_extension(&self, extension: Extension) {
        self.aside().shortenings().give_up(extension.ttl);
    }

    /// One that was given up can be carried out no more.
    pub(crate) fn extension_settled(&self) {
        let mut aside = self.aside();
        let shortenings = aside.shortenings();
        if shortenings.settled() {
            // It may have been carried out.
            shortenings.kept_deadline = self.deadline.load(Ordering::Acquire);
            self.keep_ttl(shortenings);
        }
        let outstanding = shortenings.are_outstanding();
        drop(aside);
        if !outstanding {
            self.wake();
        }
    }

    /// Whether the store may yet shorten what it has granted or renewed.
    pub(crate) fn may_be_shortened(&self) -> bool {
        let aside = self.aside();
        let shortenings = aside.more.as_ref().map(|more| &more.shortenings);
        shortenings.is_some_and(|known| known.as_ref().is_some_and(|all| all.are_outstanding()))
    }

    /// How many requests to shorten the ttl have come to an end, for [`renewed`](Self::renewed).
    pub(crate) fn shortenings_ended(&self) -> u32 {
        let aside = self.aside();
        let shortenings = aside
            .more
            .as_ref()
            .and_then(|more| more.shortenings.as_ref());
        shortenings.map_or(0, |shortenings| shortenings.ended())
    }

    /// The store has confirmed a renewal that was sent when so many shortenings had ended.
    pub(crate) fn renewed(&self, confirmed: Confirmed, ended: u32) {
        let mut aside = self.aside();
        let more = aside.more.as_mut();
        match more.and_then(|more| more.shortenings.as_mut()) {
            None => {
                let until = self.nanos(confirmed.of(self.ttl()));
                self.deadline.fetch_max(until, Ordering::AcqRel);
            }
            Some(shortenings) => {
                if !shortenings.are_outstanding() {
                    shortenings.kept_ttl = self.ttl();
                }
                let longest = shortenings.longest_since(ended);
                self.confirm(shortenings, confirmed, longest);
            }
        }
    }

    /// Relies on what was confirmed, as far as nothing that is outstanding may shorten it.
    fn confirm(&self, shortenings: &mut Shortenings, confirmed: Confirmed, longest: Duration) {
        let longest = shortenings.kept_ttl.min(longest);
        let kept = self.nanos(confirmed.of(longest));
        shortenings.kept_deadline = shortenings.kept_deadline.max(kept);
        let shortest = shortenings.shortest().unwrap_or(longest);
        let relied_on = self.nanos(confirmed.of(longest.min(shortest)));
        self.deadline.fetch_max(relied_on, Ordering::AcqRel);
    }

    /// Keeps to the ttl that was confirmed last, or to the shortest that is outstanding.
    fn keep_ttl(&self, shortenings: &Shortenings) {
        let kept = shortenings.kept_ttl;
        self.store_ttl(shortenings.shortest().map_or(kept, |ttl| ttl.min(kept)));
    }

    fn nanos(&self, until: Instant) -> u64 {
        let after = until.saturating_duration_since(self.granted);
        u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Since when it is held, or was handed over, by this machine's clock.
    pub(crate) fn since(&self) -> SystemTime {
        let now = SystemTime::now();
        let age = self.clock.now().saturating_duration_since(self.granted);
        now.checked_sub(age).unwrap_or(now)
    }

    /// When the lease ends unless it is renewed, and at the latest.
    pub(crate) fn end(&self) -> Instant {
        let deadline = self.deadline();
        self.last_moment()
            .map_or(deadline, |last| last.min(deadline))
    }

    pub(crate) fn last_moment(&self) -> Option<Instant> {
        Some(self.granted + self.special_options()?.max_hold?)
    }
}

/// What the store has confirmed of a ttl that it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    pub(crate) asked: Duration,
    pub(crate) until: Instant,
}

impl Confirmed {
    /// Until when a lease of this ttl may be relied on: where the store keeps the keys for longer than
    /// that, they are to stay closed.
    fn of(self, ttl: Duration) -> Instant {
        let less = relied_on(self.asked).saturating_sub(relied_on(ttl));
        self.until.checked_sub(less).unwrap_or(self.until)
    }
}

impl Aside {
    fn shortenings(&mut self) -> &mut Shortenings {
        self.more().shortenings.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests;
