//! Checks that each key is granted again soon after everything was mended.
//!
//! Before each rest there is a calm: no fault, and the calls go on. Whatever was left of calls that have
//! ended keeps a key for a ttl at most, so nobody is refused a key in the second half of the calm but for a
//! body that is at work then.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Call;
use crate::record::{Entry, Event};

/// The note of the beginning of a calm.
pub const CALM: &str = "calm";

/// The note of its end.
pub const CALMED: &str = "calmed";

/// How long a calm lasts: twice the longest ttl, and room for a machine with other work.
pub const LENGTH: Duration = Duration::from_secs(5);

/// The outcomes of calls that were not granted what they asked for.
const REFUSED: [&str; 2] = ["busy", "unavailable"];

/// Each violation of the rule.
pub(super) fn check(entries: &[Entry], calls: &[Call]) -> Vec<String> {
    let times = |note: &'static str| {
        let faults = entries.iter().filter(|entry| entry.event == Event::Fault);
        faults
            .filter(move |entry| entry.note == note)
            .map(|entry| entry.at)
    };
    let keys: BTreeSet<&str> = calls.iter().flat_map(Call::keys).collect();
    let mut violations = Vec::new();
    for (begun, over) in times(CALM).zip(times(CALMED)) {
        let from = (begun + over) / 2;
        for key in &keys {
            let of_key = || calls.iter().filter(|call| call.is_of(key));
            let is_at_work = |call: &Call| {
                let needs_a_grant = call.fallback.is_none() && call.within.is_none();
                needs_a_grant
                    && call.last >= from
                    && call.entered.is_some_and(|entered| entered <= over)
            };
            let is_refused = |call: &Call| {
                let ended = call.ended.as_ref();
                ended.is_some_and(|(at, outcome)| {
                    (from..=over).contains(at) && REFUSED.contains(&outcome.as_str())
                })
            };
            if of_key().any(is_refused) && !of_key().any(is_at_work) {
                violations.push(format!(
                    "on {key}: refused from {from:?} to {over:?}, when nothing was broken and no body at work"
                ));
            }
        }
    }
    violations
}
