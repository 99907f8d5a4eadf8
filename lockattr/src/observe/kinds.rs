//! What there is to observe.
#![cfg_attr(
    not(feature = "metrics"),
    expect(dead_code, reason = "nobody looks at what is observed")
)]

use crate::listed::listed;

listed! {
    /// What is counted, beside losses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Count {
        Acquired,
        Busy,
        Done,
        Unavailable,
        Unguarded,
        ReleasedLate,
        ReleaseAbandoned,
        MarksLost,
        RepliesNotKept,
        HandedOverHere,
        HandedOverByStore,
    }
}

/// How long something took of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) seconds: f64,
    /// The share of the lease's ttl that had passed since it was started last.
    pub(crate) of_ttl: f64,
}
