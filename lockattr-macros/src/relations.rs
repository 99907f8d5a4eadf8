//! Arguments that are right alone and contradict each other.
//!
//! Only what is written out can be compared here. Expressions are checked when they run.

use std::time::Duration;

use crate::args::{Args, OnLost};
use crate::values::{self, DurationValue};

/// Each contradiction, and the argument at which it is reported.
pub(crate) fn contradictions(args: &Args) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut refuse = |name, message: String| found.push((name, message));
    if !args.renew && matches!(args.on_lost, OnLost::Continue) {
        refuse(
            "on_lost",
            "`on_lost = continue` with `renew = false` holds no lock: nobody renews the lease, \
             and the body runs on after its end\nleave out one of the two"
                .to_owned(),
        );
    }
    let millis = |length: &Option<DurationValue>| match length {
        Some(DurationValue::Millis(millis)) => Some(*millis),
        _ => None,
    };
    let shown = |millis| humantime::format_duration(Duration::from_millis(millis));
    if let (Some(min), Some(max)) = (millis(&args.min_hold), millis(&args.max_hold))
        && min > max
    {
        refuse(
            "min_hold",
            format!(
                "`min_hold` is longer than `max_hold`: the key would stay closed for {}, and \
                 the lease ends after {}",
                shown(min),
                shown(max)
            ),
        );
    }
    if let (false, Some(ttl), Some(max)) = (args.renew, millis(&args.ttl), millis(&args.max_hold))
        && max > ttl
    {
        refuse(
            "max_hold",
            format!(
                "`max_hold` is never reached: with `renew = false` the lease ends with its ttl, \
                 after {}\nraise `ttl`, or leave out one of the two",
                shown(ttl)
            ),
        );
    }
    if args.max_hold.is_some() && matches!(args.on_lost, OnLost::Continue) {
        refuse(
            "on_lost",
            "`on_lost = continue` with `max_hold` never ends the body: `max_hold` ends the \
             lease, and `continue` runs on without it\nleave out one of the two"
                .to_owned(),
        );
    }
    of_several_holders(args, refuse);
    found
}

/// What contradicts that several hold the key.
fn of_several_holders(args: &Args, mut refuse: impl FnMut(&'static str, String)) {
    if args.once.is_some() && args.permits.is_some() {
        refuse(
            "permits",
            "`once` and `permits` contradict each other: work that is done is done for all \
             holders of the key\nleave out one of the two"
                .to_owned(),
        );
    }
    if args.once.is_some() && args.shared {
        refuse(
            "shared",
            "`once` and `shared` contradict each other: work that is done is done for all \
             readers of the key\nleave out one of the two"
                .to_owned(),
        );
    }
    if args.keys.len() > 1 && args.permits.is_some() {
        refuse(
            "permits",
            "`permits` are of one key, and there are several\nlock the key that has several \
             holders in a function of its own"
                .to_owned(),
        );
    }
    if args.keys.len() > 1 && args.shared {
        refuse(
            "shared",
            "`shared` is of one key, and there are several\nlock the key that has several \
             readers in a function of its own"
                .to_owned(),
        );
    }
    if args.shared && args.permits.is_some() {
        refuse(
            "shared",
            "`shared` and `permits` contradict each other: readers are not counted\nleave out one \
             of the two"
                .to_owned(),
        );
    }
    match (&args.weight, &args.permits) {
        (Some(_), None) => refuse(
            "weight",
            "`weight` is for `permits`: it says how many of them a holder takes".to_owned(),
        ),
        (Some(weight), Some(permits)) => {
            if let (Some(weight), Some(permits)) =
                (values::written(weight), values::written(permits))
                && weight > permits
            {
                refuse(
                    "weight",
                    format!(
                        "`weight` is larger than `permits`: {weight} of {permits} are never to be had"
                    ),
                );
            }
        }
        (None, _) => {}
    }
}
