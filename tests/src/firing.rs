//! Several processes that fire the same calls at the same time: what the attribute is for.

use std::time::Duration;

use crate::checker::{Findings, Rules, check};
use crate::record::{Entry, Record};
use crate::worker::Worker;

/// What has come of the calls.
pub struct Fired {
    /// What was recorded.
    pub entries: Vec<Entry>,
    /// What the checker says of that: no violation.
    pub findings: Findings,
}

impl Fired {
    /// How many calls ended so.
    pub fn count(&self, outcome: &str) -> usize {
        self.findings.outcomes.get(outcome).copied().unwrap_or(0)
    }
}

/// Has so many workers call for each of so many users at once, in so many rounds, on the store at `url`. No
/// user's body runs twice at a time, and every call is done or busy.
pub fn fire(workers: usize, url: &str, users: usize, rounds: usize) -> Fired {
    let record = Record::new();
    let words = [users.to_string(), rounds.to_string()];
    let start = || Worker::start("sync", url, &record, &words.each_ref().map(String::as_str));
    let mut started: Vec<_> = (0..workers).map(|_| start()).collect();
    for worker in &started {
        worker.says("ready");
    }
    for worker in &mut started {
        worker.tell("go");
    }
    for worker in &mut started {
        assert!(worker.finish().success());
    }
    let entries = record.entries();
    let rules = Rules {
        ttl: Duration::from_secs(30),
        longest_call: Duration::from_secs(20),
    };
    let findings = check(&entries, rules);
    findings.assert_clean();
    let fired = Fired { entries, findings };
    let (done, busy) = (fired.count("done"), fired.count("busy"));
    let outcomes = &fired.findings.outcomes;
    assert_eq!(done + busy, workers * users * rounds, "{outcomes:?}");
    fired
}
