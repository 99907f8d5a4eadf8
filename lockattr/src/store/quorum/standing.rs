//! What a majority of the nodes has of a lock, for whoever asks without taking it.

use std::sync::Arc;

use super::Quorum;
use super::judged::entries;
use super::requests::{Request, Requests};
use super::votes::{majority, unavailable};
use crate::error::StoreError;
use crate::store::Listed;

impl Quorum {
    /// Asks all nodes at once, and waits for no more of them than it takes to know.
    pub(super) async fn standing(&self, lock: &str) -> Result<Listed, StoreError> {
        let nodes = self.nodes.len();
        let asked = self.nodes.iter().enumerate().map(|(index, node)| {
            let (node, lock) = (Arc::clone(node), lock.to_owned());
            let request = Request::new(|sent| async move {
                sent.now();
                // A lock of a quorum has one holder at a time.
                node.store.status(&lock).await
            });
            (index, request)
        });
        let mut requests = Requests::new(asked);
        let (mut known, mut errors): (Vec<Listed>, Vec<StoreError>) = (Vec::new(), Vec::new());
        while let Some((_, answer)) = requests.next().await {
            match answer {
                Ok(listed) => known.push(listed),
                Err(error) => errors.push(error),
            }
            let free = known.iter().filter(|listed| listed.entries.is_empty());
            if free.count() >= majority(nodes) || !judged(&known, nodes).is_empty() {
                break;
            }
        }
        if known.len() < majority(nodes) {
            return Err(unavailable(nodes, &errors.iter().collect::<Vec<_>>()));
        }
        // Whoever waits stands in the queue of one node at least.
        let waiters = known.iter().map(|listed| listed.waiters).max();
        let entries = judged(&known, nodes);
        Ok(Listed::new(lock, entries, waiters.unwrap_or(0)))
    }
}

fn judged(known: &[Listed], nodes: usize) -> Vec<crate::store::Entry> {
    entries(&known.iter().collect::<Vec<_>>(), nodes)
}
