//! Renewing: by a majority, which then adds the votes that are missing.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Held, Renewal, Renewed};
use super::Quorum;
use super::node::QuorumNode;
use super::owned::OwnedHeld;
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
        let renewed: Vec<_> = answers
            .iter()
            .map(|answers| votes::renewal(answers))
            .collect();
        let is_renewed = |one: &Option<Renewal>| matches!(one, Some(Renewal::Until(_)));
        let holds: Vec<_> = renewed.iter().map(is_renewed).collect();
        for (node, answers) in (0..self.nodes.len()).map(|node| (node, of_node(&answers, node))) {
            add_missing_votes(&self.nodes, node, &owned, &holds, answers);
        }
        for (node, request) in requests.into_pending() {
            // One that answers later than the others has lost its vote as well as any.
            let (nodes, owned, holds) =
                (Arc::clone(&self.nodes), Arc::clone(&owned), holds.clone());
            self.context.go_on(async move {
                if let Ok(each) = request.answer.await {
                    add_missing_votes(&nodes, node, &owned, &holds, each.into_iter().map(Some));
                }
            });
        }
        let errors: Vec<_> = failed.iter().collect();
        let renewed = renewed.into_iter().zip(&answers);
        renewed
            .map(|(renewed, answers)| renewed.ok_or_else(|| undecided(answers, &errors)))
            .collect()
    }
}

/// What one node has answered for each lease.
fn of_node(answers: &[Vec<Option<Renewed>>], node: usize) -> impl Iterator<Item = Option<Renewed>> {
    answers.iter().map(move |answers| answers[node].clone())
}

/// Takes the keys of leases that are held where they are gone: at a node that was started anew, or was away
/// when the others have granted. The vote counts from the next renewal.
fn add_missing_votes(
    nodes: &Arc<[Arc<QuorumNode>]>,
    node: usize,
    leases: &[OwnedHeld],
    holds: &[bool],
    answers: impl Iterator<Item = Option<Renewed>>,
) {
    let node = &nodes[node];
    for ((lease, holds), answer) in leases.iter().zip(holds).zip(answers) {
        let claim = &lease.claim;
        if *holds
            && matches!(answer, Some(Ok(Renewal::Gone)))
            && node.is_open()
            && !node.claims.is_busy(&claim.owner)
        {
            let (all, owner) = (Arc::clone(nodes), claim.owner.clone());
            let joins = node.join(claim, move || is_held(&all, &owner));
            let (joining, claim) = (Arc::clone(node), Arc::clone(claim));
            node.context.go_on(async move {
                let _ = joins.answer.await;
                joining.give_back_what_is_owed(&claim);
            });
        }
    }
}

/// Whether a claim is a lease that was not given back yet.
fn is_held(nodes: &[Arc<QuorumNode>], owner: &str) -> bool {
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
pub(super) fn undecided(answers: &[Option<Renewed>], failed: &[&StoreError]) -> StoreError {
    let mut errors = votes::errors(answers);
    errors.extend(failed);
    let error = votes::unavailable(answers.len(), &errors);
    // Some may have been renewed.
    StoreError::in_doubt(error.to_string())
}
