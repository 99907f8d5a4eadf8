//! Which time a lease lives in.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::runtime::background::{Background, Elapsed};

/// A length of time as it is told, and as servers count: in whole milliseconds.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The clock that a store's leases are measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The machine's monotonic clock.
    Real,
    /// The clock of the calling tokio runtime, which a test has paused or moved.
    Tokio,
}

impl Clock {
    /// The clock of this caller for a store that lives in its callers' time.
    pub(crate) fn of_caller() -> Self {
        if Handle::try_current().is_err() {
            return Self::Real;
        }
        let before = Instant::now();
        let tokio = tokio::time::Instant::now().into_std();
        // A running tokio clock is the machine's; one that was paused stands outside this interval.
        if before <= tokio && tokio <= Instant::now() {
            Self::Real
        } else {
            Self::Tokio
        }
    }

    pub(crate) fn now(self) -> Instant {
        match self {
            Self::Real => Instant::now(),
            Self::Tokio => tokio::time::Instant::now().into_std(),
        }
    }

    pub(crate) async fn sleep_until(self, background: &Background, at: Instant) {
        match self {
            Self::Real => background.sleep_until(at).await,
            Self::Tokio => tokio::time::sleep_until(at.into()).await,
        }
    }

    /// Polls `work` until it is done or, in this time, `at` has come.
    pub(crate) async fn until<F: Future>(
        self,
        background: &Background,
        at: Instant,
        work: F,
    ) -> Result<F::Output, Elapsed> {
        match self {
            Self::Real => background.until(at, work).await,
            Self::Tokio => tokio::time::timeout_at(at.into(), work)
                .await
                .map_err(|_| Elapsed),
        }
    }
}
