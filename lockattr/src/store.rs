//! What a lock needs of the place where it is kept.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use crate::error::StoreError;

pub(crate) mod memory;
pub(crate) mod nowhere;
pub(crate) mod redis;

/// The answer of a [`Store`], when it comes.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// With what one that waits hears a [`Store`].
pub trait Ear: Send {
    /// What there is to be told. `cx`'s waker is woken when there is more.
    fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<Woken>;
}

/// Hears nothing.
struct Deaf;

impl Ear for Deaf {
    fn poll_news(&mut self, _: &mut Context<'_>) -> Poll<Woken> {
        Poll::Pending
    }
}

/// A place where locks are kept.
///
/// A name is the whole lock key, the client's prefix included. An owner is unique to one
/// acquisition, and every step but the first acts only where it finds that owner; finding another
/// one, it writes nothing.
///
/// Every answer must come within a bound of the store's own. An error says whether the step may
/// have been done all the same: [`StoreError::in_doubt`] or [`StoreError::refused`].
///
/// Cancel-safety: a future may be dropped at any time. Steps asked for afterwards must take effect
/// after the one whose future was dropped, if that takes effect at all.
pub trait Store: Debug + Send + Sync + 'static {
    /// Grants all of the names, or one of them, to an owner for a ttl, if nobody holds them; or
    /// nothing. Asked again for the same owner, it recognises its own grant and starts the ttl
    /// anew.
    fn acquire<'a>(&'a self, request: Request<'a>) -> Reply<'a, Acquired>;

    /// Starts the ttl of each lease anew where its owner still holds it. Never creates a name. The
    /// answers stand in the order of the leases, one each: what keeps one lease from being renewed is
    /// that one's error, and fails no other. An error of the whole is one of all of them.
    ///
    /// `patience` is how long the answer may take.
    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], patience: Duration) -> Reply<'a, Renewed>;

    /// Ends the owner's hold of each name that it still holds, and leaves there what is to be left;
    /// where that is nothing, whoever has waited longest may be given the name in the same step.
    /// Answers [`Found::Ours`] where it held all of them. In doubt where a request of the owner that
    /// was dropped may yet take effect: it is asked again then.
    fn release<'a>(&'a self, release: Release<'a>) -> Reply<'a, Found>;

    /// Draws the fencing token of the grant by which `owner` holds each name of `held`: larger than
    /// every token before of any of the `locks`. None is drawn unless all of them are still held.
    fn token<'a>(
        &'a self,
        held: &'a [String],
        locks: &'a [String],
        owner: &'a str,
    ) -> Reply<'a, Token>;

    /// An ear for news to a request of this owner that waits: its grant, or that it had better ask
    /// again. To be had before the request is made, so that nothing is missed; dropped once nobody
    /// waits.
    ///
    /// A store that never has any leaves this as it is: those who wait then ask again after pauses
    /// that grow to half a second.
    fn ear<'a>(&'a self, owner: &'a str) -> Box<dyn Ear + 'a> {
        let _ = owner;
        Box::new(Deaf)
    }

    /// Waits until no earlier request of this owner that was not answered can be carried out any more,
    /// as far as the store can know. The answer is for how long something may come all the same: the
    /// owner's names are given back once more now, and again and again within that time.
    ///
    /// A store that does not know leaves this as it is.
    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        let _ = owner;
        Box::pin(async { Duration::MAX })
    }

    /// Whether it lets one holder at a time have a name.
    #[doc(hidden)]
    fn excludes(&self) -> bool {
        true
    }

    /// Whether leases live in the time of the calling tokio runtime, which tests may pause, rather
    /// than in real time.
    fn in_callers_time(&self) -> bool {
        false
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The whole lock keys, or those of a lock's slots. Never none.
    pub names: &'a [String],
    /// How many of them.
    pub want: Want,
    /// Who asks.
    pub owner: &'a str,
    /// For how long.
    pub ttl: Duration,
    /// Whether this is the first try.
    pub try_: Try,
    /// For how long it will be waited yet where a name is busy. Asked with zero, a request that
    /// stood in the store's queue stands there no more.
    pub wait: Duration,
}

