//! A connection that is made again when it has ended. What is asked over it is sent by tasks of the client's
//! own thread, so that a caller that goes away, or is not polled, holds up nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::Fault;
use super::Timeouts;
use super::live::{Answer, Live};
use super::server::{Purpose, Server};
use super::sql;
use super::unanswered::InFlight;
use super::wakeups::WakeUpRegistry;
use crate::error::StoreError;
use crate::runtime::background::{Background, Elapsed};

/// An answer may take so many times as long as it was waited for, while others come in.
const LONGEST_WAIT: u32 = 2;

type Connected = Result<Arc<Live>, StoreError>;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    purpose: Purpose,
    background: Background,
    timeouts: Timeouts,
    registry: Arc<WakeUpRegistry>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
enum State {
    Down,
    Connecting(watch::Receiver<Option<Connected>>),
    Up(Arc<Live>),
}

impl Connection {
    pub(super) fn new(
        server: &Arc<Server>,
        purpose: Purpose,
        background: &Background,
        timeouts: Timeouts,
        registry: &Arc<WakeUpRegistry>,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            purpose,
            background: background.clone(),
            timeouts,
            registry: Arc::clone(registry),
            state: Arc::new(Mutex::new(State::Down)),
        }
    }

    /// Sends one statement as a step, and waits for its answer as long as `patience`: what is silent for so
    /// long is taken for dead. `in_flight` is kept until the statement is answered or cannot be.
    pub(super) async fn ask(
        &self,
        statement: &str,
        patience: Duration,
        in_flight: Option<InFlight>,
    ) -> Result<Answer, Fault> {
        let live = self.live().await?;
        // Once nobody waits any more, it is not to be carried out.
        let message = sql::step(statement, self.timeouts.reply.max(patience));
        let (tell, mut told) = oneshot::channel();
        let sending = Arc::clone(&live);
        let longest = LONGEST_WAIT * self.timeouts.reply.max(patience);
        self.background.spawn(async move {
            let mut in_flight = in_flight;
            let asked = tokio::time::timeout(longest, sending.asked(&message)).await;
            let answer = asked.unwrap_or_else(|_| {
                sending.discard();
                Err(silent(longest))
            });
            if matches!(answer, Err(Fault::Lost(_)))
                && let (Some(in_flight), Some(session)) = (&mut in_flight, &sending.session)
            {
                in_flight.lost_in(session);
            }
            // Whoever is answered finds it settled.
            drop(in_flight);
            let _ = tell.send(answer);
        });
        let sent = Instant::now();
        let last = sent + longest;
        loop {
            let heard = live.heard().max(sent);
            let until = (heard + patience).min(last);
            match self.background.until(until, &mut told).await {
                Ok(Ok(answer)) => return answer,
                // The client's thread has ended.
                Ok(Err(_)) => return Err(Fault::Lost("the client has ended".to_owned())),
                Err(Elapsed) if live.heard() > heard && Instant::now() < last => {}
                Err(Elapsed) => {
                    live.discard();
                    return Err(silent(patience));
                }
            }
        }
    }

    /// The connection, made anew where there is none.
    pub(super) async fn live(&self) -> Result<Arc<Live>, Fault> {
        let mut connecting = {
            let mut state = self.state();
            match &*state {
                State::Up(live) if !live.is_over() => return Ok(Arc::clone(live)),
                State::Connecting(connecting) => connecting.clone(),
                State::Up(_) | State::Down => {
                    let connecting = self.connect();
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        let until = Instant::now() + self.timeouts.connect + self.timeouts.reply;
        let waiting = connecting.wait_for(Option::is_some);
        let connected = match self.background.until(until, waiting).await {
            Ok(Ok(connected)) => connected.clone(),
            Ok(Err(_)) | Err(Elapsed) => None,
        };
        connected
            .unwrap_or_else(|| Err(unreachable_within(self.timeouts.connect)))
            .map_err(Fault::Final)
    }

    /// Begins to connect, whoever waits for it.
    fn connect(&self) -> watch::Receiver<Option<Connected>> {
        let (tell, connecting) = watch::channel(None);
        let (server, registry) = (Arc::clone(&self.server), Arc::clone(&self.registry));
        let (purpose, timeout) = (self.purpose, self.timeouts.connect);
        let state = Arc::clone(&self.state);
        self.background.spawn(async move {
            let connecting = server.connect(purpose, &registry);
            let connected = match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected.map(Arc::new),
                Err(_) => Err(unreachable_within(timeout)),
            };
            let now = match &connected {
                Ok(live) => State::Up(Arc::clone(live)),
                Err(_) => State::Down,
            };
            *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
            tell.send_replace(Some(connected));
        });
        connecting
    }

    /// Ends the connection: the server is not the one to ask any more.
    pub(super) fn discard(&self) {
        let mut state = self.state();
        if let State::Up(live) = &*state {
            live.discard();
            *state = State::Down;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silent(patience: Duration) -> Fault {
    Fault::Lost(format!("the server has not answered for {patience:?}"))
}

fn unreachable_within(timeout: Duration) -> StoreError {
    StoreError::unreachable(format!("no connection could be made within {timeout:?}"))
}
