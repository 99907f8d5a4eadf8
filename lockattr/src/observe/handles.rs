//! The metrics of one function, as the recorder has registered them: their names, units and meaning.

use std::iter::once;
use std::sync::Once;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit,
};

use super::Count;
use crate::error::LossCause;

const METADATA: Metadata<'static> = Metadata::new("lockattr", Level::INFO, Some(module_path!()));

pub(super) const HELD: Name = Name {
    key: "lockattr_held",
    unit: Unit::Count,
    meaning: "Leases that run now.",
};
const WAITING: Name = Name {
    key: "lockattr_waiting",
    unit: Unit::Count,
    meaning: "Calls that have neither their lease nor a refusal yet.",
};
const LAST_SUCCESS: Name = Name {
    key: "lockattr_last_success_timestamp_seconds",
    unit: Unit::Seconds,
    meaning: "When the function last came to a success under its lease, since 1970.",
};
const WAIT: Name = Name {
    key: "lockattr_wait_seconds",
    unit: Unit::Seconds,
    meaning: "From the beginning of a call to its lease or its refusal.",
};
const HOLD: Name = Name {
    key: "lockattr_hold_seconds",
    unit: Unit::Seconds,
    meaning: "From the grant of a lease until it was given back or lost.",
};
const RENEWAL_LAG: Name = Name {
    key: "lockattr_renewal_lag_seconds",
    unit: Unit::Seconds,
    meaning: "How much later than a third of its ttl a renewal was confirmed.",
};
const TTL_USED: Name = Name {
    key: "lockattr_ttl_used_ratio",
    unit: Unit::Count,
    meaning: "The share of its ttl that had passed at a renewal, or at the end of the lease.",
};
const LOST: Name = Name {
    key: "lockattr_lost_total",
    unit: Unit::Count,
    meaning: "Leases that ended before they were given back.",
};

/// What a metric is called, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    key: &'static str,
    unit: Unit,
    meaning: &'static str,
}

/// One metric of each kind for one function.
#[derive(Debug)]
pub(super) struct Handles {
    counters: [Counter; Count::ALL.len()],
    lost: [Counter; LossCause::ALL.len()],
    pub(super) wait: Histogram,
    pub(super) hold: Histogram,
    pub(super) renewal_lag: Histogram,
    pub(super) ttl_used: Histogram,
    pub(super) held: Gauge,
    pub(super) waiting: Gauge,
}

/// What all metrics of one function bear.
pub(super) type Labels = [Label; 2];

impl Handles {
    pub(super) fn registered(
        recorder: &dyn Recorder,
        labels: &'static Labels,
        held: Gauge,
    ) -> Self {
        static DESCRIBED: Once = Once::new();
        DESCRIBED.call_once(|| describe(recorder));
        let histogram = |name: Name| recorder.register_histogram(&name.key(labels), &METADATA);
        Self {
            counters: each(Count::ALL, |count| {
                let (name, kind) = count.name();
                recorder.register_counter(&name.key_with(labels, kind), &METADATA)
            }),
            lost: each(LossCause::ALL, |cause| {
                let cause = ("cause", label(cause));
                recorder.register_counter(&LOST.key_with(labels, Some(cause)), &METADATA)
            }),
            wait: histogram(WAIT),
            hold: histogram(HOLD),
            renewal_lag: histogram(RENEWAL_LAG),
            ttl_used: histogram(TTL_USED),
            held,
            waiting: register_gauge(recorder, &WAITING.key(labels)),
        }
    }

    pub(super) fn count(&self, count: Count) -> &Counter {
        &self.counters[count as usize]
    }

    pub(super) fn lost(&self, cause: LossCause) -> &Counter {
        &self.lost[cause as usize]
    }
}

pub(super) fn register_gauge(recorder: &dyn Recorder, key: &Key) -> Gauge {
    recorder.register_gauge(key, &METADATA)
}

