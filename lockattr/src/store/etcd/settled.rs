//! When nothing can come any more of what was asked for a claim and not answered.
//!
//! One that was given back has its leases revoked, so that what is carried out late finds none to write under. One
//! that is held keeps them: what was not answered of it may be carried out for as long as it is held.

use std::time::Duration;

use super::Etcd;

impl Etcd {
    /// Answers for how long something may come all the same.
    pub(super) async fn settle(&self, owner: &str) -> Duration {
        let leases = &self.0.leases;
        leases.answered(owner).await;
        if leases.is_given_back(owner) {
            return match self.revoke_all(owner).await {
                Ok(()) => Duration::ZERO,
                Err(_) => Duration::MAX,
            };
        }
        if leases.is_in_doubt(owner) {
            Duration::MAX
        } else {
            Duration::ZERO
        }
    }
}
