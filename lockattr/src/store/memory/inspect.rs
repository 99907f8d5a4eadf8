//! What the locks of this process look like to people.

use std::collections::BTreeMap;
use std::mem;

use super::locks::{Holder, Locks, Stored, now};
use super::{Memory, MemoryState};
use crate::owner;
use crate::store::inspect::{
    Ended, Entry, EntryKind, Finding, Inspect, Listed, Listing, Page, Severity, Shown, Waiter,
    matches,
};
use crate::store::{Reply, Sharing};

impl Inspect for Memory {
    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a> {
        Box::new(Whole {
            memory: self,
            prefix,
            pattern,
            told: false,
        })
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        self.step(move |state| {
            let locks = state.locks.listed(|name| name == lock);
            let listed = locks.into_iter().next();
            let listed = listed.unwrap_or_else(|| Listed::new(lock, Vec::new(), 0));
            let waiters = state.locks.waiters.iter();
            let queue = waiters
                .filter(|waiter| waiter.locks.iter().any(|name| name == lock))
                .map(|waiter| {
                    let since = owner::since(&waiter.owner);
                    Waiter::new(&waiter.owner, since, Some(waiter.ttl))
                });
            Ok(Shown::new(listed, queue.collect()))
        })
    }

    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        self.step(move |state| {
            let live = |state: &mut MemoryState| state.locks.live(lock).to_vec();
            let found: Vec<_> = live(state).iter().map(shown).collect();
            if found.iter().any(|found| found.kind == entry.kind) {
                state
                    .locks
                    .end(lock, |stored| shown(stored).kind == entry.kind);
                return Ok(Ended::Ended);
            }
            let stands = found.iter().any(|found| found.slot == entry.slot);
            let ended = if stands { Ended::Changed } else { Ended::Gone };
            Ok(ended)
        })
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        self.step(|_| {
            Ok(vec![Finding::new(
                "",
                "store",
                Severity::Warning,
                "the locks are kept in this process",
                "they exclude no other process: use a server where there are several",
            )])
        })
    }
}

/// All there is, as one page.
struct Whole<'a> {
    memory: &'a Memory,
    prefix: &'a str,
    pattern: &'a str,
    told: bool,
}

impl Listing for Whole<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        if mem::replace(&mut self.told, true) {
            return Box::pin(async { Ok(None) });
        }
        let (prefix, pattern) = (self.prefix, self.pattern);
        let wanted = move |lock: &str| {
            let key = lock.strip_prefix(prefix);
            key.is_some_and(|key| matches(pattern, key))
        };
        self.memory
            .step(move |state| Ok(Some(Page::new(state.locks.listed(wanted)))))
    }
}

impl Locks {
    /// The locks of which something stands there or somebody waits, by key.
    fn listed(&self, wanted: impl Fn(&str) -> bool) -> Vec<Listed> {
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
fn shown(stored: &Stored) -> Entry {
    let kind = match &stored.by {
        Holder::Owner(owner, since) if owner.starts_with(NOBODY) => EntryKind::Closed {
            owner: owner.clone(),
            since: Some(*since),
        },
        Holder::Owner(owner, since) | Holder::Elsewhere(owner, since) => EntryKind::Held {
            owner: owner.clone(),
            since: Some(*since),
        },
        Holder::Done(since) => EntryKind::Done { since: *since },
    };
    let remaining = stored.until.saturating_duration_since(now());
    Entry::new(stored.slot, kind, Some(remaining)).weight(stored.sharing.weight())
}

/// What stands before the origin of a lock that was left closed.
const NOBODY: &str = "00000000000000000000000000000000@";

fn none(lock: &str) -> Listed {
    Listed::new(lock, Vec::new(), 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::Client;

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_listed_shown_and_ended() {
        let client = Client::connect("memory:").await.unwrap();
        let lease = client.lock("sync:42").acquire().await.unwrap();
        let _other = client.lock("other").acquire().await.unwrap();
        let slot = client.lock("geo").permits(3).acquire().await.unwrap();
        let waits = client.lock("sync:42").wait(Duration::from_secs(60));
        let inspector = client.inspect().unwrap();

        let mut listing = inspector.list("*");
        let page = listing.next().await.unwrap().unwrap();
        let keys: Vec<_> = page.locks.iter().map(|listed| &listed.lock).collect();
        assert_eq!(keys, ["geo", "other", "sync:42"]);
        assert_eq!(page.locks[0].permits, Some(3));
        assert!(listing.next().await.unwrap().is_none());

        let shown = inspector.show("sync:42").await.unwrap();
        let [entry] = shown.listed.entries.as_slice() else {
            panic!("{shown:?}")
        };
        let EntryKind::Held { owner, since } = &entry.kind else {
            panic!("{entry:?}")
        };
        assert_eq!(owner, &lease.owner());
        assert!(since.is_some());
        assert_eq!(inspector.end("other", entry).await.unwrap(), Ended::Changed);
        assert_eq!(inspector.end("free", entry).await.unwrap(), Ended::Gone);
        assert_eq!(inspector.end("sync:42", entry).await.unwrap(), Ended::Ended);
        drop(waits.acquire().await.unwrap());
        drop(slot);
    }
}
