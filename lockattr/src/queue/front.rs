//! A front of a wait queue: the right and the duty to ask the store.

use std::sync::Arc;
use std::time::Instant;

use super::{Busy, Granted, HeldAlone, Refused, Told, WaitQueues, tell_one};
use crate::acquisition::{Acquisition, QueueId};
use crate::error::StoreError;

/// One that asks the store for a queue; the next waiter does when this is dropped.
#[derive(Debug)]
pub(crate) struct Front {
    queues: Arc<WaitQueues>,
    id: QueueId,
    places: u32,
    /// Its number in the queue; `None` where it stands in none.
    number: Option<u64>,
}

impl Front {
    pub(super) fn new(
        queues: &Arc<WaitQueues>,
        id: QueueId,
        places: u32,
        number: Option<u64>,
    ) -> Self {
        Self {
            queues: Arc::clone(queues),
            id,
            places,
            number,
        }
    }

    pub(crate) fn queue(&self) -> QueueId {
        self.id
    }

    /// By when it will have done something: from then on it stands in nobody's way.
    pub(crate) fn expect(&self, by: Instant) {
        let Some(number) = self.number else { return };
        let mut table = self.queues.table();
        if let Some(waiters) = table.met.get_mut(&self.id) {
            waiters.expect(number, by);
        } else if let Some(expected) = table.asking.get_mut(&self.id) {
            *expected = by;
        }
    }

    /// The store has told who holds the key: whoever does not wait is answered with that.
    pub(crate) fn busy(&self, busy: &Busy) {
        let Some(number) = self.number else { return };
        let impatient = {
            let mut table = self.queues.table();
            // Those who come while it waits are told as well.
            let waiters = table.waiters(self.id, self.places);
            waiters.learn(number, busy)
        };
        for tell in impatient {
            tell_one(tell, Told::Busy(busy.clone()));
        }
    }

    /// The key is held now: by a grant of the store, or by one that was handed over. The next one may
    /// ask for another slot.
    pub(crate) fn granted(mut self, lease: &Arc<Acquisition>, granted: Granted) {
        let Some(number) = self.number.take() else {
            return;
        };
        let (ended, refused, busy) = {
            let mut table = self.queues.table();
            if granted == Granted::Alone && table.asking.remove(&self.id).is_some() {
                table.held.insert(HeldAlone(Arc::clone(lease)));
                return;
            }
            let waiters = table.waiters(self.id, self.places);
            waiters.end_asking(number);
            let ended = waiters.hold(Arc::clone(lease));
            if granted != Granted::Handed {
                waiters.granted_by_store(granted == Granted::AmongOthers);
            }
            let (refused, busy) = waiters.refuse_impatient();
            (ended, refused, busy.unwrap_or_else(|| Busy::here(lease)))
        };
        drop(ended);
        for tell in refused {
            tell_one(tell, Told::Busy(busy.clone()));
        }
        self.queues.turn(self.id);
    }

    /// The store could not be asked, and nobody who waits has to find that out again.
    pub(crate) fn unavailable(self, error: &StoreError) {
        self.tell_all(|| Told::Unavailable(error.clone()));
    }

    /// The same where it was asked, and to wait does not help.
    pub(crate) fn refused(self, refused: &Refused) {
        self.tell_all(|| Told::Refused(refused.clone()));
    }

    fn tell_all(self, told: impl Fn() -> Told) {
        if self.number.is_none() {
            return;
        }
        let waiting = match self.queues.table().met.get_mut(&self.id) {
            Some(waiters) => waiters.take_all(),
            None => return,
        };
        for tell in waiting {
            tell_one(tell, told());
        }
    }

    /// Lets the next waiter have a lease that this caller was handed and does not take, and be the
    /// front. Where nobody does, the lease has to be given back while this is a front.
    pub(crate) fn pass_on(&mut self, lease: &Arc<Acquisition>) -> bool {
        let hears_by = self.queues.hears_by();
        let next = |waiters: &mut super::Waiters| waiters.next_for(lease.ttl(), hears_by);
        let undo = |waiters: &mut super::Waiters, number| waiters.end_asking(number);
        let passed = self.queues.offer(lease, next, undo);
        if passed && let Some(number) = self.number.take() {
            self.queues.end_asking(self.id, number);
        }
        passed
    }

    /// Whoever made it sees to the queue.
    pub(super) fn was_never_taken(mut self) {
        self.number = None;
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && !self.queues.is_copy()
        {
            self.queues.end_asking(self.id, number);
            self.queues.turn(self.id);
        }
    }
}

#[cfg(test)]
impl Front {
    pub(super) fn stands_in_a_queue(&self) -> bool {
        self.number.is_some()
    }
}
