//! What every handle of one lease has in common: the acquisition, and its way back to the store.
//!
//! The last handle gives the keys back, and a body that runs under one keeps a shutdown waiting. How the
//! keys get back once the holder is gone is the keeper's affair.

use std::sync::Arc;

use crate::acquisition::{Acquisition, Event, KeepersRelease, Return, State};
use crate::error::{Error, LossCause};
use crate::keeper::{Keeper, ScheduleKey};
use crate::store::{Found, Release};

/// What every handle of one grant has; the last of them gives the key back when it is gone.
pub(super) struct Handle {
    pub(super) acquisition: Arc<Acquisition>,
    pub(super) keeper: Arc<Keeper>,
    pub(super) key: ScheduleKey,
}

impl Handle {
    pub(super) async fn release(&self) -> Result<(), Error> {
        let lease = &self.acquisition;
        lease.give_back();
        // Counted as on its way back before it leaves the schedule: shutting down waits for both.
        let _on_its_way = self.keeper.releases();
        if self.keeper.hand_over(lease) {
            self.keeper.forget(self.key);
            let _ = lease.happens(Event::HandOn);
            self.keeper.counters.released.up();
            return Ok(());
        }
        let _ = lease.happens(Event::Release);
        let (owner, left_behind) = (lease.owner(), lease.leaves());
        let claim = lease.claim(&owner, lease.ttl());
        let release = Release::held(lease.slot(), &left_behind);
        let releasing = self.keeper.store.release(claim, release);
        let released = self.keeper.ask_store(releasing).await;
        // Not before: what is on its way for too long the keeper gives back as well.
        self.keeper.forget(self.key);
        self.keeper.left(lease);
        match released {
            Ok(found) => {
                let _ = lease.happens(Event::Answer);
                self.keeper.release_unanswered(lease);
                if found == Found::Ours || was_released_by_keeper(lease) {
                    self.keeper.counters.released.up();
                    return Ok(());
                }
                self.keeper.counters.lost.up();
                Err(lease.lost(loss(found)))
            }
            Err(error) => {
                let in_doubt = error.is_in_doubt();
                self.keeper.tell_release_failed(lease, &error);
                let _ = lease.happens(Event::Fail { in_doubt });
                Ok(())
            }
        }
    }
}

/// Whether the keeper has been faster in giving the key back.
fn was_released_by_keeper(lease: &Acquisition) -> bool {
    matches!(
        lease.keepers_release(),
        Some(KeepersRelease::Asked | KeepersRelease::Found(Found::Ours))
    )
}

pub(super) fn loss(found: Found) -> LossCause {
    match found {
        Found::Another => LossCause::Taken,
        Found::Ours | Found::Nothing => LossCause::Deleted,
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.acquisition.take_handle();
        Self {
            acquisition: Arc::clone(&self.acquisition),
            keeper: Arc::clone(&self.keeper),
            key: self.key,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a process that was forked off it is a copy, and the lease its parent's.
        if !self.acquisition.drop_handle() || self.keeper.check_process().is_err() {
            return;
        }
        if matches!(
            self.acquisition.state(),
            State::Over(_, Return::Done | Return::HandedOn)
        ) {
            return;
        }
        self.keeper.give_back(Arc::clone(&self.acquisition));
        self.keeper.left(&self.acquisition);
        // Only now: shutting down waits for what is in the schedule or on its way back.
        self.keeper.forget(self.key);
    }
}

/// A body that runs under a lease, and has to be stopped before the keys may be given back.
pub(super) struct RunningBody {
    acquisition: Arc<Acquisition>,
    keeper: Arc<Keeper>,
    key: ScheduleKey,
}

impl RunningBody {
    pub(super) fn under(handle: &Handle) -> Self {
        handle.acquisition.guard();
        Self {
            acquisition: Arc::clone(&handle.acquisition),
            keeper: Arc::clone(&handle.keeper),
            key: handle.key,
        }
    }
}

impl Drop for RunningBody {
    fn drop(&mut self) {
        // A shutdown has waited for this, where other handles are left that nobody stops.
        if self.acquisition.unguard() && self.keeper.is_closed() {
            self.keeper.give_back_at_end(self.key, &self.acquisition);
        }
    }
}
