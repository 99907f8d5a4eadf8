//! The list of a cluster's locks.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::super::Cluster;
use super::super::slots::slot_of;
use super::claims::SlotClaims;
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all};
use crate::store::Reply;
use crate::store::inspect::{Listing, Page};
use crate::store::redis::Redis;
use crate::store::redis::fault::Fault;
use crate::store::redis::inspect::{Filter, MetLocks, Reading, Scan, with_rights};

/// How often nodes are scanned that hash slots went to meanwhile, the first time included.
const MOST_ROUNDS: u32 = 4;

/// The locks of a cluster.
pub(super) struct ClusterLocks<'a> {
    cluster: &'a Cluster,
    filter: Filter<'a>,
    met: MetLocks,
    state: ListState,
    rounds: u32,
    /// Who kept what when the latest round of scans began.
    claims: SlotClaims,
    /// The nodes whose scan has failed.
    failed: BTreeMap<String, Fault>,
    is_any_answered: bool,
}

enum ListState {
    Begun,
    Scanning(Vec<(Arc<Redis>, Scan)>),
    Reading,
}

impl<'a> ClusterLocks<'a> {
    pub(super) fn new(cluster: &'a Cluster, filter: Filter<'a>) -> Self {
        Self {
            cluster,
            filter,
            met: MetLocks::new(),
            state: ListState::Begun,
            rounds: 0,
            claims: SlotClaims::default(),
            failed: BTreeMap::new(),
            is_any_answered: false,
        }
    }

    /// Goes on with all scans for as long as a page may take.
    async fn scan(&mut self, scans: Vec<(Arc<Redis>, Scan)>) -> Vec<(Arc<Redis>, Scan)> {
        let filter = &self.filter;
        let going_on = scans.into_iter().map(|(node, mut scan)| {
            Box::pin(async move {
                let mut met = MetLocks::new();
                let stepped = scan.go_on(&node, filter, &mut met).await;
                (node, scan, met, stepped)
            }) as Boxed<'_, (Arc<Redis>, Scan, MetLocks, Result<(), Fault>)>
        });
        let mut left = Vec::new();
        for (node, scan, met, stepped) in all(going_on.collect()).await {
            self.met.extend(met);
            match stepped {
                Err(fault) => {
                    self.failed.insert(node.address(), fault);
                }
                Ok(()) if scan.is_over() => self.is_any_answered = true,
                Ok(()) => left.push((node, scan)),
            }
        }
        left
    }

    /// Looks who keeps what once the scans are over: what is to be scanned again.
    async fn settle(&mut self, page: &mut Page) -> Result<ListState, Fault> {
        let now = self.cluster.slot_claims().await?;
        let mut gained = now.gained_since(&self.claims, self.rounds > 1);
        self.claims = now;
        let SlotClaims { nodes, silent } = &self.claims;
        if self.rounds < MOST_ROUNDS {
            // It answers again.
            let failed = self
                .failed
                .keys()
                .filter(|address| nodes.contains_key(*address));
            gained.extend(failed.cloned());
            self.failed
                .retain(|address, _| !nodes.contains_key(address));
        }
        // Whatever a node had that is gone, another keeps now.
        let is_there =
            |address: &String| nodes.contains_key(address) || silent.contains_key(address);
        self.failed.retain(|address, _| is_there(address));
        if gained.is_empty() {
            return Ok(ListState::Reading);
        }
        if self.rounds == MOST_ROUNDS {
            for address in gained {
                let why = "hash slots went there in each of several looks, so that some of its locks may be \
                           missing: list them again";
                *page = mem::take(page).without(address, StoreError::refused(why));
            }
            return Ok(ListState::Reading);
        }
        self.rounds += 1;
        Ok(self.scans_of(|address| gained.contains(address)))
    }

    fn scans_of(&self, is_wanted: impl Fn(&str) -> bool) -> ListState {
        let nodes = self.claims.nodes.iter();
        let wanted = nodes.filter(|(address, _)| is_wanted(address));
        let scans = wanted.map(|(_, (node, _))| (Arc::clone(node), Scan::new(&self.filter)));
        ListState::Scanning(scans.collect())
    }

    /// Tells which nodes have not answered; an error where none has.
    fn tell_missing(&mut self, page: &mut Page) -> Result<(), StoreError> {
        let silent = mem::take(&mut self.claims.silent);
        let mut failed = mem::take(&mut self.failed);
        failed.extend(silent);
        let told = |fault: Fault| with_rights(fault).error;
        if !self.is_any_answered
            && let Some((address, fault)) = failed.pop_first()
        {
            return Err(told(fault.of_node(&address)));
        }
        for (address, fault) in failed {
            *page = mem::take(page).without(address, told(fault));
        }
        if !self.cluster.nodes.are_all_kept() {
            let why = "no node keeps some of the hash slots: look at `CLUSTER SLOTS`";
            *page = mem::take(page).without("hash slots", StoreError::refused(why));
        }
        Ok(())
    }

    /// Reads some of the locks that were met.
    async fn read(&mut self, page: &mut Page) {
        let cluster = self.cluster;
        let read = Reading::some(cluster, &cluster.names, &mut self.met).await;
        page.locks = read.locks;
        let Some((lock, error)) = read.failed else {
            return;
        };
        let keeper = |lock: &str| {
            let node = cluster.nodes.of_slot(slot_of(lock));
            node.map(|node| node.address())
        };
        // The others there would each take as long to fail.
        let failed = keeper(&lock);
        self.met
            .retain(|other| *other != lock && keeper(other) != failed);
        let part = failed.unwrap_or_else(|| format!("hash slot {}", slot_of(&lock)));
        *page = mem::take(page).without(part, error);
    }

    async fn next_page(&mut self) -> Result<Option<Page>, StoreError> {
        let mut page = Page::default();
        let told = |fault: Fault| with_rights(fault).error;
        match mem::replace(&mut self.state, ListState::Begun) {
            ListState::Begun => {
                self.claims = self.cluster.slot_claims().await.map_err(told)?;
                self.rounds = 1;
                self.state = self.scans_of(|_| true);
            }
            ListState::Scanning(scans) => {
                let left = self.scan(scans).await;
                if left.is_empty() {
                    self.state = self.settle(&mut page).await.map_err(told)?;
                    if matches!(self.state, ListState::Reading) {
                        self.tell_missing(&mut page)?;
                    }
                } else {
                    self.state = ListState::Scanning(left);
                }
            }
            ListState::Reading => {
                self.state = ListState::Reading;
                if self.met.is_empty() {
                    return Ok(None);
                }
                self.read(&mut page).await;
            }
        }
        Ok(Some(page))
    }
}

impl Listing for ClusterLocks<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        Box::pin(self.next_page())
    }
}
