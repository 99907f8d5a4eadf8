//! A client: where locks are kept, and how calls find it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::acquire::Context;
use crate::error::Error;
use crate::hold_times::HoldTimes;
use crate::key::{Key, Keys};
use crate::runtime::blocking;
use crate::stats::Stats;

mod builder;
mod disabled;
#[cfg(feature = "inspect")]
mod inspector;
mod installed;
mod nodes;
mod request;
mod status;
mod take_up;

pub use builder::ClientBuilder;
#[cfg(feature = "inspect")]
pub use inspector::{Inspector, Listing};
use installed::Installed;
pub use request::LockRequest;
pub use status::{Holder, Status, StatusRequest};

/// The client of the process.
static INSTALLED: Installed = Installed::none();

tokio::task_local! {
    /// The client of a task tree.
    static SCOPED: Client;
}

/// A connection to the place where locks are kept.
///
/// Cheap to clone; all clones are one client. It owns a thread, on which it renews leases, and a second
/// one, made with the first event, that tells what happens there; they end when the last clone and the
/// last lease are gone. A tokio runtime that calls gets a connection of its own to a server, driven
/// there by a task, with a second task that sees the runtime end; calls from elsewhere go over the
/// client's thread. Hence a client outlives every tokio runtime, works from each of them and from none,
/// and may live in a `static`.
///
/// A runtime should have its I/O enabled, as those of `#[tokio::main]` and `#[tokio::test]` have: on one
/// that has not, the first call lets tokio panic in a task of the client's, and all go over its thread.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Context>);

