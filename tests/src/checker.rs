//! Checks a record of calls against the rules of a lock.
//!
//! A body's interval is from its first poll to its last. The time that follows, in which its process is
//! frozen or its body was cancelled, is no part of it. Two intervals of one key, or of one of its slots,
//! must not overlap unless both are readers', holders must not have more permits together than there are, tokens must grow in the order in which bodies start, and every call must end in a
//! documented way unless its process was killed.
//!
//! A call may be of several keys. A call made inside the body of another, for keys that the outer one
//! holds, does not overlap with it. A body on the fallback `run` has no lock and overlaps with none.
//! A body on the fallback `local` excludes the bodies of its own process alone.
//!
//! Limits of Redis are allowed for: when the store forgets its keys (`FLUSHALL`, a restart without
//! persistence), a holder goes on until it notices, at most for one ttl; and where a replica takes the place
//! of its primary, there is a window, which `windows` knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::fallback;
use crate::record::{Entry, Event};

pub mod idle;
pub mod left;
pub mod marks;
pub mod progress;
pub mod turns;
mod weights;
pub mod windows;

use windows::Windows;

/// The note of a fault that makes the store forget its keys, written before it is made.
pub const FORGETS: &str = "forgets";

/// The note of the same fault once it is made.
pub const FORGOT: &str = "forgot";

/// The note of a fault that kills the process named as the key.
pub const KILL: &str = "kill";

/// How a call may end.
pub const OUTCOMES: [&str; 6] = ["done", "busy", "unavailable", "lost", "failed", SKIPPED];

/// How a reader has its key beside others.
pub const SHARED: &str = "shared";

/// The outcome of a call that finds its work done.
pub const SKIPPED: &str = "skipped";

/// The parameters of the run.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The longest ttl in use.
    pub ttl: Duration,
    /// The longest time that a call may take.
    pub longest_call: Duration,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Each violation of a rule.
    pub violations: Vec<String>,
    /// How many bodies ran.
    pub bodies: usize,
    /// How many overlaps the limit above explains.
    pub excused: usize,
    /// The windows of promotions, and the overlaps within.
    pub windows: Windows,
    /// How many calls ended how.
    pub outcomes: BTreeMap<String, usize>,
    /// How many bodies ran on which fallback.
    pub fallbacks: BTreeMap<String, usize>,
    /// How many bodies of calls ran within the body of another.
    pub within: usize,
}

impl Findings {
    /// Panics with all violations.
    pub fn assert_clean(&self) {
        assert_none(&self.violations);
    }
}

/// Panics with all violations.
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
    /// Of several, all, joined by `+`.
    key: String,
    /// Whose it is, where the record says so.
    caller: String,
    /// The call whose body makes it.
    within: Option<u64>,
    /// What it leaves under its keys, and for how long.
    leaves: Option<(String, Duration)>,
    /// What it was told to run on in place of a lease.
    fallback: Option<String>,
    slot: usize,
    /// How it has the key beside others: `shared`, or `weight/permits`.
    beside: Option<String>,
    begun: Option<Duration>,
    entered: Option<Duration>,
    last: Duration,
    /// When its body reached its end.
    left: Option<Duration>,
    token: Option<u64>,
    ended: Option<(Duration, String)>,
}

impl Call {
    /// From when on it may have held the key.
    fn asked(&self) -> Duration {
        self.begun.or(self.entered).unwrap_or_default()
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        self.key.split('+')
    }

    fn is_of(&self, key: &str) -> bool {
        self.keys().any(|of| of == key)
    }

    fn runs_on(&self, fallback: &str) -> bool {
        self.fallback.as_deref() == Some(fallback)
    }

    /// Whether the two may not be at work at once, on the same slot of a key.
    fn excludes(&self, other: &Self) -> bool {
        let either = |fallback| self.runs_on(fallback) || other.runs_on(fallback);
        let readers = [self, other].map(|one| one.beside.as_deref() == Some(SHARED));
        readers != [true, true]
            && !either(fallback::RUN)
            && (self.process == other.process || !either(fallback::LOCAL))
    }
}

/// The calls that are made by other calls, and by which.
struct Nesting(BTreeMap<(u32, u64), u64>);

impl Nesting {
    fn of(calls: &[Call]) -> Self {
        let within = |call: &Call| Some(((call.process, call.number), call.within?));
        Self(calls.iter().filter_map(within).collect())
    }

    /// Whether `inner` is made by the body of `outer`, or by one that is.
    fn is_within(&self, inner: &Call, outer: &Call) -> bool {
        let mut number = inner.number;
        while let Some(around) = self.0.get(&(inner.process, number)) {
            number = *around;
            if number == outer.number {
                return inner.process == outer.process;
            }
        }
        false
    }
}

