//! Pauses that differ, so that those who wait for the same do not come back in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between three quarters of a pause and the whole.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // Randomly keyed for each call, which is all that is needed here.
    let random = RandomState::new().hash_one(0_u8);
    let share = u32::try_from(random % 256).unwrap_or(0) + 768;
    pause * share / 1024
}
