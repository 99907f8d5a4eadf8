//! A request for a key, made by hand.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use super::Client;
use crate::acquire::span::CallSpan;
use crate::acquire::{CallOptions, Nesting};
use crate::call_site::CallSite;
use crate::error::Error;
use crate::key::{KeyError, Keys};
use crate::lease::Lease;

/// A key that is about to be asked for; see [`Client::lock`].
#[must_use = "a request takes nothing before `acquire().await`"]
pub struct LockRequest {
    client: Client,
    keys: Result<Keys, KeyError>,
    settings: CallOptions,
}

impl LockRequest {
    pub(super) fn new(client: Client, keys: Result<Keys, KeyError>) -> Self {
        Self {
            client,
            keys,
            settings: CallOptions::at(CallSite::unnamed()),
        }
    }

    /// What the keys of such requests have in common, `sync:<user_id>` for example, by which they are told
    /// from other requests wherever no single key is named. It says nothing of which key is taken.
    ///
    /// Empty where this is not called. A process tells 1,024 of them apart, and takes further ones for empty.
    pub fn template(mut self, template: &'static str) -> Self {
        self.settings = self.settings.of_site(CallSite::of_template(template));
        self
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

    /// How many permits the key has: from 1 to 1,000,000. One where this is not called, and then the key
    /// has one holder at a time. [`Lease::slot`] tells holders apart.
    ///
    /// See [`distributed_lock`](crate::distributed_lock#permits-weight) for who may hold a key at the same time.
    pub fn permits(mut self, permits: u32) -> Self {
        self.settings = self.settings.permits(permits);
        self
    }

    /// How many of the permits it takes, all or none: from 1 to as many as there are. One where this is not
    /// called.
    pub fn weight(mut self, weight: u32) -> Self {
        self.settings = self.settings.weight(weight);
        self
    }

    /// Takes the key beside others that do the same: many readers, or one holder that is alone. In the order
    /// of their arrival: whoever comes behind a waiting writer waits behind it.
    ///
    /// See [`distributed_lock`](crate::distributed_lock#shared).
    pub fn shared(mut self) -> Self {
        self.settings = self.settings.shared();
        self
    }

    /// Whether a keyed hash stands in the place of the key wherever that would be shown: in errors, logs
    /// and `Debug`. As the client has it where this is not called; see
    /// [`ClientBuilder::redact`](crate::ClientBuilder::redact).
    pub fn redact(mut self, redact: bool) -> Self {
        self.settings = self.settings.redact(redact);
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
        let span = CallSpan::of_request(context, &self.keys, &self.settings);
        let acquiring = pin!(context.acquire(self.keys, &self.settings, Nesting::Asks));
        let answer = span.around(acquiring).await;
        span.answered(context, &answer);
        span.ended();
        answer
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.client.0;
        let keys = match &self.keys {
            Ok(keys) => Ok(context.shown(keys.clone(), &self.settings)),
            Err(error) => Err(context.shown_error(error.clone(), self.settings.redact)),
        };
        f.debug_struct("LockRequest")
            .field("client", &self.client)
            .field("keys", &keys)
            .field("settings", &self.settings)
            .finish()
    }
}
