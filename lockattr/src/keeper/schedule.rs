//! The keeper's table: what is held, and when each lease needs attention next.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::renewals::BATCH;
use crate::acquisition::Acquisition;

/// Leases due this much later are seen to at once, so that fewer calls renew them.
const EARLY: Duration = Duration::from_millis(10);

/// A call that is made anyhow takes leases along that are due within this part of their ttl.
const ALONG_PER_TTL: u32 = 60;

/// A lease that comes up while a renewal of it is under way comes up again so much later.
const AGAIN: Duration = Duration::from_millis(100);

/// A lease's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleKey {
    index: u32,
    /// Tells the leases apart that have had the place one after the other.
    generation: u32,
}

#[derive(Debug)]
pub(super) struct RenewalSchedule {
    table: Mutex<ScheduleTable>,
    /// The first entry is due sooner than the watch has planned to wake up.
    sooner: Notify,
    /// A lease has left the table, or its renewal is over.
    changed: Notify,
}

/// Ten thousand leases are nothing special, hence few bytes for each, and no allocation.
#[derive(Debug)]
struct ScheduleTable {
    entries: Vec<Scheduled>,
    /// The first free entry.
    free: u32,
    held: usize,
    /// A heap of the entries that are due at some time, the first one on top.
    heap: Vec<u32>,
    /// When the watch wakes up; `None` while it has no reason to.
    planned: Option<Instant>,
    /// What moments are counted from.
    start: Instant,
}

#[derive(Debug)]
struct Scheduled {
    /// `None` where the entry is free.
    lease: Option<Arc<Acquisition>>,
    /// When it is due, in nanoseconds.
    due: u64,
    /// Where it stands in the heap, if it does; of a free entry, the next free one.
    place: u32,
    generation: u32,
}

impl Scheduled {
    fn is_renewing(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.renewing.load(Ordering::Relaxed))
    }

    fn set_renewing(&self, renewing: bool) {
        if let Some(lease) = &self.lease {
            lease.renewing.store(renewing, Ordering::Relaxed);
        }
    }
}

const NOWHERE: u32 = u32::MAX;

/// Leases to see to now.
pub(super) type Batch = Vec<(ScheduleKey, Arc<Acquisition>)>;

impl Default for RenewalSchedule {
    fn default() -> Self {
        Self {
            table: Mutex::new(ScheduleTable {
                entries: Vec::new(),
                free: NOWHERE,
                held: 0,
                heap: Vec::new(),
                planned: None,
                start: Instant::now(),
            }),
            sooner: Notify::new(),
            changed: Notify::new(),
        }
    }
}

impl RenewalSchedule {
    /// Takes a lease in, to be seen to when it is `due`, which is told the lease's share of the time:
    /// far from those of the leases in the places around it.
    pub(super) fn enter(
        &self,
        lease: Arc<Acquisition>,
        due: impl FnOnce(Share) -> Option<Instant>,
    ) -> ScheduleKey {
        let mut table = self.table();
        let key = table.enter(lease);
        let due = due(Share::of(key.index));
        let sooner = due.is_some_and(|due| table.plan(key, due));
        drop(table);
        if sooner {
            self.sooner.notify_one();
        }
        key
    }

    /// Takes a lease out; says whether it was still there.
    pub(super) fn leave(&self, key: ScheduleKey) -> bool {
        let left = self.table().leave(key);
        self.changed.notify_waiters();
        left.is_some()
    }

    /// A renewal is over: the lease is seen to again when `due` has come, or soon where it came up meanwhile.
    pub(super) fn renewed(&self, key: ScheduleKey, due: Instant) {
        let mut table = self.table();
        let mut sooner = false;
        let start = table.start;
        if let Some(entry) = table.entry(key) {
            entry.set_renewing(false);
            // A lease in the caller's time keeps its own.
            if entry.place != NOWHERE {
                let planned = start + Duration::from_nanos(entry.due);
                let is_soon = planned <= Instant::now() + AGAIN;
                sooner = table.plan(key, if is_soon { due.min(planned) } else { due });
            }
        }
        drop(table);
        if sooner {
            self.sooner.notify_one();
        }
        self.changed.notify_waiters();
    }

