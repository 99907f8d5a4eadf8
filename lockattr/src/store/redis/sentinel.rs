//! The primary of a service that sentinels watch over: found, checked, and followed to where it moves.
//!
//! All known sentinels are asked at the same time, so none that is silent or slow costs time. What they
//! say is weighed by `known`; and whatever they say, a server is used once it has said itself, by ROLE on
//! that very connection, that it is the primary. Without any sentinel the primary that was found last is
//! used on while it says so.
//!
//! Each sentinel has a task on the background runtime (`watcher`), which asks it every second, at once
//! where somebody connects, and when it tells of a failover. One more task (`follow`) sees from what they
//! hear that the primary may have moved, connects to the new one, and so has every connection to the old
//! one dropped. The tasks begin with the first connection and end with the client.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::sleep;

use super::access::Access;
use super::addresses::{Address, AddressMap};
use super::credentials::Login;
use super::fault::Fault;
use super::greeting::Greeting;
use super::server::Server;
use super::target::Target;
use super::transport::Transport;
use super::wire::Wire;
use crate::error::Error;
use crate::runtime::background::Elapsed;
use crate::runtime::jitter::jittered;
#[cfg(feature = "inspect")]
use crate::store::inspect::Finding;

#[cfg(feature = "inspect")]
mod doctor;
mod known;
mod suggestion;
mod url;
mod watcher;

use known::KnownSentinels;
pub(super) use url::{Scheme, scheme};

/// How long sentinels that have yet to answer are waited for where others have: these may be stale.
const STRAGGLERS: Duration = Duration::from_millis(250);

/// The pause before candidates are asked again of which none was the primary.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause after the primary was looked for since it was in question.
const LOOKED: Duration = Duration::from_millis(250);

/// What a URL says.
#[derive(Clone)]
pub(crate) struct SentinelTarget {
    service: String,
    sentinels: Vec<Address>,
    login: Login,
    sentinel_login: Login,
    transport: Transport,
    addresses: Option<AddressMap>,
}

/// The sentinels of one service.
pub(super) struct Sentinels {
    target: SentinelTarget,
    /// At the sentinels.
    greeting: Greeting,
    known: watch::Sender<KnownSentinels>,
    /// Each number is a round of questions.
    rounds: watch::Sender<u64>,
    started: AtomicBool,
}

/// What became of an attempt to connect to a candidate.
enum CandidateAttempt {
    IsPrimary(Wire),
    /// It is not, or does not answer; the words follow "the Redis server at …".
    Failed(String),
    /// It has not answered in the time that there was.
    Silent,
    /// It refuses this client, and would so again.
    Refused(String),
    /// The sentinels say something else by now.
    Superseded,
}

/// Reads a URL of that scheme.
pub(super) fn target(
    (scheme, is_tls): Scheme,
    url: &str,
    access: &Access,
) -> Result<SentinelTarget, Error> {
    let read = url::read(scheme, url)?;
    let login = Login::new(read.login, access.credentials.as_ref())
        .map_err(|why| Error::Config(format!("the {scheme}:// URL cannot be used: {why}")))?;
    Ok(SentinelTarget {
        service: read.service,
        sentinels: read.sentinels,
        login,
        sentinel_login: Login::of_url(read.sentinel_login),
        transport: Transport::of(scheme, is_tls, access)?,
        addresses: access.addresses.clone(),
    })
}

impl SentinelTarget {
    /// Where this client reaches what is announced at an address.
    fn reached_at(&self, announced: Address) -> Address {
        match &self.addresses {
            Some(map) => map.apply(announced),
            None => announced,
        }
    }

    fn redis(&self, address: &Address) -> RedisResult<Target> {
        Target::at(address, self.login.clone(), self.transport.clone())
    }

    fn sentinel(&self, address: &Address) -> RedisResult<Target> {
        Target::at(address, self.sentinel_login.clone(), self.transport.clone())
    }
}

