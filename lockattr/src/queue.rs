//! Callers of one client that want the same key: they stand in a line, first come first served, and
//! only its head asks the store.
//!
//! A lease that is given back goes to the next of the line without the store, a bounded number of
//! times in a row, so that other processes get their turn.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::error::StoreError;
use crate::hold::{Hold, LineId};

/// How often in a row a lease goes from caller to caller without the store.
const IN_A_ROW: u32 = 4;

/// The same where other processes are known to want the key.
const IN_A_ROW_AMONG_OTHERS: u32 = 2;

/// All lines of one client.
#[derive(Debug)]
pub(crate) struct Queue {
    lines: Mutex<Lines>,
    /// Lines whose keys other processes were lately found to hold.
    contended: Box<[AtomicU32]>,
    hasher: RandomState,
    closed: AtomicBool,
    closing: Notify,
}

/// The lines that there are. One exists while somebody asks, holds or waits; it is in one of these.
#[derive(Debug, Default)]
struct Lines {
    /// One asks the store.
    asked: HashSet<LineId, AsItIs>,
    /// One holds. Ten thousand of these are nothing special, hence few bytes for each.
    held: HashSet<Held, AsItIs>,
    /// Several have met.
    crowds: HashMap<LineId, Crowd, AsItIs>,
}

/// A lease as the only thing of its line.
#[derive(Debug)]
struct Held(Arc<Hold>);

impl Borrow<LineId> for Held {
    fn borrow(&self) -> &LineId {
        &self.0.line
    }
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.line.hash(state);
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.0.line == other.0.line
    }
}

impl Eq for Held {}

/// A line is a hash with a secret key already.
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

#[derive(Debug, Default)]
struct Crowd {
    /// Whether its head is asking the store.
    asked: bool,
    held: Vec<Arc<Hold>>,
    next_ticket: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// What the head was told last.
    known: Option<Busy>,
    in_a_row: u32,
    among_others: bool,
    /// How many heads there have been.
    heads: u64,
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
            hasher: RandomState::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }
}

impl Queue {
    /// The line of those who want these locks.
    pub(crate) fn line_of(&self, locks: &[String]) -> LineId {
        let mut hasher = self.hasher.build_hasher();
        for lock in locks {
            lock.hash(&mut hasher);
        }
        LineId::from(hasher.finish())
    }

    /// Stands behind those who came before.
    pub(crate) fn enter(self: &Arc<Self>, key: LineId, wish: Wish) -> Entry {
        let mut lines = self.lines();
        if !lines.exists(key) {
            lines.asked.insert(key);
            return Entry::Head(self.head(key));
        }
        if let Some(Held(hold)) = lines.held.get(&key)
            && !hold.has_ended()
            && !wish.waits
            && wish.permits == 1
        {
            return Entry::Busy(Busy::here(hold.end()));
        }
        let crowd = lines.crowd(key);
        if !crowd.asked && crowd.has_room(wish.permits) && crowd.waiting.is_empty() {
            crowd.asked = true;
            return Entry::Head(self.head(key));
        }
        if !wish.waits
            && let Some(busy) = crowd.busy(wish.permits)
        {
            return Entry::Busy(busy);
        }
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
        let [place, a, b, c, d, ..] = u64::from(key).to_le_bytes();
        let mark = u32::from_le_bytes([a, b, c, d]) | 1;
        (&self.contended[usize::from(place)], mark)
    }

    /// Whether several have met in a line; where not, nobody waits.
    pub(crate) fn is_crowd(&self, key: LineId) -> bool {
        self.lines().crowds.contains_key(&key)
    }

    /// Gives a lease that nobody holds any more to the next of the line. Where it was not, somebody
    /// else has to give it back.
    pub(crate) fn hand_over(self: &Arc<Self>, hold: &Arc<Hold>) -> bool {
        let back = |crowd: &mut Crowd| {
            crowd.asked = false;
            crowd.held.push(Arc::clone(hold));
        };
        self.offer(hold, |crowd| crowd.take_heir(hold), back)
    }

    /// Offers a lease to one after the other of those that are chosen, until one is there to take it;
    /// of each that is not, the choice is undone.
    fn offer(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        choose: impl Fn(&mut Crowd) -> Option<oneshot::Sender<News>>,
        undo: impl Fn(&mut Crowd),
    ) -> bool {
        let key = hold.line;
        loop {
            let chosen = {
                let mut lines = self.lines();
                if self.is_closed() {
                    return false;
                }
                lines.crowds.get_mut(&key).and_then(&choose)
            };
            let Some(tell) = chosen else {
                return false;
            };
            let news = News::Handed(self.head(key), Arc::clone(hold));
            let Err(News::Handed(head, _)) = tell.send(news) else {
                return true;
            };
            head.disarm();
            if let Some(crowd) = self.lines().crowds.get_mut(&key) {
                undo(crowd);
            }
        }
    }

