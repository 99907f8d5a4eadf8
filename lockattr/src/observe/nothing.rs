//! Without the feature.

use super::{Count, Span};
use crate::error::LossCause;
use crate::runtime::clock::Clock;

#[derive(Debug)]
pub(crate) struct Observed;

/// A call that waits, which nobody counts.
pub(crate) struct Waiting;

#[expect(
    clippy::unused_self,
    reason = "it has what is observed with the feature"
)]
impl Observed {
    pub(crate) const fn new(_: &'static str, _: &'static str) -> Self {
        Self
    }

    pub(crate) fn waits(&'static self, _: impl FnOnce() -> Clock) -> Waiting {
        Waiting
    }

    pub(crate) fn count(&self, _: Count) {}

    pub(crate) fn count_lost(&self, _: LossCause) {}

    pub(crate) fn hold_begins(&self) -> bool {
        false
    }

    pub(crate) fn hold_ends(&self, _: impl FnOnce() -> Span) {}

    pub(crate) fn hold_is_elsewhere(&self) {}

    pub(crate) fn renewed(&self, _: impl FnOnce() -> Span) {}

    pub(crate) fn succeeded(&self) {}
}

impl Waiting {
    #[expect(
        clippy::unused_self,
        reason = "it has what is observed with the feature"
    )]
    pub(crate) fn over(self) {}
}
