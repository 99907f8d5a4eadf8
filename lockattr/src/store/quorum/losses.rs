//! Leases whose vote a node may have forgotten.

use std::sync::{Arc, Weak};

use super::super::{Claim, HeldLeases, LeaseTable};
use super::node::QuorumNode;

/// The leases of a client, as one of its nodes sees them.
struct LeasesOfNode {
    node: Weak<QuorumNode>,
    leases: HeldLeases,
}

impl QuorumNode {
    /// Has leases looked at whose votes the node may have forgotten: by a renewal at all nodes, which takes a
    /// vote that is missing.
    pub(super) fn tell_ended(self: &Arc<Self>, leases: &HeldLeases) {
        let node = Arc::downgrade(self);
        let leases = leases.clone();
        self.store
            .tell_ended(HeldLeases::new(LeasesOfNode { node, leases }));
    }
}

impl LeaseTable for LeasesOfNode {
    fn holds(&self, is: &dyn Fn(Claim<'_>) -> bool) -> bool {
        self.leases.any(is)
    }

    fn renew(&self, is: &dyn Fn(Claim<'_>) -> bool) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        // It answers again. One that does not after all is asked once.
        node.health.heard(&Ok(()));
        self.leases.renew(is);
    }
}
