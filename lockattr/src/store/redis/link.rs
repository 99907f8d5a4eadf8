//! One connection to one server, made when it is needed and replaced when it fails.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::sync::watch;

use super::fault::Fault;
use crate::engine::{Elapsed, Engine};
use crate::error::StoreError;

/// A connection that many callers share.
///
/// Its driver runs on the engine, so that it outlives every runtime of the application. Commands
/// reach the server in the order in which they were first polled, also those of dropped futures.
#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

struct Shared {
    target: redis::Client,
    /// `CLIENT SETNAME`, where the application gave a name.
    name: Option<String>,
    engine: Engine,
    connect_timeout: Duration,
    state: Mutex<State>,
}

enum State {
    Down,
    /// Everybody who needs the connection waits for the same attempt, and fails with it.
    Connecting(Attempt),
    Up(Connection),
}

type Attempt = watch::Receiver<Option<Result<Connection, StoreError>>>;

#[derive(Clone)]
struct Connection {
    /// Distinguishes a failed connection from the one that has replaced it meanwhile.
    generation: u64,
    redis: MultiplexedConnection,
    /// How many replies have come, so that a connection that is merely busy is not taken for dead.
    replies: Arc<AtomicU64>,
}

impl Link {
    pub(super) fn new(
        target: redis::Client,
        name: Option<String>,
        engine: Engine,
        connect_timeout: Duration,
    ) -> Self {
        Self(Arc::new(Shared {
            target,
            name,
            engine,
            connect_timeout,
            state: Mutex::new(State::Down),
        }))
    }

    /// Sends one command, and says when it was sent.
    ///
    /// The connect timeout bounds the connecting. `patience` is how long the connection may be
    /// silent: while other replies come in, this one is on its way, and the caller's own bound counts.
    pub(super) async fn ask(
        &self,
        command: &Cmd,
        patience: Duration,
    ) -> Result<(Value, Instant), Fault> {
        let Connection {
            generation,
            mut redis,
            replies,
        } = self.connection().await?;
        let sent = Instant::now();
        let mut reply = pin!(redis.send_packed_command(command));
        let mut seen = replies.load(Ordering::Relaxed);
        let reply = loop {
            let until = Instant::now() + patience;
            let answer = self.0.engine.until(until, reply.as_mut()).await;
            let now = replies.load(Ordering::Relaxed);
            if answer.is_ok() || now == seen {
                break answer;
            }
            seen = now;
        };
        if reply.is_ok() {
            replies.fetch_add(1, Ordering::Relaxed);
        }
        let fault = match reply.map(|reply| reply.and_then(Value::extract_error)) {
            Ok(Ok(value)) => return Ok((value, sent)),
            Ok(Err(error)) => Fault::from(error),
            Err(Elapsed) => Fault::timed_out(format!("no answer within {patience:?}")),
        };
        if fault.replace {
            self.give_up(generation);
        }
        Err(fault)
    }

    /// For an answer that showed the connection to be out of step.
    pub(super) fn give_up_any(&self) {
        *self.state() = State::Down;
    }

    fn give_up(&self, generation: u64) {
        let mut state = self.state();
        if matches!(&*state, State::Up(current) if current.generation == generation) {
            *state = State::Down;
        }
    }

    async fn connection(&self) -> Result<Connection, Fault> {
        let mut attempt = {
            let mut state = self.state();
            match &*state {
                State::Up(connection) => return Ok(connection.clone()),
                State::Connecting(attempt) => attempt.clone(),
                State::Down => {
                    let attempt = self.connect();
                    *state = State::Connecting(attempt.clone());
                    attempt
                }
            }
        };
        let outcome = match attempt.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // The attempt's task is gone, and the engine with it.
            Err(_) => None,
        };
        outcome
            .unwrap_or_else(|| Err(StoreError::refused("the client's thread has ended")))
            .map_err(|error| Fault {
                error,
                // The connection that failed is none; a further attempt would only take as long.
                replace: false,
                no_script: false,
            })
    }

    /// Connects on the engine; the result is told to all who wait, and kept.
    fn connect(&self) -> Attempt {
        let (tell, attempt) = watch::channel(None);
        let link = self.clone();
        self.0.engine.spawn(async move {
            let within = Instant::now() + link.0.connect_timeout;
            let outcome = match link.0.engine.until(within, link.open()).await {
                Ok(opened) => opened.map_err(|error| {
                    StoreError::refused(format!("cannot connect to {}: {error}", link.0.address()))
                }),
                Err(Elapsed) => Err(StoreError::refused(format!(
                    "cannot connect to {} within {:?}",
                    link.0.address(),
                    link.0.connect_timeout
                ))),
            };
            *link.state() = match &outcome {
                Ok(connection) => State::Up(connection.clone()),
                Err(_) => State::Down,
            };
            let _ = tell.send(Some(outcome));
        });
        attempt
    }

    async fn open(&self) -> Result<Connection, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let fault = |error| Fault::from(error).error;
        let mut redis = self
            .0
            .target
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(fault)?;
        if let Some(name) = &self.0.name {
            redis::cmd("CLIENT")
                .arg("SETNAME")
                .arg(name)
                .exec_async(&mut redis)
                .await
                .map_err(fault)?;
        }
        Ok(Connection {
            generation: next_generation(),
            redis,
            replies: Arc::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is one value, replaced whole: a panic elsewhere cannot have left half of it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Host and port, or the socket's path: never the user or the password, and never more than a
    /// line of a log holds.
    fn address(&self) -> String {
        let address = self.target.get_connection_info().addr().to_string();
        address.chars().take(200).collect()
    }
}

fn next_generation() -> u64 {
    static GENERATION: AtomicU64 = AtomicU64::new(0);
    GENERATION.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.0.address()).finish()
    }
}
