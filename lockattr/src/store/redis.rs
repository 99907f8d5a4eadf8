//! Locks on one Redis or Valkey server.
//!
//! A lock is a string, `{prefix}{key}` → owner and since when, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.
//!
//! Each step has a file: `acquire`, `renew`, `release`, `token` and `check`. They share `names`, which has
//! every name of the wire format, and `stored`, which reads the values; `script`, which calls scripts; `reply`, which reads their answers; and
//! `fault`, which sorts errors.
//!
//! Below them, `connections` chooses a connection, `connection` makes and replaces it, `server` reaches the
//! server that it leads to (which `sentinel` finds where sentinels watch over it), `batcher` sends the
//! commands of many callers together over a `wire`, `timeouts` keeps their deadlines, and `unanswered` tracks requests
//! whose callers are gone. `watchdog` is the connection for renewals; `losses` has all leases renewed when it
//! was lost and made anew, and `tracking` those whose keys the server says were changed. `replicas` has the connection on which
//! grants are acknowledged, where that is asked for. Beside them, `subscriber` keeps the
//! subscription to the client's channel, and `wakeups` tells those who wait what was published there. What
//! tools show of the locks, and of the server, is in `inspect`.
//!
//! `cluster` is made of several of these stores, one for each node. So each step comes in two forms: one
//! that repeats itself on the same server, and one (`…_once`) whose fault says where else to ask.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{
    Acquired, Attempt, Claim, Found, Held, HeldLeases, Limits, Release, Renewed, Reply, Store,
    Token, WakeUps,
};
use crate::limits::MAX_PERMITS;
use crate::runtime::background::Background;
use crate::runtime::clock::millis;

mod access;
mod acquire;
mod addresses;
mod batcher;
mod check;
mod cluster;
#[cfg(all(test, feature = "conformance"))]
mod conformance;
mod connection;
mod connections;
mod credentials;
mod fault;
mod greeting;
#[cfg(feature = "inspect")]
mod inspect;
mod login;
mod losses;
mod message;
mod names;
mod probe;
mod release;
mod renew;
mod repeated_releases;
mod replicas;
mod reply;
mod restart;
mod script;
mod sentinel;
mod server;
mod stored;
mod subscriber;
mod subscription;
mod target;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod tracking;
mod transport;
mod unanswered;
mod wakeups;
mod watchdog;
mod wire;

pub(crate) use access::Access;
#[cfg(any(
    feature = "zookeeper",
    all(feature = "tls", any(feature = "etcd", feature = "postgres"))
))]
pub(crate) use access::Certificates;
pub(crate) use addresses::AddressMap;
pub(crate) use cluster::{Cluster, ClusterConfig, seeds};
use connections::Connections;
pub use credentials::Credentials;
pub(crate) use credentials::CredentialsProvider;
use fault::Fault;
use losses::{Keeps, KeepsAll};
use names::Names;
use repeated_releases::{RecentReleases, Repeating};
use replicas::Acknowledgements;
pub(crate) use replicas::{Replicas, too_short};
use script::Scripts;
use server::Server;
pub(crate) use server::{Location, location};
use subscriber::Subscriber;
use timeouts::{Deadline, Timeouts};
#[cfg(all(feature = "tls", feature = "zookeeper"))]
pub(crate) use tls::Tls;
#[cfg(all(feature = "etcd", feature = "tls"))]
pub(crate) use tls::check as check_certificates;
#[cfg(all(feature = "postgres", feature = "tls"))]
pub(crate) use tls::config as tls_config;
use tracking::Tracking;
use watchdog::Watchdog;

/// Locks on a single server.
#[derive(Clone)]
pub(crate) struct Redis {
    names: Arc<Names>,
    /// For acquire, release and token. One connection carries all of a caller's, so that a release does
    /// not overtake the acquire.
    connections: Connections,
    /// For renewals, which nothing that callers do can delay.
    watchdog: Watchdog,
    /// What the server tells of changed keys.
    tracking: Arc<Tracking>,
    reply_timeout: Duration,
    /// How long one request may take: for connecting and for the answer.
    request_timeout: Duration,
    /// How long a server that keeps nothing on disk has to have run, where that is checked.
    delayed_restart: Option<Duration>,
    subscriber: Subscriber,
    scripts: Arc<Scripts>,
    /// Where the server may move.
    recent_releases: Option<Arc<RecentReleases>>,
    /// Where grants count once replicas have them.
    acknowledgements: Option<Arc<Acknowledgements>>,
    /// Whether it is a node of a cluster, which has some of the locks.
    in_cluster: bool,
    /// Whether wait queues are left alone: they may be on another node than their locks, while a hash slot
    /// of a cluster moves.
    without_queues: bool,
}

