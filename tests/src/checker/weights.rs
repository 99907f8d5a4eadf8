//! Checks that holders never have more permits of a key together than there are.
//!
//! A body on a fallback is not counted: it shares no permits with other processes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Call;

/// Each violation of the rule at a moment that is not excused.
pub(super) fn check(calls: &[Call], is_excused: impl Fn(Duration) -> bool) -> Vec<String> {
    let keys: BTreeSet<&str> = calls.iter().map(|call| call.key.as_str()).collect();
    let mut violations = Vec::new();
    for key in keys {
        let of_key = calls
            .iter()
            .filter(|call| call.key == key && call.fallback.is_none());
        let mut holders: Vec<_> = of_key.filter_map(holder).collect();
        holders.sort_by_key(|holder| holder.from);
        for (at, holder) in holders.iter().enumerate() {
            let beside = holders[..at]
                .iter()
                .filter(|other| other.until >= holder.from);
            let used: u64 = holder.weight + beside.map(|other| other.weight).sum::<u64>();
            if used > holder.permits && !is_excused(holder.from) {
                violations.push(format!(
                    "on {key}: {used} permits of {} were held at {:?}",
                    holder.permits, holder.from
                ));
            }
        }
    }
    violations
}

struct Holder {
    from: Duration,
    until: Duration,
    weight: u64,
    permits: u64,
}

fn holder(call: &Call) -> Option<Holder> {
    let (weight, permits) = call.beside.as_ref()?.split_once('/')?;
    Some(Holder {
        from: call.entered?,
        until: call.last,
        weight: weight.parse().ok()?,
        permits: permits.parse().ok()?,
    })
}
