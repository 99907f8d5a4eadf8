//! The check of every node that keeps hash slots, when a client connects.

use std::time::Instant;

use super::Cluster;
use super::slots::slot_of;
use super::steering::Steering;
use crate::runtime::together::{Boxed, all};
use crate::store::Claim;
use crate::store::redis::fault::Fault;
use crate::store::redis::names::lock;

/// So many names are tried at most to find one for each node: enough to hit upon a node with one slot.
const MOST_NAMES: usize = 500_000;

/// What is said of a node that was named by a port without TLS, and what to do then.
const PLAIN: &str = "answers without TLS";
const PLAIN_ADVICE: &str =
    " (the nodes of a cluster name their TLS ports where they have `tls-cluster yes`)";

impl Cluster {
    /// Checks each node on a lock that it keeps.
    pub(super) async fn check_nodes(&self, claim: Claim<'_>) -> Result<(), Fault> {
        let mut deadline = self.long_deadline();
        let slot = slot_of(lock(&claim));
        let mut steering = Steering::new(&self.nodes, slot);
        loop {
            drop(steering.next(&mut deadline).await?);
            let locks = self.one_for_each_node(lock(&claim));
            let checks = locks.iter().map(|name| {
                Box::pin(async move {
                    let names = std::slice::from_ref(name);
                    let node = self.nodes.of_slot(slot_of(name));
                    let own = Claim {
                        locks: names,
                        ..claim
                    };
                    match node {
                        Some(node) => {
                            let checked = node.check_server(own).await;
                            checked.map_err(|fault| (node, fault.advised(PLAIN, PLAIN_ADVICE)))
                        }
                        None => Ok(()),
                    }
                }) as Boxed<'_, _>
            });
            let begun = Instant::now();
            let checked: Result<(), _> = all(checks.collect()).await.into_iter().collect();
            deadline.spend(begun.elapsed());
            match checked {
                Ok(()) => return Ok(()),
                // Something is moving, or being replaced: all is looked at anew.
                Err((node, fault)) => steering.failed(node, fault),
            }
        }
    }

    /// Names of locks that begin like this one: one for each node that keeps slots.
    pub(super) fn one_for_each_node(&self, name: &str) -> Vec<String> {
        let mut missing = self.nodes.primaries();
        let mut found = Vec::with_capacity(missing.len());
        for count in 0..MOST_NAMES {
            if missing.is_empty() {
                break;
            }
            let name = format!("{name}:{count}");
            let keeper = self.nodes.of_slot(slot_of(&name));
            let at = keeper.and_then(|keeper| missing.iter().position(|node| node.is(&keeper)));
            if let Some(at) = at {
                missing.swap_remove(at);
                found.push(name);
            }
        }
        found
    }
}
