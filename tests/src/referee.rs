//! Reads a record and says what was against the rules.
//!
//! A body's interval reaches from its first poll to its last one: what a process does not do, because
//! it is frozen or its body was cancelled, is no part of it. Two intervals of one key, or of one of
//! its slots, must not overlap, tokens must grow in the order in which bodies start, and every call
//! must end in a documented way unless its process was killed.
//!
//! One limit of a single Redis is granted: when the store forgets its keys (`FLUSHALL`, a restart
//! without persistence), a holder goes on until it notices, at most for one ttl.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::{Entry, Event};

pub mod idle;
pub mod turns;

/// The note of a fault that makes the store forget its keys, written before it is made.
pub const FORGETS: &str = "forgets";

/// The note of the same fault once it is made.
pub const FORGOT: &str = "forgot";

/// The note of a fault that kills the process named as the key.
pub const KILL: &str = "kill";

/// How a call may end.
pub const OUTCOMES: [&str; 5] = ["done", "busy", "unavailable", "lost", "failed"];

/// What the referee knows about the run.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The longest ttl in use.
    pub ttl: Duration,
    /// What no call may take longer than; from its begin to its end.
    pub longest_call: Duration,
}

/// What a record amounts to.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Everything against the rules, in words.
    pub violations: Vec<String>,
    /// How many bodies ran.
    pub bodies: usize,
    /// How many overlaps the limit above explains.
    pub excused: usize,
    /// How many calls ended how.
    pub outcomes: BTreeMap<String, usize>,
}

impl Verdict {
    /// Panics with everything that was against the rules.
    pub fn assert_clean(&self) {
        assert_none(&self.violations);
    }
}

/// Panics with everything that was against the rules.
fn assert_none(violations: &[String]) {
    assert!(
        violations.is_empty(),
        "{} violations:\n{}",
        violations.len(),
        violations.join("\n")
    );
}

/// One call as the record tells it.
#[derive(Debug, Clone, Default)]
struct Call {
    process: u32,
    number: u64,
    key: String,
    /// Whose it is, where the record says so.
    caller: String,
    slot: usize,
    begun: Option<Duration>,
    entered: Option<Duration>,
    last: Duration,
    token: Option<u64>,
    ended: Option<(Duration, String)>,
}

impl Call {
    /// From when on it may have held the key.
    fn asked(&self) -> Duration {
        self.begun.or(self.entered).unwrap_or_default()
    }
}

/// Judges a record, its lines by time.
pub fn judge(entries: &[Entry], rules: Rules) -> Verdict {
    let calls = calls(entries);
    let times = |note: &'static str| {
        let faults = entries.iter().filter(|entry| entry.event == Event::Fault);
        faults
            .filter(move |entry| entry.note == note)
            .map(|entry| entry.at)
    };
    let forgotten: Vec<_> = times(FORGETS).zip(times(FORGOT)).collect();
    let killed: Vec<String> = entries
        .iter()
        .filter(|entry| entry.event == Event::Fault && entry.note == KILL)
        .map(|entry| entry.key.clone())
        .collect();

    let mut verdict = Verdict::default();
    for call in &calls {
        verdict.outcome(call, rules, &killed);
    }
    let mut slots: BTreeMap<(&str, usize), Vec<&Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.entered.is_some()) {
        slots.entry((&call.key, call.slot)).or_default().push(call);
    }
    for calls in slots.values_mut() {
        calls.sort_by_key(|call| call.entered);
        verdict.bodies += calls.len();
        verdict.overlaps(calls, rules, &forgotten);
        verdict.tokens(calls);
    }
    verdict
}

fn calls(entries: &[Entry]) -> Vec<Call> {
    let mut calls: BTreeMap<(u32, u64), Call> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.event != Event::Fault) {
        let call = calls
            .entry((entry.process, entry.call))
            .or_insert_with(|| Call {
                process: entry.process,
                number: entry.call,
                key: entry.key.clone(),
                ..Call::default()
            });
        match entry.event {
            Event::Call => {
                call.begun = Some(entry.at);
                call.caller.clone_from(&entry.note);
            }
            Event::Enter => {
                call.entered = Some(entry.at);
                call.last = call.last.max(entry.at);
            }
            Event::Beat | Event::Leave => call.last = call.last.max(entry.at),
            Event::Token => call.token = entry.note.parse().ok(),
            Event::Slot => call.slot = entry.note.parse().expect("a number"),
            Event::Outcome => call.ended = Some((entry.at, entry.note.clone())),
            Event::Fault => {}
        }
    }
    calls.into_values().collect()
}

impl Verdict {
    fn outcome(&mut self, call: &Call, rules: Rules, killed: &[String]) {
        let name = format!(
            "call {} of process {} on {}",
            call.number, call.process, call.key
        );
        let Some((at, outcome)) = &call.ended else {
            if !killed.contains(&call.process.to_string()) {
                self.violations.push(format!("{name} never ended"));
            }
            return;
        };
        if !OUTCOMES.contains(&outcome.as_str()) {
            self.violations.push(format!("{name} ended as {outcome:?}"));
        }
        if ["busy", "unavailable"].contains(&outcome.as_str()) && call.entered.is_some() {
            self.violations
                .push(format!("{name} ran its body and ended as {outcome}"));
        }
        if outcome == "done" && call.entered.is_none() {
            self.violations
                .push(format!("{name} is done without its body"));
        }
        if let Some(begun) = call.begun {
            let took = at.saturating_sub(begun);
            if took > rules.longest_call {
                self.violations.push(format!("{name} took {took:?}"));
            }
        }
        *self.outcomes.entry(outcome.clone()).or_default() += 1;
    }

    /// `calls` of one key, or of one of its slots, by the time of their start.
    fn overlaps(&mut self, calls: &[&Call], rules: Rules, forgotten: &[(Duration, Duration)]) {
        let mut at_work: Vec<&Call> = Vec::new();
        for call in calls {
            let start = call.entered.unwrap_or_default();
            at_work.retain(|before| before.last >= start);
            for before in &at_work {
                // Whichever of the two was forgotten: also one that hears of its grant only later, or
                // that was handed a forgotten lease by the caller before.
                let excused = forgotten.iter().any(|&(begun, over)| {
                    let had = |process: u32| {
                        let mut its = calls.iter().filter(|call| call.process == process);
                        its.any(|call| call.asked() <= over && call.last >= begun)
                    };
                    let stale = |one: &Call, other: &Call| {
                        had(one.process) && one.last <= over + rules.ttl && other.last >= begun
                    };
                    stale(before, call) || stale(call, before)
                });
                if excused {
                    self.excused += 1;
                } else {
                    self.violations.push(format!(
                        "on {}: call {} of process {} was at work until {:?}, call {} of process {} began at {start:?}",
                        call.key, before.number, before.process, before.last, call.number, call.process,
                    ));
                }
            }
            at_work.push(call);
        }
    }

    fn tokens(&mut self, calls: &[&Call]) {
        let mut last: Option<(u64, &Call)> = None;
        for call in calls {
            let Some(token) = call.token else { continue };
            if let Some((earlier, before)) = last.filter(|(earlier, _)| *earlier >= token) {
                // Two that overlap with an excuse may draw theirs in either order.
                if before.last < call.entered.unwrap_or_default() {
                    self.violations.push(format!(
                        "on {}: token {token} of call {} of process {} follows {earlier}",
                        call.key, call.number, call.process,
                    ));
                }
            }
            last = Some((token, call));
        }
    }
}
