//! Waiting for something to become true, with a deadline that only a failure reaches.

use std::thread;
use std::time::{Duration, Instant};

/// Far longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

const STEP: Duration = Duration::from_millis(5);

/// Waits in an asynchronous test until `condition` holds.
///
/// The clock is the real one, also where tokio's is paused.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(STEP).await;
    }
}

/// The same for threads without a runtime.
pub fn block_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(STEP);
    }
}

/// Waits until `condition` holds, and fails where that takes longer than `limit`.
///
/// For tests whose subject is the limit.
pub async fn within(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(STEP).await;
    }
    start.elapsed()
}
