//! What is known of a key, without taking it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use super::Client;
use crate::error::Error;
use crate::key::Key;
use crate::limits;
use crate::owner;
use crate::store::{Entry, EntryKind, Listed, Store as _};

/// What stands under a key; see [`Client::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nobody holds it.
    #[non_exhaustive]
    Free {
        /// How many wait for it all the same: they are about to be told, or to look.
        waiters: u64,
    },
    /// It is held.
    #[non_exhaustive]
    Held {
        /// Who holds it: one, or as many of the key's `permits` as are taken, by slot.
        holders: Vec<Holder>,
        /// How many holders it has at a time, as far as those that hold it say so.
        permits: u32,
        /// How many wait for it.
        waiters: u64,
    },
    /// Its work is done: a call with `once` has left its mark.
    #[non_exhaustive]
    Done {
        /// When it was done, by the store's clock.
        since: SystemTime,
        /// For how long the mark stands.
        remaining: Duration,
    },
}

impl Status {
    /// Whether a call with as many `permits` as the holders count would be granted the key now, if nobody comes
    /// before it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        match self {
            Self::Free { waiters } => *waiters == 0,
            Self::Held {
                holders,
                permits,
                waiters,
            } => {
                let permits = usize::try_from(*permits).unwrap_or(usize::MAX);
                *waiters == 0 && holders.len() < permits
            }
            Self::Done { .. } => false,
        }
    }
}

/// One that holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// `host:pid`, or `unknown` where the owner is not of this library's form; never the whole owner, by which
    /// the lock can be released.
    pub origin: String,
    /// Since when, as far as that is known: by the store's clock, or by that of the holder where it did not have
    /// to wait.
    pub since: Option<SystemTime>,
    /// For how long its lease runs unless it is renewed.
    pub remaining: Duration,
    /// Which slot, of a key with `permits`; 0 where there is one.
    pub slot: usize,
    /// Whether it has given the key back, which stays closed for its `min_hold`.
    pub has_left: bool,
}

/// A key that is about to be looked at; see [`Client::status`].
#[must_use = "nothing is asked before `await`"]
pub struct StatusRequest<'a> {
    client: &'a Client,
    key: Result<Key, Error>,
    permits: u32,
}

impl Client {
    /// What stands under a key, without taking it: free, held and by whom, or done.
    ///
    /// For a page that shows whether something runs, for a decision that may be wrong a moment later. It is
    /// no way to wait, and nothing to act upon: whoever wants the key asks for it.
    ///
    /// The store is asked once; nothing is written, nobody is kept from anything, and it needs no feature. The
    /// answer is what stood there in one moment: on a Redis server by one command, over a quorum as a majority of
    /// the nodes has it; in etcd the rest of a lease is asked for after that, in whole seconds, and ZooKeeper
    /// knows since when a place is in the queue, and not when it came to its head. There the remaining time of a
    /// holder is its ttl, and that of a mark is counted by this machine's clock. Of a Redis server a user needs
    /// `+zcard` beside the rights of a client. While a hash slot of a cluster moves, waiters are not counted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// use lockattr::Status;
    ///
    /// assert!(client.status("sync:42").await?.is_free());
    /// let _lease = client.lock("sync:42").acquire().await?;
    /// match client.status("sync:42").await? {
    ///     Status::Held { holders, waiters, .. } => {
    ///         println!("held by {} for another {:?}", holders[0].origin, holders[0].remaining);
    ///         assert_eq!(waiters, 0);
    ///     }
    ///     status => panic!("{status:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Cancel-safe: it changes nothing. It takes no longer than the store may take to answer.
    ///
    /// # Errors
    /// [`Error::Key`] for what cannot be a key, [`Error::Foreign`] where something is stored there that is not a
    /// lock, [`Error::Unavailable`], and [`Error::Invalid`] of a store of one's own that cannot say.
    pub fn status(&self, key: impl AsRef<str>) -> StatusRequest<'_> {
        let context = &self.0;
        let key = Key::with_room(key.as_ref(), context.prefix.len());
        let key = key.map_err(|error| Error::Key(context.shown_error(error, None)));
        StatusRequest {
            client: self,
            key,
            permits: 1,
        }
    }
}

impl StatusRequest<'_> {
    /// Looks at so many slots of a key with `permits`: one where this is not called, from 1 to 1,000.
    ///
    /// On Redis each slot is a key of its own, which has to be asked for. Where the first one is held, it says how
    /// many there are, and the others are looked at with a second command; where it is free, others may be held
    /// that nobody has asked for.
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    async fn ask(self) -> Result<Status, Error> {
        let context = &self.client.0;
        let key = self.key?;
        let told = context.told_key(key.as_str());
        let keeper = &context.keeper;
        let checked = keeper.check_process();
        let permits = checked.and_then(|()| limits::permits(self.permits));
        let permits = permits.map_err(|reason| Error::Invalid {
            key: told.clone(),
            reason,
        })?;
        context.check_open(&told)?;
        let lock = key.prefixed(&context.prefix);
        let asked = keeper.ask_store(keeper.store.status(&lock, permits)).await;
        let listed = asked.map_err(|error| error.told_of(&told))?;
        read(told, permits, listed)
    }
}

impl<'a> IntoFuture for StatusRequest<'a> {
    type Output = Result<Status, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

impl fmt::Debug for StatusRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.client.0;
        let key = self.key.as_ref().map(|key| context.told_key(key.as_str()));
        f.debug_struct("StatusRequest")
            .field("key", &key)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

fn read(key: String, asked: u32, listed: Listed) -> Result<Status, Error> {
    let Listed {
        entries,
        permits,
        waiters,
        ..
    } = listed;
    let mut holders = Vec::with_capacity(entries.len());
    for Entry {
        slot,
        kind,
        remaining,
        ..
    } in entries
    {
        let remaining = remaining.unwrap_or(Duration::MAX);
        let (owner, since, has_left) = match kind {
            EntryKind::Held { owner, since } => (owner, since, false),
            EntryKind::Closed { owner, since } => (owner, since, true),
            EntryKind::Done { since } => return Ok(Status::Done { since, remaining }),
            EntryKind::Foreign { found } => return Err(Error::Foreign { key, found }),
        };
        holders.push(Holder {
            origin: owner::shown(&owner),
            since,
            remaining,
            slot,
            has_left,
        });
    }
    if holders.is_empty() {
        return Ok(Status::Free { waiters });
    }
    Ok(Status::Held {
        holders,
        permits: permits.unwrap_or(1).max(asked),
        waiters,
    })
}
