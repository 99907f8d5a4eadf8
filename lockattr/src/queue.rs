//! Callers of one client that want the same key: they stand in a line, first come first served, and
//! only its head asks the store.
//!
//! A lease that is given back goes to the next of the line without the store, a bounded number of
//! times in a row, so that other processes get their turn.

use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::error::StoreError;
use crate::hold::Hold;

/// How often in a row a lease goes from caller to caller without the store.
const IN_A_ROW: u32 = 7;

/// The same where other processes are known to want the key.
const IN_A_ROW_AMONG_OTHERS: u32 = 3;

/// All lines of one client.
#[derive(Debug)]
pub(crate) struct Queue {
    lines: Mutex<HashMap<LineId, Line>>,
    /// Lines whose keys other processes were lately found to hold.
    contended: Box<[AtomicU32]>,
    hashers: [RandomState; 2],
    closed: AtomicBool,
    closing: Notify,
}

/// What callers who want the same have in common: a hash of the locks, with secret keys, and of so
/// many bits that no two are ever alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LineId(u128);

/// One key's callers. It exists while somebody asks, holds or waits.
#[derive(Debug, Default)]
struct Line {
    /// Whether its head is asking the store.
    asked: bool,
    held: Option<Arc<Hold>>,
    /// What is there only where callers meet.
    crowd: Option<Box<Crowd>>,
}

#[derive(Debug, Default)]
struct Crowd {
    /// Other slots of the key that are held.
    more: Vec<Arc<Hold>>,
    next_ticket: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// What the head was told last.
    known: Option<Busy>,
    in_a_row: u32,
    among_others: bool,
}

impl Crowd {
    /// Takes those who wait out of the line that this is true of.
    fn take(&mut self, of: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let chosen: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| of(waiting))
            .map(|(number, _)| *number)
            .collect();
        let take = |number| self.waiting.remove(&number);
        chosen.into_iter().filter_map(take).collect()
    }
}

#[derive(Debug)]
struct Waiting {
    tell: oneshot::Sender<News>,
    /// It takes the first answer that there is.
    impatient: bool,
    permits: u32,
    /// The ttl of a lease that it could take over.
    takes: Option<Duration>,
}

/// Who holds a key.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    /// `host:pid`, or nothing where it is this process.
    pub(crate) holder: Option<String>,
    pub(crate) until: Instant,
}

/// What a caller in the line is told.
#[derive(Debug)]
pub(crate) enum News {
    /// It is the head.
    Turn(Head),
    /// It is the head, and may go on with this lease.
    Handed(Head, Arc<Hold>),
    Busy(Busy),
    Down(StoreError),
}

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
    Head(Head),
    Behind(Ticket),
    Busy(Busy),
}

/// A caller's wishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) permits: u32,
    pub(crate) waits: bool,
    /// The ttl of a lease that it could take over.
    pub(crate) takes: Option<Duration>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            lines: Mutex::default(),
            contended: (0..256).map(|_| AtomicU32::new(0)).collect(),
            hashers: [RandomState::new(), RandomState::new()],
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }
}

