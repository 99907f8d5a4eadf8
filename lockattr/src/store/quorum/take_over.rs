//! Taking over: the first node that has the lease decides of two who take it over which one goes on to the others.
//!
//! Of a lease that has the votes of a bare majority, two who took one each would both have too few. So the nodes are
//! asked in their order, which is the same for all clients, until one has given its vote to the new owner; then all
//! others at once. A node that has nothing of the lease may have given it to another who takes over right now: then
//! it is looked whether the lease still has a majority, or none, before the next node is asked.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Acquired, EntryKind, Held, Renewal, Renewed};
use super::Quorum;
use super::claims::Phase;
use super::health::SILENT;
use super::node::QuorumNode;
use super::owned::OwnedClaim;
use super::renew::undecided;
use super::requests::{Request, Requests};
use super::votes::{self, majority};
use crate::error::StoreError;
use crate::runtime::jitter::between;

/// How often it is looked what has become of a lease that is on its way to another, and the pauses between.
const LOOKS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl Quorum {
    pub(super) async fn take_votes_over(
        &self,
        lease: Held<'_>,
        new_owner: &str,
    ) -> Result<Renewal, StoreError> {
        let from = Arc::new(OwnedClaim::from(lease.claim));
        let claim = Arc::new(from.of(new_owner));
        let mut answers: Vec<Option<Renewed>> = self.none();
        let mut first = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if !node.is_open() {
                continue;
            }
            let mut request = node.take_over(&from, &claim);
            match self.context.within(SILENT, request.answer.as_mut()).await {
                Ok(answer) => {
                    let is_over = matches!(answer, Ok(Renewal::Until(_)));
                    let is_elsewhere = matches!(answer, Ok(Renewal::Gone | Renewal::Taken));
                    answers[index] = Some(answer);
                    if is_over || is_elsewhere && !self.has_majority_yet(&from).await {
                        break;
                    }
                }
                // Its answer may come yet.
                Err(_) => first.push((index, request)),
            }
        }
        let renewal = self.take_the_others(&from, &claim, answers, first).await;
        match renewal {
            Ok(Renewal::Until(until)) => {
                for node in self.nodes.iter() {
                    node.claims.hold(&claim.owner, until);
                    node.claims.taken_over(&from.owner);
                }
            }
            Ok(Renewal::Gone | Renewal::Taken) | Err(_) => self.give_up(&claim),
        }
        renewal
    }

    async fn take_the_others(
        &self,
        from: &Arc<OwnedClaim>,
        claim: &Arc<OwnedClaim>,
        mut answers: Vec<Option<Renewed>>,
        first: Vec<(usize, Request<Renewal>)>,
    ) -> Result<Renewal, StoreError> {
        let others = (0..self.nodes.len()).filter(|index| {
            let is_asked = first.iter().any(|(asked, _)| asked == index);
            answers[*index].is_none() && !is_asked
        });
        let others: Vec<_> = others.collect();
        let others = others.into_iter();
        let others = others.map(|index| (index, self.nodes[index].take_over(from, claim)));
        let mut requests = Requests::new(others.chain(first));
        let renewal = loop {
            if let Some(renewal) = votes::renewal(&answers) {
                break Ok(renewal);
            }
            let Some((node, answer)) = requests.next().await else {
                break Err(undecided(&answers, &[]));
            };
            answers[node] = Some(answer);
        };
        for (node, request) in requests.into_pending() {
            self.nodes[node].go_on(claim, request);
        }
        renewal
    }

    /// Whether a lease still has the votes of a majority. Where fewer nodes have it, it is on its way to
    /// another owner, or back.
    async fn has_majority_yet(&self, lease: &OwnedClaim) -> bool {
        let Some(lock) = lease.locks.first() else {
            return false;
        };
        let needed = majority(self.nodes.len());
        let mut pause = FIRST_PAUSE;
        for _ in 0..LOOKS {
            let Ok(known) = self.ask_status(lock, |_| false).await else {
                return false;
            };
            let is_its = |kind: &EntryKind| matches!(kind, EntryKind::Held { owner, .. } if *owner == lease.owner);
            let has_it = known
                .iter()
                .filter(|listed| listed.entries.iter().any(|entry| is_its(&entry.kind)))
                .count();
            if has_it == 0 || has_it >= needed {
                return has_it > 0;
            }
            self.context.sleep(between(pause / 2, pause)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        false
    }
}

impl QuorumNode {
    /// Has the node give the vote of one owner to another.
    fn take_over(
        self: &Arc<Self>,
        from: &Arc<OwnedClaim>,
        claim: &Arc<OwnedClaim>,
    ) -> Request<Renewal> {
        let (node, from, claim) = (Arc::clone(self), Arc::clone(from), Arc::clone(claim));
        Request::new(|sent| async move {
            node.is_ready(&claim).await?;
            let asking = node.claims.begin(&claim.owner, Phase::Asking, false).await;
            sent.now();
            let lease = from.claim().held(0);
            let answer = node.store.take_over(lease, &claim.owner).await;
            asking.answered(&match &answer {
                Ok(Renewal::Until(until)) => Ok(Acquired::granted(0, *until)),
                Ok(Renewal::Gone | Renewal::Taken) => Ok(Acquired::busy(0, "", Duration::ZERO)),
                Err(error) => Err(error.clone()),
            });
            node.health.heard(&answer);
            answer
        })
    }
}
