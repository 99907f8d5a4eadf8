//! Wake-ups of all nodes, as one stream.

use std::task::{Context, Poll};

use super::super::{Claim, WakeUp, WakeUps};
use super::Quorum;
use super::node::QuorumNode;

/// The wake-ups of one claim.
pub(super) struct OfNodes<'a> {
    owner: String,
    nodes: Vec<(&'a QuorumNode, Box<dyn WakeUps + 'a>)>,
}

impl Quorum {
    pub(super) fn wakeups_of_nodes(&self, claim: Claim<'_>) -> OfNodes<'_> {
        let nodes = self.nodes.iter();
        OfNodes {
            owner: claim.owner.to_owned(),
            nodes: nodes
                .map(|node| (&**node, node.store.wakeups(claim)))
                .collect(),
        }
    }
}

impl WakeUps for OfNodes<'_> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        for (node, wakeups) in &mut self.nodes {
            match wakeups.poll_next(cx) {
                // One node's grant is a vote: the claim asks the others for theirs.
                Poll::Ready(WakeUp::Granted { until, .. }) => {
                    node.claims.handed(&self.owner, until);
                    return Poll::Ready(WakeUp::Look);
                }
                Poll::Ready(wakeup) => return Poll::Ready(wakeup),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }
}
