//! The connections to one server: one on each runtime that calls, and the client's own.
//!
//! A connection is driven on the runtime whose tasks ask over it, as if the application had made it
//! itself, so that a command costs no hop to another thread and back. The client's own connection is
//! driven on the background runtime. It carries what is asked outside of every tokio runtime, and what is
//! asked in the background.
//!
//! On one connection, commands reach the server in the order in which they were sent, also those of futures
//! that were dropped since. Between connections there is no order. A request that was not
//! answered on one connection may be carried out after a release on another, which is why `unanswered`
//! tracks it.
//!
//! A runtime that is blocked delays its own callers and nobody else's. A runtime that ends takes its
//! connection with it: what was not answered then fails in doubt, and a repetition goes over the client's
//! own connection. A runtime that nobody runs, while another executor polls its callers, is detected
//! within the reply timeout and passed over in the same way.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use super::batcher::{Batcher, Sending};
use super::connection::{Availability, ConnectAttempt, Connection};
use super::fault::Fault;
use super::server::Server;
use super::timeouts::{Deadline, Timeouts};
use super::unanswered::{SentRequest, Unanswered};
use crate::error::StoreError;
use crate::runtime::on_behalf;

/// A reply, and a moment before its command was sent.
pub(super) type Answer = Result<(Value, Instant), Fault>;

/// The connections over which callers ask.
#[derive(Clone)]
pub(super) struct Connections {
    inner: Arc<ConnectionsInner>,
    /// Whether what is asked is for keys that are on their way to this node of a cluster.
    asking: bool,
}

/// The same for who does not keep the client alive.
pub(super) struct WeakConnections(Weak<ConnectionsInner>);

impl WeakConnections {
    pub(super) fn upgrade(&self) -> Option<Connections> {
        let asking = false;
        let inner = self.0.upgrade()?;
        Some(Connections { inner, asking })
    }
}

struct ConnectionsInner {
    server: Arc<Server>,
    /// The client's own, on the background runtime.
    own: Connection,
    /// Those of the runtimes that have called and have not ended.
    of_runtimes: Mutex<Vec<RuntimeConnection>>,
    timeouts: Arc<Timeouts>,
    unanswered: Arc<Unanswered>,
    /// How long a connection may be silent.
    patience: Duration,
}

struct RuntimeConnection {
    connection: Connection,
    /// The task that waits for the runtime's end does so until this is dropped.
    _watched: oneshot::Sender<()>,
}

impl Connections {
    pub(super) fn new(server: &Arc<Server>, timeouts: &Arc<Timeouts>, patience: Duration) -> Self {
        let inner = ConnectionsInner {
            server: Arc::clone(server),
            own: Connection::new(server, server.background.runtime().clone()),
            of_runtimes: Mutex::default(),
            timeouts: Arc::clone(timeouts),
            unanswered: Unanswered::new(server),
            patience,
        };
        Self {
            inner: Arc::new(inner),
            asking: false,
        }
    }

