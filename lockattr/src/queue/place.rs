//! A waiter's place in its queue, given up when it is dropped.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Hurried, QueueId, Told, WaitQueues};
use crate::error::StoreError;

#[derive(Debug)]
pub(crate) struct Place {
    queues: Arc<WaitQueues>,
    id: QueueId,
    number: u64,
    told: oneshot::Receiver<Told>,
}

impl Place {
    pub(super) fn new(
        queues: &Arc<WaitQueues>,
        id: QueueId,
        number: u64,
        told: oneshot::Receiver<Told>,
    ) -> Self {
        Self {
            queues: Arc::clone(queues),
            id,
            number,
            told,
        }
    }

    /// What the caller is told.
    ///
    /// Cancel-safe.
    pub(crate) async fn told(&mut self) -> Told {
        match (&mut self.told).await {
            Ok(told) => told,
            Err(_) => Told::Unavailable(StoreError::refused("the wait queue was given up")),
        }
    }

    /// When a front should have done something.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        let table = self.queues.table();
        table.met.get(&self.id)?.overdue_at()
    }

    /// Who comes after a front that is overdue comes before it.
    pub(crate) fn pass_over_overdue(&self, now: Instant) {
        self.queues.turn_overdue(self.id, now);
    }

    /// Waits no longer than for the first answer.
    pub(crate) fn hurry(&self, now: Instant) -> Hurried {
        let mut table = self.queues.table();
        match table.met.get_mut(&self.id) {
            Some(waiters) => waiters.hurry(self.number, now),
            None => Hurried::WillBeTold,
        }
    }

    /// What had been told to a caller that goes away without hearing it.
    pub(crate) fn unheard(&mut self) -> Option<Told> {
        self.told.close();
        let unheard = self.told.try_recv().ok();
        if unheard.is_none() && !self.queues.is_copy() {
            let left = match self.queues.table().met.get_mut(&self.id) {
                Some(waiters) => waiters.leave(self.number),
                None => None,
            };
            // Those behind it may have room for more.
            if left.is_some() {
                drop(left);
                self.queues.turn(self.id);
            }
        }
        unheard
    }
}

#[cfg(test)]
impl Place {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn try_told(&mut self) -> Result<Told, oneshot::error::TryRecvError> {
        self.told.try_recv()
    }
}
