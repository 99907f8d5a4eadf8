//! What stands under the locks of this process.

use std::collections::BTreeMap;

use super::locks::{Holder, Locks, Stored, now};
use crate::reply::KeptReply;
use crate::store::{Entry, EntryKind, Listed, Sharing};

impl Locks {
    /// The locks of which something stands there or somebody waits, by key.
    pub(super) fn listed(&self, wanted: impl Fn(&str) -> bool) -> Vec<Listed> {
        let now = now();
        let mut locks = BTreeMap::new();
        for (lock, stored) in &self.entries {
            let stored = stored.iter().filter(|entry| entry.until > now);
            for stored in stored.filter(|_| wanted(lock)) {
                let listed = locks.entry(lock.as_str()).or_insert_with(|| none(lock));
                listed.entries.push(shown(stored));
                match stored.sharing {
                    Sharing::Alone => {}
                    Sharing::Readers => listed.shared = true,
                    Sharing::Permits { permits, .. } => {
                        listed.permits = listed.permits.max(Some(permits));
                    }
                }
            }
        }
        for waiter in &self.waiters {
            for lock in waiter.locks.iter().filter(|lock| wanted(lock)) {
                locks.entry(lock).or_insert_with(|| none(lock)).waiters += 1;
            }
        }
        let mut locks: Vec<_> = locks.into_values().collect();
        for listed in &mut locks {
            listed.entries.sort_by_key(|entry| entry.slot);
        }
        locks
    }
}

/// What people are shown of it.
pub(super) fn shown(stored: &Stored) -> Entry {
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
    let reply = match &stored.by {
        Holder::Done(_, reply) => reply.as_ref().and_then(KeptReply::bytes),
        Holder::Owner(..) | Holder::Elsewhere(..) => None,
    };
    let remaining = stored.until.saturating_duration_since(now());
    Entry::new(stored.slot, kind, Some(remaining))
        .replied(reply)
        .weight(stored.sharing.weight())
}

/// What stands before the origin of a lock that was left closed.
const NOBODY: &str = "00000000000000000000000000000000@";

fn none(lock: &str) -> Listed {
    Listed::new(lock, Vec::new(), 0)
}
