//! Pauses that differ, so that those who wait for the same do not come back in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between three quarters of a pause and the whole.
pub(crate) fn jittered(pause: Duration) -> Duration {
    between(pause * 3 / 4, pause)
}

/// A pause between these two, each as likely as any other.
pub(crate) fn between(shortest: Duration, longest: Duration) -> Duration {
    // Randomly keyed for each call, which is all that is needed here.
    let random = RandomState::new().hash_one(0_u8);
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    shortest + longest.saturating_sub(shortest).mul_f64(share)
}
