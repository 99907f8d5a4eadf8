//! Counters of what a client has seen.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::call_site::CallSite;
use crate::error::LossCause;
use crate::hold_times::HoldTimesTable;
use crate::observe::Count;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $(=> $count:ident)?,)*) => {
        /// What a client has counted since it was made; see [`Client::stats`](crate::Client::stats).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// What is counted is counted here, for the client and for the metrics of the function.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            pub(crate) hold_times: HoldTimesTable,
            #[cfg(feature = "testing")]
            pub(crate) record: crate::testing::Record,
            $($name: Counter,)*
        }

        #[cfg_attr(
            not(feature = "serde"),
            allow(dead_code, reason = "without replies there are none that are not kept")
        )]
        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }

            $(counters! { @count $name $($count)? })*
        }
    };
    (@count $name:ident $count:ident) => {
        pub(crate) fn $name(&self, site: &CallSite) {
            self.$name.up();
            site.observed.count(Count::$count);
        }
    };
    (@count lost) => {
        pub(crate) fn lost(&self, site: &CallSite, cause: LossCause) {
            self.lost.up();
            site.observed.count_lost(cause);
        }
    };
    (@count $name:ident) => {
        pub(crate) fn $name(&self) {
            self.$name.up();
        }
    };
}

counters! {
    /// Calls that got a lease, be it that of a call around them.
    granted => Acquired,
    /// Calls that found the key busy, after their wait.
    busy => Busy,
    /// Calls whose work was done already.
    done => Done,
    /// Bodies that ran without a lock in the store: `on_unavailable = run` and `local`, and every
    /// call of a disabled client.
    unguarded => Unguarded,
    /// Calls that were answered neither with a lease nor with busy: the store could not be asked,
    /// or the key or a setting was refused.
    unavailable => Unavailable,
    /// Leases that ended before they were given back.
    lost,
    /// Leases given back.
    released,
    /// Releases that could not be asked while the caller waited. The keeper tries each again for
    /// as long as the lease could still stand.
    release_failed,
    /// Leases given back by the keeper after that had failed first.
    released_late => ReleasedLate,
    /// Leases that the keeper could not give back in time: their keys ran out by themselves.
    release_abandoned => ReleaseAbandoned,
    /// Marks of `once` that could not be written while they would have meant something: the work may
    /// run again before its time. Each is told at ERROR.
    marks_lost => MarksLost,
    /// Replies of work that is done that were not kept beside the mark of `once`: too large, or no JSON. Each is
    /// told at ERROR.
    replies_not_kept => RepliesNotKept,
    /// Leases that the next call of this client went on with, without the store.
    handed_over_here => HandedOverHere,
    /// Leases that a release elsewhere has granted to a call of this client that waited.
    handed_over_by_store => HandedOverByStore,
    /// Renewals that the store confirmed.
    renewed,
    /// Renewals that could not be asked, each tried again before the lease's deadline.
    renewal_failed,
}

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
