//! When nothing can come of a claim any more: its requests are over, and its leases are revoked, so that one which
//! is carried out late finds none to write under.

use std::time::Duration;

use super::Etcd;

impl Etcd {
    /// Answers for how long something may come all the same.
    pub(super) async fn settle(&self, owner: &str) -> Duration {
        self.0.leases.answered(owner).await;
        match self.revoke_all(owner).await {
            Ok(()) => Duration::ZERO,
            Err(_) => Duration::MAX,
        }
    }
}
