//! Until when an acquisition may be relied on: its ttl, its deadline, and how both change.
//!
//! A deadline is only ever what the store has confirmed, and no later than the shortest ttl that it may
//! have been asked for since. When to ask is the keeper's affair.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Acquisition, Aside};
use crate::store::relied_on;

/// The deadline before and after it was shortened, in nanoseconds after the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortened {
    before: u64,
    now: u64,
}

impl Acquisition {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Acquire))
    }

    /// Sets the ttl; while a request to shorten it is outstanding, that which is kept to later.
    pub(crate) fn set_ttl(&self, ttl: Duration) {
        let mut aside = self.aside();
        self.keep_queued_ttl(&mut aside);
        if let Some(more) = &mut aside.more
            && let Some((longer, _)) = &mut more.longer_ttl
        {
            *longer = ttl;
            drop(aside);
            return self.store_ttl(ttl.min(self.ttl()));
        }
        drop(aside);
        self.store_ttl(ttl);
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

    fn store_ttl(&self, ttl: Duration) {
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

    /// The store has confirmed a ttl that may be relied on until then.
    pub(crate) fn runs_until(&self, until: Instant) {
        self.deadline.store(self.nanos(until), Ordering::Release);
    }

    /// The store is being asked for a shorter ttl, and may not be heard to confirm it: from now on no
    /// more than that is relied on, nor asked for. The answer takes back the deadline.
    pub(crate) fn shorten(&self, ttl: Duration, until: Instant) -> Shortened {
        let mut aside = self.aside();
        self.keep_queued_ttl(&mut aside);
        let (_, outstanding) = aside.more().longer_ttl.get_or_insert((self.ttl(), 0));
        *outstanding += 1;
        drop(aside);
        self.store_ttl(ttl.min(self.ttl()));
        let now = self.nanos(until);
        let before = self.deadline.fetch_min(now, Ordering::AcqRel);
        Shortened { before, now }
    }

    /// A request to shorten the ttl is outstanding no more.
    pub(crate) fn lengthen_again(&self) {
        let mut aside = self.aside();
        let known = &mut aside.more().longer_ttl;
        let longer = match known {
            Some((longer, outstanding)) => {
                *outstanding -= 1;
                (*outstanding == 0).then_some(*longer)
            }
            None => None,
        };
        if longer.is_some() {
            *known = None;
        }
        drop(aside);
        if let Some(longer) = longer {
            self.store_ttl(longer);
        }
    }

    /// The store has refused to shorten the ttl.
    pub(crate) fn runs_on(&self, shortened: Shortened) {
        let Shortened { before, now } = shortened;
        if now < before {
            // Not where a confirmed ttl has come in between.
            let _ =
                self.deadline
                    .compare_exchange(now, before, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn nanos(&self, until: Instant) -> u64 {
        let after = until.saturating_duration_since(self.granted);
        u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)
    }

    /// When the lease ends unless it is renewed, and at the latest.
    pub(crate) fn end(&self) -> Instant {
        let deadline = self.deadline();
        self.last_moment()
            .map_or(deadline, |last| last.min(deadline))
    }

    pub(super) fn last_moment(&self) -> Option<Instant> {
        Some(self.granted + self.special_options()?.max_hold?)
    }
}
