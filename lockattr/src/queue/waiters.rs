//! One wait queue: who asks the store, who holds, and who waits, in order of arrival.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Busy, Entrant, Teller, Told};
use crate::acquisition::Acquisition;

/// How often in a row a lease goes from caller to caller without the store.
pub(super) const IN_A_ROW: u32 = 4;

/// The same where other processes are known to want the key.
const IN_A_ROW_AMONG_OTHERS: u32 = 2;

#[derive(Debug)]
pub(super) struct Waiters {
    /// How many holders there may be at a time.
    places: u32,
    fronts: Vec<Asking>,
    held: Vec<Arc<Acquisition>>,
    next_number: u64,
    waiting: BTreeMap<u64, Waiter>,
    in_a_row: u32,
    among_others: bool,
    /// How often in a row a front was found to do nothing: twice as many are told each time, so that
    /// many who are not polled any more cost little more than one.
    missed: u32,
}

/// A front.
#[derive(Debug)]
struct Asking {
    number: u64,
    /// By when it will have done something.
    expected: Instant,
    /// What the store has told it last.
    known: Option<Busy>,
}

#[derive(Debug)]
struct Waiter {
    tell: Teller,
    /// It takes the first answer that there is.
    impatient: bool,
    /// The ttl of a lease that it could take over.
    takes: Option<Duration>,
}

/// What there is for a waiter whose time is over.
#[derive(Debug)]
pub(crate) enum Hurried {
    /// It is known who holds the key.
    Busy(Busy),
    /// A front is about to know.
    WillBeTold,
    /// Nobody is going to know soon: it had better ask the store by itself.
    Unknown,
}

/// Who is told next and as which front; and those who were found gone, to be dropped when nothing is
/// locked.
pub(super) type Chosen = (Option<(Teller, u64)>, Vec<Teller>);

impl Waiters {
    /// With those that were there before several met: one that asks, or one that holds. Its numbers are
    /// those of no other `meeting`: callers of an earlier one may go away later.
    pub(super) fn of(
        places: u32,
        asking: Option<Instant>,
        held: Option<Arc<Acquisition>>,
        meeting: u32,
    ) -> Self {
        let front = |expected| Asking {
            number: 0,
            expected,
            known: None,
        };
        Self {
            places,
            fronts: asking.map(front).into_iter().collect(),
            held: held.into_iter().collect(),
            next_number: (u64::from(meeting) << 32) + 1,
            waiting: BTreeMap::new(),
            in_a_row: 0,
            among_others: false,
            missed: 0,
        }
    }

    pub(super) fn places(&self) -> u32 {
        self.places
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.fronts.is_empty() && self.running().next().is_none() && self.waiting.is_empty()
    }

    /// The leases that run. One that was lost is nobody's, however long its holder keeps the handle.
    fn running(&self) -> impl Iterator<Item = &Arc<Acquisition>> {
        self.held.iter().filter(|lease| !lease.has_ended())
    }

    fn ends_first(&self) -> Option<&Acquisition> {
        let running = self.running().map(Arc::as_ref);
        running.min_by_key(|lease| lease.end())
    }

    fn all_held(&self) -> bool {
        self.running().count() >= usize::try_from(self.places).unwrap_or(usize::MAX)
    }

    /// Whether one more may ask the store.
    pub(super) fn has_room(&self) -> bool {
        if self.all_held() {
            return false;
        }
        let more = match self.missed {
            0 => 0,
            missed => 1_usize << missed.min(10),
        };
        let taken = self.running().count() + self.fronts.len();
        taken < usize::try_from(self.places).unwrap_or(usize::MAX) + more
    }

    /// Who stands in the way, if that is known.
    pub(super) fn busy(&self, now: Instant) -> Option<Busy> {
        if self.all_held() {
            return self.ends_first().map(Busy::here);
        }
        let known = self.fronts.iter().filter_map(|front| front.known.as_ref());
        known
            .filter(|busy| now < busy.until)
            .min_by_key(|busy| busy.until)
            .cloned()
    }

    /// Whether all fronts have been answered, and wait: the next answer may take long.
    pub(super) fn all_wait(&self) -> bool {
        !self.fronts.is_empty() && self.fronts.iter().all(|front| front.known.is_some())
    }

    /// Fronts that should have done something by now stand in nobody's way.
    pub(super) fn pass_over_overdue(&mut self, now: Instant) {
        let before = self.fronts.len();
        self.fronts.retain(|front| now < front.expected);
        if self.fronts.len() < before {
            self.missed += 1;
        }
    }

