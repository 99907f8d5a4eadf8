//! What is known of a key, without taking it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use super::Client;
use crate::error::Error;
use crate::key::Key;
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
        /// Who holds it: one; or all readers; or all that have some of its `permits`, by slot.
        holders: Vec<Holder>,
        /// How many permits it has, as far as those that hold it say so; 1 where it is held alone or by readers.
        permits: u32,
        /// Whether those that hold it are readers, beside whom others may read: `shared`.
        shared: bool,
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
    /// Whether a call that wants the key alone would be granted it now, or one of as many `permits` as its holders
    /// count, if nobody comes before it. Of a key that readers hold it says `false`: others may read, and nobody
    /// may have it alone.
    #[must_use]
    pub fn is_free(&self) -> bool {
        match self {
            Self::Free { waiters } => *waiters == 0,
            Self::Held {
                holders,
                permits,
                shared: false,
                waiters: 0,
            } => {
                let weights = holders.iter().map(|holder| u64::from(holder.weight));
                weights.sum::<u64>() < u64::from(*permits)
            }
            Self::Held { .. } | Self::Done { .. } => false,
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
    /// Which slot, of a key with `permits`; 0 without them.
    pub slot: usize,
    /// How many of the permits it has; 1 without them.
    pub weight: u32,
    /// Whether it has given the key back, which stays closed for its `min_hold`.
    pub has_left: bool,
}

/// A key that is about to be looked at; see [`Client::status`].
#[must_use = "nothing is asked before `await`"]
pub struct StatusRequest<'a> {
    client: &'a Client,
    key: Result<Key, Error>,
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
    /// holder is its ttl, and that of a mark is counted by this machine's clock. While a hash slot of a cluster moves,
    /// waiters are not counted. Of a key with many readers or holders of permits all are read and told.
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
        StatusRequest { client: self, key }
    }
}

impl StatusRequest<'_> {
    async fn ask(self) -> Result<Status, Error> {
        let context = &self.client.0;
        let key = self.key?;
        let told = context.told_key(key.as_str());
        let keeper = &context.keeper;
        keeper.check_process().map_err(|reason| Error::Invalid {
            key: told.clone(),
            reason,
        })?;
        context.check_open(&told)?;
        let lock = key.prefixed(&context.prefix);
        let asked = keeper.ask_store(keeper.store.status(&lock)).await;
        let listed = asked.map_err(|error| error.told_of(&told))?;
        read(told, listed)
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
            .finish_non_exhaustive()
    }
}

fn read(key: String, listed: Listed) -> Result<Status, Error> {
    let Listed {
        entries,
        permits,
        shared,
        waiters,
        ..
    } = listed;
    let mut holders = Vec::with_capacity(entries.len());
    for Entry {
        slot,
        weight,
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
            weight,
            has_left,
        });
    }
    if holders.is_empty() {
        return Ok(Status::Free { waiters });
    }
    Ok(Status::Held {
        holders,
        permits: permits.unwrap_or(1),
        shared,
        waiters,
    })
}
