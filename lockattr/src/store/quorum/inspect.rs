//! What the locks of a quorum look like to people, and how they are ended.
//!
//! A lock is held by whoever a majority of all nodes names. What fewer nodes have is the rest of a vote that
//! was split, or of a lease that has ended: it keeps nobody out by itself, so a list does not have it, and
//! `show` tells it as what each node has. Nodes that do not answer are missing, and a list needs a majority.

use super::Quorum;
use super::judged::{entries, is_same, shared};
use super::votes::{majority, unavailable};
use crate::error::StoreError;
use crate::runtime::together::all;
use crate::store::inspect::{
    Ended, Entry, EntryKind, Finding, Inspect, Listed, Listing, Part, Severity, Shown, Waiter,
};
use crate::store::{Reply, Store};

mod list;

use list::QuorumLocks;

impl Quorum {
    /// Each node as what can be looked into.
    fn inspected(&self) -> impl Iterator<Item = &dyn Inspect> {
        self.nodes.iter().filter_map(|node| node.store.inspect())
    }

    /// Asks all nodes at the same time: the address of each, and its answer.
    async fn ask_each<'a, T: 'a>(
        &'a self,
        ask: impl Fn(&'a dyn Inspect) -> Reply<'a, T>,
    ) -> Vec<(String, Result<T, StoreError>)> {
        let asks = self.inspected().map(&ask);
        let answers = all(asks.collect()).await;
        self.inspected().map(Inspect::part).zip(answers).collect()
    }

    /// What all nodes have of a lock; an error where none of them answers.
    async fn shown(&self, lock: &str) -> Result<Shown, StoreError> {
        let answers = self.ask_each(|node| node.show(lock)).await;
        if answers.iter().all(|(_, answer)| answer.is_err()) {
            return Err(self.unavailable(answers.into_iter().map(|(_, answer)| answer)));
        }
        let known = || {
            answers
                .iter()
                .filter_map(|(_, answer)| answer.as_ref().ok())
        };
        let listed: Vec<_> = known().map(|shown| &shown.listed).collect();
        let entries = entries(&listed, self.nodes.len());
        let is_shared = shared(&listed, self.nodes.len());
        let queue = queue(known().map(|shown| shown.queue.as_slice()));
        let waiters = u64::try_from(queue.len()).unwrap_or(u64::MAX);
        let listed = Listed::new(lock, entries, waiters);
        let listed = listed.shared(is_shared);
        let parts = answers.into_iter().map(|(part, answer)| {
            let entries = answer.map(|shown| shown.listed.entries);
            Part::new(part, entries)
        });
        Ok(Shown::new(listed, queue).on(parts.collect()))
    }

    /// Ends what one node has of an entry.
    async fn end_at(node: &dyn Inspect, lock: &str, entry: &Entry) -> Result<Ended, StoreError> {
        if matches!(entry.kind, EntryKind::Held { .. }) {
            return node.end(lock, entry).await;
        }
        // By the clock of each node it stands there since another moment.
        let shown = node.show(lock).await?;
        let found = &shown.listed.entries;
        match found.iter().find(|own| is_same(&own.kind, &entry.kind)) {
            Some(own) if !is_later(&own.kind, &entry.kind) => node.end(lock, own).await,
            // Other readers have not taken its place.
            None if found.is_empty() || shown.listed.shared => Ok(Ended::Gone),
            _ => Ok(Ended::Changed),
        }
    }

    fn unavailable<T>(&self, answers: impl Iterator<Item = Result<T, StoreError>>) -> StoreError {
        let errors: Vec<_> = answers.filter_map(Result::err).collect();
        let errors: Vec<_> = errors.iter().collect();
        unavailable(self.nodes.len(), &errors)
    }
}

impl Inspect for Quorum {
    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a> {
        Box::new(QuorumLocks::new(self, prefix, pattern))
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        Box::pin(self.shown(lock))
    }

    /// Asks every node: what a majority answers is the answer.
    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        Box::pin(async move {
            let ends = self
                .inspected()
                .map(|node| Box::pin(Self::end_at(node, lock, entry)) as Reply<'_, Ended>);
            let answers = all(ends.collect()).await;
            let count = |what| {
                answers
                    .iter()
                    .flatten()
                    .filter(|ended| **ended == what)
                    .count()
            };
            let needed = majority(self.nodes.len());
            for what in [Ended::Ended, Ended::Gone, Ended::Changed] {
                if count(what) >= needed {
                    return Ok(what);
                }
            }
            if answers.iter().flatten().count() >= needed {
                // It was nobody's any more.
                return Ok(Ended::Changed);
            }
            let is_ended = count(Ended::Ended) > 0;
            let error = self.unavailable(answers.into_iter());
            Err(if is_ended {
                StoreError::in_doubt(error.to_string())
            } else {
                error
            })
        })
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        Box::pin(async move {
            let answers = self.ask_each(Inspect::diagnose).await;
            let nodes = answers.len();
            let away = answers.iter().filter(|(_, answer)| answer.is_err()).count();
            if away == nodes {
                return Err(self.unavailable(answers.into_iter().map(|(_, answer)| answer)));
            }
            let mut findings = vec![votes_to_be_had(nodes, away)];
            for (part, answer) in answers {
                match answer {
                    Ok(of_node) => findings.extend(of_node),
                    Err(error) => findings.push(Finding::new(
                        part,
                        "server",
                        Severity::Fault,
                        error.to_string(),
                        "its vote is missing until it answers again",
                    )),
                }
            }
            Ok(findings)
        })
    }
}

/// How many nodes may fail yet.
fn votes_to_be_had(nodes: usize, away: usize) -> Finding {
    let (answer, needed) = (nodes - away, majority(nodes));
    let found = format!("{answer} of {nodes} nodes answer, and {needed} are needed");
    let (severity, advice) = if answer < needed {
        (
            Severity::Fault,
            "no lock is granted or renewed before more nodes answer",
        )
    } else if answer == needed {
        (
            Severity::Warning,
            "the next node that fails stops all locks: have the others answer again",
        )
    } else if nodes.is_multiple_of(2) {
        (
            Severity::Advice,
            "an even number survives no more failures than one node less: add a node or take one away",
        )
    } else {
        (Severity::Good, "")
    };
    Finding::new("", "quorum", severity, found, advice)
}

/// Whether a mark, or a closed time, was left after the other.
fn is_later(own: &EntryKind, shown: &EntryKind) -> bool {
    let since = |kind: &EntryKind| match kind {
        EntryKind::Done { since } => Some(*since),
        EntryKind::Closed { since, .. } => *since,
        _ => None,
    };
    since(own) > since(shown)
}

/// Those who wait at any node, in the order in which they have asked.
fn queue<'a>(queues: impl Iterator<Item = &'a [Waiter]>) -> Vec<Waiter> {
    let mut all: Vec<Waiter> = Vec::new();
    for waiting in queues.flatten() {
        if all.iter().all(|known| known.owner != waiting.owner) {
            all.push(waiting.clone());
        }
    }
    all.sort_by_key(|waiting| waiting.since);
    all
}
