//! Counts the turns of each caller in a record, and how often a waiter was overtaken.

use std::collections::BTreeMap;
use std::time::Duration;

use super::calls;
use crate::record::Entry;

/// The distribution of turns in a record.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    /// The turns of each caller, by process and name.
    pub of: BTreeMap<(u32, String), usize>,
    /// How many bodies began between a call and its own body, at most.
    pub passed: usize,
    /// The longest time between a call and its body.
    pub longest: Duration,
    /// The time in which each caller would have one turn, at the pace of the run.
    pub fair: Duration,
}

impl Turns {
    /// The fewest turns that a caller had, and the most.
    pub fn range(&self) -> (usize, usize) {
        let fewest = self.of.values().min().copied().unwrap_or(0);
        let most = self.of.values().max().copied().unwrap_or(0);
        (fewest, most)
    }
}

/// Reads a record of one key, whose entries are ordered by time.
pub fn turns(entries: &[Entry]) -> Turns {
    let calls = calls(entries);
    let mut begins: Vec<Duration> = calls.iter().filter_map(|call| call.entered).collect();
    begins.sort();
    let mut found = Turns::default();
    for call in &calls {
        let (Some(begun), Some(entered)) = (call.begun, call.entered) else {
            continue;
        };
        let before = |moment: Duration| begins.partition_point(|begin| *begin < moment);
        let caller = (call.process, call.caller.clone());
        *found.of.entry(caller).or_default() += 1;
        found.passed = found.passed.max(before(entered) - before(begun));
        found.longest = found.longest.max(entered.saturating_sub(begun));
    }
    if let (Some(first), Some(last)) = (begins.first(), begins.last()) {
        let callers = u32::try_from(found.of.len()).unwrap_or(u32::MAX);
        let bodies = u32::try_from(begins.len()).unwrap_or(u32::MAX);
        found.fair = last.saturating_sub(*first) * callers / bodies;
    }
    found
}
