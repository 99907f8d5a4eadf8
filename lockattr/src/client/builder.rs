//! A client's settings.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, disabled};
use crate::acquire::Context;
use crate::error::Error;
use crate::keeper::Keeper;
use crate::key;
use crate::limits;
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::memory::Memory;
use crate::store::redis::{self, Redis};
use crate::store::unguarded::Unguarded;
use crate::store::{Claim, Store};

/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 256;

/// How long the key of a check lives where nothing can be deleted.
const CHECKED_FOR: Duration = Duration::from_secs(10);

/// The longest name, in bytes.
const MAX_NAME: usize = 256;

/// Settings of a client; see [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes no client before `connect`, `connect_lazily` or `store`"]
pub struct ClientBuilder {
    prefix: String,
    ttl: Duration,
    connect_timeout: Duration,
    reply_timeout: Duration,
    name: Option<String>,
    /// Set with the feature `tls` alone.
    root_certificates: Option<Vec<u8>>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            prefix: "lock:".to_owned(),
            ttl: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(1),
            reply_timeout: Duration::from_secs(1),
            name: None,
            root_certificates: None,
        }
    }
}

impl ClientBuilder {
    /// What every key in the store starts with: `lock:` unless set. At most 256 bytes, no braces.
    ///
    /// Applications that shall exclude each other need the same prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The ttl of leases that set none: 30 s unless set. At least 10 ms, at most 366 days.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a connection may take to be made, name look-up and log-in included: 1 s unless set.
    /// From 1 ms to an hour.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a reply may take: 1 s unless set. From 1 ms to an hour.
    ///
    /// A connection whose reply did not come in time is taken for dead and replaced. Renewals of
    /// short leases wait less, so that there is time for another connection. Callers look a few
    /// times within this at how long they have waited, at most 250 ms apart; while a runtime is
    /// blocked, the time of its callers does not run.
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.reply_timeout = timeout;
        self
    }

    /// The name of the connections in the server's `CLIENT LIST`: none unless set. Printable ASCII
    /// without spaces, at most 256 bytes. Needs the right `+client|setname`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The root certificates, in PEM form, by which a `rediss://` server is verified, instead of
    /// the machine's. Without TLS they are refused.
    ///
    /// The cryptography is that of the process where one is installed when the client is made
    /// (`rustls::crypto::CryptoProvider::install_default`), and `ring` otherwise; none is installed.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Connects, and checks that the client may do its work; see [`Client::connect`].
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client, Error> {
        let client = self.connect_lazily(url)?;
        let keeper = &client.0.keeper;
        let id = keeper.origin().new_id();
        let (key, owner) = (format!("connect-check:{id}"), keeper.origin().owner(id));
        let locks = [format!("{}{key}", client.0.prefix)];
        let claim = Claim::new(&locks, &owner, CHECKED_FOR);
        let checking = keeper.ask_store(keeper.store.check(claim));
        match checking.await {
            Ok(()) => Ok(client),
            Err(source) => Err(source.told_of(&key)),
        }
    }

    /// A client that connects when it is first used, for services that have to start without their
    /// store. A missing right or a wrong password is found by the first call only.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL or a setting that cannot be used.
    pub fn connect_lazily(self, url: impl AsRef<str>) -> Result<Client, Error> {
        let url = url.as_ref();
        self.check()?;
        if disabled::by_environment() {
            return self.without_locks();
        }
        if url == "memory:" {
            return self.store(Memory::new());
        }
        let origin = Origin::here();
        let certificates = self.root_certificates.as_deref();
        let seeds = redis::seeds(url, certificates).transpose()?;
        let settings = redis::RedisConfig {
            prefix: self.prefix.clone(),
            id: origin.new_id().to_string(),
            target: match seeds.as_ref().and_then(|seeds| seeds.first()) {
                Some(seed) => seed.clone(),
                None => redis::target(url, certificates)?,
            },
            name: self.name.clone(),
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
        };
        let background = start_background()?;
        let store: Arc<dyn Store> = match seeds {
            Some(seeds) => Arc::new(redis::Cluster::new(
                redis::ClusterConfig {
                    seeds,
                    node: settings,
                    addresses: None,
                },
                &background,
            )),
            None => Arc::new(Redis::new(&settings, &background)),
        };
        Ok(self.client(&background, store, origin, false))
    }

    /// A client of a store of one's own, or of a [`Memory`] that a test keeps a
    /// handle of. The timeouts are the store's affair.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that cannot be used.
    pub fn store(self, store: impl Store) -> Result<Client, Error> {
        self.check()?;
        if disabled::by_environment() {
            return self.without_locks();
        }
        let background = start_background()?;
        Ok(self.client(&background, Arc::new(store), Origin::here(), false))
    }

    pub(super) fn without_locks(self) -> Result<Client, Error> {
        self.check()?;
        disabled::tell();
        let background = start_background()?;
        Ok(self.client(&background, Arc::new(Unguarded), Origin::here(), true))
    }

    fn client(
        self,
        background: &Background,
        store: Arc<dyn Store>,
        origin: Origin,
        disabled: bool,
    ) -> Client {
        let counters = Arc::default();
        let keeper = if disabled {
            Keeper::start_unguarded(background, store, counters, origin)
        } else {
            Keeper::start(background, store, counters, origin)
        };
        Client(Arc::new(Context::new(
            keeper,
            self.prefix,
            self.ttl,
            disabled,
        )))
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Config(reason));
        if self.prefix.len() > MAX_PREFIX || self.prefix.contains(['{', '}']) {
            return refuse(format!(
                "a prefix has at most {MAX_PREFIX} bytes and no braces, and not what starts with `{}`",
                key::head(&self.prefix)
            ));
        }
        limits::ttl(self.ttl).map_err(Error::Config)?;
        let timeouts = [
            ("connect", self.connect_timeout),
            ("reply", self.reply_timeout),
        ];
        for (which, timeout) in timeouts {
            if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&timeout) {
                return refuse(format!(
                    "a {which} timeout is at least 1ms and at most an hour, not {timeout:?}"
                ));
            }
        }
        match &self.name {
            Some(name)
                if name.is_empty()
                    || name.len() > MAX_NAME
                    || !name.bytes().all(|b| b.is_ascii_graphic()) =>
            {
                refuse(format!(
                    "a name is printable ASCII without spaces, at most {MAX_NAME} bytes, and not what \
                     starts with `{}`",
                    key::head(name)
                ))
            }
            _ => Ok(()),
        }
    }
}

fn start_background() -> Result<Background, Error> {
    Background::start().map_err(|error| {
        Error::Config(format!("the client's thread could not be started: {error}"))
    })
}
