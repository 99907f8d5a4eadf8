//! When something happened on the server, by the clock of this process.
//!
//! A grant that is heard of on the channel says when it was made, by the server's clock. Its lease has to
//! count from a moment of our own clock that is certainly not later. A reply that carries the server's
//! time anchors the one clock to the other, so that a message that comes late makes no lease too long.
//! A server's clock that was set in between would, so an anchor is used only where both clocks agree.

use std::time::{Duration, Instant};

/// For how long two clocks are trusted to run alike.
const CLOCKS_AGREE: Duration = Duration::from_secs(10);

/// A moment of our clock, and what the server's clock, in microseconds, said some time after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockAnchor {
    sent: Instant,
    server_micros: u64,
}

impl ClockAnchor {
    /// By the reply to a request that was sent at that moment.
    pub(super) fn new(sent: Instant, server_micros: u64) -> Self {
        Self {
            sent,
            server_micros,
        }
    }

    /// A moment of our clock that is not later than this one of the server's, of which we heard at
    /// `heard`; `None` where the clocks cannot be relied on.
    pub(super) fn not_later_than(self, micros: u64, heard: Instant) -> Option<Instant> {
        let passed = Duration::from_micros(micros.checked_sub(self.server_micros)?);
        // Allows for a server's clock that runs faster than ours by a hundredth.
        let moment = self.sent + passed * 99 / 100;
        (passed <= CLOCKS_AGREE && moment <= heard).then_some(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_reckoned_by_the_servers_clock() {
        let sent = Instant::now();
        let later = |ms| sent + Duration::from_millis(ms);
        let anchor = ClockAnchor::new(sent, 5_000_000);
        // A second passed on the server, and the message took three more.
        let moment = anchor.not_later_than(6_000_000, later(4_000));
        assert_eq!(moment, Some(later(990)));
    }

    #[test]
    fn a_clock_that_cannot_be_relied_on_is_not() {
        let sent = Instant::now();
        let later = |ms| sent + Duration::from_millis(ms);
        let anchor = ClockAnchor::new(sent, 5_000_000);
        // Set back.
        assert_eq!(anchor.not_later_than(4_999_999, later(4_000)), None);
        // Set forward: the moment would be yet to come.
        assert_eq!(anchor.not_later_than(9_000_000, later(3_000)), None);
        // Too long ago.
        assert_eq!(anchor.not_later_than(15_000_001, later(11_000)), None);
        let moment = anchor.not_later_than(15_000_000, later(11_000));
        assert_eq!(moment, Some(later(9_900)));
    }
}