    /// When the next front is overdue.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        self.fronts.iter().map(|front| front.expected).min()
    }

    pub(super) fn push(&mut self, entrant: &Entrant) -> (u64, oneshot::Receiver<Told>) {
        let number = self.number();
        let (tell, told) = oneshot::channel();
        let waiter = Waiter {
            tell,
            impatient: !entrant.waits,
            takes: entrant.takes,
        };
        self.waiting.insert(number, waiter);
        (number, told)
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// One more front.
    pub(super) fn begin_to_ask(&mut self, expected: Instant) -> u64 {
        let number = self.number();
        self.fronts.push(Asking {
            number,
            expected,
            known: None,
        });
        number
    }

    pub(super) fn end_asking(&mut self, number: u64) {
        self.fronts.retain(|front| front.number != number);
    }

    /// A front will have done something by then.
    pub(super) fn expect(&mut self, number: u64, expected: Instant) {
        self.missed = 0;
        if let Some(front) = self.front(number) {
            front.expected = expected;
        }
    }

    fn front(&mut self, number: u64) -> Option<&mut Asking> {
        self.fronts.iter_mut().find(|front| front.number == number)
    }

    /// A front was told who holds the key; the answer are those who wait for no more than that.
    pub(super) fn learn(&mut self, number: u64, busy: &Busy) -> Vec<Teller> {
        match self.front(number) {
            Some(front) => front.known = Some(busy.clone()),
            None => return Vec::new(),
        }
        self.take_impatient()
    }

    /// A lease runs from now on. The answer is those that do not any more.
    pub(super) fn hold(&mut self, lease: Arc<Acquisition>) -> Vec<Arc<Acquisition>> {
        let (running, ended) = mem::take(&mut self.held)
            .into_iter()
            .partition(|held| !held.has_ended());
        self.held = running;
        self.held.push(lease);
        ended
    }

    /// The store has granted, and not a caller.
    pub(super) fn granted_by_store(&mut self, among_others: bool) {
        self.in_a_row = 0;
        self.among_others = among_others;
    }

    /// Those who do not wait, where the key is held by now, and by whom.
    pub(super) fn refuse_impatient(&mut self) -> (Vec<Teller>, Option<Busy>) {
        if !self.all_held() {
            return (Vec::new(), None);
        }
        let busy = self.ends_first().map(Busy::here);
        (self.take_impatient(), busy)
    }

    fn take_impatient(&mut self) -> Vec<Teller> {
        let impatient = self.waiting.iter().filter(|(_, waiter)| waiter.impatient);
        let impatient: Vec<_> = impatient.map(|(number, _)| *number).collect();
        let taken = impatient
            .into_iter()
            .filter_map(|number| self.leave(number));
        taken.collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Teller> {
        let waiting = mem::take(&mut self.waiting);
        waiting.into_values().map(|waiter| waiter.tell).collect()
    }

    /// Takes a lease out, to be dropped when nothing is locked.
    pub(super) fn let_go(&mut self, lease: &Arc<Acquisition>) -> Option<Arc<Acquisition>> {
        let place = self.held.iter().position(|held| Arc::ptr_eq(held, lease))?;
        Some(self.held.swap_remove(place))
    }

    /// A lease that was offered is its holder's again.
    pub(super) fn take_back(&mut self, lease: &Arc<Acquisition>) {
        self.held.push(Arc::clone(lease));
    }

    /// The first who waits, if it can ask the store now.
    pub(super) fn next(&mut self, hears_by: Instant) -> Chosen {
        let mut gone = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if first.get().tell.is_closed() {
                gone.push(first.remove().tell);
                continue;
            }
            if !self.has_room() {
                break;
            }
            let Some((_, first)) = self.waiting.pop_first() else {
                break;
            };
            let number = self.begin_to_ask(hears_by);
            return (Some((first.tell, number)), gone);
        }
        (None, gone)
    }

    /// The first who waits, if it can take this lease over, which others may not go on with.
    pub(super) fn next_for_lease_of(
        &mut self,
        lease: &Arc<Acquisition>,
        hears_by: Instant,
    ) -> Chosen {
        let place = self.held.iter().position(|held| Arc::ptr_eq(held, lease));
        let Some(place) = place.filter(|_| self.fronts.is_empty()) else {
            return (None, Vec::new());
        };
        let (chosen, gone) = self.next_for(lease.ttl(), hears_by);
        if chosen.is_some() {
            // Its holder has another handle of it.
            self.held.swap_remove(place);
        }
        (chosen, gone)
    }

    /// The first who waits, if it can take over a lease of this ttl.
    pub(super) fn next_for(&mut self, ttl: Duration, hears_by: Instant) -> Chosen {
        let bound = if self.among_others {
            IN_A_ROW_AMONG_OTHERS
        } else {
            IN_A_ROW
        };
        let mut gone = Vec::new();
        while self.in_a_row < bound
            && let Some(first) = self.waiting.first_entry()
        {
            if first.get().tell.is_closed() {
                gone.push(first.remove().tell);
                continue;
            }
            if first.get().takes != Some(ttl) {
                break;
            }
            let tell = first.remove().tell;
            self.in_a_row += 1;
            let number = self.begin_to_ask(hears_by);
            return (Some((tell, number)), gone);
        }
        (None, gone)
    }

    /// A waiter takes the first answer from now on.
    pub(super) fn hurry(&mut self, number: u64, now: Instant) -> Hurried {
        if let Some(busy) = self.busy(now) {
            return Hurried::Busy(busy);
        }
        let all_wait = self.all_wait();
        match self.waiting.get_mut(&number) {
            Some(_) if all_wait => Hurried::Unknown,
            Some(waiter) => {
                waiter.impatient = true;
                Hurried::WillBeTold
            }
            // It was told just now.
            None => Hurried::WillBeTold,
        }
    }

    /// Takes a waiter out, to be dropped when nothing is locked.
    pub(super) fn leave(&mut self, number: u64) -> Option<Teller> {
        Some(self.waiting.remove(&number)?.tell)
    }
}

#[cfg(test)]
impl Waiters {
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().copied()
    }

    pub(super) fn fronts(&self) -> usize {
        self.fronts.len()
    }

    pub(super) fn knows(&self, lease: &Arc<Acquisition>) -> bool {
        self.held.iter().any(|held| Arc::ptr_eq(held, lease))
    }
}
