//! What a lock needs of the place where it is kept.
//!
//! [`Store`] is all that an implementer writes. A store knows its own names and clocks: it derives
//! slots, queue entries and counters itself, and says until when a grant may be relied on.
//!
//! The feature `conformance` adds a suite that tells whether a store keeps its promises.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{LossCause, StoreError};

#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod unguarded;

/// The answer of a [`Store`], when it comes.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A place where locks are kept.
///
/// An owner is unique to one acquisition, and every step but the first acts only where it finds that
/// owner; finding another one, it writes nothing.
///
/// # Bounds
/// Every answer comes within [`Limits::longest_answer`], for calls by half of it: what a step does not
/// know by then it answers as an error. An error says whether the step may have been done all the
/// same: [`StoreError::in_doubt`] or [`StoreError::refused`].
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

    /// Grants all locks of the claim, or one slot of its only lock, to its owner for its ttl, if nobody
    /// holds them; or nothing. Asked again for the same owner, it recognises its own grant and starts
    /// the ttl anew.
    ///
    /// One that waits may be put into a queue, and is told by its [`WakeUps`] when its turn has come.
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired>;

    /// Starts the ttl of each lease anew where its owner still holds it. Never creates a key, nor leaves
    /// one with less than it had, unless the lease [`shortens`](Held::shortens). One answer for each lease, in their order: what is not known of one says nothing of another.
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
    /// while its owner holds all of them.
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

    /// Whether leases live in the time of the calling tokio runtime, which tests may pause, rather
    /// than in real time.
    fn in_callers_time(&self) -> bool {
        false
    }
}

/// What a store can do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The shortest ttl that it keeps.
    pub shortest_ttl: Duration,
    /// Whether it grants several locks in one step, all or none.
    pub several_locks: bool,
    /// Whether a lock may have several holders at a time.
    pub permits: bool,
    /// The longest that an answer to an [`acquire`](Store::acquire) takes.
    pub longest_answer: Duration,
}

impl Default for Limits {
    /// A ttl of 10 ms, several locks and permits, and answers within four seconds.
    fn default() -> Self {
        Self {
            shortest_ttl: crate::limits::MIN_TTL,
            several_locks: true,
            permits: true,
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

    /// With or without several locks in one step.
    #[must_use]
    pub fn several_locks(mut self, several: bool) -> Self {
        self.several_locks = several;
        self
    }

    /// With or without several holders of a lock.
    #[must_use]
    pub fn permits(mut self, permits: bool) -> Self {
        self.permits = permits;
        self
    }

    /// With answers that take at most that long.
    #[must_use]
    pub fn longest_answer(mut self, answer: Duration) -> Self {
        self.longest_answer = answer;
        self
    }
}

/// One acquisition, in every step of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// The whole lock keys, the client's prefix included. Never none; where there are several, all are
    /// wanted.
    pub locks: &'a [String],
    /// How many holders the lock may have at a time; more than one only of one lock.
    pub permits: u32,
    /// Who asks for it, or holds it.
    pub owner: &'a str,
    /// For how long.
    pub ttl: Duration,
}

impl<'a> Claim<'a> {
    /// A claim to all of the locks, for one holder at a time.
    #[must_use]
    pub fn new(locks: &'a [String], owner: &'a str, ttl: Duration) -> Self {
        Self {
            locks,
            permits: 1,
            owner,
            ttl,
        }
    }

    /// With as many holders at a time.
    #[must_use]
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// What is held of it: all of its locks, or a slot of the only one.
    #[must_use]
    pub fn held(self, slot: usize) -> Held<'a> {
        Held {
            claim: self,
            slot,
            shortens: false,
        }
    }
}

/// What a granted claim holds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Held<'a> {
    /// The claim.
    pub claim: Claim<'a>,
    /// Which slot, of a lock with `permits`; 0 where there is one.
    pub slot: usize,
    /// Whether a renewal is to shorten what is left. If not, it never does: it may be carried out later
    /// than one that was asked for after it.
    pub shortens: bool,
}

impl Held<'_> {
    /// To be renewed for a ttl that may be shorter than what is left.
    #[must_use]
    pub fn shortening(mut self) -> Self {
        self.shortens = true;
        self
    }
}

/// How a claim is asked for.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Attempt {
    /// Whether it may have been asked for before: after a busy answer, or one that never came.
    pub again: bool,
    /// For how long it will be waited yet where a lock is busy. With zero, a claim that stood in the
    /// store's queue stands there no more.
    pub wait: Duration,
}

impl Attempt {
    /// The first attempt of a claim, which will wait that long.
    #[must_use]
    pub fn first(wait: Duration) -> Self {
        Self { again: false, wait }
    }

    /// A later attempt, which will wait that much longer.
    #[must_use]
    pub fn again(wait: Duration) -> Self {
        Self { again: true, wait }
    }
}

