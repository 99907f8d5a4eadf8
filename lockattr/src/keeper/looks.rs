//! Leases that a store wants to be looked at: it has learnt by itself that they may have ended.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Keeper;
use crate::acquisition::Acquisition;
use crate::error::LossCause;
use crate::store::{Claim, HeldLeases, LeaseTable};

/// The leases of a keeper, which may be gone.
struct LeasesOf(Weak<Keeper>);

pub(super) fn leases_of(keeper: &Arc<Keeper>) -> HeldLeases {
    HeldLeases::new(LeasesOf(Arc::downgrade(keeper)))
}

impl LeaseTable for LeasesOf {
    fn holds(&self, is: &dyn Fn(Claim<'_>) -> bool) -> bool {
        self.0.upgrade().is_some_and(|keeper| {
            let all = keeper.schedule.all();
            all.iter().any(|(_, lease)| is_meant(lease, is))
        })
    }

    fn renew(&self, is: &dyn Fn(Claim<'_>) -> bool) {
        let Some(keeper) = self.0.upgrade() else {
            return;
        };
        let now = Instant::now();
        for (key, lease) in keeper.schedule.all() {
            if is_meant(&lease, is) {
                keeper.schedule.look(key, now);
            }
        }
    }

    fn lose(&self, owner: &str, cause: LossCause) {
        let keeper = self.0.upgrade();
        let mut running = keeper.iter().flat_map(|keeper| keeper.running());
        if let Some(lease) = running.find(|lease| lease.owner() == owner) {
            lease.lose(cause);
        }
    }
}

/// Whether a lease is held, and a store means it.
fn is_meant(lease: &Acquisition, is: &dyn Fn(Claim<'_>) -> bool) -> bool {
    !lease.has_ended() && is(lease.claim(&lease.owner(), lease.ttl()))
}
