//! How to reach the server that keeps the locks: at the address of a URL, or wherever sentinels say that
//! it is now.
//!
//! Where it moves, every connection to the server before is dropped, whether or not that one still
//! answers. Who is asked where it is, and what is believed, is left to `sentinel`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::PubSub;
use redis::{RedisError, RedisResult, Value};
use tokio::sync::watch;

use super::RedisConfig;
use super::access::Access;
use super::addresses::Address;
use super::connection::WeakConnection;
use super::fault::Fault;
use super::greeting::Greeting;
use super::sentinel::{self, SentinelTarget, Sentinels};
use super::target::{self, Target};
use super::wire::Wire;
use crate::error::{Error, StoreError};
use crate::runtime::background::{Background, Elapsed};

/// Where the server is, as a URL says it.
#[derive(Clone)]
pub(crate) enum Location {
    At(Target),
    NamedBySentinels(SentinelTarget),
}

impl Location {
    /// The same at another address.
    pub(super) fn at(&self, address: &Address) -> Self {
        match self {
            Self::At(target) => Self::At(target.with_address(address)),
            Self::NamedBySentinels(_) => self.clone(),
        }
    }
}

/// Reads a URL.
pub(crate) fn location(url: &str, access: &Access) -> Result<Location, Error> {
    if let Some(scheme) = sentinel::scheme(url) {
        return sentinel::target(scheme, url, access).map(Location::NamedBySentinels);
    }
    if access.addresses.is_some() {
        return Err(Error::Config(
            "`addresses` are for servers that announce others, as with redis+sentinel://, and this URL \
             names its server itself: leave them out"
                .to_owned(),
        ));
    }
    target::target(url, access).map(Location::At)
}

/// How to reach the server.
pub(super) struct Server {
    route: ServerRoute,
    pub(super) greeting: Greeting,
    pub(super) background: Background,
    pub(super) connect_timeout: Duration,
    /// How often it has answered, on any connection.
    answers: AtomicU64,
    /// How often it has moved.
    moves: watch::Sender<u64>,
    /// How many connections to it were lost.
    losses: watch::Sender<u64>,
    /// Those that are to be dropped when it moves.
    connections: Mutex<Vec<WeakConnection>>,
}

enum ServerRoute {
    Fixed(Target),
    Sentinels(Sentinels),
}

impl Server {
    pub(super) fn new(config: &RedisConfig, background: &Background) -> Arc<Self> {
        Arc::new(Self {
            route: match &config.location {
                Location::At(target) => ServerRoute::Fixed(target.clone()),
                Location::NamedBySentinels(target) => {
                    ServerRoute::Sentinels(Sentinels::new(target, config.name.as_deref()))
                }
            },
            greeting: Greeting::new(config.name.as_deref()),
            background: background.clone(),
            connect_timeout: config.connect_timeout,
            answers: AtomicU64::new(0),
            moves: watch::Sender::new(0),
            losses: watch::Sender::new(0),
            connections: Mutex::default(),
        })
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// The server's own address, where a URL has it.
    pub(super) fn fixed(&self) -> Option<&Target> {
        match &self.route {
            ServerRoute::Fixed(target) => Some(target),
            ServerRoute::Sentinels(_) => None,
        }
    }

    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.route {
            ServerRoute::Fixed(_) => None,
            ServerRoute::Sentinels(sentinels) => Some(sentinels),
        }
    }

    /// Host and port, or the socket's path, or the service, cut to the length of a log line: never the
    /// user or the password.
    pub(super) fn address(&self) -> String {
        let address = match &self.route {
            ServerRoute::Fixed(target) => target.address().to_string(),
            ServerRoute::Sentinels(sentinels) => {
                format!("the primary of `{}`", sentinels.service())
            }
        };
        address.chars().take(200).collect()
    }

    /// Connects, until that moment at most. Also says how often the server had moved by then.
    pub(super) async fn open(self: &Arc<Self>, within: Instant) -> Result<(Wire, u64), Fault> {
        let told = |why: &str| {
            StoreError::unreachable(format!("cannot connect to {}{why}", self.address()))
        };
        match &self.route {
            ServerRoute::Sentinels(sentinels) => {
                let opened = sentinels.open(self, within).await;
                opened.map_err(|why| Fault::unreachable(told(&format!(": {why}"))))
            }
            ServerRoute::Fixed(target) => {
                let opened = self.background.until(within, self.open_at(target)).await;
                let opened = opened.map_err(|Elapsed| {
                    let within = self.connect_timeout;
                    Fault::unreachable(told(&format!(" within {within:?}")))
                })?;
                let connection = opened.map_err(|error| {
                    let fault = Fault::from(error);
                    Fault::not_connected(&fault, told(&format!(": {}", fault.error)))
                })?;
                Ok((connection, 0))
            }
        }
    }

    /// The same for a connection that subscribes to channels.
    pub(super) async fn pubsub(
        self: &Arc<Self>,
        within: Instant,
    ) -> Result<(PubSub, u64), StoreError> {
        let greeting = &self.greeting;
        let refused = |error: RedisError| Fault::from(error).error;
        match &self.route {
            ServerRoute::Fixed(target) => Ok((target.pubsub(greeting).await.map_err(refused)?, 0)),
            ServerRoute::Sentinels(sentinels) => {
                let (target, moves) = sentinels
                    .locate(self, within)
                    .await
                    .map_err(StoreError::unreachable)?;
                Ok((target.pubsub(greeting).await.map_err(refused)?, moves))
            }
        }
    }

    async fn open_at(&self, target: &Target) -> RedisResult<Wire> {
        let mut connection = target.connection().await?;
        // A server that is stopped accepts connections, and so does one that has too many clients. The
        // connection counts as made once something was answered.
        let asked = self
            .greeting
            .with_question(&mut connection, &redis::cmd("TIME"))
            .await?;
        match asked {
            Value::ServerError(error) if is_full(error.details()) => Err(error.into()),
            _ => Ok(connection),
        }
    }

    /// Has a connection dropped when the server moves.
    pub(super) fn watch_over(&self, connection: WeakConnection) {
        if self.sentinels().is_none() {
            return;
        }
        let mut connections = self.connections();
        connections.retain(WeakConnection::is_alive);
        connections.push(connection);
    }

    /// The server has moved.
    pub(super) fn moved(&self) {
        self.moves.send_modify(|moves| *moves += 1);
        let connections = self.connections().clone();
        for connection in connections {
            connection.discard();
        }
    }

    /// A connection was lost, or is not to be used any more.
    pub(super) fn lost_connection(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }

    /// How many connections were lost, to wait for the next loss.
    pub(super) fn losses_to_come(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }

    fn connections(&self) -> MutexGuard<'_, Vec<WeakConnection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the server has moved.
    pub(super) fn moves(&self) -> u64 {
        *self.moves.borrow()
    }

    /// The same, to wait for the next move.
    pub(super) fn moves_to_come(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }
}

fn is_full(words: Option<&str>) -> bool {
    words.is_some_and(|words| words.contains("max number of clients"))
}
