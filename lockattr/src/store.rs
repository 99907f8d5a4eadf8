//! What a lock needs of the place where it is kept.
//!
//! [`Store`] is all that an implementer writes. A store knows its own names and clocks: it derives
//! slots, queue entries and counters itself, and says until when a grant may be relied on.
//!
//! The feature `conformance` adds a suite that tells whether a store keeps its promises; the feature
//! `inspect` adds what tools need that show locks to people.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::error::StoreError;

mod answer;
mod clock_anchor;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod fail_fast;
mod held_leases;
#[cfg(feature = "inspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "inspect")))]
pub mod inspect;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod redis;
mod request;
mod sharing;
pub(crate) mod unguarded;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

pub(crate) use answer::relied_on;
pub use answer::{Acquired, Found, Renewal, Renewed, Token, relied_on_until};
pub use held_leases::HeldLeases;
pub(crate) use held_leases::LeaseTable;
pub use request::{Attempt, Claim, Held, Leave, Release};
pub(crate) use sharing::Sharing;

/// The answer of a [`Store`], when it comes.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A place where locks are kept.
///
/// An owner is unique to one acquisition, and every step but the first acts only where it finds that
/// owner; finding another one, it writes nothing.
///
/// # Bounds
/// Every answer comes within [`Limits::longest_answer`]: what a step does not know by then it
/// answers as an error. An error says whether the step may have been done all the
/// same: [`StoreError::in_doubt`], [`StoreError::unreachable`], [`StoreError::refused`], or
/// [`StoreError::invalid`] of a step that this store never does.
///
/// # Context
/// Futures are polled within the context of a tokio runtime that has time enabled, and may go from one
/// runtime to another between two polls: a store may sleep, connect and spawn in them, and spawns on
/// the runtime that it finds there. A step is asked for in the context of its caller, where there is
/// one.
///
/// # Cancel-safety
/// A future may be dropped at any time. What it asked for may then still be done; the owner's keys are
/// given back after that, and once more when it is [`settled`](Store::settled).
pub trait Store: Debug + Send + Sync + 'static {
    /// What the store can do, and how long it takes.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Tries every right and setting that the store needs, once, when a client connects; `claim` is for
    /// a key that is nobody else's, and of which nothing is left. A refusal names what is missing.
    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        let _ = claim;
        Box::pin(async { Ok(()) })
    }

    /// Grants all locks of the claim to its owner for its ttl, if nobody holds them; or nothing. Asked again
    /// for the same owner, it recognises its own grant and starts the ttl anew.
    ///
    /// A lock with permits is granted as long as its holders have no more of them together than there are, by
    /// the number that the claim counts, each with the lowest slot that no other holder has; and to readers
    /// beside readers. No other claims are granted beside each other.
    ///
    /// A store with a queue grants in the order of arrival: whoever comes, or does not wait, is granted
    /// nothing past a waiter who waits for what it would have a part of. Otherwise those who want much would
    /// never have their turn.
    ///
    /// One that waits may be put into a queue, and is told by its [`WakeUps`] when its turn has come.
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired>;

    /// Starts the ttl of each lease anew where its owner still holds it. Never creates a key, nor leaves
    /// one with less than it had, unless the lease [`shortens`](Held::shortens). One answer for each
    /// lease, in their order: what is not known of one says nothing of another.
    ///
    /// `patience` is how long the answer may take.
    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>>;

    /// Ends the owner's hold of what it still holds of the claim, and leaves there what is to be left;
    /// where that is nothing, whoever has waited longest may be given the key in the same step. An
    /// owner that stands in the store's queue stands there no more.
    ///
    /// Answers [`Found::Ours`] where it held all of it; of one of which it is not known what it holds,
    /// where it held any, or stood in a queue.
    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found>;

    /// Draws the fencing token of a lease: larger than every token before of any of its locks, and only
    /// while its owner holds all of them. It may have to be [larger still](Held::at_least).
    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token>;

    /// Wake-ups of a claim that waits. To be had before it is asked for, so that none is missed, and
    /// dropped once nobody waits. What it needs of the claim it keeps for itself.
    ///
    /// A store that has none leaves this as it is: those who wait then ask again after pauses that grow
    /// to half a second.
    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        let _ = claim;
        Box::new(NoWakeUps)
    }

    /// Waits until no earlier request of this owner that was not answered can be carried out any more,
    /// as far as the store can know. The answer is for how long something may come all the same: the
    /// owner's keys are given back once more then, and again and again within that time.
    ///
    /// A store that does not know leaves this as it is, and they are given back for a ttl.
    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        let _ = owner;
        Box::pin(async { Duration::MAX })
    }

    /// Has leases [renewed at once](HeldLeases::renew) from now on that may have ended, as far as the store learns
    /// that by itself: by a watch, by the end of a session, or since it has lost its connection to a server that
    /// may have forgotten them. Asked once, when a client is made.
    ///
    /// A store that learns nothing by itself leaves this as it is: a loss is found by the next renewal, and
    /// where a lease is not renewed, by its deadline.
    fn tell_ended(&self, leases: HeldLeases) {
        drop(leases);
    }

    /// Whether leases live in the time of the calling tokio runtime, which tests may pause, rather
    /// than in real time.
    fn in_callers_time(&self) -> bool {
        false
    }

    /// What shows the store's locks to people, if it can: see [`Client::inspect`](crate::Client::inspect).
    #[cfg(feature = "inspect")]
    #[cfg_attr(docsrs, doc(cfg(feature = "inspect")))]
    fn inspect(&self) -> Option<&dyn inspect::Inspect> {
        None
    }
}

