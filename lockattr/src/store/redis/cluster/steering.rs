//! From node to node until one answers: after redirections, while a hash slot moves, and while a node is
//! replaced by its replica.
//!
//! Everything happens within the deadline of the step. What was asked of one node is asked of another
//! under the same owner, whose grants every script recognises.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::nodes::Nodes;
use super::view::{address_of, located};
use crate::error::StoreError;
use crate::runtime::jitter::jittered;
use crate::store::redis::Redis;
use crate::store::redis::fault::{Fault, Redirect};
use crate::store::redis::timeouts::Deadline;

/// The first pause before a node is asked again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// After so many redirections in a row there is a pause: two nodes may name each other for a while.
const REDIRECTIONS: u32 = 4;

/// How long a look at who keeps what is waited for.
const LOOK: Duration = Duration::from_millis(500);

/// The way of one step through the nodes.
pub(super) struct Steering<'a> {
    nodes: &'a Arc<Nodes>,
    slot: u16,
    /// Why the node that was asked last has not answered.
    failed: Option<(Arc<Redis>, Fault)>,
    /// Whether an earlier request may be carried out yet.
    pub(super) in_doubt: bool,
    /// Whether the keys of the slot are on two nodes, so that each is asked for by itself.
    pub(super) is_split: bool,
    pause: Duration,
    redirections: u32,
    /// Whether an error that may have been the connection's was given another chance.
    tried_again: bool,
}

impl<'a> Steering<'a> {
    pub(super) fn new(nodes: &'a Arc<Nodes>, slot: u16) -> Self {
        Self {
            nodes,
            slot,
            failed: None,
            in_doubt: false,
            is_split: false,
            pause: FIRST_PAUSE,
            redirections: 0,
            tried_again: false,
        }
    }

    /// This node has not answered what it was asked.
    pub(super) fn failed(&mut self, node: Arc<Redis>, fault: Fault) {
        self.in_doubt |= fault.error.is_in_doubt();
        self.failed = Some((node, fault));
    }

    /// The node that has not answered, and why.
    pub(super) fn last(&self) -> Option<(&Arc<Redis>, &Fault)> {
        self.failed.as_ref().map(|(node, fault)| (node, fault))
    }

    /// The next node to ask. An error is the last one's, and the end.
    pub(super) async fn next(&mut self, deadline: &mut Deadline<'_>) -> Result<Arc<Redis>, Fault> {
        let Some((node, fault)) = self.failed.take() else {
            return match self.nodes.of_slot(self.slot) {
                Some(node) => Ok(node),
                None => self.first(deadline).await,
            };
        };
        let again_once = fault.is_transient() && !self.tried_again;
        if deadline.has_passed() || !fault.is_steered() && !again_once {
            return Err(fault.of_node(&node.address()).after(self.in_doubt));
        }
        self.tried_again |= !fault.is_steered();
        if let Some(redirect) = &fault.redirect {
            self.redirections += 1;
            if self.redirections > REDIRECTIONS {
                self.wait(&node, &fault, false, deadline).await?;
            }
            return self.nodes.follow(redirect, &node);
        }
        self.redirections = 0;
        self.is_split |= fault.is_split();
        self.wait(&node, &fault, !fault.is_split(), deadline)
            .await?;
        self.nodes
            .of_slot(self.slot)
            .ok_or_else(|| fault.of_node(&node.address()).after(self.in_doubt))
    }

    /// The node for the slot where none is known: at the start, or with a hole in the map.
    async fn first(&mut self, deadline: &mut Deadline<'_>) -> Result<Arc<Redis>, Fault> {
        let silent = StoreError::unreachable("no node of the cluster has answered in time");
        let mut why = Fault::last(silent);
        loop {
            let looked = self.look(deadline.left(), deadline).await;
            if let Some(node) = self.nodes.of_slot(self.slot) {
                return Ok(node);
            }
            match looked {
                // Nobody answers.
                Some(Err(fault)) => return Err(fault),
                Some(Ok(())) => {
                    why = Fault::last(StoreError::refused(format!(
                        "no node of the cluster is known to keep hash slot {}: look whether `CLUSTER SLOTS` \
                         names one, and by an address (`cluster-announce-ip`, \
                         `cluster-preferred-endpoint-type`)",
                        self.slot
                    )));
                }
                None => {}
            }
            if deadline.has_passed() {
                return Err(why);
            }
            self.sleep(deadline).await;
        }
    }

    /// Waits a little before the next attempt, and for a look at who keeps what where that may change.
    async fn wait(
        &mut self,
        node: &Arc<Redis>,
        fault: &Fault,
        looks: bool,
        deadline: &mut Deadline<'_>,
    ) -> Result<(), Fault> {
        let looked = if looks {
            self.look(LOOK, deadline).await
        } else {
            None
        };
        // Where nobody answers, nobody takes the place of anybody.
        let nobody_answers = matches!(looked, Some(Err(_)));
        if !nobody_answers {
            self.sleep(deadline).await;
        }
        if nobody_answers || deadline.has_passed() {
            let fault = fault.clone();
            return Err(fault.of_node(&node.address()).after(self.in_doubt));
        }
        Ok(())
    }

    async fn look(
        &self,
        within: Duration,
        deadline: &mut Deadline<'_>,
    ) -> Option<Result<(), Fault>> {
        let begun = Instant::now();
        let mut latest = self.nodes.refresh();
        let looked = latest.wait_for(Option::is_some);
        let looked = self
            .nodes
            .background
            .until(begun + within.min(deadline.left()), looked);
        let outcome = looked.await.ok().and_then(|looked| looked.ok()?.clone());
        deadline.spend(begun.elapsed());
        outcome
    }

    async fn sleep(&mut self, deadline: &mut Deadline<'_>) {
        let pause = jittered(self.pause).min(deadline.left());
        let begun = Instant::now();
        self.nodes.background.sleep_until(begun + pause).await;
        deadline.spend(begun.elapsed());
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

impl Nodes {
    /// The node that another one names.
    pub(super) fn follow(
        self: &Arc<Self>,
        redirect: &Redirect,
        from: &Arc<Redis>,
    ) -> Result<Arc<Redis>, Fault> {
        let unknown = || {
            let why = format!(
                "{} does not know the host of the node that keeps hash slot {}: have the nodes announce \
                 addresses (`cluster-announce-ip`, `cluster-preferred-endpoint-type`)",
                from.address(),
                redirect.slot
            );
            Fault::last(StoreError::refused(why))
        };
        let own = address_of(from);
        let named = own.and_then(|own| located(&redirect.host, redirect.port, &own));
        let named = named.ok_or_else(unknown)?;
        // The host of the node itself is one that was reached.
        let address = if redirect.host.is_empty() {
            named
        } else {
            self.mapped(named)
        };
        if redirect.ask {
            return Ok(Arc::new(self.at(&address).asking()));
        }
        let node = self.moved(redirect.slot, &address);
        // Where one slot has moved, others may have.
        drop(self.refresh());
        Ok(node)
    }
}