impl Sentinels {
    pub(super) fn new(target: &SentinelTarget, name: Option<&str>) -> Self {
        Self {
            greeting: Greeting::new(name),
            known: watch::Sender::new(KnownSentinels::new(&target.sentinels)),
            rounds: watch::Sender::new(0),
            started: AtomicBool::new(false),
            target: target.clone(),
        }
    }

    pub(super) fn service(&self) -> &str {
        &self.target.service
    }

    /// What the sentinels' own words tell.
    #[cfg(feature = "inspect")]
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.known.borrow().findings(self.service())
    }

    /// Connects to the primary. Also says how often it had moved by then.
    pub(super) async fn open(
        &self,
        server: &Arc<Server>,
        within: Instant,
    ) -> Result<(Wire, u64), String> {
        self.start(server);
        let mut failed: Option<(Address, String)> = None;
        loop {
            let candidates = self.candidates(server, within).await?;
            for (index, candidate) in candidates.iter().enumerate() {
                // What is likeliest may be a black hole.
                let now = Instant::now();
                let rest = u32::try_from(candidates.len() - index).unwrap_or(u32::MAX);
                let until = now + within.saturating_duration_since(now) / rest;
                match self.attempt(server, candidate, until).await {
                    CandidateAttempt::IsPrimary(connection) => {
                        if let Some(moves) = self.found(server, candidate) {
                            return Ok((connection, moves));
                        }
                    }
                    CandidateAttempt::Failed(words) => failed = Some((candidate.clone(), words)),
                    // The last attempt has little time, and what came of an earlier one tells more.
                    CandidateAttempt::Silent => {
                        if failed.as_ref().is_none_or(|(of, _)| of != candidate) {
                            failed = Some((candidate.clone(), "does not answer".to_owned()));
                        }
                    }
                    CandidateAttempt::Refused(words) => return Err(told(candidate, &words)),
                    CandidateAttempt::Superseded => {}
                }
            }
            if Instant::now() + PAUSE >= within {
                return Err(failed.map_or_else(String::new, |(of, words)| told(&of, &words)));
            }
            server
                .background
                .sleep_until(Instant::now() + jittered(PAUSE))
                .await;
        }
    }

    /// The address of the primary, for a connection that cannot ask what it is connected to.
    pub(super) async fn locate(
        &self,
        server: &Arc<Server>,
        within: Instant,
    ) -> Result<(Target, u64), String> {
        self.start(server);
        let moves = server.moves();
        let candidates = self.candidates(server, within).await?;
        if let [best, ..] = candidates.as_slice()
            && self.known.borrow().is_primary(best)
        {
            let target = self.target.redis(best).map_err(|error| error.to_string())?;
            return Ok((target, moves));
        }
        let (_, moves) = self.open(server, within).await?;
        let best = self.known.borrow().likeliest().into_iter().next();
        let best = best.ok_or("the sentinels name no primary")?;
        let target = self
            .target
            .redis(&best)
            .map_err(|error| error.to_string())?;
        Ok((target, moves))
    }

    /// Asks all sentinels anew. The answer is the servers that may be the primary, the likeliest first.
    async fn candidates(&self, server: &Server, within: Instant) -> Result<Vec<Address>, String> {
        let mut known = self.known.subscribe();
        let mut round = 0;
        self.rounds.send_modify(|rounds| {
            *rounds += 1;
            round = *rounds;
        });
        // Where nobody answers, there is still the primary that was found last.
        let is_named =
            |known: &KnownSentinels| known.has_primary() || !known.likeliest().is_empty();
        let asked = async {
            let named = known.wait_for(|known| is_named(known) || known.is_settled(round));
            drop(named.await);
            let until = Instant::now() + STRAGGLERS;
            let settled = known.wait_for(|known| known.is_settled(round));
            let _ = server.background.until(until, settled).await;
        };
        let _ = server.background.until(within, asked).await;
        let known = self.known.borrow();
        let likeliest = known.likeliest();
        if likeliest.is_empty() {
            return Err(known.trouble(self.service()));
        }
        Ok(likeliest)
    }

    /// Connects to a candidate and asks it what it is.
    async fn attempt(
        &self,
        server: &Server,
        candidate: &Address,
        until: Instant,
    ) -> CandidateAttempt {
        let attempt = async {
            let asked = async {
                let mut connection = self.target.redis(candidate)?.connection().await?;
                let role = redis::cmd("ROLE");
                let asked = server.greeting.with_question(&mut connection, &role);
                let role = asked.await?.extract_error()?;
                Ok((connection, role))
            };
            match asked.await {
                Ok((connection, role)) if is_primary(&role) => {
                    CandidateAttempt::IsPrimary(connection)
                }
                Ok(_) => CandidateAttempt::Failed("is a replica".to_owned()),
                Err(error) => failed(error),
            }
        };
        let mut known = self.known.subscribe();
        let is_other = |known: &KnownSentinels| known.likeliest().first() != Some(candidate);
        // A candidate that was not the likeliest from the start is not superseded by that.
        let was_other = is_other(&known.borrow_and_update());
        let superseded = async {
            if was_other || known.wait_for(is_other).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let either = async {
            let (mut attempt, mut superseded) = (pin!(attempt), pin!(superseded));
            poll_fn(|cx| {
                if let Poll::Ready(attempt) = attempt.as_mut().poll(cx) {
                    return Poll::Ready(attempt);
                }
                superseded
                    .as_mut()
                    .poll(cx)
                    .map(|()| CandidateAttempt::Superseded)
            })
            .await
        };
        match server.background.until(until, either).await {
            Ok(attempt) => attempt,
            Err(Elapsed) => CandidateAttempt::Silent,
        }
    }

    /// A candidate has said that it is the primary. The answer is how often the primary has moved;
    /// `None` where the sentinels name another by now.
    fn found(&self, server: &Server, candidate: &Address) -> Option<u64> {
        let mut moved = None;
        self.known.send_if_modified(|known| {
            moved = known.found(candidate);
            false
        });
        if moved? {
            server.moved();
        }
        Some(server.moves())
    }

    /// Starts the tasks, once.
    fn start(&self, server: &Arc<Server>) {
        if self.started.swap(true, Ordering::AcqRel) {
            return;
        }
        server
            .background
            .spawn(follow(Arc::downgrade(server), self.known.subscribe()));
        let addresses = self.known.borrow().addresses();
        self.watch(server, addresses);
    }

    fn watch(&self, server: &Arc<Server>, addresses: Vec<Address>) {
        for address in addresses {
            let rounds = self.rounds.subscribe();
            let server_of = Arc::downgrade(server);
            server
                .background
                .spawn(watcher::run(server_of, address, rounds));
        }
    }
}

