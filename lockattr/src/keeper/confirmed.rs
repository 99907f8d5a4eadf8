//! A release that the holder waits for, in the time of its own runtime.

use std::sync::Arc;

use super::Keeper;
use super::in_flight::{OnItsWay, RequestKind};
use super::schedule::ScheduleKey;
use crate::acquisition::{Acquisition, Event};
use crate::error::{Error, StoreError};
use crate::store::{Found, Release};

impl Keeper {
    /// Gives a lease back, or lets the next caller of this process go on with it, and waits until the
    /// store has confirmed that; the error says that it was lost. A store that could not be asked is
    /// none: whoever drops the lease then has it asked [again](Keeper::give_back).
    pub(crate) async fn release_confirmed(
        self: &Arc<Self>,
        key: ScheduleKey,
        lease: &Arc<Acquisition>,
    ) -> Result<(), Error> {
        lease.give_back();
        // Counted as on its way back before it leaves the schedule: shutting down waits for both.
        let _on_its_way = OnItsWay::new(&**self, RequestKind::Releasing);
        if self.hand_over(lease) {
            self.forget(key);
            return Ok(());
        }
        match self.release_asked(key, lease).await {
            Ok(found) => {
                if found == Found::Ours || lease.may_be_released_by_keeper() {
                    self.counters.released();
                    return Ok(());
                }
                lease.count_lost(found.loss());
                Err(lease.lost(found.loss()))
            }
            Err(_) => Ok(()),
        }
    }

    /// Has the store say that nothing is left of a lease, be it that it was lost: nobody in this process goes
    /// on with it.
    pub(crate) async fn release_for_certain(
        self: &Arc<Self>,
        key: ScheduleKey,
        lease: &Arc<Acquisition>,
    ) -> Result<(), StoreError> {
        lease.give_back();
        let _on_its_way = OnItsWay::new(&**self, RequestKind::Releasing);
        if self.release_asked(key, lease).await? == Found::Ours {
            self.counters.released();
        }
        if lease.is_unanswered() {
            return Err(StoreError::in_doubt(
                "a request that was never answered may still take the lock",
            ));
        }
        Ok(())
    }

    async fn release_asked(
        self: &Arc<Self>,
        key: ScheduleKey,
        lease: &Arc<Acquisition>,
    ) -> Result<Found, StoreError> {
        let _ = lease.happens(Event::Release);
        let (owner, left_behind) = (lease.owner(), lease.leaves());
        let claim = lease.claim(&owner, lease.ttl());
        let release = Release::held(lease.slot(), &left_behind);
        let released = self.ask_store(self.store.release(claim, release)).await;
        // Not before: what is on its way for too long is given back by `release_as_well`.
        self.forget(key);
        self.left(lease);
        match &released {
            Ok(_) => {
                let _ = lease.happens(Event::Answer);
                self.release_unanswered(lease);
            }
            Err(error) => {
                let in_doubt = error.is_in_doubt();
                self.tell_release_failed(lease, error);
                let _ = lease.happens(Event::Fail { in_doubt });
            }
        }
        released
    }
}