impl Queue {
    /// The line of those who want these locks.
    pub(crate) fn line_of(&self, locks: &[String]) -> LineId {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(locks));
        LineId(u128::from(high) << 64 | u128::from(low))
    }

    /// Stands behind those who came before.
    pub(crate) fn enter(self: &Arc<Self>, key: LineId, wish: Wish) -> Entry {
        let mut lines = self.lines();
        let line = match lines.entry(key) {
            hash_map::Entry::Occupied(line) => line.into_mut(),
            hash_map::Entry::Vacant(place) => {
                place.insert(Line {
                    asked: true,
                    ..Line::default()
                });
                return Entry::Head(self.head(key));
            }
        };
        if !line.asked && line.has_room(wish.permits) && line.nobody_waits() {
            line.asked = true;
            return Entry::Head(self.head(key));
        }
        if !wish.waits
            && let Some(busy) = line.busy(wish.permits)
        {
            return Entry::Busy(busy);
        }
        let crowd = line.crowd();
        let number = crowd.next_ticket;
        crowd.next_ticket += 1;
        let (tell, news) = oneshot::channel();
        let waiting = Waiting {
            tell,
            impatient: !wish.waits,
            permits: wish.permits,
            takes: wish.takes,
        };
        crowd.waiting.insert(number, waiting);
        Entry::Behind(Ticket {
            queue: Arc::clone(self),
            key,
            number,
            news,
        })
    }

    /// A head that stands in no line.
    pub(crate) fn alone(self: &Arc<Self>, key: LineId) -> Head {
        let mut head = self.head(key);
        head.armed = false;
        head
    }

    fn head(self: &Arc<Self>, key: LineId) -> Head {
        Head {
            queue: Arc::clone(self),
            key,
            armed: true,
        }
    }

    /// Whether another process was lately found to hold the key, so that to ask for it as if it were
    /// free would be in vain.
    pub(crate) fn is_contended(&self, key: LineId) -> bool {
        let (place, mark) = self.mark(key);
        place.load(Ordering::Relaxed) == mark
    }

    pub(crate) fn set_contended(&self, key: LineId, contended: bool) {
        let (place, mark) = self.mark(key);
        if contended {
            place.store(mark, Ordering::Relaxed);
        } else if place.load(Ordering::Relaxed) == mark {
            place.store(0, Ordering::Relaxed);
        }
    }

    fn mark(&self, key: LineId) -> (&AtomicU32, u32) {
        let bytes = key.0.to_le_bytes();
        let mark = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) | 1;
        (&self.contended[usize::from(bytes[4])], mark)
    }

    /// Gives a lease that nobody holds any more to the next of the line. Where it was not, somebody
    /// else has to give it back.
    pub(crate) fn hand_over(self: &Arc<Self>, key: LineId, hold: &Arc<Hold>) -> bool {
        loop {
            let tell = {
                let mut lines = self.lines();
                if self.is_closed() {
                    return false;
                }
                let Some(tell) = lines.get_mut(&key).and_then(|line| line.take_heir(hold)) else {
                    return false;
                };
                tell
            };
            let Err(News::Handed(head, _)) =
                tell.send(News::Handed(self.head(key), Arc::clone(hold)))
            else {
                return true;
            };
            // It had gone away: the lease stands as before, and the next one is asked.
            head.disarm();
            if let Some(line) = self.lines().get_mut(&key) {
                line.asked = false;
                line.held = Some(Arc::clone(hold));
            }
        }
    }

    /// A lease is held no longer, and on its way back.
    pub(crate) fn left(self: &Arc<Self>, key: LineId, hold: &Arc<Hold>) {
        {
            let mut lines = self.lines();
            let Some(line) = lines.get_mut(&key) else {
                return;
            };
            if !line.forget(hold) {
                return;
            }
        }
        self.turn(key);
    }

    /// Makes the next of the line its head, if it can be.
    pub(crate) fn turn(self: &Arc<Self>, key: LineId) {
        loop {
            let tell = {
                let mut lines = self.lines();
                let Some(line) = lines.get_mut(&key) else {
                    return;
                };
                let Some(tell) = line.next() else {
                    if line.is_idle() {
                        lines.remove(&key);
                    }
                    return;
                };
                tell
            };
            let Err(News::Turn(head)) = tell.send(News::Turn(self.head(key))) else {
                return;
            };
            head.disarm();
            if let Some(line) = self.lines().get_mut(&key) {
                line.asked = false;
            }
        }
    }

    /// Lets nobody stand in line any more.
    pub(crate) fn close(&self, reason: &StoreError) {
        self.closed.store(true, Ordering::Release);
        let waiting: Vec<_> = self
            .lines()
            .values_mut()
            .filter_map(|line| line.crowd.as_mut())
            .flat_map(|crowd| std::mem::take(&mut crowd.waiting).into_values())
            .collect();
        for waiting in waiting {
            // Whoever is gone needs no answer.
            let _ = waiting.tell.send(News::Down(reason.clone()));
        }
        self.closing.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until nobody may stand in line any more.
    pub(crate) async fn closed(&self) {
        loop {
            let closing = self.closing.notified();
            if self.is_closed() {
                return;
            }
            closing.await;
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LineId, Line>> {
        // A panic while the lines were held is a fault of this file; they are still usable.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn crowd(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }

    /// The leases that run. One that was lost is nobody's, however long its holder keeps the handle.
    fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        let more = self.crowd.iter().flat_map(|crowd| &crowd.more);
        self.held
            .iter()
            .chain(more)
            .filter(|hold| !hold.has_ended())
    }

    fn has_room(&self, permits: u32) -> bool {
        self.holds().count() < usize::try_from(permits).unwrap_or(usize::MAX)
    }

    fn nobody_waits(&self) -> bool {
        self.crowd
            .as_ref()
            .is_none_or(|crowd| crowd.waiting.is_empty())
    }

    fn is_idle(&self) -> bool {
        !self.asked && self.holds().next().is_none() && self.nobody_waits()
    }

    /// Who stands in the way, if that is known.
    fn busy(&self, permits: u32) -> Option<Busy> {
        if !self.has_room(permits) {
            let until = self.holds().map(|hold| hold.end()).min()?;
            return Some(Busy {
                holder: None,
                until,
            });
        }
        self.crowd.as_ref()?.known.clone()
    }

    fn hold(&mut self, hold: Arc<Hold>) {
        if self.held.as_ref().is_none_or(|held| held.has_ended()) {
            self.held = Some(hold);
        } else {
            let more = &mut self.crowd().more;
            more.retain(|held| !held.has_ended());
            more.push(hold);
        }
    }

    fn forget(&mut self, hold: &Arc<Hold>) -> bool {
        let is_it = |known: &Arc<Hold>| Arc::ptr_eq(known, hold);
        if self.held.as_ref().is_some_and(is_it) {
            self.held = self.crowd.as_mut().and_then(|crowd| crowd.more.pop());
            return true;
        }
        let Some(crowd) = &mut self.crowd else {
            return false;
        };
        let before = crowd.more.len();
        crowd.more.retain(|known| !is_it(known));
        crowd.more.len() < before
    }

    /// Those who take the first answer, where that is this process itself.
    fn take_refused(&mut self) -> Vec<(Waiting, Busy)> {
        let Some(mut crowd) = self.crowd.take() else {
            return Vec::new();
        };
        let refused = crowd.take(|waiting| waiting.impatient && !self.has_room(waiting.permits));
        self.crowd = Some(crowd);
        let told = |waiting: Waiting| {
            let busy = self.busy(waiting.permits)?;
            Some((waiting, busy))
        };
        refused.into_iter().filter_map(told).collect()
    }

    /// The first who waits, if it can ask the store now.
    fn next(&mut self) -> Option<oneshot::Sender<News>> {
        loop {
            if self.asked {
                return None;
            }
            let (_, first) = self.crowd.as_ref()?.waiting.first_key_value()?;
            if !first.tell.is_closed() && !self.has_room(first.permits) {
                return None;
            }
            let (_, first) = self.crowd().waiting.pop_first()?;
            if !first.tell.is_closed() {
                self.asked = true;
                self.crowd().known = None;
                return Some(first.tell);
            }
        }
    }

    /// The first who waits, if it can take this lease over.
    fn take_heir(&mut self, hold: &Arc<Hold>) -> Option<oneshot::Sender<News>> {
        let is_held = self
            .held
            .as_ref()
            .is_some_and(|held| Arc::ptr_eq(held, hold));
        let crowd = self.crowd.as_mut()?;
        let bound = if crowd.among_others {
            IN_A_ROW_AMONG_OTHERS
        } else {
            IN_A_ROW
        };
        if self.asked || !is_held || crowd.in_a_row >= bound {
            return None;
        }
        loop {
            let first = crowd.waiting.first_entry()?;
            if first.get().tell.is_closed() {
                first.remove();
                continue;
            }
            if first.get().takes != Some(hold.ttl()) {
                return None;
            }
            let first = first.remove();
            crowd.in_a_row += 1;
            self.held = None;
            self.asked = true;
            return Some(first.tell);
        }
    }
}

/// The right and the duty to ask the store for a line; the next one gets it when this is dropped.
#[derive(Debug)]
pub(crate) struct Head {
    queue: Arc<Queue>,
    key: LineId,
    armed: bool,
}

impl Head {
    /// The store has told who holds the key: whoever does not wait is answered with that.
    pub(crate) fn busy(&self, busy: &Busy) {
        if !self.armed {
            return;
        }
        let impatient: Vec<_> = {
            let mut lines = self.queue.lines();
            let Some(line) = lines.get_mut(&self.key) else {
                return;
            };
            // Where nobody else is, nobody needs to know.
            let crowd = line.crowd();
            crowd.known = Some(busy.clone());
            crowd.take(|waiting| waiting.impatient)
        };
        for waiting in impatient {
            // Whoever is gone needs no answer.
            let _ = waiting.tell.send(News::Busy(busy.clone()));
        }
    }

    /// The key is held now: by a grant of the store, or by one that was handed over. The next one may
    /// ask for another slot.
    pub(crate) fn granted(mut self, hold: &Arc<Hold>, granted: Granted) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        let refused = {
            let mut lines = self.queue.lines();
            let line = lines.entry(self.key).or_default();
            line.asked = false;
            line.hold(Arc::clone(hold));
            if granted == Granted::AmongOthers {
                line.crowd();
            }
            if let Some(crowd) = &mut line.crowd {
                crowd.known = None;
                if granted != Granted::Handed {
                    crowd.in_a_row = 0;
                    crowd.among_others = granted == Granted::AmongOthers;
                }
            }
            line.take_refused()
        };
        for (waiting, busy) in refused {
            // Whoever is gone needs no answer.
            let _ = waiting.tell.send(News::Busy(busy));
        }
        self.queue.turn(self.key);
    }

    /// The store could not be asked, and nobody in the line has to find that out again.
    pub(crate) fn down(self, error: &StoreError) {
        if !self.armed {
            return;
        }
        let waiting = {
            let mut lines = self.queue.lines();
            let crowd = lines
                .get_mut(&self.key)
                .and_then(|line| line.crowd.as_mut());
            crowd.map(|crowd| std::mem::take(&mut crowd.waiting))
        };
        for waiting in waiting.unwrap_or_default().into_values() {
            // Whoever is gone needs no answer.
            let _ = waiting.tell.send(News::Down(error.clone()));
        }
    }

    /// Lets the next of the line have a lease that this caller was handed and does not take. Where
    /// that fails, somebody has to give the lease back before the head goes on.
    pub(crate) fn pass_on(self, hold: &Arc<Hold>) -> bool {
        if let Some(line) = self.queue.lines().get_mut(&self.key) {
            line.asked = false;
            line.held = Some(Arc::clone(hold));
        }
        let passed = self.queue.hand_over(self.key, hold);
        if !passed && let Some(line) = self.queue.lines().get_mut(&self.key) {
            line.forget(hold);
        }
        passed
    }

    /// It was never taken: whoever made it sees to the line.
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        {
            let mut lines = self.queue.lines();
            if let Some(line) = lines.get_mut(&self.key) {
                line.asked = false;
                if let Some(crowd) = &mut line.crowd {
                    crowd.known = None;
                }
            }
        }
        self.queue.turn(self.key);
    }
}

