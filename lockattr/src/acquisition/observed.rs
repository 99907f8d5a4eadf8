//! What is observed of a lease: how long it was held, and how much of its ttl that took.

use std::time::{Duration, Instant};

use super::{Acquisition, OBSERVED, State};
use crate::error::LossCause;
use crate::hold_times::Hold;
use crate::observe::Span;

impl Acquisition {
    /// It was held until then, and is no longer.
    pub(super) fn hold_ends(&self, at: Instant) {
        let length = at.saturating_duration_since(self.granted);
        let hold = Hold {
            length,
            ttl: self.ttl(),
            had_one_ttl: !self.renews() && self.started() <= self.granted,
        };
        if let Some(advice) = self.common.counters.hold_times.record(self.site, hold) {
            (self.common.advise)(advice);
        }
        if self.flags.has(OBSERVED) {
            self.site.observed.hold_ends(|| Span {
                seconds: length.as_secs_f64(),
                of_ttl: self.used_of_ttl(at),
            });
        }
    }

    /// It was lost, which nobody has counted yet.
    pub(crate) fn count_lost(&self, cause: LossCause) {
        self.common.counters.lost(self.site, cause);
        #[cfg(feature = "testing")]
        self.recorded(crate::testing::What::Lost(cause));
    }

    #[cfg(feature = "testing")]
    pub(super) fn recorded(&self, what: crate::testing::What) {
        let record = &self.common.counters.record;
        record.happened(self.keys.plain(), what);
    }

    /// It is renewed, and was due then.
    pub(crate) fn observe_renewal(&self, due: Instant) {
        self.site.observed.renewed(|| {
            let now = self.clock.now();
            Span {
                seconds: now.saturating_duration_since(due).as_secs_f64(),
                of_ttl: self.used_of_ttl(now),
            }
        });
    }

    /// A process that was forked off drops its copy of what its parent holds.
    pub(crate) fn drop_copy(&self) {
        if self.flags.has(OBSERVED) && self.state() == State::Held {
            self.site.observed.hold_is_elsewhere();
        }
    }

    /// The share of the ttl that had passed at a moment.
    fn used_of_ttl(&self, at: Instant) -> f64 {
        let used = at.saturating_duration_since(self.started());
        used.div_duration_f64(self.ttl().max(Duration::from_millis(1)))
    }
}