impl Client {
    /// Connects to a store, with the defaults of [`Client::builder`].
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[[user]:password@]host[:port][/database]` | a Redis or Valkey server |
    /// | `rediss://…` | the same over TLS, with the feature `tls` |
    /// | `redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/service[/database]` | the primary of a service that Redis Sentinel watches over |
    /// | `rediss+sentinel://…` | the same over TLS, to the sentinels as well |
    /// | `redis+cluster://[[user]:password@]host[:port],host[:port]…` | a Redis Cluster, of which these nodes are asked first; `rediss+cluster://…` over TLS |
    /// | `redis+quorum://[[user]:password@]host[:port],host[:port],host[:port]…` | a majority of independent servers; see [`ClientBuilder::quorum`]; `rediss+quorum://…` over TLS |
    /// | `unix:///path/to/socket[?db=…&user=…&pass=…]` | one server, over a Unix socket |
    /// | `zookeeper://[user:password@]host[:port][,host[:port]…][/node]` | the servers of a ZooKeeper ensemble, with the feature `zookeeper`; `zookeeper+tls://…` over TLS |
    /// | `etcd://[user:password@]host[:port][,host[:port]…]` | an etcd cluster, of which these members are asked, at port 2379 unless it says otherwise; with the feature `etcd`; `etcds://…` over TLS |
    /// | `postgres://[user[:password]@]host[:port][,host[:port]…]/database[?…]` | a PostgreSQL database, with the feature `postgres`; so `postgresql://…` |
    /// | `memory:` | this process alone, for tests and development |
    ///
    /// User names and passwords are percent-encoded; an IPv6 address is written in brackets.
    ///
    /// It takes, renews and gives back a throw-away key, so that a missing right, a wrong password,
    /// a replica, a node of a cluster behind a URL that is not a cluster's, or a proxy that does not know a
    /// command is found here and not in a job. All of that is sent together: it takes about three
    /// round trips, those of the connections included.
    ///
    /// # Sentinel
    /// A `redis+sentinel://` URL names some of the sentinels, at port 26379 unless it says otherwise, in
    /// any order; the others are learnt from them. All are asked at the same time, and the server that
    /// they name is asked itself, by `ROLE`, whether it is the primary. The login before the `@` and the
    /// database are those of the Redis servers. Those of the sentinels are parameters:
    /// `?sentinel_user=…&sentinel_password=…`. Neither is told to the other kind of server. Where
    /// servers announce addresses that this client cannot reach, or that their certificates do not name,
    /// [`ClientBuilder::addresses`] maps them.
    ///
    /// The client listens to the sentinels, and asks them every second, so that it follows a failover
    /// in at most about two seconds after the sentinels have made it, in general within 0.1 s; every
    /// connection to the old primary is dropped then, also where that one lives on. Calls meanwhile end
    /// as unavailable or succeed. Without any sentinel the client goes on with the primary that it
    /// knows, for as long as that says that it is the primary.
    ///
    /// A failover loses what the old primary had not sent to its replicas yet. A lease that is lost so
    /// is told lost when the client has followed, by a renewal of everything that it holds; until then **two may
    /// hold the lock**. A primary that is cut off from the others goes on granting until its clients have
    /// followed the new one: for about a second where they reach a sentinel, and for as long as it takes
    /// where they are cut off with it. `min-replicas-to-write 1` and `min-replicas-max-lag` on the
    /// servers bound that. Releases that were lost so are asked for again on the new primary. What
    /// must not happen twice needs a fencing token, [`Lease::token`](crate::Lease::token).
    ///
    /// | right at the sentinels | without it |
    /// |---|---|
    /// | `+sentinel\|get-master-addr-by-name`, `+sentinel\|master` | no client |
    /// | `+subscribe`, `&+switch-master` | failovers are noticed by asking every second |
    /// | `+sentinel\|sentinels` | sentinels that the URL leaves out are not asked |
    /// | `+sentinel\|masters` | a misspelt service is told without the names of those that exist |
    /// | `+client\|setname` | the [name](ClientBuilder::name) is not shown, and failovers are noticed by asking |
    ///
    /// At the Redis servers, `+role` is needed beside the rights of a single server.
    ///
    /// # Redis Cluster
    /// Each lock is on the node of its hash slot, with the helper keys that belong to it, and costs what it
    /// costs on a single server. Redirections, slots that move and replicas that take the place of their
    /// primaries are followed within the bound of a call; [`Client::connect`] checks every node that keeps
    /// slots, and an error names the node. A user needs `+cluster|slots +cluster|info +asking` on each node
    /// beside the rights on a single server, and a cluster has database 0 alone.
    ///
    /// - Keys of [`lock_all`](Self::lock_all) that are in different hash slots are taken one after the
    ///   other, in the order of their keys, and given back where one is missing: not in one step, so that
    ///   others may find a key held of which nothing comes.
    /// - While a hash slot moves, a single key is taken, refused, renewed and given back; whoever waits for
    ///   it looks again every now and then. What needs several keys of the slot (lists, tokens)
    ///   waits for the end of the move, and is unavailable where that takes longer than a call.
    /// - A primary answers for a lock before its replicas have it. A replica that is promoted in that moment
    ///   does not know the lock, and a primary that is cut off goes on granting until it has noticed
    ///   (`cluster-node-timeout`): within that window a lock may be lost or held twice, which
    ///   [`Lease::token`](crate::Lease::token) lets a resource refuse. The leases of hash slots that another node
    ///   keeps than before are renewed at once, and those of a node whose connection was lost and made anew.
    ///
    /// # ZooKeeper
    /// A `zookeeper://` URL names some or all of the servers, at port 2181 unless it says otherwise, and the
    /// node below which locks are kept, which is made where it is not there; without one, the root. A user and
    /// password log in by the scheme `digest`, and what this client makes is that user's alone. Without TLS
    /// they are sent as they are.
    ///
    /// A client has one session, on its own thread, with the [ttl](ClientBuilder::ttl) of the client as its
    /// timeout, or the nearest that the servers allow (`minSessionTimeout`, `maxSessionTimeout`): from 2 to 20 of
    /// their ticks unless they are set. Where it is shorter than that ttl, this ends as [`Error::Invalid`].
    ///
    /// - **A client that dies, or stands still, holds its locks for as long as its session**, whatever their
    ///   ttls. A lease of a client that lives ends with its own ttl unless it is renewed, of at least 1 s
    ///   and at most the session's timeout: a longer one is [`Error::Invalid`].
    /// - Renewals cost nothing. While something is held or waited for, a client sends one `sync` each fortieth
    ///   of its session's timeout, which the leader answers. A lease is relied on for that timeout from when
    ///   the last one was sent that was answered, less 4 % and 2 ms: a client that is cut off for nine tenths of it
    ///   loses nothing, and one that is cut off for longer has lost all, whatever a server says later.
    /// - A lease whose node somebody deletes is told within about half a second, and one whose session ends at
    ///   once.
    /// - Servers of a majority that lives are followed: the session moves with its leases and places in the queues. One
    ///   that is cut off from the others, and does not know it yet, may answer in the name of a session that these
    ///   end: for half a tick where it follows, and up to a tick where it leads, of which the 4 % cover a part.
    ///   What must not happen twice needs [`Lease::token`](crate::Lease::token).
    /// - [`lock_all`](Self::lock_all) takes its places in all queues in one step, and two calls never wait for each
    ///   other. A call that waits for the last of its keys keeps those behind it waiting for the others. The keys of a
    ///   list, with the names of their places, take at most 500 kB: more is [`Error::Invalid`].
    /// - What `once` and `min_hold` leave counts by the leader's clock. A [reply](crate::KeptReply) beside it has
    ///   512 KiB at most; those of calls within a call for several keys 64 KiB together.
    ///
    /// # etcd
    /// A lock is held by whoever a majority of the members says, so that a member, the leader or a connection may go
    /// at any time; without a majority nothing is granted, and leases end at their deadline. A member that does not
    /// answer within the reply timeout is left for the next one. A user logs in anew whenever a token has ended.
    ///
    /// - A lease of etcd's is in whole seconds, and a tenth of the ttl or a second longer than that: this is how much
    ///   longer a holder that has died blocks others, and the server ends it up to a second later. Deadlines of
    ///   leases here are those of the ttl, from 500 ms. A new leader starts each lease anew.
    /// - Use etcd 3.4.31, 3.5.13 or later. In an earlier one, a leader that stood still for longer than a lease may end
    ///   it when it comes back, or seconds later, though it was renewed with the next leader meanwhile: another may have
    ///   the lock until its holder is told, at its next renewal, a third of the ttl later at most.
    /// - What `once` and `min_hold` leave stays for at least two seconds, anew with each new leader.
    /// - A list has at most 42 keys, with the server's `--max-txn-ops` of 128.
    /// - A lock costs two requests, as in etcd's own recipe: its leases are used again. One that is held costs a
    ///   keep-alive for a third of its ttl, on one stream for all, and what is renewed together one look.
    /// - So do a reader and, where nobody else has some, the holder of permits; beside others a holder of permits costs
    ///   one more, and one for each time that another came between its look and its write.
    /// - A call that dies while it waits keeps its place in the queue until its lease has ended.
    /// - A lease that is [handed off](crate::Lease::hand_off) and not taken up ends as that of a holder that has died.
    /// - A user needs the right to read and write the keys that begin with the [prefix](ClientBuilder::prefix), by
    ///   `etcdctl role grant-permission ROLE readwrite --prefix=true lock:`.
    /// - Without space left (`NOSPACE`) nothing new is granted, and leases are renewed and given back.
    /// - Settings that are for Redis servers are refused: `replicas`, `addresses`, `credentials`. A
    ///   [name](ClientBuilder::name) is sent as the user agent.
    ///
    /// # PostgreSQL
    /// With the feature `postgres`, locks are rows of a table in a schema `lockattr` of the database, and each
    /// step is a function there: from version 12 on, in a database with the encoding UTF8. A client that
    /// finds none makes them where its role may create a schema; where it may not, an administrator runs
    /// `lockattr::POSTGRES_SCHEMA` once, with the grants that its first lines name.
    ///
    /// - **What it survives** is what the database survives: a restart and a crash keep every lock, and so
    ///   does a failover to a standby that is synchronous. One to a standby that lags loses the locks that it
    ///   has not heard of, and two may hold them until the first is told, at its next renewal. Grants are on
    ///   disk before they are told, also where `synchronous_commit` is off.
    /// - **Time** is the server's. Set forward, it ends leases, whose holders are told at their next renewal;
    ///   set back, it keeps nobody out for longer than a ttl.
    /// - **URL**: all that tokio-postgres takes. Of several hosts the primary is asked, whatever
    ///   `target_session_attrs` says, and another one once it is a standby. With the feature `tls`,
    ///   `sslmode=require`, or a certificate that is set, encrypts and, unlike PostgreSQL's own programs,
    ///   always verifies the server's certificate and name; with neither, or with `prefer`, a connection that
    ///   cannot be encrypted so is not encrypted. `channel_binding=require` is refused.
    /// - **Connections**: two for each client, whatever it holds, both on its own thread: one for commands, and
    ///   one for wake-ups and renewals. The [name](ClientBuilder::name) is their `application_name`.
    /// - **Poolers**: behind PgBouncer in session mode everything works. Where sessions are shared, in
    ///   transaction and statement mode, `&listen=host:port` names the database itself for the second
    ///   connection; without it [`connect`](Self::connect) is refused, because wake-ups would not come.
    /// - **Settings** of the role, the database or a shared session (isolation level, `read only`, timeouts,
    ///   `search_path`, time zone) make no difference.
    /// - Whoever waits stands in a table, and is granted the lock by the release, in order. `NOTIFY`, which
    ///   has all commits wait that notify as well, is used where somebody waits only, in a transaction that
    ///   writes nothing.
    ///
    /// ## A fence inside a transaction
    /// Where what the lock guards is in the same database, a transaction can be made to commit only while the
    /// lock is held:
    ///
    /// ```sql
    /// BEGIN;
    /// SELECT lockattr.fence('lock:account:1', 1764515000000000); -- the lock with its prefix, and the lease's token
    /// UPDATE account SET cents = cents + 100;
    /// COMMIT;
    /// ```
    ///
    /// It fails, with the SQLSTATE `LK001`, where the lease that has drawn this
    /// [token](crate::Lease::token) is over. Otherwise it locks the lock's row: until the transaction ends
    /// nobody else is granted the lock, also when the lease ends meanwhile; others find it busy. Renewals go
    /// on. A process that stands still inside a transaction keeps others out until the server ends that, as
    /// `idle_in_transaction_session_timeout` says. The transaction is to end before the lease is given back,
    /// which is tried again until then. It may stand anywhere in a transaction of READ COMMITTED, and is the
    /// first statement of one that is REPEATABLE READ or SERIALIZABLE. The role needs the same rights as
    /// one that locks. Slot 1 of a key with `permits` is `{lock:KEY}1`, and slot 0 is `lock:KEY`.
    /// `examples/postgres` has it with tokio-postgres and with sqlx.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that cannot be used, [`Error::Unavailable`] where the server
    /// could not be reached or refused a step, in its own words.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// [`connect`](Self::connect) on a thread that may wait, for programs that are not async. It needs no runtime.
    ///
    /// ```
    /// use lockattr::{Client, Error, distributed_lock};
    ///
    /// #[distributed_lock(key = "report:<month>", blocking)]
    /// fn report(month: &str) -> Result<(), Error> {
    ///     // at most one of these per month runs at a time, on any machine
    ///     Ok(())
    /// }
    ///
    /// fn main() -> Result<(), Error> {
    ///     let client = Client::connect_blocking("memory:")?;
    ///     client.install()?;
    ///     report("2026-11")?;
    ///     client.shutdown_blocking();
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), and [`Error::Config`] where this thread runs the tasks of a tokio
    /// runtime, which waiting would block.
    pub fn connect_blocking(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect_blocking(url)
    }

    /// A client with settings other than the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Makes this the client of every call in the process that names no other.
    ///
    /// A process that is forked off has the client of its parent in that place until it installs one
    /// that it has made itself.
    ///
    /// # Errors
    /// [`Error::AlreadyInstalled`] the second time in a process.
    pub fn install(&self) -> Result<(), Error> {
        if INSTALLED.set(self.clone()) {
            Ok(())
        } else {
            Err(Error::AlreadyInstalled)
        }
    }

    /// Makes this the client of every call within `future` that names no other, before the
    /// installed one. Tasks that it spawns are not within it.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPED.scope(self.clone(), future).await
    }

    /// [`scope`](Self::scope) for calls on this thread: those that `run` makes use this client where they name no
    /// other. Threads that it starts are not within it.
    pub fn scope_blocking<R>(&self, run: impl FnOnce() -> R) -> R {
        SCOPED.sync_scope(self.clone(), run)
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
        let key = Key::with_room(key.as_ref(), self.0.prefix.len()).map(Keys::from);
        LockRequest::new(self.clone(), key)
    }

    /// A request for several keys at once: all or none of them, in one step, so that no order of
    /// keys can end in a deadlock. Keys that are equal are taken once. At most 1,000 are given: the
    /// server answers nobody else during that step. On a Redis Cluster it is
    /// [one step for each hash slot](Self::connect).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// let lease = client.lock_all(["account:7", "account:9"]).acquire().await?;
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "a request takes nothing before `acquire().await`"]
    pub fn lock_all(&self, keys: impl IntoIterator<Item = impl AsRef<str>>) -> LockRequest {
        let room = self.0.prefix.len();
        let keys = keys
            .into_iter()
            .map(|key| Key::with_room(key.as_ref(), room));
        LockRequest::new(self.clone(), Keys::all(keys))
    }

    /// What stands for a key in the errors and logs of calls that are
    /// [redacted](ClientBuilder::redact): to look up in a log what became of `sync:42`, or which of some
    /// keys a hash is. Of a call with several keys, each has its own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// let client = lockattr::Client::builder()
    ///     .redact(true)
    ///     .redact_key("from the secrets of this fleet")
    ///     .connect("memory:")
    ///     .await?;
    /// let _held = client.lock("sync:42").acquire().await?;
    /// let error = client.lock("sync:42").acquire().await.unwrap_err();
    /// assert!(error.to_string().contains(&client.redacted("sync:42")));
    /// assert!(!error.to_string().contains("sync:42"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn redacted(&self, key: impl AsRef<str>) -> String {
        self.0.redacted(key.as_ref())
    }

    /// A client without locks, for development: every call runs, at once and side by side, and
    /// [`Stats::unguarded`](crate::Stats::unguarded) counts it. [`Lease::token`](crate::Lease::token) is unavailable.
    ///
    /// The environment variable `LOCKATTR_DISABLED=1` makes every client of the process one, also
    /// where none is installed. Either is told once, loudly.
    ///
    /// # Errors
    /// [`Error::Config`] where the client's thread cannot be started.
    pub fn disabled() -> Result<Self, Error> {
        Self::builder().without_locks()
    }

    /// What this client has counted since it was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.keeper.counters.read()
    }

    /// How long the leases of each function were held, by which its `ttl` can be chosen: of requests by hand,
    /// those that name a [template](LockRequest::template). A call that joins the lease of another has none of its own.
    ///
    /// What is kept is about a kilobyte for a function. It is kept of the first 1,024 functions and
    /// templates of the process; in no order but that in which they came to be known.
    ///
    /// Where a lease that is not renewed (`renew = false`) takes more than half of its ttl, by the 99th
    /// percentile of at least 20 runs, that is told at WARN, once for a function and a client, with a
    /// ttl that would be enough.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// client.lock("sync:42").template("sync:<user_id>").acquire().await?.release().await?;
    /// for times in client.hold_times() {
    ///     println!("{}: {:?} of {:?}", times.template, times.p99, times.ttl);
    /// }
    /// # assert_eq!(client.hold_times()[0].count, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_times(&self) -> Vec<HoldTimes> {
        self.0.keeper.counters.hold_times.read()
    }

    /// Takes no more, and gives back everything that is held; for the end of a program.
    ///
    /// Running bodies are cancelled: their calls end as lost. Leases taken by hand are given back
    /// under their holders. Waits until the store has confirmed each release, and at most for the
    /// remaining ttl of the longest lease. Calls that come later are unavailable.
    ///
    /// Cancel-safe: dropped, it no longer waits, and what it has begun goes on.
    pub async fn shutdown(&self) {
        self.0.shut_down().await;
    }

    /// [`shutdown`](Self::shutdown) on a thread that may wait, for the end of a program that is not async. On one
    /// that runs the tasks of a tokio runtime it waits for nothing: what it has begun goes on.
    pub fn shutdown_blocking(&self) {
        if blocking::refusal().is_none() {
            self.0.keeper.block_on(self.shutdown());
        } else {
            blocking::begin(self.shutdown());
        }
    }

    /// The client that a call without one of its own uses.
    pub(crate) fn current() -> Result<Self, Error> {
        if let Ok(scoped) = SCOPED.try_with(Self::clone) {
            return Ok(scoped);
        }
        #[cfg(feature = "testing")]
        if let Some(client) = crate::testing::of_runtime() {
            return Ok(client);
        }
        match INSTALLED.get() {
            Some(installed) => Ok(installed.clone()),
            None if disabled::by_environment() => disabled::client(),
            None => Err(Error::NotInstalled),
        }
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
