//! The monotonic clock, which all processes of a machine read alike.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Since an arbitrary moment, the same for each process.
pub(super) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The same moment, for a timer.
pub(super) fn instant(at: Duration) -> Instant {
    Instant::now() + at.saturating_sub(now())
}
