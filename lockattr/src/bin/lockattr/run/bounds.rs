//! When a command is ended whose lease is lost, or is about to be.

use std::time::Duration;

use lockattr::Lease;

use super::clock;
use super::message::ToGuard;
use crate::cli::RunArgs;

/// A key that is gone or taken may be held by another already: there is no more time than that.
const GRACE_AFTER_LOSS: Duration = Duration::from_secs(1);

/// How long the guard may take, beyond the grace, on a busy machine.
pub(super) const SLACK: Duration = Duration::from_secs(3);

pub(super) struct Bounds {
    /// From TERM to KILL before a deadline.
    grace: Duration,
    pub(super) grace_after_loss: Duration,
    /// KILL comes that long before the deadline.
    margin: Duration,
    /// How often the guard is told the deadline.
    pub(super) look_every: Duration,
}

impl Bounds {
    pub(super) fn new(args: &RunArgs) -> Self {
        Self {
            // A lease is renewed when two thirds of it are left: so much is never a sign of an outage.
            grace: args.grace.min(args.ttl / 3),
            grace_after_loss: args.grace.min(GRACE_AFTER_LOSS),
            margin: (args.ttl / 20).min(Duration::from_millis(500)),
            look_every: (args.ttl / 12).max(Duration::from_millis(1)),
        }
    }

    /// Until when the command may run, as far as is known now.
    pub(super) fn until(&self, lease: &Lease) -> ToGuard {
        // Read first: what passes between the two makes the deadline earlier.
        let now = clock::now();
        let kill_at = now + lease.remaining().saturating_sub(self.margin);
        let term_at = kill_at.saturating_sub(self.grace);
        ToGuard::Until { term_at, kill_at }
    }
}