    /// A lease is held no longer, and on its way back.
    pub(crate) fn left(self: &Arc<Self>, hold: &Arc<Hold>) {
        let key = hold.line;
        {
            let mut lines = self.lines();
            let is_it = |held: &Arc<Hold>| Arc::ptr_eq(held, hold);
            let Some(crowd) = lines.crowds.get_mut(&key) else {
                if lines.held.get(&key).is_some_and(|Held(held)| is_it(held)) {
                    lines.held.remove(&key);
                }
                return;
            };
            crowd.held.retain(|held| !is_it(held));
        }
        self.turn(key);
    }

    /// Makes the next of the line its head, if it can be.
    pub(crate) fn turn(self: &Arc<Self>, key: LineId) {
        loop {
            let tell = {
                let mut lines = self.lines();
                let Some(crowd) = lines.crowds.get_mut(&key) else {
                    return;
                };
                let Some(tell) = crowd.next() else {
                    if crowd.is_idle() {
                        lines.crowds.remove(&key);
                    }
                    return;
                };
                tell
            };
            let Err(News::Turn(head)) = tell.send(News::Turn(self.head(key))) else {
                return;
            };
            head.disarm();
            self.step_down(key);
        }
    }

    /// Nobody asks the store for the line any more.
    fn step_down(&self, key: LineId) {
        let mut lines = self.lines();
        if let Some(crowd) = lines.crowds.get_mut(&key) {
            crowd.asked = false;
            crowd.known = None;
        } else {
            lines.asked.remove(&key);
        }
    }

    /// Lets nobody stand in line any more.
    pub(crate) fn close(&self, reason: &StoreError) {
        self.closed.store(true, Ordering::Release);
        let waiting: Vec<_> = self
            .lines()
            .crowds
            .values_mut()
            .flat_map(|crowd| mem::take(&mut crowd.waiting).into_values())
            .collect();
        for waiting in waiting {
            waiting.hear(News::Down(reason.clone()));
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

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // A panic while the lines were held is a fault of this file; they are still usable.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn exists(&self, key: LineId) -> bool {
        self.held.contains(&key) || self.asked.contains(&key) || self.crowds.contains_key(&key)
    }

    /// A line as one where several have met.
    fn crowd(&mut self, key: LineId) -> &mut Crowd {
        self.crowds.entry(key).or_insert_with(|| Crowd {
            asked: self.asked.remove(&key),
            held: self
                .held
                .take(&key)
                .map(|Held(hold)| hold)
                .into_iter()
                .collect(),
            ..Crowd::default()
        })
    }
}

impl Crowd {
    /// The leases that run. One that was lost is nobody's, however long its holder keeps the handle.
    fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.held.iter().filter(|hold| !hold.has_ended())
    }

    fn has_room(&self, permits: u32) -> bool {
        self.holds().count() < usize::try_from(permits).unwrap_or(usize::MAX)
    }

    fn is_idle(&self) -> bool {
        !self.asked && self.holds().next().is_none() && self.waiting.is_empty()
    }

    /// Who stands in the way, if that is known.
    fn busy(&self, permits: u32) -> Option<Busy> {
        if self.has_room(permits) {
            return self.known.clone();
        }
        let until = self.holds().map(|hold| hold.end()).min()?;
        Some(Busy::here(until))
    }

    fn hold(&mut self, hold: Arc<Hold>) {
        self.held.retain(|held| !held.has_ended());
        self.held.push(hold);
    }

    /// Takes those who wait out of the line that this is true of.
    fn take(&mut self, of: impl Fn(&Self, &Waiting) -> bool) -> Vec<Waiting> {
        let chosen: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| of(self, waiting))
            .map(|(number, _)| *number)
            .collect();
        let take = |number| self.waiting.remove(&number);
        chosen.into_iter().filter_map(take).collect()
    }

    /// The first who waits, if it can ask the store now.
    fn next(&mut self) -> Option<oneshot::Sender<News>> {
        while !self.asked {
            let (_, first) = self.waiting.first_key_value()?;
            if !first.tell.is_closed() && !self.has_room(first.permits) {
                return None;
            }
            let (_, first) = self.waiting.pop_first()?;
            if !first.tell.is_closed() {
                self.asked = true;
                self.heads += 1;
                self.known = None;
                return Some(first.tell);
            }
        }
        None
    }

    /// The first who waits, if it can take this lease over, which others may not go on with.
    fn take_heir(&mut self, hold: &Arc<Hold>) -> Option<oneshot::Sender<News>> {
        let place = self.held.iter().position(|held| Arc::ptr_eq(held, hold))?;
        if self.asked {
            return None;
        }
        let heir = self.heir(hold.ttl())?;
        self.held.remove(place);
        self.asked = true;
        Some(heir)
    }

    /// The first who waits, if it can take over a lease of this ttl.
    fn heir(&mut self, ttl: Duration) -> Option<oneshot::Sender<News>> {
        let bound = if self.among_others {
            IN_A_ROW_AMONG_OTHERS
        } else {
            IN_A_ROW
        };
        if self.in_a_row >= bound {
            return None;
        }
        loop {
            let first = self.waiting.first_entry()?;
            if first.get().tell.is_closed() {
                first.remove();
                continue;
            }
            if first.get().takes != Some(ttl) {
                return None;
            }
            self.in_a_row += 1;
            self.heads += 1;
            return Some(first.remove().tell);
        }
    }
}

