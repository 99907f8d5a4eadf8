use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on the machine's monotonic clock, which all its processes share.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
