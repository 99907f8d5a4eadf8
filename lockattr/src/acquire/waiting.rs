//! Waiting in the queue of this process.

use std::sync::Arc;

use super::asking::{Caller, refusal};
use super::{Call, Rare, rare};
use crate::acquisition::{Acquisition, QueueId};
use crate::error::StoreError;
use crate::keeper::{Keeper, SHUT_DOWN};
use crate::queue::{Front, HEARS_WITHIN, Hurried, Place, Told};

/// How a caller comes to be a front of its queue.
pub(super) enum Turn {
    Front(Front),
    /// With the lease of the caller before.
    Handed(Front, Arc<Acquisition>),
}

impl Caller<'_> {
    /// Waits until it is this caller's turn.
    pub(super) fn wait_for_turn<'a>(
        &'a self,
        call: &'a Call,
        id: QueueId,
        place: Place,
    ) -> Rare<'a, Turn> {
        let mut waiter = WaitingCaller {
            keeper: self.keeper,
            place,
        };
        rare(self.keeper, async move {
            if self.keeper.is_closed() {
                return Err(call.unavailable(StoreError::refused(SHUT_DOWN)));
            }
            match self.told(call, &mut waiter).await {
                Some(Told::Front(front)) => Ok(Turn::Front(front)),
                Some(Told::Handed(front, from)) => {
                    let left = from.deadline().saturating_duration_since(call.clock.now());
                    if left >= from.ttl() / 3 && from.keys.locks() == call.keys.locks() {
                        return Ok(Turn::Handed(front, from));
                    }
                    // Too late, or by chance in the queue of another key.
                    self.keeper.take_back(&from);
                    Ok(Turn::Front(front))
                }
                Some(Told::Busy(busy)) => Err(self.busy(call, busy)),
                Some(Told::Refused(refused)) => Err(refusal(&call.keys, refused)),
                Some(Told::Unavailable(source)) => Err(call.unavailable(source)),
                None => {
                    let alone = self.keeper.queues.alone(id, call.keys.sharing().places());
                    Ok(Turn::Front(alone))
                }
            }
        })
    }

    /// What the caller is told; `None` where it had better ask the store by itself.
    async fn told(&self, call: &Call, waiter: &mut WaitingCaller<'_>) -> Option<Told> {
        let clock = call.clock;
        let background = &self.keeper.background;
        // Nobody is kept for longer than it would take to ask for itself.
        let last = call.give_up + self.keeper.patience.max(HEARS_WITHIN);
        let mut in_a_hurry = !call.waits;
        loop {
            let now = clock.now();
            if now >= last {
                return waiter.place.unheard();
            }
            if now >= call.give_up && !in_a_hurry {
                match waiter.place.hurry(now) {
                    Hurried::Busy(busy) => {
                        return Some(waiter.place.unheard().unwrap_or(Told::Busy(busy)));
                    }
                    Hurried::WillBeTold => in_a_hurry = true,
                    Hurried::Unknown => return waiter.place.unheard(),
                }
            }
            let overdue = waiter.place.overdue_at();
            let mut until = if in_a_hurry { last } else { call.give_up };
            until = overdue.map_or(until, |overdue| until.min(overdue));
            if let Ok(told) = clock.until(background, until, waiter.place.told()).await {
                return Some(told);
            }
            waiter.place.pass_over_overdue(clock.now());
        }
    }
}

/// A waiter, which may go away in the very moment that its turn has come.
struct WaitingCaller<'a> {
    keeper: &'a Arc<Keeper>,
    place: Place,
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        if let Some(Told::Handed(front, lease)) = self.place.unheard() {
            self.keeper.pass_on(front, &lease);
        }
    }
}
