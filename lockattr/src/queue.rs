//! Callers of one client that want the same: they wait in order of arrival, and only as many of them
//! ask the store as there are places to be had.
//!
//! Guarantees: who came first asks first; a front that does nothing for longer than it should stands
//! in nobody's way; a lease that is given back goes to the next waiter without the store, a bounded
//! number of times in a row, so that other processes get their turn. Whether somebody else holds the
//! key is the store's to say: nothing in here excludes anybody.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, oneshot};

use crate::acquisition::{Acquisition, QueueId};
use crate::error::StoreError;
use crate::runtime::clock::Clock;
use crate::runtime::process::Process;
use crate::store::Sharing;

mod front;
mod place;
mod waiters;

pub(crate) use front::Front;
pub(crate) use place::Place;
pub(crate) use waiters::Hurried;
use waiters::Waiters;

/// A waiter that is told that it is the front does something within this time, or the next one is
/// told as well: its task may not be polled any more.
pub(crate) const HEARS_WITHIN: Duration = Duration::from_millis(250);

/// All wait queues of one client.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    table: Mutex<QueueTable>,
    clock: Clock,
    process: Process,
    hears_within: Duration,
    /// Queues whose keys other processes were lately found to hold.
    contended: Box<[AtomicU32]>,
    hasher: RandomState,
    closed: AtomicBool,
    closing: Notify,
}

/// The queues that there are. One exists while somebody asks, holds or waits; it is in one of these.
#[derive(Debug, Default)]
struct QueueTable {
    /// One asks the store, and will have done something by then.
    asking: HashMap<QueueId, Instant, AsItIs>,
    /// One holds. Ten thousand of these are nothing special, hence few bytes for each.
    held: HashSet<HeldAlone, AsItIs>,
    /// Several have met.
    met: HashMap<QueueId, Waiters, AsItIs>,
    /// How many times that was the case.
    meetings: u32,
}

/// A lease as the only thing of its queue.
#[derive(Debug)]
struct HeldAlone(Arc<Acquisition>);

impl Borrow<QueueId> for HeldAlone {
    fn borrow(&self) -> &QueueId {
        &self.0.queue
    }
}

impl Hash for HeldAlone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.queue.hash(state);
    }
}

impl PartialEq for HeldAlone {
    fn eq(&self, other: &Self) -> bool {
        self.0.queue == other.0.queue
    }
}

impl Eq for HeldAlone {}

/// The id of a queue is a hash with a secret key already.
type AsItIs = BuildHasherDefault<Itself>;

#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Who holds a key.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    /// `host:pid`, or nothing where it is this process.
    pub(crate) holder: Option<String>,
    pub(crate) since: Option<SystemTime>,
    pub(crate) until: Instant,
}

impl Busy {
    /// This process itself, by a lease.
    fn here(lease: &Acquisition) -> Self {
        Self {
            holder: None,
            since: Some(lease.since()),
            until: lease.end(),
        }
    }
}

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum Told {
    /// It is a front.
    Front(Front),
    /// It is a front, and may go on with this lease.
    Handed(Front, Arc<Acquisition>),
    Busy(Busy),
    Refused(Refused),
    Unavailable(StoreError),
}

/// Why nobody who wants the same can have it, and to wait does not help.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    /// The work of one of the locks is done, since then.
    Done(usize, SystemTime),
    /// Something that is no lock is stored under one of them.
    Foreign(usize, String),
}

type Teller = oneshot::Sender<Told>;

/// How a key came to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// By the store, at once.
    Alone,
    /// By the store, after others.
    AmongOthers,
    /// By the caller before.
    Handed,
}

/// How a caller begins.
pub(crate) enum Entry {
    Front(Front),
    Behind(Place),
    Busy(Busy),
}

/// What a caller wants of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrant {
    pub(crate) sharing: Sharing,
    pub(crate) waits: bool,
    /// The ttl of a lease that it could take over.
    pub(crate) takes: Option<Duration>,
    pub(crate) now: Instant,
    /// By when it will have done something, where it is a front.
    pub(crate) expected: Instant,
}

impl WaitQueues {
    /// `clock` is that in which callers wait.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            table: Mutex::default(),
            clock,
            process: Process::here(),
            hears_within: HEARS_WITHIN,
            contended: (0..256).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    /// The queue of those who want these locks, and the same of them.
    pub(crate) fn id_of(&self, locks: &[String], sharing: Sharing) -> QueueId {
        let mut hasher = self.hasher.build_hasher();
        for lock in locks {
            lock.hash(&mut hasher);
        }
        sharing.hash(&mut hasher);
        QueueId::from(hasher.finish())
    }