    /// Has a lease come up when it is due, whether or not a renewal of it is under way.
    pub(super) fn look(&self, key: ScheduleKey, due: Instant) {
        let mut table = self.table();
        // A lease in the caller's time keeps its own.
        let scheduled = table.entry(key).is_some_and(|entry| entry.place != NOWHERE);
        let sooner = scheduled && table.plan(key, due);
        drop(table);
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Claims the right to renew one lease, once no other renewal of it is under way.
    pub(super) async fn claim(&self, key: ScheduleKey) {
        loop {
            let changed = self.changed.notified();
            match self.table().entry(key) {
                Some(entry) if entry.is_renewing() => {}
                Some(entry) => {
                    entry.set_renewing(true);
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
                table.planned = table.first().map(|(due, _)| due);
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

    /// What has to be renewed, and what was given back and is still here.
    fn take_due(&self, now: Instant) -> Batch {
        let mut batch = Batch::new();
        let mut over = Batch::new();
        let mut again = Vec::new();
        let mut table = self.table();
        while let Some((due, key)) = table.first() {
            let Some(entry) = table.entry(key) else {
                break;
            };
            let Some(lease) = entry.lease.clone() else {
                break;
            };
            let along = now + lease.ttl() / ALONG_PER_TTL;
            // No more come along than fit into a call.
            if due > now + EARLY && (due > along || batch.len().is_multiple_of(BATCH)) {
                break;
            }
            let deadline = lease.end();
            if now >= deadline {
                table.put_off(key);
                over.push((key, lease));
                continue;
            }
            // One that is not renewed is due before its end where it is to be looked at.
            let to_see = lease.is_on_its_way_back() || !lease.has_ended();
            if due < deadline && to_see {
                if entry.is_renewing() {
                    again.push((key, deadline.min(now + AGAIN)));
                } else {
                    entry.set_renewing(true);
                    batch.push((key, lease));
                }
            } else if due >= deadline {
                // Nothing but the deadline is left, and that has not come.
                break;
            }
            // Seen to, or being renewed, or stopped by now and on its way back.
            table.plan(key, deadline);
        }
        for (key, due) in again {
            table.plan(key, due);
        }
        drop(table);
        for (key, lease) in over {
            // Looking is what ends it, unless a renewal has come in between.
            if lease.loss().is_some() {
                self.leave(key);
            } else if lease.is_given_back() {
                self.leave(key);
                lease.tell_queue();
            } else {
                // The watch is what takes these, and looks for the first of all when it is done.
                self.table().plan(key, lease.end());
            }
        }
        batch
    }

    /// Everything held now.
    pub(super) fn all(&self) -> Batch {
        let table = self.table();
        let entries = (0..).zip(&table.entries);
        entries
            .filter_map(|(index, entry)| {
                let lease = Arc::clone(entry.lease.as_ref()?);
                let generation = entry.generation;
                Some((ScheduleKey { index, generation }, lease))
            })
            .collect()
    }

    /// Waits until nothing is held.
    pub(super) async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.table().held == 0 {
                return;
            }
            changed.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, ScheduleTable> {
        // A panic while the table was held is a fault of this file; the table is still usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScheduleTable {
    fn enter(&mut self, lease: Arc<Acquisition>) -> ScheduleKey {
        self.held += 1;
        let index = self.free;
        if let Some(entry) = self.entries.get_mut(index as usize) {
            self.free = entry.place;
            entry.lease = Some(lease);
            entry.place = NOWHERE;
            entry.generation = entry.generation.wrapping_add(1);
            return ScheduleKey {
                index,
                generation: entry.generation,
            };
        }
        make_room(&mut self.entries);
        // Far fewer than four thousand million leases fit into a process.
        let index = u32::try_from(self.entries.len()).unwrap_or(NOWHERE);
        self.entries.push(Scheduled {
            lease: Some(lease),
            due: 0,
            place: NOWHERE,
            generation: 0,
        });
        ScheduleKey {
            index,
            generation: 0,
        }
    }

    fn leave(&mut self, key: ScheduleKey) -> Option<Arc<Acquisition>> {
        self.entry(key)?;
        self.put_off(key);
        let free = self.free;
        let entry = self.entry(key)?;
        entry.place = free;
        let lease = entry.lease.take();
        self.free = key.index;
        self.held -= 1;
        lease
    }

    /// The entry of a lease that is still here.
    fn entry(&mut self, key: ScheduleKey) -> Option<&mut Scheduled> {
        self.entries
            .get_mut(key.index as usize)
            .filter(|entry| entry.lease.is_some() && entry.generation == key.generation)
    }

    /// Has an entry come up when it is due. Says whether that is sooner than the watch has planned to
    /// wake up.
    fn plan(&mut self, key: ScheduleKey, due: Instant) -> bool {
        if self.entry(key).is_none() {
            return false;
        }
        self.put(key.index, due);
        let sooner = self.planned.is_none_or(|planned| due < planned);
        if sooner {
            self.planned = Some(due);
        }
        sooner
    }

    /// What is due first.
    fn first(&self) -> Option<(Instant, ScheduleKey)> {
        let index = *self.heap.first()?;
        let Scheduled {
            due, generation, ..
        } = self.entries[index as usize];
        let due = self.start + Duration::from_nanos(due);
        Some((due, ScheduleKey { index, generation }))
    }

    /// Has an entry come up when it is due, and at no other time.
    fn put(&mut self, index: u32, due: Instant) {
        let due = due.saturating_duration_since(self.start).as_nanos();
        let place = match self.entries[index as usize].place {
            NOWHERE => {
                make_room(&mut self.heap);
                self.heap.push(index);
                self.heap.len() - 1
            }
            place => place as usize,
        };
        let entry = &mut self.entries[index as usize];
        entry.due = u64::try_from(due).unwrap_or(u64::MAX);
        let place = self.up(place);
        self.down(place);
    }

    /// Has an entry come up no more.
    fn put_off(&mut self, key: ScheduleKey) {
        let entry = &mut self.entries[key.index as usize];
        let place = std::mem::replace(&mut entry.place, NOWHERE);
        if place != NOWHERE {
            let place = place as usize;
            self.heap.swap_remove(place);
            if place < self.heap.len() {
                let place = self.up(place);
                self.down(place);
            }
        }
    }

    /// Moves what stands at a place of the heap up to where it belongs.
    fn up(&mut self, mut place: usize) -> usize {
        let index = self.heap[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.due(above) <= self.entries[index as usize].due {
                break;
            }
            self.set(place, self.heap[above]);
            place = above;
        }
        self.set(place, index);
        place
    }

    /// The same downwards.
    fn down(&mut self, mut place: usize) {
        let index = self.heap[place];
        loop {
            let below = [2 * place + 1, 2 * place + 2];
            let first = below
                .into_iter()
                .filter(|below| *below < self.heap.len())
                .min_by_key(|below| self.due(*below));
            match first {
                Some(first) if self.due(first) < self.entries[index as usize].due => {
                    self.set(place, self.heap[first]);
                    place = first;
                }
                _ => break,
            }
        }
        self.set(place, index);
    }

    fn due(&self, place: usize) -> u64 {
        self.entries[self.heap[place] as usize].due
    }

    fn set(&mut self, place: usize, index: u32) {
        self.heap[place] = index;
        self.entries[index as usize].place = u32::try_from(place).unwrap_or(NOWHERE);
    }
}

/// Grows by a quarter, where a `Vec` by itself would double.
fn make_room<T>(all: &mut Vec<T>) {
    if all.len() == all.capacity() {
        all.reserve_exact((all.len() / 4).max(16));
    }
}

/// A share of some time: multiples of the golden section, which are spread evenly however many there
/// are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share(u32);

impl Share {
    /// The share of the lease in a place.
    fn of(index: u32) -> Self {
        Self(index.wrapping_mul(0x9E37_79B1))
    }

    /// So much of some time, which is less than all of it.
    pub(super) fn of_time(self, time: Duration) -> Duration {
        let nanos = (time.as_nanos() * u128::from(self.0)) >> u32::BITS;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
