//! Leases whose node may have forgotten them, or whose hash slot another node keeps now.
//!
//! Each node is watched as a single server is, and has the leases of its own hash slots looked at. A slot that is
//! kept elsewhere than before may have moved there with its keys; or its node is gone, and a replica that lacks
//! some of them has taken its place. So its leases are looked at as well.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};

use super::nodes::Nodes;
use super::slots::slot_of;
use crate::store::redis::Redis;
use crate::store::redis::addresses::Address;
use crate::store::redis::losses::Keeps;
use crate::store::{Claim, HeldLeases};

/// What a node keeps.
struct KeptByNode {
    nodes: Weak<Nodes>,
    address: Address,
}

impl Keeps for KeptByNode {
    fn keeps(&self, claim: &Claim<'_>) -> bool {
        let nodes = self.nodes.upgrade();
        let is_kept = |nodes: &Nodes, slot| nodes.is_kept_at(slot, &self.address);
        nodes.is_some_and(|nodes| has_lock_in(claim, |slot| is_kept(&nodes, slot)))
    }

    fn is_away(&self) {
        // A replica may have taken its place.
        if let Some(nodes) = self.nodes.upgrade() {
            drop(nodes.refresh());
        }
    }
}

/// Whose leases are to be looked at, once a client has them.
#[derive(Default)]
pub(super) struct ClusterLosses(OnceLock<Watched>);

struct Watched {
    nodes: Weak<Nodes>,
    leases: HeldLeases,
}

impl ClusterLosses {
    /// Nodes are watched from now on.
    pub(super) fn begin(&self, nodes: &Arc<Nodes>, leases: HeldLeases) {
        let nodes = Arc::downgrade(nodes);
        // There is one client of a store.
        let _ = self.0.set(Watched { nodes, leases });
    }

    /// Watches a node that was made.
    pub(super) fn watch(&self, node: &Redis, address: &Address) {
        let Some(Watched { nodes, leases }) = self.0.get() else {
            return;
        };
        let (nodes, address) = (nodes.clone(), address.clone());
        node.watch_losses(leases.clone(), KeptByNode { nodes, address });
    }

    /// Other nodes keep these slots now.
    pub(super) fn moved(&self, slots: &HashSet<u16>) {
        if let Some(Watched { leases, .. }) = self.0.get()
            && !slots.is_empty()
        {
            leases.renew(|claim| has_lock_in(&claim, |slot| slots.contains(&slot)));
        }
    }
}

fn has_lock_in(claim: &Claim<'_>, is: impl Fn(u16) -> bool) -> bool {
    claim.locks.iter().any(|lock| is(slot_of(lock)))
}