    /// Comes after those who came before.
    pub(crate) fn enter(self: &Arc<Self>, id: QueueId, entrant: Entrant) -> Entry {
        let Entrant {
            sharing,
            waits,
            now,
            expected,
            ..
        } = entrant;
        let places = sharing.places();
        let mut table = self.table();
        if !table.exists(id) {
            table.asking.insert(id, expected);
            return Entry::Front(self.front(id, places, Some(0)));
        }
        if let Some(HeldAlone(lease)) = table.held.get(&id)
            && !lease.has_ended()
            && !waits
            && places == 1
        {
            return Entry::Busy(Busy::here(lease));
        }
        let waiters = table.waiters(id, places);
        waiters.pass_over_overdue(now);
        if waiters.is_empty() && waiters.has_room() {
            let number = waiters.begin_to_ask(expected);
            return Entry::Front(self.front(id, places, Some(number)));
        }
        if !waits {
            if let Some(busy) = waiters.busy(now) {
                return Entry::Busy(busy);
            }
            // What they were told is past.
            if waiters.all_wait() {
                return Entry::Front(self.front(id, places, None));
            }
        }
        let (number, told) = waiters.push(&entrant);
        Entry::Behind(Place::new(self, id, number, told))
    }

    /// A front that stands in no queue.
    pub(crate) fn alone(self: &Arc<Self>, id: QueueId, places: u32) -> Front {
        self.front(id, places, None)
    }

    fn front(self: &Arc<Self>, id: QueueId, places: u32, number: Option<u64>) -> Front {
        Front::new(self, id, places, number)
    }

    /// Whether another process was lately found to hold the key, so that to ask for it as if it were
    /// free would be in vain.
    pub(crate) fn is_contended(&self, id: QueueId) -> bool {
        let (place, mark) = self.mark(id);
        place.load(Ordering::Relaxed) == mark
    }

    pub(crate) fn set_contended(&self, id: QueueId, contended: bool) {
        let (place, mark) = self.mark(id);
        if contended {
            place.store(mark, Ordering::Relaxed);
        } else if place.load(Ordering::Relaxed) == mark {
            place.store(0, Ordering::Relaxed);
        }
    }

    fn mark(&self, id: QueueId) -> (&AtomicU32, u32) {
        let [place, a, b, c, d, ..] = u64::from(id).to_le_bytes();
        let mark = u32::from_le_bytes([a, b, c, d]) | 1;
        (&self.contended[usize::from(place)], mark)
    }

    /// Whether several have met in a queue; where not, nobody waits.
    pub(crate) fn have_met(&self, id: QueueId) -> bool {
        self.table().met.contains_key(&id)
    }

    /// Gives a lease that nobody holds any more to the next waiter. Where it was not, somebody else
    /// has to give it back.
    pub(crate) fn hand_over(self: &Arc<Self>, lease: &Arc<Acquisition>) -> bool {
        let back = |waiters: &mut Waiters, number| {
            waiters.end_asking(number);
            waiters.take_back(lease);
        };
        self.offer(
            lease,
            |waiters| waiters.next_for_lease_of(lease, self.hears_by()),
            back,
        )
    }

    /// Offers a lease to one after the other of those that are chosen, until one is there to take it;
    /// of each that is not, the choice is undone.
    fn offer(
        self: &Arc<Self>,
        lease: &Arc<Acquisition>,
        choose: impl Fn(&mut Waiters) -> waiters::Chosen,
        undo: impl Fn(&mut Waiters, u64),
    ) -> bool {
        let id = lease.queue;
        loop {
            let (chosen, gone) = {
                let mut table = self.table();
                if self.is_closed() {
                    return false;
                }
                match table.met.get_mut(&id) {
                    Some(waiters) => choose(waiters),
                    None => return false,
                }
            };
            drop(gone);
            let Some((tell, number)) = chosen else {
                return false;
            };
            let front = self.front(id, lease.keys.sharing().places(), Some(number));
            let Err(Told::Handed(front, _)) = tell.send(Told::Handed(front, Arc::clone(lease)))
            else {
                return true;
            };
            front.was_never_taken();
            if let Some(waiters) = self.table().met.get_mut(&id) {
                undo(waiters, number);
            }
        }
    }

