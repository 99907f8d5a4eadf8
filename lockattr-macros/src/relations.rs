//! Arguments that are right alone and contradict each other.
//!
//! Only what is written out can be compared here. Expressions are checked when they run.

use std::time::Duration;

use crate::args::{Args, OnBusy, OnDone, OnLost};
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
    if args.blocking.is_some() && matches!(args.on_lost, OnLost::Cancel(Some(_))) {
        refuse(
            "on_lost",
            "`on_lost = cancel(…)` with `blocking` has nothing to wind down: a body on a thread \
             cannot be stopped, and runs on after a loss anyway\nleave out the grace; with `bind = \
             lease` the body sees the loss, by `lease.check()?`"
                .to_owned(),
        );
    }
    if matches!(args.on_busy, OnBusy::Rerun) && args.once.is_some() {
        refuse(
            "on_busy",
            "`on_busy = rerun` and `once` contradict each other: the one runs what came meanwhile, and \
             the other keeps it from running\nleave out one of the two"
                .to_owned(),
        );
    }
    of_several_holders(args, &mut refuse);
    of_several_keys(args, &mut refuse);
    found
}

/// What contradicts that several hold the key.
fn of_several_holders(args: &Args, refuse: &mut impl FnMut(&'static str, String)) {
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

/// What contradicts that there are several keys.
fn of_several_keys(args: &Args, refuse: &mut impl FnMut(&'static str, String)) {
    let from_argument = comes_to_several(args);
    if args.keys.len() <= 1 && !from_argument {
        return;
    }
    if matches!(args.on_done, OnDone::Replay { .. }) {
        refuse(
            "on_done",
            "`on_done = replay` keeps the reply of one key, and `key` names several: two lists may share \
             some\nname all values in one key, as in `key = \"pay:<from>:<to>\"`, and lock the list in a \
             function that is called from there"
                .to_owned(),
        );
    }
    for (name, given, verb, holders) in [
        ("permits", args.permits.is_some(), "are", "holders"),
        ("shared", args.shared, "is", "readers"),
    ] {
        if given {
            let advice = if from_argument {
                "and a list may come to several\nwrite the key without brackets".to_owned()
            } else {
                format!(
                    "and there are several\nlock the key that has several {holders} in a function of \
                     its own"
                )
            };
            refuse(name, format!("`{name}` {verb} of one key, {advice}"));
        }
    }
    if matches!(args.on_busy, OnBusy::Rerun) {
        refuse(
            "on_busy",
            "`on_busy = rerun` is of one `key`, and there are several: a run of other keys would not see \
             what a skipped call was for\nlock one key that stands for all of them"
                .to_owned(),
        );
    }
}

/// Whether the only key of a list has a value in it, which may stand for many.
fn comes_to_several(args: &Args) -> bool {
    matches!(&args.keys[..], [key] if args.is_list && key.value().contains('<'))
}
