//! What the locks of an ensemble look like to people, and how they are ended.
//!
//! The names of all locks are read at once, which is the only way that there is, and then what each of them is,
//! some at a time. Of a lock with one holder it is not stored when its holder has come to the head of the queue:
//! it is told since when it has stood there. What remains of a hold is its ttl: the servers know that its session
//! lives, and not what its client has told of it.
//!
//! # Rights
//! `r` on the node of the URL and below; to know what remains of marks, `c` and `d` on that node as well, since the
//! leader tells its time by what is made: without them it is counted by this machine's clock. To end something
//! needs `d` on the lock's node.

use std::time::SystemTime;

use super::ZooKeeper;
use super::fault::Failure;
use super::listing::server_time;
use super::names;
use super::protocol::{Code, Request, children};
use super::standing::{Read, read, read_now};
use super::step::Step;
use crate::error::StoreError;
use crate::owner;
use crate::store::inspect::Listing as Pages;
use crate::store::inspect::{
    Ended, Entry, EntryKind, Finding, Inspect, Listed, Page, Shown, Waiter, matches,
};
use crate::store::{Reply, Sharing};

mod doctor;
mod leader;

use leader::LeadersClock;

/// So many of those who wait are shown.
const MOST_SHOWN: usize = 1000;

/// So many locks are read at the same time, and make a page: a server takes 1,000 requests at a time from all.
const AT_A_TIME: usize = 200;

impl Inspect for ZooKeeper {
    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Pages + 'a> {
        Box::new(ReadLocks {
            store: self,
            prefix,
            pattern,
            left: None,
            clock: LeadersClock::default(),
        })
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        Box::pin(async move { Ok(self.show_now(&self.step(), lock).await?) })
    }

    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        Box::pin(self.end_shown(lock, entry))
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        Box::pin(self.diagnosed())
    }
}

/// All locks that are asked for, some at a time.
struct ReadLocks<'a> {
    store: &'a ZooKeeper,
    prefix: &'a str,
    pattern: &'a str,
    /// Those that are not listed yet; `None` before the first page.
    left: Option<Vec<String>>,
    clock: LeadersClock,
}

impl Pages for ReadLocks<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        Box::pin(async move {
            let step = self.store.step();
            let left = match &mut self.left {
                Some(left) => left,
                left => {
                    let wanted = |lock: &String| {
                        let key = lock.strip_prefix(self.prefix);
                        key.is_some_and(|key| matches(self.pattern, key))
                    };
                    let locks = locks(&step).await?;
                    left.insert(locks.into_iter().filter(wanted).collect())
                }
            };
            if left.is_empty() {
                return Ok(None);
            }
            let from = left.len().saturating_sub(AT_A_TIME);
            // Where that fails, the next page tries them again.
            let read = read(&step, &left[from..], &mut self.clock).await?;
            left.truncate(from);
            let locks = read.into_iter().map(|read| read.listed);
            let is_lock = |listed: &Listed| !listed.entries.is_empty() || listed.waiters > 0;
            Ok(Some(Page::new(locks.filter(is_lock).collect())))
        })
    }
}

impl ZooKeeper {
    async fn show_now(&self, step: &Step<'_>, lock: &str) -> Result<Shown, Failure> {
        let read = read_now(step, lock, &mut LeadersClock::default()).await?;
        Ok(shown(read))
    }

    async fn end_shown(&self, lock: &str, entry: &Entry) -> Result<Ended, StoreError> {
        let step = self.step();
        let ended = match &entry.kind {
            EntryKind::Foreign { .. } => {
                return Err(StoreError::invalid(
                    "what is not a lock's is not ended: delete its node",
                ));
            }
            EntryKind::Held { owner, .. } => end_hold(&step, lock, owner, entry.slot).await?,
            EntryKind::Closed { since, .. } => {
                end_mark(&step, lock, (false, entry.slot), *since).await?
            }
            EntryKind::Done { since } => {
                end_mark(&step, lock, (true, entry.slot), Some(*since)).await?
            }
        };
        if ended {
            return Ok(Ended::Ended);
        }
        let shown = self.show_now(&step, lock).await?;
        let mut entries = shown.listed.entries.iter();
        Ok(if entries.any(|other| other.slot == entry.slot) {
            Ended::Changed
        } else {
            Ended::Gone
        })
    }
}

/// Deletes the place of a holder, whose name nobody else ever has, and its slot in the same step. Says whether
/// it was there.
async fn end_hold(
    step: &Step<'_>,
    lock: &str,
    owner: &str,
    slot: usize,
) -> Result<bool, StoreError> {
    let node = step.lock_node(lock);
    let synced = step.send(Request::sync());
    let listing = step.list(lock).await?;
    synced.answer().await?;
    let of_owner = |place: &&names::Place| place.owner == owner;
    let Some(place) = listing.places.iter().find(of_owner) else {
        return Ok(false);
    };
    let place_node = format!("{node}/{}", place.name);
    if !matches!(place.sharing, Sharing::Permits { .. }) {
        return Ok(step.delete(&place_node).await?);
    }
    let slot_node = step.slot_node(lock, slot);
    match step.get(&slot_node, false).await? {
        Some((holder, _)) if holder == place.name => {}
        _ => return Ok(false),
    }
    let requests = [Request::delete(&place_node), Request::delete(&slot_node)];
    match step.together(&requests).await? {
        Ok(()) => Ok(true),
        Err((_, Code::NO_NODE)) => Ok(false),
        Err((_, code)) => Err(Failure::Refused(code, "delete nodes").into()),
    }
}

/// Deletes the mark of this kind and slot that was left at that moment. Says whether there was one.
async fn end_mark(
    step: &Step<'_>,
    lock: &str,
    (is_done, slot): (bool, usize),
    since: Option<SystemTime>,
) -> Result<bool, StoreError> {
    let synced = step.send(Request::sync());
    let listing = step.list(lock).await?;
    synced.answer().await?;
    let node = step.lock_node(lock);
    for mark in listing.marks {
        if (mark.is_done, mark.slot) != (is_done, slot) {
            continue;
        }
        let mark = format!("{node}/{}", mark.name);
        let stored = step.get(&mark, false).await?;
        if stored.is_some_and(|(_, stat)| Some(server_time(stat.mtime)) == since) {
            return Ok(step.delete(&mark).await?);
        }
    }
    Ok(false)
}

/// The names of all locks. What else is below the root is none.
async fn locks(step: &Step<'_>) -> Result<Vec<String>, Failure> {
    let root = if step.root.is_empty() { "/" } else { step.root };
    let synced = step.send(Request::sync());
    let nodes = match step.ask(Request::list(root, false)).await {
        Ok(answer) => children(&answer.body)?,
        Err(Failure::Refused(Code::NO_NODE, _)) => Vec::new(),
        Err(failure) => return Err(failure),
    };
    synced.answer().await?;
    Ok(nodes.iter().filter_map(|node| names::lock(node)).collect())
}

fn shown(read: Read) -> Shown {
    let queue = read.queue.into_iter().take(MOST_SHOWN);
    let queue = queue.map(|(owner, ttl)| {
        let since = owner::since(&owner);
        Waiter::new(owner, since, Some(ttl))
    });
    Shown::new(read.listed, queue.collect())
}