    /// A lease is held no longer, and on its way back.
    pub(crate) fn left(self: &Arc<Self>, lease: &Arc<Acquisition>) {
        let id = lease.queue;
        let (left, have_met) = {
            let mut table = self.table();
            if let Some(waiters) = table.met.get_mut(&id) {
                (waiters.let_go(lease), true)
            } else {
                let is_it = |HeldAlone(held): &HeldAlone| Arc::ptr_eq(held, lease);
                let is_alone = table.held.get(&id).is_some_and(is_it);
                let alone = is_alone.then(|| table.held.take(&id)).flatten();
                (alone.map(|HeldAlone(lease)| lease), false)
            }
        };
        // What hangs on it may come back here.
        drop(left);
        if have_met {
            self.turn(id);
        }
    }

    /// Tells the next waiters that they are fronts, if they can be.
    pub(crate) fn turn(self: &Arc<Self>, id: QueueId) {
        let hears_by = self.hears_by();
        loop {
            let (chosen, gone) = {
                let mut table = self.table();
                let Some(waiters) = table.met.get_mut(&id) else {
                    return;
                };
                let (chosen, gone) = waiters.next(hears_by);
                if chosen.is_none() && waiters.is_idle() {
                    let idle = table.met.remove(&id);
                    drop(table);
                    drop((idle, gone));
                    return;
                }
                (
                    chosen.map(|(tell, number)| (tell, number, waiters.places())),
                    gone,
                )
            };
            drop(gone);
            let Some((tell, number, places)) = chosen else {
                return;
            };
            let front = self.front(id, places, Some(number));
            if let Err(Told::Front(front)) = tell.send(Told::Front(front)) {
                front.was_never_taken();
                self.end_asking(id, number);
            }
        }
    }

    fn hears_by(&self) -> Instant {
        self.clock.now() + self.hears_within
    }

    /// The same where a front should have done something by now.
    fn turn_overdue(self: &Arc<Self>, id: QueueId, now: Instant) {
        if let Some(waiters) = self.table().met.get_mut(&id) {
            waiters.pass_over_overdue(now);
        }
        self.turn(id);
    }

    /// A front asks the store no more.
    fn end_asking(&self, id: QueueId, number: u64) {
        let mut table = self.table();
        if let Some(waiters) = table.met.get_mut(&id) {
            waiters.end_asking(number);
        } else if number == 0 {
            table.asking.remove(&id);
        }
    }

    /// Whether this is a copy in a process that was forked off, with locks that a thread of the parent
    /// may hold for ever.
    fn is_copy(&self) -> bool {
        !self.process.is_here()
    }

    /// Lets nobody wait any more.
    pub(crate) fn close(&self, reason: &StoreError) {
        self.closed.store(true, Ordering::Release);
        let tellers: Vec<_> = self
            .table()
            .met
            .values_mut()
            .flat_map(Waiters::take_all)
            .collect();
        for tell in tellers {
            tell_one(tell, Told::Unavailable(reason.clone()));
        }
        self.closing.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until nobody may wait any more.
    pub(crate) async fn closed(&self) {
        loop {
            let closing = self.closing.notified();
            if self.is_closed() {
                return;
            }
            closing.await;
        }
    }

    /// Nothing may be woken or dropped while this is held: a waker may poll inline, and what is dropped
    /// may hold the last handle of a task that comes back here.
    fn table(&self) -> MutexGuard<'_, QueueTable> {
        // A panic while it was held is a fault of this file; it is still usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell_one(tell: Teller, told: Told) {
    // Whoever is gone needs no answer.
    let _ = tell.send(told);
}

impl QueueTable {
    fn exists(&self, id: QueueId) -> bool {
        self.held.contains(&id) || self.asking.contains_key(&id) || self.met.contains_key(&id)
    }

    /// A queue as one where several have met.
    fn waiters(&mut self, id: QueueId, places: u32) -> &mut Waiters {
        self.met.entry(id).or_insert_with(|| {
            let asking = self.asking.remove(&id);
            let held = self.held.take(&id).map(|HeldAlone(lease)| lease);
            self.meetings = self.meetings.wrapping_add(1);
            Waiters::of(places, asking, held, self.meetings)
        })
    }
}

#[cfg(test)]
mod tests;
