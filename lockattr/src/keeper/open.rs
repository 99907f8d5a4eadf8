//! Acquisitions that belong to calls which have no lease yet: a shutdown that has waited for them long
//! enough gives back what they may hold, whether or not they are polled any more.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Keeper;
use crate::acquisition::{Acquisition, Return, State};

/// Requests that are asked for, and leases that were handed on and not taken yet; by address.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<OpenTable>);

type OpenTable = HashMap<usize, Arc<Acquisition>, BuildHasherDefault<AddressHasher>>;

/// Every call hashes its address twice. Nobody chooses addresses, so that they need no secret.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // By the golden ratio, as in Knuth's multiplicative hashing: the table looks at the upper bits too.
        const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
        self.0 = (self.0 ^ address as u64).wrapping_mul(GOLDEN_RATIO);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

impl Open {
    fn table(&self) -> MutexGuard<'_, OpenTable> {
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
