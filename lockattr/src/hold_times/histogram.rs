//! Lengths of time, counted in buckets that grow with them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The shortest lengths are told apart by this, as a power of two of microseconds.
const UNIT: u32 = 7;

/// Between a length and its double there are so many buckets, as a power of two: the middle of one is
/// within a sixteenth of what is in it.
const PARTS: u32 = 3;

/// Up to six days are told apart.
const BUCKETS: usize = 240;

/// Lengths that several threads add to.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [AtomicU32; BUCKETS],
    longest: AtomicU64,
}

/// What was in it at a moment.
#[derive(Debug)]
pub(super) struct Counts {
    buckets: [u32; BUCKETS],
    total: u64,
    longest: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
            longest: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(super) fn add(&self, length: Duration) {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos / 1_000)].fetch_add(1, Ordering::Relaxed);
        if nanos > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> Counts {
        let buckets = std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed));
        Counts {
            buckets,
            total: buckets.iter().copied().map(u64::from).sum(),
            longest: Duration::from_nanos(self.longest.load(Ordering::Relaxed)),
        }
    }
}

impl Counts {
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// What such a part of the lengths does not exceed.
    pub(super) fn quantile(&self, part: u64, of: u64) -> Duration {
        let wanted = (self.total * part).div_ceil(of);
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        // In the last one is all that is longer.
        match found {
            Some(index) if index < BUCKETS - 1 => middle(index).min(self.longest),
            _ => self.longest,
        }
    }
}

fn bucket(micros: u64) -> usize {
    let units = micros >> UNIT;
    let index = match units.checked_ilog2() {
        Some(octave) if octave >= PARTS => {
            let part = (units >> (octave - PARTS)) & ((1 << PARTS) - 1);
            (u64::from(octave - PARTS + 1) << PARTS) + part
        }
        _ => units,
    };
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

fn middle(index: usize) -> Duration {
    let index = index as u64;
    let (octave, part) = (index >> PARTS, index & ((1 << PARTS) - 1));
    let (first, width) = match octave.checked_sub(1) {
        None => (part, 1),
        Some(above) => (((1 << PARTS) + part) << above, 1_u64 << above),
    };
    Duration::from_micros((first << UNIT) + ((width << UNIT) / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_near_all_that_is_in_it() {
        let mut micros = 1_u64;
        while micros < 6 * 86_400 * 1_000_000 {
            let (length, told) = (Duration::from_micros(micros), middle(bucket(micros)));
            let off = length.abs_diff(told);
            let allowed = (length * 7 / 100).max(Duration::from_micros(64));
            assert!(off <= allowed, "{length:?} is told as {told:?}");
            micros += micros / 50 + 1;
        }
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read().quantile(1, 2), Duration::ZERO);
        for millis in 1..=1_000 {
            histogram.add(Duration::from_millis(millis));
        }
        let counts = histogram.read();
        assert_eq!(counts.total(), 1_000);
        assert_eq!(counts.longest(), Duration::from_secs(1));
        for (part, millis) in [(50, 500), (99, 990), (100, 1_000)] {
            let told = counts.quantile(part, 100);
            let off = told.abs_diff(Duration::from_millis(millis));
            assert!(off < Duration::from_millis(millis * 7 / 100), "{told:?}");
        }
    }

    #[test]
    fn what_is_too_long_to_be_told_apart_is_the_longest() {
        let histogram = Histogram::default();
        let year = Duration::from_secs(366 * 86_400);
        histogram.add(year);
        assert_eq!(histogram.read().quantile(99, 100), year);
    }
}
