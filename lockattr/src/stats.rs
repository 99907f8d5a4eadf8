//! Counters of what a client has seen.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a client has counted since it was made; see [`Client::stats`](crate::Client::stats).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Leases granted.
    granted,
    /// Calls that found the key busy, after their wait.
    busy,
    /// Calls whose work was done already.
    done,
    /// Bodies that ran without a lock in the store: `on_unavailable = run` and `local`, and every
    /// call of a disabled client.
    unguarded,
    /// Calls that were answered neither with a lease nor with busy: the store could not be asked,
    /// or the key or a setting was refused.
    unavailable,
    /// Leases that ended before they were given back.
    lost,
    /// Leases given back.
    released,
    /// Releases that could not be asked while the caller waited. The keeper tries each again for
    /// as long as the lease could still stand.
    release_failed,
    /// Marks of `once` that could not be written while they would have meant something: the work may
    /// run again before its time. Each is told at ERROR.
    marks_lost,
    /// Renewals that the store confirmed.
    renewed,
    /// Renewals that could not be asked, each tried again before the lease's deadline.
    renewal_failed,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
