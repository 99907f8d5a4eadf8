//! Renewing: by a majority, which then adds the votes that are missing.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Held, Renewal, Renewed};
use super::Quorum;
use super::node::Node;
use super::owned::{OwnedClaim, OwnedHeld};
use super::requests::Requests;
use super::votes;
use crate::error::StoreError;

impl Quorum {
    pub(super) async fn renew_leases(
        &self,
        leases: &[Held<'_>],
        patience: Duration,
    ) -> Vec<Renewed> {
        let owned: Arc<Vec<OwnedHeld>> = Arc::new(leases.iter().map(OwnedHeld::from).collect());
        // Those that are known to be silent are asked where a majority is.
        let open = self.nodes.iter().filter(|node| node.is_open()).count();
        let all = open < votes::majority(self.nodes.len());
        let asked = self.nodes.iter().enumerate();
        let asked = asked.filter(|(_, node)| {
            let is_open = node.is_open();
            if let Some(lease) = owned.first().filter(|_| !is_open) {
                node.want(&lease.claim);
            }
            all || is_open
        });
        let requests = asked.map(|(index, node)| (index, node.renew(&owned, patience)));
        let mut requests = Requests::new(requests);

        let mut answers: Vec<Vec<Option<Renewed>>> = vec![self.none(); owned.len()];
        let mut failed = Vec::new();
        loop {
            let decided = |answers: &Vec<_>| votes::renewal(answers).is_some();
            if answers.iter().all(decided) {
                break;
            }
            let Some((node, answer)) = requests.next().await else {
                break;
            };
            put(&mut answers, node, answer, &mut failed);
        }
        let more: Vec<_> = requests.answered().collect();
        for (node, answer) in more {
            put(&mut answers, node, answer, &mut failed);
        }
        for (_, request) in requests.into_pending() {
            self.context
                .go_on(async move { drop(request.answer.await) });
        }
        let errors: Vec<_> = failed.iter().collect();
        let renewed = owned.iter().zip(&answers).map(|(lease, answers)| {
            let renewed = votes::renewal(answers);
            if let Some(Renewal::Until(_)) = renewed {
                self.add_missing_votes(&lease.claim, answers);
            }
            renewed.ok_or_else(|| undecided(answers, &errors))
        });
        renewed.collect()
    }

    /// Takes the lease's key where it is gone: at a node that was started anew, or was away when the others
    /// have granted. The vote counts from the next renewal.
    fn add_missing_votes(&self, claim: &Arc<OwnedClaim>, answers: &[Option<Renewed>]) {
        for (node, answer) in self.nodes.iter().zip(answers) {
            if let Some(Ok(Renewal::Gone)) = answer
                && node.is_open()
                && !node.claims.is_busy(&claim.owner)
            {
                let nodes = Arc::clone(&self.nodes);
                let owner = claim.owner.clone();
                let joins = node.join(claim, move || is_held(&nodes, &owner));
                let (node, claim) = (Arc::clone(node), Arc::clone(claim));
                self.context.go_on(async move {
                    let _ = joins.answer.await;
                    node.give_back_what_is_owed(&claim);
                });
            }
        }
    }
}

/// Whether a claim is a lease that was not given back yet.
fn is_held(nodes: &[Arc<Node>], owner: &str) -> bool {
    nodes.iter().any(|node| node.claims.is_held(owner))
}

fn put(
    answers: &mut [Vec<Option<Renewed>>],
    node: usize,
    answer: Result<Vec<Renewed>, StoreError>,
    failed: &mut Vec<StoreError>,
) {
    match answer {
        Ok(each) => {
            for (answers, one) in answers.iter_mut().zip(each) {
                answers[node] = Some(one);
            }
        }
        Err(error) => failed.push(error),
    }
}

/// What is said of a lease of which too little is known.
fn undecided(answers: &[Option<Renewed>], failed: &[&StoreError]) -> StoreError {
    let own = answers
        .iter()
        .flatten()
        .filter_map(|one| one.as_ref().err());
    let errors: Vec<_> = own.chain(failed.iter().copied()).collect();
    let error = votes::unavailable(answers.len(), &errors);
    // Some may have been renewed.
    StoreError::in_doubt(error.to_string())
}
