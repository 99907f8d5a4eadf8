use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on the machine's monotonic clock, which all its processes share.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time that this process has had of all cores.
#[must_use]
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