/// What is given back.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The names that are held; or all that were asked for, where it is not known which of them.
    pub names: &'a [String],
    /// How many of them had been wanted.
    pub want: Want,
    /// Where the first of them stood among those that were asked for.
    pub index: usize,
    /// The lock that the names are slots of, or the first of the locks.
    pub lock: &'a str,
    /// Who held them.
    pub owner: &'a str,
    /// What is to be left under each of the names; empty where that is nothing.
    pub leave: &'a [Leave],
    /// Whether a mark of work that is done is to be left also where nothing is there any more: it was
    /// done in time, and the release could not be asked then.
    pub keep_marks: bool,
    /// Whether they are known to have been granted. If not, the request for them may be on its way
    /// yet: then a store that has to ask twice answers what it finds the second time, instead of
    /// taking it that the first time has done it.
    pub granted: bool,
    /// For a request that became no lease: the ttl and the number of names that it had asked for,
    /// since it may stand in the store's queue. Leaving the queue counts as having held.
    pub asked: Option<(Duration, usize)>,
}

/// How many of the names of a [`Request`] are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All or none.
    All,
    /// The first that is free.
    Any,
}

/// What a release leaves under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Nothing: the name is free.
    Nothing,
    /// A lock that nobody holds any more, for this long.
    Closed(Duration),
    /// The mark that the work is done, for this long.
    Done(Duration),
}

/// Which try of one acquisition this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Try {
    /// The first: nothing is known of the key.
    First,
    /// A later one, after a busy answer or after an answer that never came.
    Again,
}

/// The answer to an acquire. `index` says of which name it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquired {
    /// The owner holds all names, or the one at `index`.
    Granted {
        /// Which of the names, where any was wanted.
        index: usize,
        /// The moment just before the request that won was sent; the lease counts from here.
        sent: Instant,
        /// Whether an earlier request of the same owner may still be carried out.
        in_doubt: bool,
    },
    /// Somebody else holds it.
    Busy {
        /// Which of the names.
        index: usize,
        /// The owner that was found.
        owner: String,
        /// How long its lease still runs.
        remaining: Duration,
        /// How many stand before the request in the store's queue, if it stands there: it will be
        /// given the name or told to ask again.
        place: Option<u64>,
        /// Whether an earlier request of the asking owner may still be carried out.
        in_doubt: bool,
    },
    /// It bears the mark of work that is done.
    Done {
        /// Which of the names.
        index: usize,
        /// Since when.
        since: SystemTime,
        /// Whether an earlier request of the asking owner may still be carried out.
        in_doubt: bool,
    },
    /// Something that is not a lock is stored under it.
    Foreign {
        /// Which of the names.
        index: usize,
        /// What it is, as in `a hash`.
        found: String,
    },
}

/// What one that waits is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Woken {
    /// It was granted the name at `index`.
    Granted {
        /// Which of the names.
        index: usize,
        /// A moment before which the grant was certainly not made; the lease counts from here.
        since: Instant,
    },
    /// It is the first in the store's queue now, and is to look for itself if it hears nothing.
    First {
        /// For how long the holder's lease runs.
        remaining: Duration,
    },
    /// Something has happened: it had better ask again.
    Look,
}

/// One lease to renew.
#[derive(Clone, Copy, Debug)]
pub struct Renewal<'a> {
    /// The whole lock key.
    pub name: &'a str,
    /// Who must hold it.
    pub owner: &'a str,
    /// The ttl to start anew.
    pub ttl: Duration,
}

/// What a renewal or a release found under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The owner, and did its work.
    Ours,
    /// Nothing.
    Nothing,
    /// Another owner, or something that is not a lock. It was left as it was.
    Another,
}

/// What has become of each lease that was to be renewed.
pub type Renewed = Vec<Result<Found, StoreError>>;

/// The answer to a token's draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The owner's token.
    Drawn(u64),
    /// The owner does not hold the name, so there is none.
    NotHeld(Found),
}
