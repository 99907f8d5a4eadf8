//! A client: where locks are kept, and how calls find it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::{Error, StoreError};
use crate::hold::Name;
use crate::keeper::Keeper;
use crate::key::Key;
use crate::lease::Lease;
use crate::limits;
use crate::owner::Origin;
use crate::queue::{self, Ask};
use crate::stats::Stats;

mod builder;
mod request;

pub use builder::ClientBuilder;
pub use request::LockRequest;

/// The client of the process.
static INSTALLED: OnceLock<Client> = OnceLock::new();

tokio::task_local! {
    /// The client of a task tree.
    static SCOPED: Client;
}

/// A connection to the place where locks are kept.
///
/// Cheap to clone; all clones are one client. It owns a thread, on which it talks to the store and
/// renews leases, and which ends when the last clone and the last lease are gone. Hence a client
/// outlives every tokio runtime, works from each of them and from none, and may live in a `static`.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    keeper: Arc<Keeper>,
    prefix: String,
    ttl: Duration,
    origin: Origin,
}

impl Client {
    /// Connects to a store, with the defaults of [`Client::builder`].
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[[user]:password@]host[:port][/database]` | a Redis or Valkey server |
    /// | `rediss://…` | the same over TLS, with the feature `tls` |
    /// | `unix:///path/to/socket[?db=…&user=…&pass=…]` | the same over a Unix socket |
    /// | `memory:` | this process alone, for tests and development |
    ///
    /// It takes, renews and gives back a throw-away key, so that a missing right, a wrong password
    /// or a replica is found here and not in a job.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that cannot be used, [`Error::Unavailable`] where the server
    /// could not be reached or refused a step, in its own words.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A client with settings other than the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Makes this the client of every call in the process that names no other.
    ///
    /// # Errors
    /// [`Error::AlreadyInstalled`] the second time.
    pub fn install(&self) -> Result<(), Error> {
        INSTALLED
            .set(self.clone())
            .map_err(|_| Error::AlreadyInstalled)
    }

    /// Makes this the client of every call within `future` that names no other, before the
    /// installed one. Tasks that it spawns are not within it.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPED.scope(self.clone(), future).await
    }

    /// A request for a key: the same as the attribute, by hand.
    ///
    /// The key is used as it is, after the client's prefix: not blank, at most 1,024 bytes, no
    /// braces.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// use std::time::Duration;
    ///
    /// let lease = client
    ///     .lock("sync:42")
    ///     .ttl(Duration::from_secs(10))
    ///     .wait(Duration::from_secs(1))
    ///     .acquire()
    ///     .await?;
    /// // … at most one holder of `sync:42` is here …
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "a request takes nothing before `acquire().await`"]
    pub fn lock(&self, key: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self.clone(), Key::new(key.as_ref()).map_err(Error::from))
    }

    /// What this client has counted since it was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.keeper.counters.read()
    }

    /// Takes no more, and gives back everything that is held; for the end of a program.
    ///
    /// Running bodies are cancelled: their calls end as lost. Leases taken by hand are given back
    /// under their holders. Waits until the store has confirmed each release, and at most for the
    /// remaining ttl of the longest lease. Calls that come later are unavailable.
    ///
    /// Cancel-safe: dropped, it no longer waits, and what it has begun goes on.
    pub async fn shutdown(&self) {
        self.0.keeper.shut_down().await;
    }

    /// The client that a call without one of its own uses.
    pub(crate) fn current() -> Result<Self, Error> {
        SCOPED
            .try_with(Self::clone)
            .ok()
            .or_else(|| INSTALLED.get().cloned())
            .ok_or(Error::NotInstalled)
    }

    pub(crate) async fn acquire(
        &self,
        key: Result<Key, Error>,
        settings: &Settings,
    ) -> Result<Lease, Error> {
        let counters = &self.0.keeper.counters;
        let outcome = match key {
            Ok(key) => self.ask(&key, settings).await,
            Err(error) => Err(error),
        };
        match &outcome {
            Ok(_) => counters.granted.up(),
            Err(Error::Busy { .. }) => counters.busy.up(),
            Err(_) => counters.unavailable.up(),
        }
        outcome
    }

    async fn ask(&self, key: &Key, settings: &Settings) -> Result<Lease, Error> {
        let invalid = |reason| Error::Invalid {
            key: key.to_string(),
            reason,
        };
        let ask = Ask {
            name: Name::new(&self.0.prefix, key.as_str()),
            owner: self.0.origin.new_owner(),
            ttl: limits::ttl(settings.ttl.unwrap_or(self.0.ttl)).map_err(invalid)?,
            wait: limits::wait(settings.wait).map_err(invalid)?,
            renew: settings.renew,
        };
        self.refuse_when_shut_down(key)?;
        let lease = queue::acquire(&self.0.keeper, ask).await?;
        // It may have been shut down while the answer was on its way.
        self.refuse_when_shut_down(key)?;
        Ok(lease)
    }

    fn refuse_when_shut_down(&self, key: &Key) -> Result<(), Error> {
        if self.0.keeper.is_closed() {
            return Err(Error::Unavailable {
                key: key.to_string(),
                source: StoreError::refused(queue::SHUT_DOWN),
            });
        }
        Ok(())
    }
}

/// Neither the server's URL nor the owners of what is held.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("prefix", &self.0.prefix)
            .field("ttl", &self.0.ttl)
            .finish_non_exhaustive()
    }
}

impl AsRef<Client> for Client {
    fn as_ref(&self) -> &Client {
        self
    }
}

/// How a key is asked for.
#[derive(Clone, Copy, Debug)]
#[must_use = "settings do nothing by themselves"]
pub struct Settings {
    ttl: Option<Duration>,
    wait: Duration,
    renew: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// The client's ttl, one try, renewed.
    pub const fn new() -> Self {
        Self {
            ttl: None,
            wait: Duration::ZERO,
            renew: true,
        }
    }

    /// The lease's length.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// For how long a busy key is waited for.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Whether the lease is renewed.
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }
}
