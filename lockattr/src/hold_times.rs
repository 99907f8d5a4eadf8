//! How long the leases of each function are held, and whether their ttl is enough for that.
//!
//! Callers wait for nobody here: what is kept of a function is numbers that are added to. It is bounded
//! for a function, and so is the number of functions, as a process numbers them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::call_site::CallSite;

mod histogram;
mod readable;

use histogram::Histogram;
use readable::{enough, readable};

/// How long the leases of one function were held; see [`Client::hold_times`](crate::Client::hold_times).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldTimes {
    /// The function with its module, as `billing::jobs::close_month`; empty for requests by hand.
    pub function: &'static str,
    /// The template of its key as written, as `sync:<user_id>`. A list is joined by `, `.
    pub template: &'static str,
    /// How many leases have ended.
    pub count: u64,
    /// Half of them were held for no longer; within 7 % or 64 µs.
    pub p50: Duration,
    /// Of a hundred, ninety-nine were held for no longer; within 7 % or 64 µs.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// The ttl of the last one.
    pub ttl: Duration,
    /// Whether `p99` is more than half of `ttl`: too much for a lease that is not renewed.
    pub needs_renewal: bool,
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) length: Duration,
    pub(crate) ttl: Duration,
    /// Whether its ttl was all the time it had: it was neither renewed nor extended.
    pub(crate) had_one_ttl: bool,
}

/// A function that needs more of its ttl than is safe without renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice(pub(crate) HoldTimes);

impl Advice {
    pub(crate) fn tell(self) {
        let HoldTimes {
            function,
            template,
            p99,
            ttl,
            ..
        } = self.0;
        let (p99, ttl, enough) = (readable(p99), readable(ttl), readable(enough(p99)));
        tracing::warn!(
            target: "lockattr", function, template, p99, ttl, enough,
            "a lock that is not renewed is held for more than half of its ttl: take a longer one, or have it renewed"
        );
    }
}

/// Fewer runs say little.
const RUNS: u64 = 20;

const CHUNK: usize = 64;
const CHUNKS: usize = 16;

/// What a client knows of each function, by its number.
#[derive(Debug, Default)]
pub(crate) struct HoldTimesTable {
    chunks: [OnceLock<Box<Chunk>>; CHUNKS],
}

type Chunk = [OnceLock<Box<Entry>>; CHUNK];

#[derive(Debug)]
struct Entry {
    site: &'static CallSite,
    lengths: Histogram,
    ttl_ms: AtomicU64,
    told: AtomicBool,
}

impl HoldTimesTable {
    /// A lease has ended. The answer is what has to be told of its function, once.
    pub(crate) fn record(&self, site: &'static CallSite, hold: Hold) -> Option<Advice> {
        let entry = self.entry(site)?;
        entry.lengths.add(hold.length);
        let ttl_ms = u64::try_from(hold.ttl.as_millis()).unwrap_or(u64::MAX);
        if entry.ttl_ms.load(Ordering::Relaxed) != ttl_ms {
            entry.ttl_ms.store(ttl_ms, Ordering::Relaxed);
        }
        if !hold.had_one_ttl || hold.length <= hold.ttl / 2 || entry.told.load(Ordering::Relaxed) {
            return None;
        }
        let times = entry.read();
        let is_news =
            times.count >= RUNS && times.needs_renewal && !entry.told.swap(true, Ordering::Relaxed);
        is_news.then_some(Advice(times))
    }

    /// Of each function that has held a lease, in the order in which the process came to know them.
    pub(crate) fn read(&self) -> Vec<HoldTimes> {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        let entries = chunks.flat_map(|chunk| chunk.iter().filter_map(OnceLock::get));
        entries.map(|entry| entry.read()).collect()
    }

    fn entry(&self, site: &'static CallSite) -> Option<&Entry> {
        let number = site.number()?;
        let chunk = self.chunks.get(number / CHUNK)?;
        let chunk = chunk.get_or_init(|| Box::new([const { OnceLock::new() }; CHUNK]));
        let new = || {
            Box::new(Entry {
                site,
                lengths: Histogram::default(),
                ttl_ms: AtomicU64::new(0),
                told: AtomicBool::new(false),
            })
        };
        Some(chunk[number % CHUNK].get_or_init(new))
    }
}

impl Entry {
    fn read(&self) -> HoldTimes {
        let counts = self.lengths.read();
        let ttl = Duration::from_millis(self.ttl_ms.load(Ordering::Relaxed));
        let p99 = counts.quantile(99, 100);
        HoldTimes {
            function: self.site.function(),
            template: self.site.template(),
            count: counts.total(),
            p50: counts.quantile(1, 2),
            p99,
            max: counts.longest(),
            ttl,
            needs_renewal: p99 > ttl / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn hold(seconds: u64) -> Hold {
        Hold {
            length: Duration::from_secs(seconds),
            ttl: TTL,
            had_one_ttl: true,
        }
    }

    #[test]
    fn twenty_runs_are_needed_and_it_is_told_once() {
        static SITE: CallSite = CallSite::new("a::function", "<key>");
        let table = HoldTimesTable::default();
        for run in 1..=100 {
            let advice = table.record(&SITE, hold(6));
            assert_eq!(advice.is_some(), run == RUNS, "run {run}");
        }
        let times = table.read();
        assert_eq!(times.len(), 1);
        assert_eq!((times[0].count, times[0].max), (100, hold(6).length));
        assert!(times[0].needs_renewal);
    }

    #[test]
    fn what_is_renewed_or_fast_or_seldom_slow_is_not_told() {
        static RENEWED: CallSite = CallSite::new("a::renewed", "<key>");
        static FAST: CallSite = CallSite::new("a::fast", "<key>");
        let table = HoldTimesTable::default();
        for _ in 0..1_000 {
            let renewed = Hold {
                had_one_ttl: false,
                ..hold(9)
            };
            assert!(table.record(&RENEWED, renewed).is_none());
            assert!(table.record(&FAST, hold(4)).is_none());
        }
        for _ in 0..8 {
            assert!(table.record(&FAST, hold(9)).is_none());
        }
        let times = table.read();
        assert!(times[0].needs_renewal && !times[1].needs_renewal);
    }

    #[test]
    fn requests_by_hand_without_a_template_are_left_out() {
        static NAMED: CallSite = CallSite::new("", "hold-times:<id>");
        let table = HoldTimesTable::default();
        table.record(CallSite::unnamed(), hold(1));
        table.record(&NAMED, hold(1));
        let known = table.read();
        assert_eq!(known.len(), 1);
        assert_eq!(
            (known[0].function, known[0].template),
            ("", "hold-times:<id>")
        );
    }
}
