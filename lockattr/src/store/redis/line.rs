//! One connection on one runtime, made when it is needed and replaced when it fails.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::desk::Desk;
use super::fault::Fault;
use super::target::Target;
use crate::error::StoreError;
use crate::runtime::background::{Background, Elapsed};

/// How to reach a server.
pub(super) struct Server {
    pub(super) target: Target,
    /// `CLIENT SETNAME`, where the application gave a name.
    pub(super) name: Option<String>,
    pub(super) background: Background,
    pub(super) connect_timeout: Duration,
}

/// A connection that all callers of one runtime share, and which is driven there.
#[derive(Clone)]
pub(super) struct Line(Arc<Shared>);

struct Shared {
    server: Arc<Server>,
    runtime: Handle,
    state: Mutex<State>,
}

enum State {
    Down,
    /// Everybody who needs the connection waits for the same attempt, and fails with it.
    Connecting(Attempt),
    Up(Arc<Desk>),
    /// The runtime cannot drive a connection: its I/O is not enabled.
    Unfit,
}

type Outcome = Option<Result<Arc<Desk>, StoreError>>;

#[derive(Clone)]
pub(super) struct Attempt {
    outcome: watch::Receiver<Outcome>,
    begun: Arc<AtomicBool>,
    begins_by: Instant,
    ends_by: Instant,
}

/// A runtime that has not begun to connect by then is not being run, whoever polls its callers.
const BEGINS_WITHIN: Duration = Duration::from_millis(100);

impl Attempt {
    /// How it ended; `None` where its runtime has ended before.
    pub(super) async fn wait(&mut self) -> Outcome {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        outcome.ok().and_then(|outcome| outcome.clone())
    }

    /// Says whether the attempt is overdue to begin, or to end.
    pub(super) fn stuck(&self) -> impl Fn() -> bool + use<> {
        let (begins_by, begun) = (self.begins_by, Arc::clone(&self.begun));
        let ends_by = self.ends_by;
        move || {
            let by = if begun.load(Ordering::Acquire) {
                ends_by
            } else {
                begins_by
            };
            Instant::now() > by
        }
    }
}

/// What a line is like for somebody who needs it.
pub(super) enum Here {
    Up(Arc<Desk>),
    Connecting(Attempt),
    Unfit,
}

impl Line {
    pub(super) fn new(server: &Arc<Server>, runtime: Handle) -> Self {
        Self(Arc::new(Shared {
            server: Arc::clone(server),
            runtime,
            state: Mutex::new(State::Down),
        }))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    pub(super) fn background(&self) -> &Background {
        &self.0.server.background
    }

    /// The connection, if there is one.
    pub(super) fn up(&self) -> Option<Arc<Desk>> {
        match &*self.state() {
            State::Up(connection) => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// The connection, or the attempt to make one, which begins here if need be.
    pub(super) fn here(&self) -> Here {
        let mut state = self.state();
        match &*state {
            State::Up(connection) => Here::Up(Arc::clone(connection)),
            State::Connecting(attempt) => Here::Connecting(attempt.clone()),
            State::Unfit => Here::Unfit,
            State::Down => {
                let (tell, outcome) = watch::channel(None);
                let begins_by = Instant::now() + BEGINS_WITHIN;
                let attempt = Attempt {
                    outcome,
                    begun: Arc::default(),
                    begins_by,
                    ends_by: begins_by + self.0.server.connect_timeout,
                };
                *state = State::Connecting(attempt.clone());
                // A runtime that has ended drops the task here and now, which looks at the state.
                drop(state);
                let connecting = Connecting {
                    line: Arc::downgrade(&self.0),
                    begun: Arc::clone(&attempt.begun),
                };
                self.0.runtime.spawn(connect(connecting, tell));
                Here::Connecting(attempt)
            }
        }
    }

    /// A connection that has failed, unless another has replaced it meanwhile.
    pub(super) fn give_up(&self, failed: &Arc<Desk>) {
        self.give_up_if(|current| Arc::ptr_eq(current, failed));
    }

    /// For an answer that showed the connection to be out of step.
    pub(super) fn give_up_any(&self) {
        self.give_up_if(|_| true);
    }

    fn give_up_if(&self, is: impl Fn(&Arc<Desk>) -> bool) {
        let mut state = self.state();
        let gone = match &*state {
            State::Up(current) if is(current) => mem::replace(&mut *state, State::Down),
            _ => return,
        };
        drop(state);
        drop(gone);
    }

    async fn open(&self) -> Result<Arc<Desk>, StoreError> {
        let server = &self.0.server;
        let fault = |error| Fault::from(error).error;
        let mut connection = server.target.connection().await.map_err(fault)?;
        if let Some(name) = &server.name {
            redis::cmd("CLIENT")
                .arg("SETNAME")
                .arg(name)
                .exec_async(&mut connection.redis)
                .await
                .map_err(fault)?;
        }
        // A server that stands still takes connections, and so does one that has no room for more: one
        // is made when something was answered.
        let answer = redis::cmd("TIME").exec_async(&mut connection.redis).await;
        match answer {
            Err(error) if is_turned_away(&error) => Err(fault(error)),
            _ => Ok(Desk::new(connection, &self.0.runtime)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is one value, replaced whole: a panic elsewhere cannot have left half of it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection is none: nothing answered, or only to close it.
fn is_turned_away(error: &RedisError) -> bool {
    let is_full = |words: &str| words.contains("max number of clients");
    error.detail().is_some_and(is_full) || Fault::from(error.clone()).error.is_in_doubt()
}

/// Connects on the line's runtime; the result is told to all who wait, and kept.
async fn connect(connecting: Connecting, tell: watch::Sender<Outcome>) {
    connecting.begun.store(true, Ordering::Release);
    // A client that is gone needs no connection.
    let Some(line) = connecting.line.upgrade().map(Line) else {
        return;
    };
    let server = &line.0.server;
    let within = Instant::now() + server.connect_timeout;
    let outcome = match server.background.until(within, line.open()).await {
        Ok(opened) => opened.map_err(|error| {
            StoreError::refused(format!("cannot connect to {}: {error}", server.address()))
        }),
        Err(Elapsed) => Err(StoreError::refused(format!(
            "cannot connect to {} within {:?}",
            server.address(),
            server.connect_timeout
        ))),
    };
    let now = match &outcome {
        Ok(connection) => State::Up(Arc::clone(connection)),
        Err(_) => State::Down,
    };
    let before = mem::replace(&mut *line.state(), now);
    drop(before);
    let _ = tell.send(Some(outcome));
}

/// An attempt that may end before its time: with its runtime, or in a panic of tokio's.
struct Connecting {
    line: Weak<Shared>,
    begun: Arc<AtomicBool>,
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let Some(line) = self.line.upgrade().map(Line) else {
            return;
        };
        let now = if thread::panicking() {
            State::Unfit
        } else {
            State::Down
        };
        let mut state = line.state();
        let before = match &*state {
            State::Connecting(attempt) if Arc::ptr_eq(&attempt.begun, &self.begun) => {
                mem::replace(&mut *state, now)
            }
            _ => return,
        };
        drop(state);
        drop(before);
    }
}

impl Server {
    /// Host and port, or the socket's path: never the user or the password, and never more than a
    /// line of a log holds.
    pub(super) fn address(&self) -> String {
        let address = self.target.address().to_string();
        address.chars().take(200).collect()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Line")
            .field(&self.0.server.address())
            .finish()
    }
}
