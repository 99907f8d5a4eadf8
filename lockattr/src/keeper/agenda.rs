//! The keeper's table: what is held, and when each lease needs attention next.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::hold::Hold;

/// Leases due this much later are seen to at once, so that fewer calls renew them.
const EARLY: Duration = Duration::from_millis(10);

/// A lease's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u64);

#[derive(Debug, Default)]
pub(super) struct Agenda {
    table: Mutex<Table>,
    /// The first entry is due sooner than the watch has planned to wake up.
    sooner: Notify,
    /// A lease has left the table, or its renewal is over.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: HashMap<Slot, Entry>,
    due: BTreeSet<(Instant, Slot)>,
    /// When the watch wakes up; `None` while it has no reason to.
    planned: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    /// `None` where a task in the caller's time sees to the lease.
    due: Option<Instant>,
    renewing: bool,
}

/// Leases to renew now.
pub(super) type Batch = Vec<(Slot, Arc<Hold>)>;

impl Agenda {
    /// Takes a lease in, to be seen to when `due` has come.
    pub(super) fn enter(&self, hold: Arc<Hold>, due: Option<Instant>) -> Slot {
        let mut table = self.table();
        table.next += 1;
        let slot = Slot(table.next);
        table.entries.insert(
            slot,
            Entry {
                hold,
                due: None,
                renewing: false,
            },
        );
        self.plan(&mut table, slot, due);
        slot
    }

    /// Takes a lease out.
    pub(super) fn leave(&self, slot: Slot) {
        let mut table = self.table();
        if let Some(Entry { due: Some(due), .. }) = table.entries.remove(&slot) {
            table.due.remove(&(due, slot));
        }
        drop(table);
        self.changed.notify_waiters();
    }

    /// A renewal is over: the lease is seen to again when `due` has come.
    pub(super) fn renewed(&self, slot: Slot, due: Instant) {
        let mut table = self.table();
        if let Some(entry) = table.entries.get_mut(&slot) {
            entry.renewing = false;
            // A lease in the caller's time keeps its own.
            if entry.due.is_some() {
                self.plan(&mut table, slot, Some(due));
            }
        }
        drop(table);
        self.changed.notify_waiters();
    }

    /// Claims the right to renew one lease, once no other renewal of it is under way.
    pub(super) async fn claim(&self, slot: Slot) {
        loop {
            let changed = self.changed.notified();
            match self.table().entries.get_mut(&slot) {
                Some(entry) if entry.renewing => {}
                Some(entry) => {
                    entry.renewing = true;
                    return;
                }
                None => return,
            }
            changed.await;
        }
    }

    /// Waits for the next time that something is due, and takes what has to be renewed. Leases
    /// whose deadline has passed are ended and taken out.
    pub(super) async fn next(&self) -> Batch {
        loop {
            let sooner = self.sooner.notified();
            let first = {
                let mut table = self.table();
                table.planned = table.due.first().map(|(due, _)| *due);
                table.planned
            };
            match first {
                None => sooner.await,
                Some(at) if at > Instant::now() => {
                    let _ = tokio::time::timeout_at(at.into(), sooner).await;
                }
                Some(_) => return self.take_due(Instant::now()),
            }
        }
    }

    fn take_due(&self, now: Instant) -> Batch {
        let mut batch = Batch::new();
        let mut over = Vec::new();
        let mut table = self.table();
        let due: Vec<_> = table
            .due
            .range(..=(now + EARLY, Slot(u64::MAX)))
            .copied()
            .collect();
        for (at, slot) in due {
            let Some(entry) = table.entries.get_mut(&slot) else {
                continue;
            };
            let deadline = entry.hold.end();
            if now >= deadline {
                over.push((slot, Arc::clone(&entry.hold)));
            } else if entry.hold.has_ended() {
                // On its way back, and about to leave.
                self.plan(&mut table, slot, Some(deadline));
            } else if entry.hold.terms.renew && !entry.renewing && at < deadline {
                entry.renewing = true;
                batch.push((slot, Arc::clone(&entry.hold)));
                self.plan(&mut table, slot, Some(deadline));
            } else if at < deadline {
                // Extended meanwhile, or still being renewed: the deadline is what counts.
                self.plan(&mut table, slot, Some(deadline));
            }
        }
        drop(table);
        for (slot, hold) in over {
            // Looking is what ends it, unless a renewal has come in between.
            if hold.loss().is_some() {
                self.leave(slot);
            } else {
                self.plan(&mut self.table(), slot, Some(hold.end()));
            }
        }
        batch
    }

    fn plan(&self, table: &mut Table, slot: Slot, due: Option<Instant>) {
        let Some(entry) = table.entries.get_mut(&slot) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.due, due) {
            table.due.remove(&(old, slot));
        }
        if let Some(due) = due {
            table.due.insert((due, slot));
            if table.planned.is_none_or(|planned| due < planned) {
                table.planned = Some(due);
                self.sooner.notify_one();
            }
        }
    }

    /// Everything held now.
    pub(super) fn all(&self) -> Batch {
        let table = self.table();
        table
            .entries
            .iter()
            .map(|(slot, entry)| (*slot, Arc::clone(&entry.hold)))
            .collect()
    }

    /// Waits until nothing is held.
    pub(super) async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.table().entries.is_empty() {
                return;
            }
            changed.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while the table was held is a fault of this file; the table is still usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
