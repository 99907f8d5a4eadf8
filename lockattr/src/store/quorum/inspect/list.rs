//! The list of a quorum's locks: the lists of all nodes, gathered whole, and then what they come to.

use std::collections::BTreeMap;
use std::mem;

use super::super::Quorum;
use super::super::judged::{entries, shared};
use super::super::votes::{majority, unavailable};
use crate::error::StoreError;
use crate::runtime::together::all;
use crate::store::Reply;
use crate::store::inspect::{Listed, Listing, Page, Shown};

/// So many locks make a page.
const PAGE: usize = 64;

/// So many locks are looked at once more at the same time.
const AT_A_TIME: usize = 16;

/// The locks of a quorum.
pub(super) struct QuorumLocks<'a> {
    quorum: &'a Quorum,
    /// Of the nodes that have not told all, each with its address.
    listings: Vec<(String, Box<dyn Listing + 'a>)>,
    /// What the nodes have told of each lock.
    told: BTreeMap<String, Vec<Listed>>,
    /// The nodes that could not tell all.
    failed: Vec<(String, StoreError)>,
}

impl<'a> QuorumLocks<'a> {
    pub(super) fn new(quorum: &'a Quorum, prefix: &'a str, pattern: &'a str) -> Self {
        let nodes = quorum.inspected();
        Self {
            quorum,
            listings: nodes
                .map(|node| (node.part(), node.list(prefix, pattern)))
                .collect(),
            told: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// The next page of each node.
    async fn gather(&mut self, page: &mut Page) -> Result<(), StoreError> {
        let nexts = self.listings.iter_mut().map(|(_, listing)| listing.next());
        let pages = all(nexts.collect()).await;
        let listings = mem::take(&mut self.listings);
        for ((part, listing), told) in listings.into_iter().zip(pages) {
            match told {
                Ok(Some(told)) => {
                    page.missing.extend(told.missing);
                    for listed in told.locks {
                        self.told
                            .entry(listed.lock.clone())
                            .or_default()
                            .push(listed);
                    }
                    self.listings.push((part, listing));
                }
                Ok(None) => {}
                Err(error) => self.failed.push((part, error)),
            }
        }
        let nodes = self.quorum.nodes.len();
        if self.failed.len() > nodes - majority(nodes) {
            let errors: Vec<_> = self.failed.iter().map(|(_, error)| error).collect();
            return Err(unavailable(nodes, &errors));
        }
        if self.listings.is_empty() {
            for (part, error) in mem::take(&mut self.failed) {
                *page = mem::take(page).without(part, error);
            }
        }
        Ok(())
    }

    /// What has been told comes to. The nodes were read at different moments: where no majority was found to
    /// have the same, the lock is looked at once more.
    async fn judge(&mut self, page: &mut Page) -> Result<(), StoreError> {
        let mut again = Vec::new();
        while page.locks.len() + again.len() < PAGE && again.len() < AT_A_TIME {
            let Some((lock, told)) = self.told.pop_first() else {
                break;
            };
            let told: Vec<_> = told.iter().collect();
            let found = entries(&told, self.quorum.nodes.len());
            if found.is_empty() && told.iter().any(|listed| !listed.entries.is_empty()) {
                again.push(lock);
                continue;
            }
            let waiters = told.iter().map(|listed| listed.waiters).max();
            let is_shared = shared(&told, self.quorum.nodes.len());
            let listed = Listed::new(lock, found, waiters.unwrap_or(0));
            page.locks.push(listed.shared(is_shared));
        }
        let looks = again
            .iter()
            .map(|lock| Box::pin(self.quorum.shown(lock)) as Reply<'_, Shown>);
        for shown in all(looks.collect()).await {
            let listed = shown?.listed;
            if !listed.entries.is_empty() || listed.waiters > 0 {
                page.locks.push(listed);
            }
        }
        Ok(())
    }
}

impl Listing for QuorumLocks<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        Box::pin(async move {
            let mut page = Page::default();
            if !self.listings.is_empty() {
                self.gather(&mut page).await?;
            } else if self.told.is_empty() {
                return Ok(None);
            } else {
                self.judge(&mut page).await?;
            }
            Ok(Some(page))
        })
    }
}