impl Busy {
    fn here(until: Instant) -> Self {
        Self {
            holder: None,
            until,
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
    pub(crate) fn line(&self) -> LineId {
        self.key
    }

    /// The store has told who holds the key: whoever does not wait is answered with that.
    pub(crate) fn busy(&self, busy: &Busy) {
        if !self.armed {
            return;
        }
        let impatient = {
            let mut lines = self.queue.lines();
            // Those who come while it waits are told as well.
            let crowd = lines.crowd(self.key);
            crowd.known = Some(busy.clone());
            crowd.take(|_, waiting| waiting.impatient)
        };
        for waiting in impatient {
            waiting.hear(News::Busy(busy.clone()));
        }
    }

    /// The key is held now: by a grant of the store, or by one that was handed over. The next one may
    /// ask for another slot.
    pub(crate) fn granted(mut self, hold: &Arc<Hold>, granted: Granted) {
        if !mem::take(&mut self.armed) {
            return;
        }
        let (refused, busy) = {
            let mut lines = self.queue.lines();
            if granted == Granted::Alone && lines.asked.remove(&self.key) {
                lines.held.insert(Held(Arc::clone(hold)));
                return;
            }
            let crowd = lines.crowd(self.key);
            crowd.asked = false;
            crowd.known = None;
            crowd.hold(Arc::clone(hold));
            if granted != Granted::Handed {
                crowd.in_a_row = 0;
                crowd.among_others = granted == Granted::AmongOthers;
            }
            let refused = |crowd: &Crowd, waiting: &Waiting| {
                waiting.impatient && !crowd.has_room(waiting.permits)
            };
            let refused = crowd.take(refused);
            let until = crowd.held.iter().map(|hold| hold.end()).min();
            (refused, Busy::here(until.unwrap_or_else(|| hold.end())))
        };
        for waiting in refused {
            waiting.hear(News::Busy(busy.clone()));
        }
        self.queue.turn(self.key);
    }

    /// The store could not be asked, and nobody in the line has to find that out again.
    pub(crate) fn down(self, error: &StoreError) {
        if !self.armed {
            return;
        }
        let waiting = match self.queue.lines().crowds.get_mut(&self.key) {
            Some(crowd) => mem::take(&mut crowd.waiting),
            None => return,
        };
        for waiting in waiting.into_values() {
            waiting.hear(News::Down(error.clone()));
        }
    }

    /// Lets the next of the line have a lease that this caller was handed and does not take, and
    /// be the head. Where nobody does, the lease has to be given back while this is the head.
    pub(crate) fn pass_on(&mut self, hold: &Arc<Hold>) -> bool {
        let heir = |crowd: &mut Crowd| crowd.heir(hold.ttl());
        let passed = self.queue.offer(hold, heir, |_| {});
        self.armed &= !passed;
        passed
    }

    /// It was never taken: whoever made it sees to the line.
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        if self.armed {
            self.queue.step_down(self.key);
            self.queue.turn(self.key);
        }
    }
}

impl Waiting {
    fn hear(self, news: News) {
        // Whoever is gone needs no answer.
        let _ = self.tell.send(news);
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
        // Dropped when the lines are let go, since that wakes the caller.
        let left = {
            let mut lines = self.queue.lines();
            let crowd = lines.crowds.get_mut(&self.key)?;
            let permits = crowd.waiting.get(&self.number)?.permits;
            let Some(busy) = crowd.busy(permits) else {
                crowd.waiting.get_mut(&self.number)?.impatient = true;
                return None;
            };
            (crowd.waiting.remove(&self.number), busy)
        };
        self.queue.turn(self.key);
        Some(left.1)
    }

    /// The head, if it is one of which nothing was heard, and nobody else stands before this caller.
    pub(crate) fn silent_head(&self) -> Option<u64> {
        let lines = self.queue.lines();
        let crowd = lines.crowds.get(&self.key)?;
        let (first, waiting) = crowd.waiting.first_key_value()?;
        let silent = *first == self.number
            && crowd.asked
            && crowd.known.is_none()
            && crowd.has_room(waiting.permits);
        silent.then_some(crowd.heads)
    }

    /// What had been told to a caller that goes away without hearing it.
    pub(crate) fn unheard(&mut self) -> Option<News> {
        self.news.close();
        let unheard = self.news.try_recv().ok();
        if unheard.is_none() {
            let left = match self.queue.lines().crowds.get_mut(&self.key) {
                Some(crowd) => crowd.waiting.remove(&self.number),
                None => None,
            };
            // Those behind it may have room for more.
            if left.is_some() {
                self.queue.turn(self.key);
            }
        }
        unheard
    }
}

#[cfg(test)]
mod tests;
