//! A client's settings; what is made of them: `connect`.

use std::error::Error as StdError;
use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;
use crate::key;
use crate::limits;
use crate::redaction::SecretKey;
use crate::store::redis::{self, Credentials, Replicas};

mod connect;
mod other_stores;

/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 256;

/// How long a timeout may be.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// The longest name, in bytes.
const MAX_NAME: usize = 256;

/// Settings of a client; see [`Client::builder`](crate::Client::builder).
#[derive(Clone, Debug)]
#[must_use = "a builder makes no client before `connect`, `connect_lazily`, `quorum` or `store`"]
pub struct ClientBuilder {
    prefix: String,
    ttl: Duration,
    connect_timeout: Duration,
    reply_timeout: Duration,
    name: Option<String>,
    fail_fast: Option<Duration>,
    replicas: Option<Replicas>,
    delayed_restart: Option<Duration>,
    redact: bool,
    redact_key: Option<SecretKey>,
    reply_limit: usize,
    access: redis::Access,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            prefix: "lock:".to_owned(),
            ttl: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(1),
            reply_timeout: Duration::from_secs(1),
            name: None,
            fail_fast: None,
            replicas: None,
            delayed_restart: None,
            redact: false,
            redact_key: None,
            reply_limit: limits::REPLY,
            access: redis::Access::default(),
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