/// Checks a record, whose entries are ordered by time.
pub fn check(entries: &[Entry], rules: Rules) -> Findings {
    check_lingering(entries, rules, Duration::ZERO)
}

/// The same where the store keeps marks, and what a killed process held, for so much longer than was asked.
pub fn check_lingering(entries: &[Entry], rules: Rules, lingers: Duration) -> Findings {
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

    let mut findings = Findings {
        windows: Windows::of(entries),
        ..Findings::default()
    };
    for call in &calls {
        findings.outcome(call, rules, &killed);
    }
    let nesting = Nesting::of(&calls);
    let mut slots: BTreeMap<(&str, usize), Vec<&Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.entered.is_some()) {
        findings.bodies += 1;
        findings.within += usize::from(call.within.is_some());
        if let Some(fallback) = &call.fallback {
            *findings.fallbacks.entry(fallback.clone()).or_default() += 1;
        }
        let keys: BTreeSet<&str> = call.keys().collect();
        for key in keys {
            slots.entry((key, call.slot)).or_default().push(call);
        }
    }
    for ((key, _), calls) in &mut slots {
        calls.sort_by_key(|call| call.entered);
        findings.overlaps(key, calls, &nesting, rules, &forgotten);
        findings.tokens(key, calls);
    }
    let is_excused = |at: Duration| {
        let forgotten = forgotten
            .iter()
            .any(|&(begun, over)| begun <= at && at <= over + rules.ttl);
        forgotten || findings.windows.lengths().next().is_some()
    };
    let weights = weights::check(&calls, is_excused);
    let violations = &mut findings.violations;
    violations.extend(weights);
    violations.extend(marks::check(entries, &calls, lingers));
    violations.extend(left::check(entries, &calls, rules.ttl + lingers));
    violations.extend(progress::check(entries, &calls));
    findings
}

fn calls(entries: &[Entry]) -> Vec<Call> {
    let mut calls: BTreeMap<(u32, u64), Call> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.event.is_of_a_call()) {
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
            Event::Beat => call.last = call.last.max(entry.at),
            Event::Leave => {
                call.left = Some(entry.at);
                call.last = call.last.max(entry.at);
            }
            Event::Within => call.within = entry.note.parse().ok(),
            Event::Leaves => {
                let (mark, millis) = entry.note.split_once(' ').expect("a mark and its time");
                let millis = millis.parse().expect("milliseconds");
                call.leaves = Some((mark.to_owned(), Duration::from_millis(millis)));
            }
            Event::Fallback => call.fallback = Some(entry.note.clone()),
            Event::Token => call.token = entry.note.parse().ok(),
            Event::Slot => call.slot = entry.note.parse().expect("a number"),
            Event::Beside => call.beside = Some(entry.note.clone()),
            Event::Outcome => call.ended = Some((entry.at, entry.note.clone())),
            Event::Fault | Event::Mark | Event::Left => {}
        }
    }
    calls.into_values().collect()
}

impl Findings {
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
        if ["busy", "unavailable", SKIPPED].contains(&outcome.as_str()) && call.entered.is_some() {
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
    fn overlaps(
        &mut self,
        key: &str,
        calls: &[&Call],
        nesting: &Nesting,
        rules: Rules,
        forgotten: &[(Duration, Duration)],
    ) {
        let mut at_work: Vec<&Call> = Vec::new();
        for call in calls {
            let start = call.entered.unwrap_or_default();
            at_work.retain(|before| before.last >= start);
            let others = at_work.iter().filter(|before| {
                let nested = nesting.is_within(call, before) || nesting.is_within(before, call);
                !nested && before.excludes(call)
            });
            for before in others {
                // Whichever of the two was forgotten: also one whose grant arrives only later, or
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
                } else if !self.windows.explain(before, call, rules.ttl) {
                    self.violations.push(format!(
                        "on {key}: call {} of process {} was at work until {:?}, call {} of process {} began at {start:?}",
                        before.number, before.process, before.last, call.number, call.process,
                    ));
                }
            }
            at_work.push(call);
        }
    }

    fn tokens(&mut self, key: &str, calls: &[&Call]) {
        let mut last: Option<(u64, &Call)> = None;
        for call in calls {
            let Some(token) = call.token else { continue };
            if let Some((earlier, before)) = last.filter(|(earlier, _)| *earlier >= token) {
                // Two that overlap with an excuse may draw theirs in either order.
                if before.last < call.entered.unwrap_or_default() {
                    self.violations.push(format!(
                        "on {key}: token {token} of call {} of process {} follows {earlier}",
                        call.number, call.process,
                    ));
                }
            }
            last = Some((token, call));
        }
    }
}