    /// The same connections, for keys that are on their way to this node of a cluster.
    pub(super) fn asking(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            asking: true,
        }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.inner.server
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking
    }

    /// Whether both are those to the same server.
    pub(super) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether no request is tracked.
    pub(super) fn is_idle(&self) -> bool {
        self.inner.unanswered.is_empty()
    }

    pub(super) fn downgrade(&self) -> WeakConnections {
        WeakConnections(Arc::downgrade(&self.inner))
    }

    /// Connects, if need be.
    pub(super) async fn open(&self, deadline: &mut Deadline<'_>) -> Result<(), Fault> {
        self.connected(self.of_caller(), deadline).await.map(drop)
    }

    /// The deadline of a step that begins now, with all its commands.
    pub(super) fn deadline(&self, bound: Duration) -> Deadline<'_> {
        self.inner.timeouts.deadline(bound)
    }

    /// Sends one command.
    ///
    /// The connect timeout bounds the connecting. The reply timeout is how long the connection may be
    /// silent: while other replies come in, this one is on its way, and only the deadline counts.
    pub(super) fn ask<'a>(
        &'a self,
        command: Cmd,
        deadline: &'a mut Deadline<'_>,
    ) -> impl Future<Output = Answer> {
        self.ask_as(None, command, deadline)
    }

    /// Sends a command that may acquire keys for this owner. It is tracked until it is answered, also
    /// where the future is dropped.
    pub(super) fn ask_for<'a>(
        &'a self,
        owner: &'a str,
        command: Cmd,
        deadline: &'a mut Deadline<'_>,
    ) -> impl Future<Output = Answer> {
        self.ask_as(Some(owner), command, deadline)
    }

    fn ask_as<'a>(
        &'a self,
        owner: Option<&'a str>,
        command: Cmd,
        deadline: &'a mut Deadline<'_>,
    ) -> impl Future<Output = Answer> {
        // Sent before the future exists, which is a part of every call's and has no room for the command.
        // What it begins with is used in its place: to move it would make the room for it twice.
        let connection = self.of_caller();
        let tracked = owner.map(|owner| (&self.inner.unanswered, owner));
        let mut request = match connection.up() {
            Some(batcher) => {
                let sent = self.send(batcher, command, deadline);
                Ok(SentRequest::new(sent, tracked))
            }
            // Boxed, since it is rare and large.
            None => Err(Box::new(command)),
        };
        async move {
            match &mut request {
                Ok(request) => self.reply(&connection, request, deadline).await,
                Err(command) => {
                    let command = mem::take(&mut **command);
                    Box::pin(self.connect_and_ask(&connection, command, tracked, deadline)).await
                }
            }
        }
    }

    async fn connect_and_ask(
        &self,
        connection: &Connection,
        command: Cmd,
        tracked: Option<(&Arc<Unanswered>, &str)>,
        deadline: &mut Deadline<'_>,
    ) -> Answer {
        let (connection, batcher) = self.connected(connection.clone(), deadline).await?;
        let mut request = SentRequest::new(self.send(batcher, command, deadline), tracked);
        self.reply(&connection, &mut request, deadline).await
    }

    /// Waits for the reply to a request.
    async fn reply(
        &self,
        connection: &Connection,
        request: &mut SentRequest<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Answer {
        let mut seen = request.sending.batcher.replies();
        let mut silence = Duration::ZERO;
        let answer = poll_fn(|cx| {
            if let Poll::Ready(answer) = request.poll_reply(cx) {
                return Poll::Ready(answer);
            }
            silence += deadline.look(cx);
            let now = request.sending.batcher.replies();
            if now != seen {
                (seen, silence) = (now, Duration::ZERO);
            }
            if silence >= self.inner.patience {
                return Poll::Ready(Err(silent(self.inner.patience)));
            }
            timed_out(deadline)
        });
        let answer = answer.await;
        classify(connection, &request.sending.batcher, request.sent, answer)
    }

    /// Sends a command. The moment lies before the sending, so that a lease may count from it: the driver
    /// may send the command while this thread is kept from going on.
    fn send(
        &self,
        batcher: Arc<Batcher>,
        command: Cmd,
        deadline: &mut Deadline<'_>,
    ) -> (Sending, Instant) {
        let sent = deadline.start();
        (batcher.send(command, self.asking), sent)
    }

    /// Waits until no request of this owner can be carried out any more; see [`Unanswered::settled`].
    pub(super) async fn settled(&self, owner: &str) -> Duration {
        self.inner.unanswered.settled(owner).await
    }

    /// The caller's runtime, where it has a connection that is up.
    pub(super) fn callers_runtime(&self) -> Option<Handle> {
        let connection = self.of_caller();
        let is_up = connection.up().is_some() && !connection.is(&self.inner.own);
        is_up.then(|| connection.runtime().clone())
    }

    /// Drops the connection after a protocol error: the caller's, and the client's own, over which a
    /// repetition may have gone.
    pub(super) fn discard_any(&self) {
        self.of_caller().discard_any();
        self.inner.own.discard_any();
    }

    /// Connects by the caller's connection, or by the client's own where that is not to be had.
    async fn connected(
        &self,
        connection: Connection,
        deadline: &mut Deadline<'_>,
    ) -> Result<(Connection, Arc<Batcher>), Fault> {
        let of_caller = match connection.availability() {
            Availability::Up(batcher) => return Ok((connection, batcher)),
            Availability::Connecting(attempt) => {
                let may_be_stuck = !connection.is(&self.inner.own);
                wait_for(attempt, deadline, may_be_stuck).await?
            }
            Availability::Unfit => None,
        };
        if let Some(batcher) = of_caller {
            return Ok((connection, batcher));
        }
        let own = self.inner.own.clone();
        let batcher = match own.availability() {
            Availability::Up(batcher) => Some(batcher),
            Availability::Connecting(attempt) => wait_for(attempt, deadline, false).await?,
            Availability::Unfit => None,
        };
        batcher.map(|batcher| (own, batcher)).ok_or_else(ended)
    }

    /// The connection of the runtime that asks, or the client's own where there is none.
    fn of_caller(&self) -> Connection {
        let ConnectionsInner { own, server, .. } = &*self.inner;
        let Some(runtime) = on_behalf::caller() else {
            return own.clone();
        };
        let id = runtime.id();
        if id == own.runtime().id() {
            return own.clone();
        }
        let mut of_runtimes = self.inner.of_runtimes();
        let known = of_runtimes.iter().find(|known| known.is_of(id));
        if let Some(known) = known {
            return known.connection.clone();
        }
        let connection = Connection::new(server, runtime.clone());
        let (watched, forgotten) = oneshot::channel();
        of_runtimes.push(RuntimeConnection {
            connection: connection.clone(),
            _watched: watched,
        });
        // A runtime that is about to end drops the task in `spawn`, and the drop locks the list.
        drop(of_runtimes);
        let guard = RuntimeGuard {
            connections: Arc::downgrade(&self.inner),
            runtime: id,
        };
        runtime.spawn(async move {
            let _guard = guard;
            let _ = forgotten.await;
        });
        connection
    }
}

