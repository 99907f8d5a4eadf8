//! Checks that calls that have ended leave no keys on the server.
//!
//! The test looks when no fault has been active for the time of one look. An owner without a call on the
//! key for that long should have left nothing. A killed process leaves its keys for a ttl, or for as long
//! as other waiters are in the queue with it.

use std::time::Duration;

use super::{Call, KILL};
use crate::record::{Entry, Event};

/// How long a key may be left: the time of one look, and slack for a busy machine.
pub const LOOK: Duration = Duration::from_millis(1_500);

/// Each violation of a rule.
pub(super) fn check(entries: &[Entry], calls: &[Call], ttl: Duration) -> Vec<String> {
    let mut violations = Vec::new();
    for entry in entries.iter().filter(|entry| entry.event == Event::Left) {
        let Entry { at, key, note, .. } = entry;
        let process = note.rsplit(' ').next().unwrap_or_default();
        let of_key = || calls.iter().filter(|call| call.is_of(key));
        let is_there = of_key().any(|call| {
            let ended = call.ended.as_ref().map(|(ended, _)| *ended);
            let goes_on = ended.is_none_or(|ended| ended + LOOK > *at);
            call.process.to_string() == process && call.asked() <= *at && goes_on
        });
        let killed = entries.iter().find(|entry| {
            entry.event == Event::Fault && entry.note == KILL && entry.key == process
        });
        let stands = match killed {
            None => is_there,
            Some(kill) => {
                let ends = of_key().filter_map(|call| Some(call.ended.as_ref()?.0));
                let last = ends.filter(|ended| ended <= at).chain([kill.at]).max();
                last.is_some_and(|last| last + ttl + LOOK > *at)
            }
        };
        if !stands {
            violations.push(format!(
                "on {key}: {note} at {at:?}, of somebody who is gone"
            ));
        }
    }
    violations
}
