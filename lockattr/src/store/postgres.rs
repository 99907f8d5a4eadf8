//! Locks in a PostgreSQL database.
//!
//! A lock is a row of `lockattr.locks`, which carries its owner and until when, by the server's clock; those who
//! hold one beside one another are rows of `lockattr.holders`. Each step is a function in the database, asked for
//! by one message: `schema.sql` has them, with the tables and whatever else is stored. `acquire`, `renew`,
//! `release`, `take_over`, `token` and `check` ask for one each.
//!
//! Below them, `sql` writes messages, `connection` sends them and replaces connections, `live` is one of
//! them while it lasts, `server` begins a session at a host of the `target` that a URL names, and `fault`
//! sorts errors. `unanswered` tracks requests whose connection has ended. Beside them `listening` keeps the
//! stream of wake-ups, and `wakeups` tells those who wait what came.
//!
//! A client has two connections, both driven on its own thread: one for commands, and one for wake-ups and
//! renewals, so that no renewal stands behind a caller's request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{
    Acquired, Attempt, Claim, Found, Held, Limits, Listed, Release, Renewal, Renewed, Reply, Store,
    Token, WakeUps,
};
use crate::error::{Error, StoreError};
use crate::limits::MAX_PERMITS;
use crate::runtime::background::{Background, Elapsed};
use crate::runtime::clock::millis;
use crate::runtime::jitter::jittered;
use crate::store::redis::Access;

mod acquire;
mod check;
#[cfg(all(test, feature = "conformance"))]
mod conformance;
mod connection;
mod fault;
#[cfg(feature = "inspect")]
mod inspect;
mod listening;
mod live;
mod release;
mod renew;
mod server;
mod sql;
mod standing;
mod take_over;
mod target;
mod tls;
mod token;
mod unanswered;
mod wakeups;

use connection::Connection;
use fault::Fault;
use listening::Listening;
use live::Answer;
use server::{Purpose, Server};
use target::Target;
use tls::Tls;
use unanswered::Unanswered;
use wakeups::WakeUpRegistry;

/// What is kept in a PostgreSQL database, as SQL: a schema `lockattr` with its tables and the functions
/// that clients ask for.
///
/// A client makes it when it connects for the first time, where its role may. Where it may not, an
/// administrator runs this once, with the grants that its first lines name. It may be run again at any
/// time, also while locks are held, and has to be where a release of this library says so.
///
/// ```sql
#[doc = include_str!("postgres/schema.sql")]
/// ```
pub const POSTGRES_SCHEMA: &str = server::SCHEMA;

/// Pauses before a step is asked again that others were in the way of.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How often rows that are over are removed; many clients do so.
const SWEEP: Duration = Duration::from_secs(600);

/// How a client reaches its store.
#[derive(Debug)]
pub(crate) struct PostgresConfig<'a> {
    pub(crate) url: &'a str,
    /// Unique to the client.
    pub(crate) id: String,
    pub(crate) name: Option<&'a str>,
    pub(crate) access: &'a Access,
    pub(crate) timeouts: Timeouts,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) reply: Duration,
}

/// Locks in a database.
pub(crate) struct Postgres {
    background: Background,
    timeouts: Timeouts,
    registry: Arc<WakeUpRegistry>,
    /// For acquire, release and token.
    commands: Arc<Connection>,
    listening: Arc<Listening>,
    unanswered: Arc<Unanswered>,
    started: Instant,
    /// When to sweep next, in milliseconds since then.
    sweep_at: AtomicU64,
}

impl Postgres {
    pub(crate) fn new(config: &PostgresConfig<'_>, background: &Background) -> Result<Self, Error> {
        let mut target = Target::of(config.url, config.name.unwrap_or("lockattr"))?;
        if config.access.certificates.any().is_some() {
            target.encrypt_always();
        }
        if config.access.credentials.is_some() && target.names_a_login() {
            return Err(Error::Config(
                "the PostgreSQL URL names a user or a password, and `credentials` are set: leave one of \
                 them out"
                    .to_owned(),
            ));
        }
        if config.access.addresses.is_some() {
            return Err(Error::Config(
                "`addresses` is for servers that announce addresses, and PostgreSQL announces none: leave \
                 it out"
                    .to_owned(),
            ));
        }
        let server = Arc::new(Server {
            tls: Tls::new(target.ssl_mode(), config.access)?,
            target,
            credentials: config.access.credentials.clone(),
        });
        let timeouts = config.timeouts;
        let registry = Arc::new(WakeUpRegistry::new(format!("lockattr_{}", config.id)));
        let connection =
            |purpose| Connection::new(&server, purpose, background, timeouts, &registry);
        let (commands, listening) = (
            connection(Purpose::Commands),
            connection(Purpose::Listening),
        );
        Ok(Self {
            background: background.clone(),
            timeouts,
            commands: Arc::new(commands),
            listening: Arc::new(Listening::new(listening, &registry, timeouts.reply)),
            registry,
            unanswered: Arc::default(),
            started: Instant::now(),
            sweep_at: AtomicU64::new(millis(jittered(SWEEP))),
        })
    }