/// Registered when there is something to tell: a function that has never come to a success has no time
/// of one.
pub(super) fn last_success(recorder: &dyn Recorder, labels: &'static Labels) -> Gauge {
    register_gauge(recorder, &LAST_SUCCESS.key(labels))
}

impl Name {
    const fn counter(key: &'static str, meaning: &'static str) -> Self {
        Self {
            key,
            unit: Unit::Count,
            meaning,
        }
    }

    pub(super) fn key(self, labels: &'static Labels) -> Key {
        Key::from_static_parts(self.key, labels)
    }

    fn key_with(
        self,
        labels: &'static Labels,
        further: Option<(&'static str, &'static str)>,
    ) -> Key {
        let Some((key, value)) = further else {
            return self.key(labels);
        };
        let further = Label::from_static_parts(key, value);
        let labels: Vec<_> = labels.iter().cloned().chain(once(further)).collect();
        Key::from_parts(self.key, labels)
    }
}

impl Count {
    /// Its name, and what tells it from others of that name.
    fn name(self) -> (Name, Option<(&'static str, &'static str)>) {
        let name = match self {
            Self::Acquired => Name::counter("lockattr_acquired_total", "Calls that got a lease."),
            Self::Busy => Name::counter(
                "lockattr_busy_total",
                "Calls that found the key busy, after their wait.",
            ),
            Self::Done => {
                Name::counter("lockattr_done_total", "Calls whose work was done already.")
            }
            Self::Unavailable => Name::counter(
                "lockattr_unavailable_total",
                "Calls for which the store could not be asked, or the key or a setting was refused.",
            ),
            Self::Unguarded => Name::counter(
                "lockattr_unguarded_total",
                "Calls that ran without a lock in the store.",
            ),
            Self::ReleasedLate => Name::counter(
                "lockattr_released_late_total",
                "Leases given back in the background after that had failed first.",
            ),
            Self::ReleaseAbandoned => Name::counter(
                "lockattr_release_abandoned_total",
                "Leases that could not be given back: the key ran out.",
            ),
            Self::MarksLost => Name::counter(
                "lockattr_marks_lost_total",
                "Marks of `once` that could not be written.",
            ),
            Self::RepliesNotKept => Name::counter(
                "lockattr_replies_not_kept_total",
                "Replies that were not kept beside the mark of `once`.",
            ),
            Self::HandedOverHere | Self::HandedOverByStore => Name::counter(
                "lockattr_handovers_total",
                "Leases that a release passed on to a call that waited.",
            ),
        };
        let kind = match self {
            Self::HandedOverHere => Some(("kind", "process")),
            Self::HandedOverByStore => Some(("kind", "store")),
            _ => None,
        };
        (name, kind)
    }
}

fn label(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Expired => "expired",
        LossCause::Deleted => "deleted",
        LossCause::Taken => "taken",
        LossCause::Shutdown => "shutdown",
        LossCause::HeldTooLong => "held_too_long",
    }
}

fn each<T: Copy, H, const N: usize>(all: &[T], register: impl Fn(T) -> H) -> [H; N] {
    std::array::from_fn(|index| register(all[index]))
}

fn describe(recorder: &dyn Recorder) {
    let parts = |name: Name| {
        let (key, meaning) = (
            KeyName::from_const_str(name.key),
            SharedString::from(name.meaning),
        );
        (key, Some(name.unit), meaning)
    };
    for name in Count::ALL
        .iter()
        .map(|count| count.name().0)
        .chain(once(LOST))
    {
        let (key, unit, meaning) = parts(name);
        recorder.describe_counter(key, unit, meaning);
    }
    for name in [WAIT, HOLD, RENEWAL_LAG, TTL_USED] {
        let (key, unit, meaning) = parts(name);
        recorder.describe_histogram(key, unit, meaning);
    }
    for name in [HELD, WAITING, LAST_SUCCESS] {
        let (key, unit, meaning) = parts(name);
        recorder.describe_gauge(key, unit, meaning);
    }
}
