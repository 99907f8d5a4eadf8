//! The windows in which two may hold a lock of a primary whose replica takes its place.
//!
//! A replica may lack the grants of the last moments, and an isolated primary makes more of them. From the
//! fault on, until all have followed the promoted replica and each lease was renewed there once, an overlap
//! is counted; one that lasts longer, or is at any other time, is a violation.

use std::time::Duration;

use super::Call;
use crate::record::{Entry, Event};

/// The note of a fault in which grants may be lost, written before it is made.
pub const LOSES: &str = "loses";

/// The note of the moment when a replica has been promoted.
pub const PROMOTED: &str = "promoted";

/// Within how long after the promotion nobody takes the old primary for the primary any more.
const FOLLOWED: Duration = Duration::from_secs(2);

/// Room for a machine with other work.
const SLACK: Duration = Duration::from_millis(1_500);

/// For how long after the promotion a lease may be held that the new primary has not.
pub fn after_promotion(ttl: Duration) -> Duration {
    FOLLOWED + ttl / 3 + SLACK
}

/// The windows of a record, and what was found within.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    /// When each began, and when it had its promotion.
    all: Vec<(Duration, Duration)>,
    /// For how long each of the overlaps within lasted.
    pub overlaps: Vec<Duration>,
    /// How long after the promotion the last of them ended.
    pub latest: Duration,
}

impl Windows {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let times = |note: &'static str| {
            let faults = entries.iter().filter(|entry| entry.event == Event::Fault);
            faults
                .filter(move |entry| entry.note == note)
                .map(|entry| entry.at)
        };
        Self {
            all: times(LOSES).zip(times(PROMOTED)).collect(),
            ..Self::default()
        }
    }

    /// How long each took from the fault to the promotion.
    pub fn lengths(&self) -> impl Iterator<Item = Duration> {
        let length = |(begun, promoted): &(Duration, Duration)| promoted.saturating_sub(*begun);
        self.all.iter().map(length)
    }

    /// Counts an overlap that is within a window; says whether it is.
    pub(super) fn explain(&mut self, one: &Call, other: &Call, ttl: Duration) -> bool {
        let from = one.entered.max(other.entered).unwrap_or_default();
        let to = one.last.min(other.last);
        let window = self
            .all
            .iter()
            .find(|(begun, promoted)| *begun <= from && to <= *promoted + after_promotion(ttl));
        if let Some((_, promoted)) = window {
            self.overlaps.push(to.saturating_sub(from));
            self.latest = self.latest.max(to.saturating_sub(*promoted));
        }
        window.is_some()
    }
}
