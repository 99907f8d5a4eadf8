//! What locks in etcd look like to people, and how they are ended.
//!
//! The keys of a lock stand in three places ([`super::wire`]), so all keys that are asked for are gathered
//! first, some at a time, and a lock is listed once. How long each stands there is its lease's to say, which are asked
//! for a page of locks at a time. A pattern narrows what is read by what stands before its first star.
//!
//! # Rights
//! Those of a client.

use std::time::{Duration, SystemTime};

use super::Etcd;
use super::acquire::delete;
use super::fault::Fault;
use super::proto::{KeyValue, Txn};
use super::wire::{self, Stored};
use crate::error::StoreError;
use crate::store::inspect::{
    Ended, Entry, EntryKind, Finding, Inspect, Listed, Listing, Shown, Waiter,
};
use crate::store::{Reply, Sharing};

mod doctor;
mod list;
mod proto;
mod ranges;

use list::GatheredLocks;

/// So many of those who wait are shown.
const MOST_SHOWN: usize = 1000;

/// How often what has changed in between is looked at again.
const TRIES: usize = 5;

/// How far two readings of since when a lock is closed may be apart: leases tell whole seconds.
const ABOUT: Duration = Duration::from_secs(2);

impl Inspect for Etcd {
    fn part(&self) -> String {
        let members = self.0.members.each();
        let names: Vec<_> = members.into_iter().map(|member| member.name).collect();
        names.join(",")
    }

    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a> {
        Box::new(GatheredLocks::new(self, prefix, pattern))
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        Box::pin(async move { self.shown(lock).await.map_err(Fault::told) })
    }

    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        Box::pin(async move { self.ended(lock, entry).await.map_err(Fault::told) })
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        Box::pin(async move { self.diagnosed().await.map_err(Fault::told) })
    }
}

impl Etcd {
    async fn shown(&self, lock: &str) -> Result<Shown, Fault> {
        let keys = self.keys(lock).await?;
        let waiting = keys
            .waiting()
            .filter_map(|place| match Stored::read(place) {
                Stored::Claimed { owner, ttl, .. } => {
                    let since = crate::owner::since(owner);
                    Some(Waiter::new(owner, since, Some(ttl)))
                }
                _ => None,
            });
        let queue = waiting.take(MOST_SHOWN).collect();
        let listed = self.listed(lock, &keys).await?;
        let listed = listed.unwrap_or_else(|| Listed::new(lock, Vec::new(), 0));
        Ok(Shown::new(listed, queue))
    }

    /// Deletes what was shown, with the holder's place in the queue, which the next one waits for; as it was found,
    /// so that nothing else is deleted.
    async fn ended(&self, lock: &str, entry: &Entry) -> Result<Ended, Fault> {
        if matches!(entry.kind, EntryKind::Foreign { .. }) {
            return Err(Fault::last(StoreError::invalid(
                "what is not a lock's is not ended: delete it by its key",
            )));
        }
        let names = &self.0.names;
        let mut may_be_done = false;
        for _ in 0..TRIES {
            let (mut shown, mut others) = (None, false);
            let holders = self.keys(lock).await?.holders.into_iter();
            for kv in holders.filter(|kv| Stored::read(kv).slot() == entry.slot) {
                let may_be_it = may_be(&kv, &entry.kind);
                let found = if may_be_it {
                    self.entry(&kv).await?
                } else {
                    None
                };
                if found.is_some_and(|found| is_same(&found.kind, &entry.kind)) {
                    shown = Some(kv);
                    break;
                }
                // Other readers were beside it.
                others |= Stored::read(&kv).sharing() != Some(Sharing::Readers);
            }
            let Some(kv) = shown else {
                return Ok(match (may_be_done, others) {
                    (true, _) => Ended::Ended,
                    (false, true) => Ended::Changed,
                    (false, false) => Ended::Gone,
                });
            };
            let place = match &entry.kind {
                EntryKind::Held { owner, .. } => Some(names.place(lock, owner)),
                _ => None,
            };
            let deleted = [Some(kv.key.clone()), place];
            let answer = self.ask_once(Txn {
                compare: vec![wire::was_written_at(&kv.key, kv.mod_revision)],
                success: deleted.into_iter().flatten().map(delete).collect(),
                failure: Vec::new(),
            });
            let answer = answer.await?;
            if answer.message.succeeded {
                return Ok(Ended::Ended);
            }
            may_be_done |= answer.in_doubt;
        }
        Err(Fault::last(StoreError::refused(
            "the lock changes faster than it can be ended; ask again",
        )))
    }
}

/// Whether a key may be what was shown, whose lease says more of it.
fn may_be(kv: &KeyValue, shown: &EntryKind) -> bool {
    match shown {
        EntryKind::Held { owner, .. } | EntryKind::Closed { owner, .. } => {
            Stored::read(kv).is_by(owner)
        }
        _ => true,
    }
}

/// Whether an entry is the one that was shown.
fn is_same(found: &EntryKind, shown: &EntryKind) -> bool {
    let about = |one: &SystemTime, other: &SystemTime| {
        let apart = one
            .duration_since(*other)
            .or_else(|_| other.duration_since(*one));
        apart.is_ok_and(|apart| apart <= ABOUT)
    };
    match (found, shown) {
        (EntryKind::Held { owner, .. }, EntryKind::Held { owner: shown, .. }) => owner == shown,
        (
            EntryKind::Closed {
                owner,
                since: Some(since),
            },
            EntryKind::Closed {
                owner: shown,
                since: Some(at),
            },
        ) => owner == shown && about(since, at),
        (found, shown) => found == shown,
    }
}