/// What a store can do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a store can do or cannot"
)]
pub struct Limits {
    /// The shortest ttl that it keeps.
    pub shortest_ttl: Duration,
    /// Whether it grants several locks, all or none.
    pub several_locks: bool,
    /// Whether it does so in one step. If not, it takes one after the other and gives all back where one is
    /// missing: meanwhile others find locks held of which nothing comes.
    pub several_in_one_step: bool,
    /// Whether a lock may have several holders at a time.
    pub permits: bool,
    /// How many permits a lock may have at most, where it may have several.
    pub most_permits: u32,
    /// Whether a holder may have several of the permits.
    pub weights: bool,
    /// Whether readers may hold a lock beside one another.
    pub shared: bool,
    /// The longest that an answer to an [`acquire`](Store::acquire) takes.
    pub longest_answer: Duration,
}

impl Default for Limits {
    /// A ttl of 10 ms, several locks in one step, up to a thousand permits without weights, no readers, and
    /// answers within four seconds.
    fn default() -> Self {
        Self {
            shortest_ttl: crate::limits::MIN_TTL,
            several_locks: true,
            several_in_one_step: true,
            permits: true,
            most_permits: 1000,
            weights: false,
            shared: false,
            longest_answer: Duration::from_secs(4),
        }
    }
}

impl Limits {
    /// With another shortest ttl.
    #[must_use]
    pub fn shortest_ttl(mut self, ttl: Duration) -> Self {
        self.shortest_ttl = ttl;
        self
    }

    /// With or without several locks.
    #[must_use]
    pub fn several_locks(mut self, several: bool) -> Self {
        self.several_locks = several;
        self
    }

    /// With several locks in one step, or one after the other.
    #[must_use]
    pub fn several_in_one_step(mut self, at_once: bool) -> Self {
        self.several_in_one_step = at_once;
        self
    }

    /// With or without several holders of a lock.
    #[must_use]
    pub fn permits(mut self, permits: bool) -> Self {
        self.permits = permits;
        self
    }

    /// With as many permits at most.
    #[must_use]
    pub fn most_permits(mut self, permits: u32) -> Self {
        self.most_permits = permits;
        self
    }

    /// With or without holders of several permits.
    #[must_use]
    pub fn weights(mut self, weights: bool) -> Self {
        self.weights = weights;
        self
    }

    /// With or without readers.
    #[must_use]
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// With answers that take at most that long.
    #[must_use]
    pub fn longest_answer(mut self, answer: Duration) -> Self {
        self.longest_answer = answer;
        self
    }
}

/// Wake-ups of one claim that waits.
pub trait WakeUps: Send {
    /// The next one. `cx`'s waker is woken when there is one; nothing of the caller's may be woken or
    /// dropped under a lock of the store.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp>;
}

/// Never wakes anybody.
struct NoWakeUps;

impl WakeUps for NoWakeUps {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<WakeUp> {
        Poll::Pending
    }
}

/// What one that waits is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeUp {
    /// It was granted its claim.
    #[non_exhaustive]
    Granted {
        /// Which slot.
        slot: usize,
        /// Until when that may be relied on; as in [`Acquired::Granted`].
        until: Instant,
    },
    /// It is the first in the store's queue now, and is to look for itself if it hears nothing.
    #[non_exhaustive]
    First {
        /// For how long the holder's lease runs.
        remaining: Duration,
    },
    /// Something has happened: it had better ask again.
    Look,
}

impl WakeUp {
    /// It was granted its claim, until then.
    #[must_use]
    pub fn granted(slot: usize, until: Instant) -> Self {
        Self::Granted { slot, until }
    }

    /// It is the first in the queue, behind a holder whose lease runs for so long.
    #[must_use]
    pub fn first(remaining: Duration) -> Self {
        Self::First { remaining }
    }
}

/// A store behind a pointer is that store.
macro_rules! forward {
    ($pointer:ident) => {
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn limits(&self) -> Limits {
                (**self).limits()
            }

            fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
                (**self).check(claim)
            }

            fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
                (**self).acquire(claim, attempt)
            }

            fn renew<'a>(
                &'a self,
                leases: &'a [Held<'a>],
                patience: Duration,
            ) -> Reply<'a, Vec<Renewed>> {
                (**self).renew(leases, patience)
            }

            fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
                (**self).release(claim, release)
            }

            fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
                (**self).token(lease)
            }

            fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
                (**self).wakeups(claim)
            }

            fn settled<'a>(
                &'a self,
                owner: &'a str,
            ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
                (**self).settled(owner)
            }

            fn tell_ended(&self, leases: HeldLeases) {
                (**self).tell_ended(leases);
            }

            fn in_callers_time(&self) -> bool {
                (**self).in_callers_time()
            }

            #[cfg(feature = "inspect")]
            fn inspect(&self) -> Option<&dyn inspect::Inspect> {
                (**self).inspect()
            }
        }
    };
}

forward!(Arc);
forward!(Box);
