//! Acquisitions that belong to calls which have no lease yet: a shutdown that has waited for them long
//! enough gives back what they may hold, whether or not they are polled any more.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Keeper;
use crate::acquisition::{Acquisition, Return, State};

/// Requests that are asked for, and leases that were handed on and not taken yet; by address.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<HashMap<usize, Arc<Acquisition>>>);

impl Open {
    fn table(&self) -> MutexGuard<'_, HashMap<usize, Arc<Acquisition>>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(acquisition: &Arc<Acquisition>) -> usize {
    Arc::as_ptr(acquisition).addr()
}

impl Keeper {
    /// From now on a shutdown may give this back.
    pub(crate) fn open(&self, acquisition: &Arc<Acquisition>) {
        let opened = Arc::clone(acquisition);
        self.open.table().insert(address(acquisition), opened);
    }

    /// What it holds is its caller's, or is given back by it; says whether it is: where not, a shutdown
    /// sees to it.
    pub(crate) fn close(&self, acquisition: &Arc<Acquisition>) -> bool {
        let closed = self.open.table().remove(&address(acquisition));
        closed.is_some()
    }

    /// Gives back whatever there is.
    pub(super) fn give_back_all_open(self: &Arc<Self>) {
        let open = mem::take(&mut *self.open.table());
        for acquisition in open.into_values() {
            if let State::Over(_, Return::HandedOn) = acquisition.state() {
                self.take_back(&acquisition);
            } else {
                // The store may carry out yet what it has not answered by now.
                acquisition.set_unanswered();
                self.give_back(acquisition);
            }
        }
    }
}