    /// How long a step may take, with one more connection where the first has ended.
    fn longest_step(&self) -> Duration {
        2 * (self.timeouts.connect + self.timeouts.reply)
    }

    /// Asks for a step until it is answered or its time is over. Each step may be asked for twice: it
    /// recognises what the first one has done. The answer is also whether an earlier request was lost,
    /// which may be carried out yet. `owner` is that of a request that may create something.
    async fn step(
        &self,
        statement: &str,
        owner: Option<&str>,
    ) -> Result<(Answer, bool), StoreError> {
        let until = Instant::now() + self.longest_step();
        let mut lost = false;
        let mut pause = FIRST_PAUSE;
        let steps = async {
            loop {
                let in_flight = owner.map(|owner| self.unanswered.begin(owner));
                let asked = self.commands.ask(statement, self.timeouts.reply, in_flight);
                let fault = match asked.await {
                    Ok(answer) if is_in_the_way(&answer) => {
                        Fault::Transient("a transaction has locked the row of the lock".to_owned())
                    }
                    Ok(answer) => return Ok(answer),
                    Err(fault) => fault,
                };
                match &fault {
                    Fault::NotSent(_) | Fault::Transient(_) => {}
                    Fault::Standby(_) => self.commands.discard(),
                    Fault::Lost(_) if !lost => lost = true,
                    Fault::Lost(_) | Fault::Final(_) => return Err(fault),
                }
                let again = Instant::now() + jittered(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
                if again >= until {
                    return Err(fault);
                }
                self.background.sleep_until(again).await;
            }
        };
        let answer = match self.background.until(until, steps).await {
            Ok(answer) => answer,
            Err(Elapsed) => Err(Fault::Lost(format!(
                "the server has not answered within {:?}",
                self.longest_step()
            ))),
        };
        match answer {
            Ok(answer) => Ok((answer, lost)),
            // An earlier request may have been carried out, whatever has become of this one.
            Err(fault) if lost => Err(StoreError::in_doubt(fault.told().to_string())),
            Err(fault) => Err(fault.told()),
        }
    }

    /// Tells whom a step has named, in a transaction of its own: one that tells something is committed
    /// while no other that does can be, and this one writes nothing.
    async fn wake(&self, wakes: &str) {
        let told: Vec<_> = wakes
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(channel, payload)| {
                let (channel, payload) = (sql::text(channel), sql::text(payload));
                format!("pg_catalog.pg_notify({channel}, {payload})")
            })
            .collect();
        if told.is_empty() {
            return;
        }
        let commands = Arc::clone(&self.commands);
        let patience = self.timeouts.reply;
        // It stands behind whoever else notifies, which is not to hold up what is asked after it. Whoever
        // waits looks by itself should this be lost.
        let statement = format!("SET LOCAL lock_timeout=200;SELECT {}", told.join(","));
        let telling = self.background.spawn(async move {
            let _ = commands.ask(&statement, patience, None).await;
        });
        let until = Instant::now() + patience;
        let _ = self.background.until(until, telling).await;
    }

    /// Removes what is over, every now and then.
    fn sweep(&self) {
        let now = millis(self.started.elapsed());
        let due = self.sweep_at.load(Ordering::Relaxed);
        let next = now + millis(jittered(SWEEP));
        if now < due
            || self
                .sweep_at
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let (commands, patience) = (Arc::clone(&self.commands), self.timeouts.reply);
        self.background.spawn(async move {
            // What is left is removed the next time.
            let _ = commands
                .ask("SELECT lockattr.sweep()", patience, None)
                .await;
        });
    }
}

/// Whether the step was not done because somebody else was at the row.
fn is_in_the_way(answer: &Answer) -> bool {
    matches!(answer.text(0), Ok("locked" | "again"))
}

impl Store for Postgres {
    fn limits(&self) -> Limits {
        Limits::default()
            .most_permits(MAX_PERMITS)
            .weights(true)
            .shared(true)
            .hand_off(true)
            .longest_answer(self.longest_step() + self.timeouts.reply)
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(self.check_all(claim))
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(self.take(claim, attempt))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.renew_all(leases, patience))
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.give_back(claim, release))
    }

    fn take_over<'a>(&'a self, lease: Held<'a>, new_owner: &'a str) -> Reply<'a, Renewal> {
        Box::pin(self.take_lease_over(lease, new_owner))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(self.draw_token(lease))
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        let wakeups = self.registry.listen(claim.owner, claim.ttl);
        self.listening.begin(&self.background);
        Box::new(wakeups)
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(self.nothing_comes(owner))
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        Box::pin(self.standing(lock))
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        Some(self)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listening.end();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