/// The answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquired {
    /// The owner holds all locks, or a slot of the only one.
    Granted {
        /// Which slot.
        slot: usize,
        /// Until when that may be relied on, by the clock of the caller: the store has allowed for how
        /// long the answer took, and for clocks that drift; see [`relied_on_until`].
        until: Instant,
        /// Whether an earlier request of the owner may still be carried out.
        in_doubt: bool,
    },
    /// Somebody else holds one of them.
    Busy {
        /// Which of the locks.
        lock: usize,
        /// The owner that was found.
        owner: String,
        /// How long its lease still runs.
        remaining: Duration,
        /// How many stand before the claim in the store's queue, if it stands there: it will be granted
        /// the lock, or told to look again.
        place: Option<u64>,
        /// Whether an earlier request of the asking owner may still be carried out.
        in_doubt: bool,
    },
    /// One of them bears the mark of work that is done.
    Done {
        /// Which of the locks.
        lock: usize,
        /// Since when.
        since: SystemTime,
        /// Whether an earlier request of the asking owner may still be carried out.
        in_doubt: bool,
    },
    /// Something that is not a lock is stored under one of them.
    Foreign {
        /// Which of the locks.
        lock: usize,
        /// What it is, as in `a hash`.
        found: String,
    },
}

impl Acquired {
    /// Whether an earlier request of the asking owner may still be carried out.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        match self {
            Self::Granted { in_doubt, .. }
            | Self::Busy { in_doubt, .. }
            | Self::Done { in_doubt, .. } => *in_doubt,
            Self::Foreign { .. } => false,
        }
    }
}

/// Until when a ttl may be relied on whose request was sent at a moment of the same clock.
///
/// Clocks of two machines run at different speeds, and a store expires keys in steps of a
/// millisecond: a hundredth and two milliseconds are left out, as in the description of Redlock.
#[must_use]
pub fn relied_on_until(sent: Instant, ttl: Duration) -> Instant {
    sent + relied_on(ttl)
}

/// How much of a ttl is relied on.
pub(crate) fn relied_on(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}

/// What a renewal has found of one lease.
pub type Renewed = Result<Renewal, StoreError>;

/// What was found of a lease that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It may be relied on until then.
    Until(Instant),
    /// One of its keys was gone.
    Gone,
    /// One of its keys stood under another owner, or under something that is not a lock. It was left as
    /// it was.
    Taken,
}

/// What is given back of a claim.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Release<'a> {
    /// Which slot is held of it; where that is not known, whatever was granted: a request may be on its
    /// way yet, and a store that has to ask twice answers what it finds the second time, instead of
    /// taking it that the first time has done it.
    pub slot: Option<usize>,
    /// What is to be left under each of the locks, or under the slot; empty where that is nothing.
    pub leave: &'a [Leave],
    /// Whether a mark of work that is done is to be left also where nothing is there any more: it was
    /// done in time, and the release could not be asked then.
    pub keep_marks: bool,
    /// Whether the claim may stand in the store's queue.
    pub may_queue: bool,
}

impl<'a> Release<'a> {
    /// Of a lease that holds a slot.
    #[must_use]
    pub fn held(slot: usize, leave: &'a [Leave]) -> Self {
        Self {
            slot: Some(slot),
            leave,
            ..Self::default()
        }
    }

    /// Of a claim of which it is not known what it holds, if anything.
    #[must_use]
    pub fn whatever(may_queue: bool) -> Self {
        Self {
            may_queue,
            ..Self::default()
        }
    }

    /// With marks that are kept where the lock is gone.
    #[must_use]
    pub fn keeping_marks(mut self) -> Self {
        self.keep_marks = true;
        self
    }
}

/// What a release leaves under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Nothing: the lock is free.
    Nothing,
    /// A lock that nobody holds any more, for this long.
    Closed(Duration),
    /// The mark that the work is done, for this long.
    Done(Duration),
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The owner, and did its work.
    Ours,
    /// Nothing.
    Nothing,
    /// Another owner, or something that is not a lock. It was left as it was.
    Another,
}

impl Found {
    /// How a lease was lost of which this was found.
    pub(crate) fn loss(self) -> LossCause {
        match self {
            Self::Another => LossCause::Taken,
            Self::Ours | Self::Nothing => LossCause::Deleted,
        }
    }
}

/// The answer to a token's draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The lease's token.
    Drawn(u64),
    /// The owner does not hold all of it, so there is none.
    NotHeld(Found),
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
    Granted {
        /// Which slot.
        slot: usize,
        /// Until when that may be relied on; as in [`Acquired::Granted`].
        until: Instant,
    },
    /// It is the first in the store's queue now, and is to look for itself if it hears nothing.
    First {
        /// For how long the holder's lease runs.
        remaining: Duration,
    },
    /// Something has happened: it had better ask again.
    Look,
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

            fn in_callers_time(&self) -> bool {
                (**self).in_callers_time()
            }
        }
    };
}

forward!(Arc);
forward!(Box);