/// Connects to the primary whenever it is in question which server that is.
async fn follow(server: Weak<Server>, mut known: watch::Receiver<KnownSentinels>) {
    while known.wait_for(KnownSentinels::is_in_question).await.is_ok() {
        let Some(server) = server.upgrade() else {
            return;
        };
        let Some(sentinels) = server.sentinels() else {
            return;
        };
        let within = Instant::now() + server.connect_timeout;
        // Whoever finds it has the connections to the old one dropped. Where it is not to be found,
        // callers are told by their own attempts.
        drop(sentinels.open(&server, within).await);
        drop(server);
        sleep(jittered(LOOKED)).await;
    }
}

/// Why a candidate is not used.
fn told(candidate: &Address, words: &str) -> String {
    format!("the Redis server at {candidate}, which the sentinels name, {words}")
}

fn is_primary(role: &Value) -> bool {
    let Value::Array(parts) = role else {
        return false;
    };
    match parts.first() {
        Some(Value::BulkString(role)) => role == b"master",
        Some(Value::SimpleString(role)) => role == "master",
        _ => false,
    }
}

/// Sorts why a Redis server could not be asked.
fn failed(error: RedisError) -> CandidateAttempt {
    let is_final = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let why = Fault::from(error).error;
    if is_final {
        CandidateAttempt::Refused(format!("refuses this client: {why}"))
    } else {
        CandidateAttempt::Failed(format!("cannot be asked: {why}"))
    }
}
