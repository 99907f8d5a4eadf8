//! What keeps tracking from being switched on: for good where a server does not do it, and for a while where
//! connections were closed.

use std::time::{Duration, Instant};

use redis::ServerError;

/// The pause after a connection was closed for the second time on which it was to be switched on; it doubles each
/// time.
const CLOSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_CLOSED_PAUSE: Duration = Duration::from_secs(3600);

/// What keeps it from being switched on.
#[derive(Default)]
pub(super) struct Refusal {
    /// The server does not do it, and would not the next time.
    is_for_good: bool,
    /// How often in a row a connection was closed on which it was to be switched on.
    closed: u32,
    /// It is not tried before.
    not_before: Option<Instant>,
}

impl Refusal {
    pub(super) fn is_over(&self, now: Instant) -> bool {
        !self.is_for_good && self.not_before.is_none_or(|moment| moment <= now)
    }

    pub(super) fn refused(&mut self, error: &ServerError) {
        self.is_for_good |= is_for_good(error);
    }

    pub(super) fn done(&mut self) {
        self.closed = 0;
    }

    /// Some servers close the connection at a command that they do not know. Or it was lost by chance, even twice.
    pub(super) fn closed(&mut self, now: Instant) {
        if let Some(doublings) = self.closed.checked_sub(1) {
            let pause = CLOSED_PAUSE.saturating_mul(1 << doublings.min(16));
            self.not_before = Some(now + pause.min(LONGEST_CLOSED_PAUSE));
        }
        self.closed = self.closed.saturating_add(1);
    }
}

/// What a server does not know or does not allow; any other refusal may pass.
fn is_for_good(error: &ServerError) -> bool {
    ["ERR", "NOPERM", "NOPROTO"].contains(&error.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is started anew again and again, or a proxy that closes what it does not know.
    #[test]
    fn connections_that_are_closed_are_followed_by_pauses() {
        let now = Instant::now();
        let mut refusal = Refusal::default();
        refusal.closed(now);
        assert!(refusal.is_over(now));
        refusal.closed(now);
        refusal.closed(now);
        assert!(!refusal.is_over(now + CLOSED_PAUSE));
        assert!(refusal.is_over(now + 2 * CLOSED_PAUSE));
        for _ in 0..100 {
            refusal.closed(now);
        }
        assert!(!refusal.is_over(now + LONGEST_CLOSED_PAUSE / 2));
        assert!(refusal.is_over(now + LONGEST_CLOSED_PAUSE));
    }
}
