//! Checks that no slot stays free for long while a call waits for it.
//!
//! A slot is free from the last poll of one body to the first poll of the next. The slot of a killed
//! holder must not be granted before the end of its ttl, and must be granted soon after it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Call, KILL, calls};
use crate::record::{Entry, Event};

/// The parameters of the run.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How many holders a key has at a time.
    pub permits: usize,
    /// The ttl of every lease.
    pub ttl: Duration,
    /// How long a slot may stay free while a call waits.
    pub gap: Duration,
}

/// How the keys of a record were used.
#[derive(Debug, Clone, Default)]
pub struct Use {
    /// Each violation of a rule.
    pub violations: Vec<String>,
    /// The most bodies of one key that ran at a time.
    pub most: usize,
    /// The longest time for which a slot was free while a call waited, where no holder was killed.
    pub longest: Duration,
}

impl Use {
    /// Panics with all violations.
    pub fn assert_clean(&self) {
        super::assert_none(&self.violations);
    }
}

type Interval = (Duration, Duration);

/// Checks a record, whose entries are ordered by time.
pub fn check(entries: &[Entry], rules: Rules) -> Use {
    let calls = calls(entries);
    let run = Run {
        rules,
        kills: kills(entries),
        end: entries.last().map_or(Duration::ZERO, |entry| entry.at),
    };
    let mut found = Use::default();
    let keys: BTreeSet<&str> = calls.iter().map(|call| call.key.as_str()).collect();
    for key in keys {
        let calls: Vec<&Call> = calls.iter().filter(|call| call.key == key).collect();
        run.key(key, &calls, &mut found);
    }
    found
}

/// Which process was killed when.
fn kills(entries: &[Entry]) -> Vec<(String, Duration)> {
    entries
        .iter()
        .filter(|entry| entry.event == Event::Fault && entry.note == KILL)
        .map(|entry| (entry.key.clone(), entry.at))
        .collect()
}

struct Run {
    rules: Rules,
    kills: Vec<(String, Duration)>,
    end: Duration,
}

impl Run {
    fn killed(&self, call: &Call) -> Option<Duration> {
        let process = call.process.to_string();
        let kill = self.kills.iter().find(|(killed, _)| *killed == process);
        kill.map(|(_, at)| *at).filter(|_| call.ended.is_none())
    }

    fn key(&self, key: &str, calls: &[&Call], found: &mut Use) {
        let waits: Vec<Interval> = calls.iter().filter_map(|call| self.wait(call)).collect();
        let mut bodies: Vec<&Call> = calls
            .iter()
            .copied()
            .filter(|call| call.entered.is_some())
            .collect();
        bodies.sort_by_key(|call| call.entered);
        found.most = found.most.max(most_at_once(&bodies));
        for call in bodies.iter().filter(|call| call.slot >= self.rules.permits) {
            found.violations.push(format!(
                "on {key}: slot {} of {}",
                call.slot, self.rules.permits
            ));
        }
        for slot in 0..self.rules.permits {
            let of_slot: Vec<&Call> = bodies
                .iter()
                .copied()
                .filter(|call| call.slot == slot)
                .collect();
            let name = format!("slot {slot} of {key}");
            self.slot(&name, &of_slot, &waits, found);
        }
    }

    /// When a call waited.
    fn wait(&self, call: &Call) -> Option<Interval> {
        let over = call
            .entered
            .or(call.ended.as_ref().map(|(at, _)| *at))
            .or(self.killed(call))
            .unwrap_or(self.end);
        call.begun.map(|begun| (begun, over))
    }

    /// `bodies` of one slot, by the time of their start.
    fn slot(&self, name: &str, bodies: &[&Call], waits: &[Interval], found: &mut Use) {
        let before = [None].into_iter().chain(bodies.iter().copied().map(Some));
        let after = bodies.iter().copied().map(Some).chain([None]);
        for (before, after) in before.zip(after) {
            let start = before.map_or(Duration::ZERO, |call| call.last);
            let end = after.map_or(self.end, |call| call.entered.unwrap_or_default());
            let dead = before.and_then(|call| self.killed(call));
            // One whose body was over may have given its slot back before it was killed.
            if let (Some(_), Some(before), Some(after)) = (dead, before, after)
                && before.left.is_none()
            {
                let granted = before.entered.unwrap_or_default();
                // The grant came a little before the first poll.
                if end < granted + self.rules.ttl * 3 / 4 {
                    found.violations.push(format!(
                        "{name} was given to process {} when the killed process {} had it for {:?}",
                        after.process,
                        before.process,
                        end.saturating_sub(granted),
                    ));
                }
            }
            self.gap(name, (start, end), dead, waits, found);
        }
    }

    fn gap(
        &self,
        name: &str,
        (start, end): Interval,
        dead: Option<Duration>,
        waits: &[Interval],
        found: &mut Use,
    ) {
        let Rules { ttl, gap, .. } = self.rules;
        // Another process may have been killed when it had been given the slot, and before its body.
        let given = self.kills.iter().map(|(_, at)| *at);
        let given = given.filter(|at| (start..=start + gap).contains(at)).max();
        let held = dead.max(given).map(|killed| killed + ttl);
        for (from, to) in stretches(waits, (start, end)) {
            let free = from.max(held.unwrap_or_default());
            let idle = to.saturating_sub(free);
            if held.is_none() {
                found.longest = found.longest.max(idle);
            }
            if idle > gap {
                found.violations.push(format!(
                    "{name} was free from {free:?} to {to:?} while somebody waited"
                ));
            }
        }
    }
}

/// The parts of `within` in which at least one of `waits` was going on.
fn stretches(waits: &[Interval], within: Interval) -> Vec<Interval> {
    let mut parts: Vec<Interval> = waits
        .iter()
        .map(|&(from, to)| (from.max(within.0), to.min(within.1)))
        .filter(|(from, to)| from < to)
        .collect();
    parts.sort();
    let mut joined: Vec<Interval> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if part.0 <= last.1 => last.1 = last.1.max(part.1),
            _ => joined.push(part),
        }
    }
    joined
}

/// `bodies` by the time of their start.
fn most_at_once(bodies: &[&Call]) -> usize {
    let mut at_work: Vec<&Call> = Vec::new();
    let mut most = 0;
    for body in bodies {
        at_work.retain(|other| Some(other.last) > body.entered);
        at_work.push(body);
        most = most.max(at_work.len());
    }
    most
}