    /// The ttl of leases that set none: 30 s unless set. At least 10 ms, at most 366 days. On ZooKeeper also the
    /// timeout of the client's session.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a connection may take to be made, name look-up and log-in included, and with
    /// `redis+sentinel://` all that it takes to find the primary: 1 s unless set. From 1 ms to an hour.
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
    ///
    /// At a PostgreSQL server it is the `application_name`, which is `lockattr` otherwise.
    ///
    /// Servers from Redis 7.2 on are also told the library and its version (`CLIENT SETINFO`), where
    /// their user has the right `+client|setinfo`; nothing depends on it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Tells calls at once that the store is away, for that long after it was seen to be, instead of
    /// having each of them wait for its own bound. From 1 ms to an hour; off unless set.
    ///
    /// The call that finds the store away takes as long as ever. Those after it are
    /// [`Error::Unavailable`], with the cause that the first one was told, and go on as their
    /// `on_unavailable` says. Meanwhile the background asks the store, after pauses of 50 ms to a
    /// second, for as long as calls come; the first answer ends the outage for all. Where nobody has
    /// asked for that long, the next call finds out for itself.
    ///
    /// Only what was not answered, or could not be reached, is an outage: a refusal of the store's
    /// concerns its own call. Renewals and releases go out all the while. Each node of a cluster is away
    /// by itself: calls for keys on the others are as ever, and so is the first call for a list of keys
    /// on several nodes.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockattr::Error> {
    /// # use std::time::Duration;
    /// let client = lockattr::Client::builder()
    ///     .fail_fast(Duration::from_secs(5))
    ///     .connect("redis://127.0.0.1/")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn fail_fast(mut self, length: Duration) -> Self {
        self.fail_fast = Some(length);
        self
    }

    /// Grants count once `count` replicas have acknowledged them, by the server's command `WAIT`: none
    /// are asked unless set. For a Redis or Valkey server with replicas.
    ///
    /// A grant that fewer have acknowledged within `timeout` is given back, and the call is
    /// [`Error::Unavailable`] with a source that
    /// [`is_unacknowledged`](crate::StoreError::is_unacknowledged). It is answered at the latest a
    /// [`reply_timeout`](Self::reply_timeout) after that. Calls at the same time share what is asked of the
    /// replicas; renewals, releases and refusals do not wait for it.
    ///
    /// What that excludes, and what it does not: no caller goes on with a grant that fewer replicas have.
    /// After a failover to a replica among them the lock is still held. After one to another replica
    /// it may be lost, and so may what a replica was not waited for: renewals and extensions, of which the
    /// lease then ends sooner, and what a release leaves of `once` and `min_hold`. With as many as there
    /// are replicas, each of them has every grant, and one that is away makes all calls unavailable.
    ///
    /// At least one replica; a timeout from 1 ms to an hour and below every ttl, of which it is a part. Needs
    /// the right `+wait`. [`connect`](Self::connect) takes a key in this way, and so finds a server with too
    /// few replicas, a missing right or a missing command.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lockattr::Error> {
    /// use std::time::Duration;
    /// use lockattr::{Client, Error};
    ///
    /// let client = Client::builder()
    ///     .replicas(1, Duration::from_millis(500))
    ///     .connect("redis://127.0.0.1/")
    ///     .await?;
    /// match client.lock("sync:42").acquire().await {
    ///     Err(Error::Unavailable { source, .. }) if source.is_unacknowledged() => {
    ///         // The server is there, and its replicas lag.
    ///     }
    ///     lease => lease?.release().await?,
    /// }
    /// # Ok(()) }
    /// ```
    pub fn replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Refuses to connect to a quorum of which a node keeps nothing on disk and was started less than the
    /// longest ttl in use ago: it may have forgotten whom it gave its vote. Not checked unless set; at least
    /// 10 ms, at most 366 days.
    ///
    /// The rule of delayed restarts is that of the description of Redlock, and it is the operator's to
    /// keep: this finds out where it was not kept before a client connects, and not what is started anew
    /// later. Every node is heard, so that one which does not answer costs `connect` its bound. Needs the
    /// right `+info`.
    pub fn delayed_restart(mut self, longest_ttl: Duration) -> Self {
        self.delayed_restart = Some(longest_ttl);
        self
    }

    /// Whether a keyed hash, `redacted:` and 16 hexadecimal digits, stands in the place of every key that
    /// would be shown: in the fields and the text of errors, in logs and spans, in `Debug`. Off unless
    /// set. A call may say otherwise: `redact = …` of an attribute, or
    /// [`LockRequest::redact`](crate::LockRequest::redact). For keys that hold personal data.
    ///
    /// [`Client::redacted`](crate::Client::redacted) computes the hash of a key, and
    /// [`Lease::key`](crate::Lease::key) gives the key itself to the program. The key that the store has
    /// stays as it is, for all who exclude each other have to write the same: whoever can read the store,
    /// or its own logs, reads it there. What a store of one's own writes into its errors is its own affair.
    ///
    /// The hash is cut to 64 bits of an HMAC-SHA1 ([RFC 2104](https://www.rfc-editor.org/rfc/rfc2104))
    /// under the [`redact_key`](Self::redact_key).
    pub fn redact(mut self, redact: bool) -> Self {
        self.redact = redact;
        self
    }

    /// The secret key of the hashes that [`redact`](Self::redact) shows: at least 16 bytes, drawn at random.
    /// Processes with the same key show the same hash, so that one lock can be followed through the logs
    /// of all. Whoever has it can try out which key a hash is.
    ///
    /// Where it is not set each client draws its own, and a hash can be followed within the logs of that
    /// client alone: nothing that all processes know without being told would be a secret.
    pub fn redact_key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.redact_key = Some(SecretKey::new(key.into()));
        self
    }

    /// The most bytes, as JSON, of a reply that [`on_done = replay`](crate::distributed_lock#once-on_done) and
    /// `Lease::mark_done_with` keep in the store: 65,536 unless set; from 1 to 1,048,576. Every
    /// reply stands in the store for as long as its mark.
    ///
    /// A call whose reply is larger has its value all the same: the mark is left without the reply, which is told
    /// at ERROR and counted in [`Stats::replies_not_kept`](crate::Stats::replies_not_kept), and later calls are
    /// [`Error::NoReply`]. What the calls within one leave with it counts together. ZooKeeper keeps
    /// 512 KiB at most.
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.reply_limit = bytes;
        self
    }

    /// The root certificates, in PEM form, by which a `rediss://` or `zookeeper+tls://` server, an `etcds://` member, or with `rediss+sentinel://`
    /// each sentinel and server, is verified, instead of the machine's; so a `postgres://` server with
    /// `sslmode`. Without TLS they are refused.
    ///
    /// The cryptography is that of the process where one is installed when the client is made
    /// (`rustls::crypto::CryptoProvider::install_default`), and `ring` otherwise; none is installed.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.access.certificates.roots = Some(pem.into());
        self
    }

    /// The certificate that this client shows to a `rediss://` or `zookeeper+tls://` server which verifies its clients, and the
    /// private key of it, both in PEM form; intermediate certificates follow the client's own. Without TLS
    /// they are refused.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.access.certificates.client = Some((chain.into(), key.into()));
        self
    }

    /// Asks for a user's name and password whenever a connection is about to log in at a Redis or a
    /// PostgreSQL server, so that they may change while the client lives. Instead of those in a URL, which has none then.
    ///
    /// It is awaited on the runtime that connects, within the connect timeout, and may be asked several
    /// times at once: keep what is valid for a while. An error of it is the cause of
    /// [`Error::Unavailable`]. Connections that are open stay as they are: where the server ends them, or
    /// says that nobody is logged in, the next ones log in anew. Sentinels are logged in to as their URL
    /// says.
    ///
    /// ```no_run
    /// use lockattr::{Client, Credentials};
    ///
    /// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// let client = Client::builder()
    ///     .credentials(|| async { token().await.map(|token| Credentials::user("jobs", token)) })
    ///     .connect("redis://127.0.0.1/")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials<F, E>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.access.credentials = Some(redis::CredentialsProvider::new(provider));
        self
    }

    /// Where this client reaches the servers that announce other addresses: for `redis+sentinel://`,
    /// where sentinels name the primary, and each other, by addresses of their own network.
    ///
    /// `map` is given the host and the port that are announced, and answers with those to connect to,
    /// or with `None` where they are right. With TLS the answer's host is also what the server's
    /// certificate has to name. The sentinels in the URL are reached where it says.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// let client = lockattr::Client::builder()
    ///     .addresses(|host, port| (host == "10.0.0.7").then(|| ("locks-1.example".to_owned(), port)))
    ///     .connect("redis+sentinel://sentinel-1.example,sentinel-2.example/mymaster")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn addresses(
        mut self,
        map: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        self.access.addresses = Some(redis::AddressMap::new(map));
        self
    }

    /// Whether all settings are in bounds.
    fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Config(reason));
        if self.prefix.len() > MAX_PREFIX || self.prefix.contains(['{', '}']) {
            return refuse(format!(
                "a prefix has at most {MAX_PREFIX} bytes and no braces, and not what starts with `{}`",
                key::head(&self.prefix)
            ));
        }
        limits::ttl(self.ttl).map_err(Error::Config)?;
        limits::reply(self.reply_limit).map_err(Error::Config)?;
        if let Some(key) = &self.redact_key {
            key.check().map_err(Error::Config)?;
        }
        if let Some(longest_ttl) = self.delayed_restart {
            limits::ttl(longest_ttl).map_err(Error::Config)?;
        }
        let lengths = [
            ("connect timeout", Some(self.connect_timeout)),
            ("reply timeout", Some(self.reply_timeout)),
            ("fail_fast", self.fail_fast),
        ];
        for (which, length) in lengths {
            if let Some(length) = length
                && !TIMEOUTS.contains(&length)
            {
                return refuse(format!(
                    "a {which} is at least 1ms and at most an hour, not {length:?}"
                ));
            }
        }
        if let Some(Replicas { count, timeout }) = self.replicas {
            if count == 0 || !TIMEOUTS.contains(&timeout) {
                return refuse(format!(
                    "`replicas` takes at least one replica and a timeout of at least 1ms and at most an \
                     hour, not {count} and {timeout:?}"
                ));
            }
            if let Some(why) = redis::too_short(timeout, self.ttl) {
                return refuse(format!("a lease that sets no ttl cannot be had: {why}"));
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