/// A place in a line, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    key: LineId,
    number: u64,
    news: oneshot::Receiver<News>,
}

impl Ticket {
    /// What the caller is told.
    ///
    /// Cancel-safe.
    pub(crate) async fn news(&mut self) -> News {
        match (&mut self.news).await {
            Ok(news) => news,
            Err(_) => News::Down(StoreError::refused("the line was given up")),
        }
    }

    /// Waits no longer than for the first answer; who holds the key, where that is known already.
    pub(crate) fn hurry(&self) -> Option<Busy> {
        let mut lines = self.queue.lines();
        let line = lines.get_mut(&self.key)?;
        let permits = line.crowd().waiting.get(&self.number)?.permits;
        let busy = line.busy(permits);
        match &busy {
            Some(_) => drop(line.crowd().waiting.remove(&self.number)),
            None => line.crowd().waiting.get_mut(&self.number)?.impatient = true,
        }
        busy
    }

    /// What had been told to a caller that goes away without hearing it.
    pub(crate) fn unheard(&mut self) -> Option<News> {
        self.news.close();
        let unheard = self.news.try_recv().ok();
        if unheard.is_none() {
            let mut lines = self.queue.lines();
            if let Some(crowd) = lines
                .get_mut(&self.key)
                .and_then(|line| line.crowd.as_mut())
            {
                crowd.waiting.remove(&self.number);
            }
        }
        unheard
    }
}
