//! A request for a key, made by hand.

use std::time::Duration;

use super::Client;
use crate::acquire::{CallOptions, Nesting};
use crate::error::Error;
use crate::key::Keys;
use crate::lease::Lease;

/// A key that is about to be asked for; see [`Client::lock`].
#[derive(Debug)]
#[must_use = "a request takes nothing before `acquire().await`"]
pub struct LockRequest {
    client: Client,
    keys: Result<Keys, Error>,
    settings: CallOptions,
}

impl LockRequest {
    pub(super) fn new(client: Client, keys: Result<Keys, Error>) -> Self {
        Self {
            client,
            keys,
            settings: CallOptions::new(),
        }
    }

    /// The lease's length: at least 10 ms, at most 366 days, rounded down to whole milliseconds.
    /// The client's, 30 s unless set, where this is not called. Not less than about five round trips
    /// to the store, or it is over before it can be renewed.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings = self.settings.ttl(ttl);
        self
    }

    /// For how long a busy key is waited for: at most 366 days. One try where this is not called.
    ///
    /// Those who wait come in their order; see the README's section on waiting. The mark that a call
    /// with `once` has left is not waited for: it is [`Error::Done`] at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings = self.settings.wait(wait);
        self
    }

    /// Whether the keeper renews the lease every third of its ttl, as it does where this is not
    /// called. Without, the lease ends when its ttl is over.
    pub fn renew(mut self, renew: bool) -> Self {
        self.settings = self.settings.renew(renew);
        self
    }

    /// How long the key stays closed at least, counted from the grant, however early the lease is
    /// given back: from 1 ms to 366 days. Nothing where this is not called. For what runs
    /// periodically, less than the period: see [`distributed_lock`](crate::distributed_lock#min_hold-max_hold).
    pub fn min_hold(mut self, length: Duration) -> Self {
        self.settings = self.settings.min_hold(length);
        self
    }

    /// How long the lease lasts at most, however well it is renewed: from 1 ms to 366 days. For
    /// ever where this is not called.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.settings = self.settings.max_hold(length);
        self
    }

    /// For how long the key does not run again once its work is done, as
    /// [`Lease::mark_done`] says: from 1 ms to 366 days. Nothing where this is not called.
    pub fn once(mut self, length: Duration) -> Self {
        self.settings = self.settings.once(length);
        self
    }

    /// How many holders the key has at a time: from 1 to 1,000. One where this is not called.
    /// [`Lease::slot`] says which of them a lease is.
    pub fn permits(mut self, permits: u32) -> Self {
        self.settings = self.settings.permits(permits);
        self
    }

    /// Asks for the key.
    ///
    /// The store is asked at most twice, each time for at most the client's connect timeout and
    /// reply timeout; a busy key is waited for on top of that.
    ///
    /// Cancel-safe: a dropped future gives back what it may have got.
    ///
    /// # Errors
    /// [`Error::Busy`] once the wait is over; [`Error::Done`] at once where one of the keys bears the
    /// mark of a locked function with `once`; [`Error::Unavailable`], [`Error::Foreign`],
    /// [`Error::Key`] and [`Error::Invalid`].
    pub async fn acquire(self) -> Result<Lease, Error> {
        let context = &self.client.0;
        context
            .acquire(self.keys, &self.settings, Nesting::Asks)
            .await
    }
}
