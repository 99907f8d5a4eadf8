//! The check when a client connects: every node is tried, and a majority has to be in order.

use std::sync::Arc;

use super::Quorum;
use super::owned::OwnedClaim;
use super::requests::{Request, Requests};
use super::votes;
use crate::error::StoreError;

impl Quorum {
    /// Answers as soon as a majority is in order, or cannot be, unless all are to be heard. Of the others it
    /// is told what is wrong. A node that may give no vote is no client's.
    pub(super) async fn check_nodes(&self, claim: Arc<OwnedClaim>) -> Result<(), StoreError> {
        let checks = self.nodes.iter().enumerate().map(|(index, node)| {
            let (node, claim) = (Arc::clone(node), Arc::clone(&claim));
            let check = Request::new(|sent| async move {
                sent.now();
                let answer = node.store.check(claim.claim()).await;
                node.health.heard(&answer);
                answer
            });
            (index, check)
        });
        let mut requests = Requests::new(checks);
        let needed = votes::majority(self.nodes.len());
        let mut in_order = 0;
        let mut errors = Vec::new();
        while (in_order < needed || self.checks_all)
            && let Some((_, answer)) = requests.next().await
        {
            match answer {
                Ok(()) => in_order += 1,
                Err(error) if error.is_invalid() => return Err(error),
                Err(error) => errors.push(error),
            }
            if errors.len() > self.nodes.len() - needed {
                let errors: Vec<_> = errors.iter().collect();
                return Err(votes::unavailable(self.nodes.len(), &errors));
            }
        }
        errors.extend(requests.answered().filter_map(|(_, answer)| answer.err()));
        errors.iter().for_each(warn);
        for (_, request) in requests.into_pending() {
            let background = self.context.background.clone();
            self.context.go_on(async move {
                if let Err(error) = request.answer.await {
                    background.tell(move || warn(&error));
                }
            });
        }
        Ok(())
    }
}

fn warn(error: &StoreError) {
    tracing::warn!(
        target: "lockattr", %error,
        "a node of a quorum is not in order; its vote is missing until it is"
    );
}
