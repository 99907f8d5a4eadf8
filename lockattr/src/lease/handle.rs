//! What every handle of one lease has in common: the acquisition, and who keeps it.
//!
//! The last handle gives the keys back, and a body that runs under one keeps a shutdown waiting. How the
//! keys get back once the holder is gone is the keeper's affair.

use std::sync::Arc;

use crate::acquisition::{Acquisition, Return, State};
use crate::keeper::{Keeper, ScheduleKey};

/// What every handle of one grant has; the last of them gives the key back when it is gone.
pub(super) struct Handle {
    pub(super) acquisition: Arc<Acquisition>,
    pub(super) keeper: Arc<Keeper>,
    pub(super) key: ScheduleKey,
    /// Whether a body runs under this one, which has to be stopped before the keys may be given back.
    pub(super) is_guarded: bool,
}

impl Handle {
    /// A body is going to run under it.
    pub(super) fn guard(&mut self) {
        self.acquisition.guard();
        self.is_guarded = true;
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.acquisition.take_handle();
        Self {
            acquisition: Arc::clone(&self.acquisition),
            keeper: Arc::clone(&self.keeper),
            key: self.key,
            is_guarded: false,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a process that was forked off it is a copy, and the lease its parent's.
        let is_copy = || !self.keeper.process().is_here();
        // A shutdown has waited for the body, where other handles are left that nobody stops.
        if self.is_guarded && self.acquisition.unguard() && self.keeper.is_closed() && !is_copy() {
            self.keeper.give_back_at_end(self.key, &self.acquisition);
        }
        if !self.acquisition.drop_handle()
            || matches!(
                self.acquisition.state(),
                State::Over(_, Return::HandedOn | Return::Unclaimed | Return::Done)
            )
        {
            return;
        }
        if is_copy() {
            self.acquisition.drop_copy();
            return;
        }
        self.keeper.give_back(Arc::clone(&self.acquisition));
        // Only now: shutting down waits for what is in the schedule or on its way back.
        self.keeper.forget(self.key);
    }
}
