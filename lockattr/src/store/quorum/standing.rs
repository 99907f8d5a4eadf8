//! What a majority of the nodes has of a lock, for whoever asks without taking it.

use std::sync::Arc;
use std::time::SystemTime;

use super::Quorum;
use super::judged::{entries, shared};
use super::requests::{Request, Requests};
use super::votes::{grace, majority, unavailable};
use crate::error::StoreError;
use crate::store::{Acquired, EntryKind, Listed};

impl Quorum {
    pub(super) async fn standing(&self, lock: &str) -> Result<Listed, StoreError> {
        let nodes = self.nodes.len();
        let known = self.ask_status(lock, |known| {
            let free = known.iter().filter(|listed| listed.entries.is_empty());
            free.count() >= majority(nodes) || !judged(known, nodes).is_empty()
        });
        let known = known.await?;
        // Whoever waits stands in the queue of one node at least.
        let waiters = known.iter().map(|listed| listed.waiters).max();
        let listed = Listed::new(lock, judged(&known, nodes), waiters.unwrap_or(0));
        Ok(listed.shared(shared(&known.iter().collect::<Vec<_>>(), nodes)))
    }

    /// Asks all nodes at once, and waits for no more of them than it takes to know. One that lets wait for
    /// itself when a majority has answered is not waited for.
    pub(super) async fn ask_status(
        &self,
        lock: &str,
        is_enough: impl Fn(&[Listed]) -> bool,
    ) -> Result<Vec<Listed>, StoreError> {
        let nodes = self.nodes.len();
        let asked = self.nodes.iter().enumerate().map(|(index, node)| {
            let (node, lock) = (Arc::clone(node), lock.to_owned());
            let request = Request::new(|sent| async move {
                sent.now();
                node.store.status(&lock).await
            });
            (index, request)
        });
        let mut requests = Requests::new(asked);
        let (mut known, mut errors): (Vec<Listed>, Vec<StoreError>) = (Vec::new(), Vec::new());
        let begun = self.context.now();
        loop {
            let next = if known.len() >= majority(nodes) {
                let taken = self.context.now().saturating_duration_since(begun);
                let next = self.context.within(grace(taken), requests.next());
                next.await.unwrap_or(None)
            } else {
                requests.next().await
            };
            match next {
                Some((_, Ok(listed))) => known.push(listed),
                Some((_, Err(error))) => errors.push(error),
                None => break,
            }
            if is_enough(&known) {
                break;
            }
        }
        if known.len() < majority(nodes) {
            return Err(unavailable(nodes, &errors.iter().collect::<Vec<_>>()));
        }
        Ok(known)
    }

    /// Who holds one of a claim's locks, as a majority has it. What refuses a claim does not tell that of
    /// readers: each node names another of them.
    ///
    /// Of a reader that was refused by `named` alone: where readers hold the lock, and that is none of them, it is a
    /// vote that one left behind, or has on its way, and others may be granted the lock.
    pub(super) async fn held_by_majority(
        &self,
        lock: usize,
        key: &str,
        named: Option<&str>,
    ) -> Option<Acquired> {
        let nodes = self.nodes.len();
        let known = self.ask_status(key, |known| {
            named.is_none() && !judged(known, nodes).is_empty()
        });
        let known = known.await.ok()?;
        let is_shared = shared(&known.iter().collect::<Vec<_>>(), nodes);
        if let Some(named) = named.filter(|_| is_shared) {
            let readers = known.iter().filter(|listed| listed.shared);
            let mut readers = readers.flat_map(|listed| &listed.entries);
            readers.find(|entry| owner(&entry.kind).is_some_and(|(owner, _)| owner == named))?;
        }
        let judged = judged(&known, nodes);
        judged.iter().find_map(|entry| {
            let (owner, since) = owner(&entry.kind)?;
            let busy = Acquired::busy(lock, owner, entry.remaining.unwrap_or_default());
            Some(match since {
                Some(since) => busy.since(since),
                None => busy,
            })
        })
    }
}

/// Who holds it, or has left it closed, and since when.
fn owner(kind: &EntryKind) -> Option<(&str, Option<SystemTime>)> {
    match kind {
        EntryKind::Held { owner, since } | EntryKind::Closed { owner, since } => {
            Some((owner, *since))
        }
        EntryKind::Done { .. } | EntryKind::Foreign { .. } => None,
    }
}

fn judged(known: &[Listed], nodes: usize) -> Vec<crate::store::Entry> {
    entries(&known.iter().collect::<Vec<_>>(), nodes)
}