impl ConnectionsInner {
    fn of_runtimes(&self) -> MutexGuard<'_, Vec<RuntimeConnection>> {
        self.of_runtimes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl RuntimeConnection {
    fn is_of(&self, runtime: Id) -> bool {
        self.connection.runtime().id() == runtime
    }
}

/// Forgets a runtime's connection when dropped, which the runtime does at its end.
struct RuntimeGuard {
    connections: Weak<ConnectionsInner>,
    runtime: Id,
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        let Some(connections) = self.connections.upgrade() else {
            return;
        };
        let mut of_runtimes = connections.of_runtimes();
        let ended = of_runtimes
            .iter()
            .position(|known| known.is_of(self.runtime));
        let ended = ended.map(|index| of_runtimes.swap_remove(index));
        drop(of_runtimes);
        // Its drop wakes callers, who may lock the list.
        drop(ended);
    }
}

/// Waits for an attempt; `None` where it ended with its runtime, or where nobody runs that runtime.
async fn wait_for(
    mut attempt: ConnectAttempt,
    deadline: &mut Deadline<'_>,
    may_be_stuck: bool,
) -> Result<Option<Arc<Batcher>>, Fault> {
    let stuck = attempt.stuck();
    let mut result = pin!(attempt.wait());
    let result = poll_fn(|cx| match result.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Ok(result)),
        Poll::Pending => {
            deadline.look(cx);
            if may_be_stuck && stuck() {
                return Poll::Ready(Ok(None));
            }
            timed_out(deadline)
        }
    });
    match result.await? {
        None => Ok(None),
        result => connect_result(result).map(Some),
    }
}

fn timed_out<T>(deadline: &Deadline<'_>) -> Poll<Result<T, Fault>> {
    if deadline.has_passed() {
        let error = StoreError::in_doubt("no answer within the bound of the step");
        return Poll::Ready(Err(Fault::last(error)));
    }
    Poll::Pending
}

pub(super) fn connect_result(
    result: Option<Result<Arc<Batcher>, Fault>>,
) -> Result<Arc<Batcher>, Fault> {
    result.ok_or_else(ended)?
}

pub(super) fn ended() -> Fault {
    Fault::last(StoreError::refused("the client's thread has ended"))
}

pub(super) fn silent(patience: Duration) -> Fault {
    Fault::timed_out(format!("no answer within {patience:?}"))
}

/// Sorts the answer to a command that was sent then. A connection that has failed is dropped.
pub(super) fn classify(
    connection: &Connection,
    batcher: &Arc<Batcher>,
    sent: Instant,
    answer: Result<Value, Fault>,
) -> Answer {
    let fault = match answer {
        // Only an error that is the whole answer fails the command.
        Ok(Value::ServerError(error)) => RedisError::from(error).into(),
        Ok(value) => {
            connection.server().answered();
            return Ok((value, sent));
        }
        Err(fault) => fault,
    };
    if fault.replace {
        connection.discard(batcher);
    }
    Err(fault)
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.own.fmt(f)
    }
}

#[cfg(test)]
mod tests;
