//! Whom to wake.

use std::task::Waker;

/// Has this one woken from now on. The answer is the one before, where it is another: it may be the
/// last handle of a task, whose end may come back here, so it is not to be dropped under a lock.
#[must_use]
pub(crate) fn replace(known: &mut Option<Waker>, now: &Waker) -> Option<Waker> {
    match known {
        Some(known) if known.will_wake(now) => None,
        known => known.replace(now.clone()),
    }
}
