//! Calls within calls: what a lease knows of a locked call that has joined it, under which one further
//! call at a time may join in turn.
//!
//! Which leases a call joins, and when it may, is decided in [`acquire::joining`](crate::acquire).

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::Lease;
use crate::acquisition::{Acquisition, LeaseOptions, LockKeys};
use crate::error::LossCause;
use crate::keeper::Keeper;
use crate::runtime::turns::{MyTurn, Turns};
use crate::store::Sharing;

/// A locked call, under which one further call at a time may join its lease.
pub(super) struct JoinedCall {
    turns: Arc<Turns>,
    /// What the call asked for, having joined the leases of others.
    pub(super) options: LeaseOptions,
    pub(super) keys: LockKeys,
    pub(super) started: Instant,
    /// The end of its `max_hold`.
    pub(super) last: Option<Instant>,
    /// The locks that the call has named, where it has joined them.
    joints: Vec<Joint>,
    /// The turns that this call has taken under the calls that it has joined. Boxed, for a guard whose
    /// type is to be seen would have clippy tell every locked function to drop its lease early.
    _turns_taken: Vec<Box<dyn Send + Sync>>,
}

impl JoinedCall {
    /// How any of the leases that it has joined was lost.
    pub(super) fn loss(&self) -> Option<LossCause> {
        self.joints
            .iter()
            .find_map(|joint| joint.acquisition.loss())
    }

    /// Its body has come to a success, which leaves a mark for so long.
    pub(super) fn succeed(&self, once: Duration) {
        for Joint { acquisition, locks } in &self.joints {
            acquisition.mark_done(locks.iter().copied(), once);
        }
    }
}

/// Locks of a lease that a call has named, and has joined.
pub(crate) struct Joint {
    acquisition: Arc<Acquisition>,
    /// Which of the lease's locks.
    locks: Vec<usize>,
}

impl Joint {
    /// Since when the work of one of them is done.
    pub(crate) fn done_since(&self) -> Option<SystemTime> {
        self.acquisition.done_since(&self.locks)
    }
}

impl Lease {
    /// When a call that has joined this lease has to end before the lease does.
    pub(crate) fn own_end(&self) -> Option<Instant> {
        self.joined.as_ref()?.last
    }

    /// A call that has joined this lease was stopped, and the lease goes on.
    pub(crate) fn count_own_end(&self) {
        let counters = &self.handle.keeper.counters;
        counters.lost(self.site(), LossCause::HeldTooLong);
    }

    /// Whether the lease is this keeper's.
    pub(crate) fn is_kept_by(&self, keeper: &Arc<Keeper>) -> bool {
        Arc::ptr_eq(&self.handle.keeper, keeper)
    }

    /// The same, and it still runs.
    pub(crate) fn is_of(&self, keeper: &Arc<Keeper>) -> bool {
        self.is_kept_by(keeper) && self.acquisition().loss().is_none()
    }

    /// How it holds a lock, if it does.
    pub(crate) fn holds(&self, lock: &String) -> Option<Sharing> {
        let keys = self.keys();
        keys.locks().contains(lock).then(|| keys.sharing())
    }

    /// Whether both are handles of one grant.
    pub(crate) fn is_same_grant(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle.acquisition, &other.handle.acquisition)
    }

    /// An order of grants, for as long as they are held.
    pub(crate) fn grant_address(&self) -> usize {
        Arc::as_ptr(&self.handle.acquisition).addr()
    }

    /// Waits for the turn to be the one call right under this one.
    pub(crate) fn turn_under(&self) -> impl Future<Output = MyTurn> + use<> {
        let turns = match &self.joined {
            Some(call) => Arc::clone(&call.turns),
            None => Arc::clone(&self.acquisition().shared().turns),
        };
        turns.take()
    }

    /// What a call has joined that has named these of its locks.
    pub(crate) fn joint(&self, named: &[&String]) -> Joint {
        let locks = self.keys().locks().iter().enumerate();
        let named = locks.filter(|(_, lock)| named.contains(lock));
        Joint {
            locks: named.map(|(index, _)| index).collect(),
            acquisition: Arc::clone(&self.handle.acquisition),
        }
    }

    /// A handle for a call on terms of its own that has joined others, in its turns.
    pub(crate) fn joined(
        self,
        keys: LockKeys,
        options: LeaseOptions,
        mut joints: Vec<Joint>,
        turns_taken: Vec<MyTurn>,
    ) -> Self {
        for Joint { acquisition, locks } in &joints {
            acquisition.close_for(locks.iter().copied(), options.min_hold);
        }
        if !joints
            .iter()
            .any(|joint| Arc::ptr_eq(&joint.acquisition, &self.handle.acquisition))
        {
            // It was taken for the rest of the call's keys.
            joints.push(Joint {
                acquisition: Arc::clone(&self.handle.acquisition),
                locks: (0..self.keys().locks().len()).collect(),
            });
        }
        let boxed = |turn| Box::new(turn) as Box<dyn Send + Sync>;
        let call = JoinedCall {
            turns: Arc::default(),
            options,
            keys,
            started: self.now(),
            last: options.max_hold.map(|max| self.now() + max),
            joints,
            _turns_taken: turns_taken.into_iter().map(boxed).collect(),
        };
        Self {
            handle: self.handle,
            joined: Some(Arc::new(call)),
        }
    }
}
