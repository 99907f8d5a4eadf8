//! Checks that the keys that a call named have its marks, and no other keys.
//!
//! Before each skipped call, a call that leaves such a mark on one of its keys has succeeded. A mark that
//! the test finds under a key was left by a call that named the key, and for no longer than that call
//! asked for. A reply that was given is that of a call which has left such a mark.

use std::time::Duration;

use super::{Call, SKIPPED};
use crate::record::{Entry, Event};

/// The mark of a success.
pub const DONE: &str = "done";

/// The mark of a key that stays closed.
pub const CLOSED: &str = "closed";

/// How late the server may run a request: no fault lasts longer, and a mark counts from that moment.
const LATEST: Duration = Duration::from_millis(3_500);

/// Each violation of a rule.
pub(super) fn check(entries: &[Entry], calls: &[Call], lingers: Duration) -> Vec<String> {
    let mut violations = Vec::new();
    for call in calls {
        if let Some((ended, outcome)) = &call.ended
            && outcome == SKIPPED
        {
            let during = (call.asked(), *ended);
            let done = |key| bears(calls, key, DONE, during, lingers);
            let is_it = |other: &&Call| Some((other.process, other.number)) == call.replied;
            if call.replied.is_some() {
                let replied = calls.iter().find(is_it).map(std::slice::from_ref);
                let of_it = |key| bears(replied.unwrap_or_default(), key, DONE, during, lingers);
                if !call.keys().any(of_it) {
                    violations.push(format!(
                        "call {} of process {} on {} was given the reply of {:?}, which has left none there",
                        call.number, call.process, call.key, call.replied
                    ));
                }
            }
            if !call.keys().any(done) {
                violations.push(format!(
                    "call {} of process {} on {} was skipped, and nobody had done its work",
                    call.number, call.process, call.key
                ));
            }
        }
    }
    let found = entries.iter().filter(|entry| entry.event == Event::Mark);
    for Entry { at, key, note, .. } in found {
        if !bears(calls, key, note, (*at, *at), lingers) {
            violations.push(format!(
                "on {key}: {note} at {at:?}, and no call had left that"
            ));
        }
    }
    violations
}

/// Whether a key may have a mark at some moment of an interval.
fn bears(
    calls: &[Call],
    key: &str,
    mark: &str,
    (from, to): (Duration, Duration),
    lingers: Duration,
) -> bool {
    calls.iter().filter(|call| call.is_of(key)).any(|call| {
        let Some((leaves, length)) = &call.leaves else {
            return false;
        };
        let stands = match mark {
            DONE => call.left.map(|left| (left, left)),
            // From the grant on, which nobody has written down.
            CLOSED => {
                let ended = call.ended.as_ref().map(|(at, _)| *at);
                Some((call.asked(), ended.unwrap_or(Duration::MAX)))
            }
            _ => None,
        };
        leaves == mark
            && stands.is_some_and(|(first, last)| {
                first <= to && from <= last.saturating_add(*length + LATEST + lingers)
            })
    })
}
