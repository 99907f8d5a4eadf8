//! Releasing: at all nodes. What a majority has answered is the answer, and the others go on being asked.

use std::sync::Arc;

use super::super::{Found, Release};
use super::Quorum;
use super::claims::Claims;
use super::owned::{OwnedClaim, OwnedRelease};
use super::requests::Requests;
use super::votes;
use crate::error::StoreError;

impl Quorum {
    pub(super) async fn release_votes(
        &self,
        claim: Arc<OwnedClaim>,
        release: Release<'_>,
    ) -> Result<Found, StoreError> {
        let release = Arc::new(OwnedRelease::from(release));
        let returning: Vec<_> = self
            .nodes
            .iter()
            .map(|node| {
                node.claims.end(&claim.owner);
                Claims::begin_return(node, &claim.owner)
            })
            .collect();
        let requests = self.nodes.iter().enumerate();
        let requests = requests.map(|(index, node)| (index, node.release(&claim, &release)));
        let mut requests = Requests::new(requests);
        let mut answers: Vec<Option<Result<Found, StoreError>>> = self.none();
        let begun = self.context.now();
        let mut complete = false;
        let found = loop {
            if let Some(found) = decided(&answers, &release, complete) {
                break Ok(found);
            }
            let answered = answers.iter().flatten().flatten().count();
            let next = if answered >= votes::majority(self.nodes.len()) {
                let taken = self.context.now().saturating_duration_since(begun);
                let next = self.context.within(votes::grace(taken), requests.next());
                next.await.unwrap_or(None)
            } else {
                requests.next().await
            };
            match next {
                Some((node, answer)) => answers[node] = Some(answer),
                None if complete => break Err(undecided(&answers)),
                None => complete = true,
            }
        };
        for (node, answer) in requests.answered() {
            answers[node] = Some(answer);
        }
        let mut pending: Vec<_> = self.nodes.iter().map(|_| None).collect();
        for (node, request) in requests.into_pending() {
            pending[node] = Some(request);
        }
        let nodes = self.nodes.iter().zip(&answers).zip(pending).zip(returning);
        // Where it is not known that a majority has the replies, each of these nodes may be needed for that.
        let mut asked_later = None;
        for (((node, answer), request), returning) in nodes {
            let is_known = node.claims.is_known(&claim.owner);
            let is_over = match answer {
                Some(Ok(found)) => !node.claims.released(&claim.owner, *found),
                _ => false,
            };
            if is_over && returning.is_some() {
                node.claims.returned(&claim.owner);
            } else if is_known && !is_over {
                let later = || match &found {
                    Ok(_) => Arc::new(release.without_replies()),
                    Err(_) => Arc::clone(&release),
                };
                let later = Arc::clone(asked_later.get_or_insert_with(later));
                node.go_on_with_release(&claim, later, request, returning);
            }
        }
        found
    }
}

/// What was found, if that is known. Of a claim of which it is not known what it holds any node that has
/// something of it is enough, and all are asked.
fn decided(
    answers: &[Option<Result<Found, StoreError>>],
    release: &OwnedRelease,
    complete: bool,
) -> Option<Found> {
    if release.slot.is_some() {
        return votes::found(answers);
    }
    let mut found = answers.iter().flatten().flatten();
    if found.any(|found| *found == Found::Ours) {
        return Some(Found::Ours);
    }
    complete.then(|| votes::found(answers)).flatten()
}

/// One of the nodes may have done its part.
fn undecided(answers: &[Option<Result<Found, StoreError>>]) -> StoreError {
    let error = votes::unavailable(answers.len(), &votes::errors(answers));
    if answers
        .iter()
        .any(|answer| matches!(answer, Some(Ok(Found::Ours))))
    {
        return StoreError::in_doubt(error.to_string());
    }
    error
}