/// What a client needs to reach a server.
#[derive(Clone)]
pub(crate) struct RedisConfig {
    /// What every lock key and helper key starts with.
    pub(crate) prefix: String,
    /// A name of this client that no other client has.
    pub(crate) id: String,
    pub(crate) location: Location,
    /// `CLIENT SETNAME`, where the application gave a name.
    pub(crate) name: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) reply_timeout: Duration,
    /// Where grants count once replicas have them.
    pub(crate) replicas: Option<Replicas>,
    /// How long a server that keeps nothing on disk has to have run, where that is checked.
    pub(crate) delayed_restart: Option<Duration>,
}

impl Redis {
    pub(crate) fn new(config: &RedisConfig, background: &Background) -> Self {
        let timeouts = Timeouts::start(background, config.reply_timeout);
        Self::with(config, background, &timeouts, false)
    }

    fn with(
        config: &RedisConfig,
        background: &Background,
        timeouts: &Arc<Timeouts>,
        in_cluster: bool,
    ) -> Self {
        let server = Server::new(config, background);
        let names = Names::new(&config.prefix, &config.id);
        let connections = Connections::new(&server, timeouts, config.reply_timeout);
        let request_timeout = config.connect_timeout + config.reply_timeout;
        let scripts = Scripts::new();
        let tracking = Arc::<Tracking>::default();
        let subscriber = Subscriber::new(
            Arc::clone(&server),
            names.channel().to_owned(),
            release::give_back_unclaimed(
                background,
                &connections,
                &scripts.release,
                request_timeout,
            ),
        );
        let recent_releases = server.sentinels().is_some().then(|| {
            let repeating = Repeating {
                connections: connections.downgrade(),
                names: names.clone(),
                script: Arc::clone(&scripts.release),
                bound: request_timeout,
            };
            RecentReleases::start(&server, repeating)
        });
        let acknowledgements = config.replicas.map(|replicas| {
            Acknowledgements::new(replicas, &server, &scripts.renew, config.reply_timeout)
        });
        Self {
            names: Arc::new(names),
            recent_releases,
            connections,
            watchdog: Watchdog::new(&server, &tracking),
            tracking,
            reply_timeout: config.reply_timeout,
            request_timeout,
            delayed_restart: config.delayed_restart,
            subscriber,
            scripts: Arc::new(scripts),
            acknowledgements: acknowledgements.map(Arc::new),
            in_cluster,
            without_queues: false,
        }
    }

    fn is_asking(&self) -> bool {
        self.connections.is_asking()
    }

    /// The same node of a cluster, whose wait queues are left alone.
    fn without_queues(&self) -> Self {
        Self {
            without_queues: true,
            ..self.clone()
        }
    }

    /// Whether both are the same node.
    fn is(&self, other: &Self) -> bool {
        self.connections.are(&other.connections)
    }

    /// Host and port, as errors name the server.
    fn address(&self) -> String {
        self.connections.server().address()
    }

    /// Whether nothing is on its way there that somebody may ask about.
    fn is_idle(&self) -> bool {
        self.connections.is_idle()
    }

    /// The same node of a cluster, for keys of a hash slot that is moving there.
    fn asking(&self) -> Self {
        Self {
            connections: self.connections.asking(),
            watchdog: self.watchdog.asking(),
            ..self.clone()
        }
    }

    /// The deadline of one request.
    fn deadline(&self) -> Deadline<'_> {
        self.connections.deadline(self.request_timeout)
    }

    /// The deadline of a request and its repetition.
    fn deadline_of_two(&self) -> Deadline<'_> {
        self.connections.deadline(2 * self.request_timeout)
    }

    /// Has leases that are kept here renewed at once where the server may have forgotten them, or tells that
    /// they were changed.
    fn watch_losses(&self, leases: HeldLeases, keeps: impl Keeps) {
        let server = self.connections.server();
        let keeps: Arc<dyn Keeps> = Arc::new(keeps);
        let background = &server.background;
        tracking::watch(
            &self.tracking,
            background,
            leases.clone(),
            Arc::clone(&keeps),
        );
        losses::watch(server, &self.watchdog, &self.scripts.renew, leases, keeps);
    }

    fn protocol_error(&self, answer: &Value) -> Fault {
        // Further answers on the connection may belong to other commands.
        self.connections.discard_any();
        Fault::protocol_error(answer)
    }
}

impl Store for Redis {
    fn limits(&self) -> Limits {
        let acknowledgements = self.acknowledgements.as_deref();
        let longest = acknowledgements.map_or(Duration::ZERO, Acknowledgements::longest);
        Limits::default()
            .most_permits(MAX_PERMITS)
            .weights(true)
            .shared(true)
            .longest_answer(2 * self.request_timeout + longest)
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(async move { self.check_server(claim).await.map_err(Fault::told) })
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(self.acquire_locks(claim, attempt))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(self.renew_leases(leases, patience).await) })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.release_locks(claim, release))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(async move { self.draw_token(lease).await.map_err(Fault::told) })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        Box::new(self.subscriber.wakeups(claim.owner, claim.ttl))
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(self.connections.settled(owner))
    }

    fn tell_ended(&self, leases: HeldLeases) {
        self.watch_losses(leases, KeepsAll);
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        Some(self)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
