//! What stands under the locks of this process.

use std::collections::BTreeMap;

use super::locks::{Holder, Locks, now};
use super::slots;
use crate::reply::KeptReply;
use crate::store::{Entry, EntryKind, Listed};

impl Locks {
    /// The locks of which something stands there or somebody waits, by key.
    pub(super) fn listed(&self, wanted: impl Fn(&str) -> bool) -> Vec<Listed> {
        let now = now();
        let mut locks = BTreeMap::new();
        for (name, stored) in self.entries.iter().filter(|(_, entry)| entry.until > now) {
            let (lock, slot) = slots::parts(name);
            if !wanted(lock) {
                continue;
            }
            let kind = match &stored.by {
                Holder::Owner(owner, since) if owner.starts_with(NOBODY) => EntryKind::Closed {
                    owner: owner.clone(),
                    since: Some(*since),
                },
                Holder::Owner(owner, since) | Holder::Elsewhere(owner, since) => EntryKind::Held {
                    owner: owner.clone(),
                    since: Some(*since),
                },
                Holder::Done(since, _) => EntryKind::Done { since: *since },
            };
            let remaining = stored.until.saturating_duration_since(now);
            let listed = locks.entry(lock).or_insert_with(|| none(lock));
            let reply = match &stored.by {
                Holder::Done(_, reply) => reply.as_ref().and_then(KeptReply::bytes),
                Holder::Owner(..) | Holder::Elsewhere(..) => None,
            };
            let entry = Entry::new(slot, kind, Some(remaining)).replied(reply);
            listed.entries.push(entry);
            let permits = listed.permits.max(Some(stored.permits));
            listed.permits = permits.filter(|permits| *permits > 1);
        }
        for waiter in &self.waiters {
            let mut names: Vec<_> = waiter.slots.names().iter().collect();
            names.dedup_by_key(|name| slots::parts(name).0);
            for lock in names.into_iter().map(|name| slots::parts(name).0) {
                if wanted(lock) {
                    locks.entry(lock).or_insert_with(|| none(lock)).waiters += 1;
                }
            }
        }
        let mut locks: Vec<_> = locks.into_values().collect();
        for listed in &mut locks {
            listed.entries.sort_by_key(|entry| entry.slot);
        }
        locks
    }
}

/// What stands before the origin of a lock that was left closed.
const NOBODY: &str = "00000000000000000000000000000000@";

fn none(lock: &str) -> Listed {
    Listed::new(lock, Vec::new(), 0)
}
