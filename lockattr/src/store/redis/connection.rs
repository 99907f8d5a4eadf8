//! One connection on one runtime: made when it is needed, and replaced when it fails.
//!
//! All callers of a runtime share it, and an attempt to connect: everybody who needs the connection waits
//! for the same attempt, and fails with it. One that ends while nobody asks is dropped at once, so that the
//! next caller does not find out first. No lock is held while anything is dropped or spawned. Which connection
//! a caller uses is left to `connections`; what follows from a loss, to `losses`.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::batcher::Batcher;
use super::connections::{connect_result, ended};
use super::fault::Fault;
use super::server::Server;
use super::tracking::Tracking;

/// A connection that all callers of one runtime share, and which is driven there.
#[derive(Clone)]
pub(super) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    server: Arc<Server>,
    runtime: Handle,
    /// Where it tells of changed keys.
    tracking: Option<Weak<Tracking>>,
    state: Mutex<ConnectionState>,
}

enum ConnectionState {
    Down,
    Connecting(ConnectAttempt),
    Up(Arc<Batcher>),
    /// The runtime cannot drive a connection: its I/O is not enabled.
    Unfit,
}

/// How an attempt has ended, once it has.
type ConnectResult = Option<Result<Arc<Batcher>, Fault>>;

/// An attempt to connect, for those who wait for it.
#[derive(Clone)]
pub(super) struct ConnectAttempt {
    result: watch::Receiver<ConnectResult>,
    begun: Arc<AtomicBool>,
    begins_by: Instant,
    ends_by: Instant,
}

/// A runtime that has not begun to connect by then is taken for one that nobody runs.
const BEGINS_WITHIN: Duration = Duration::from_millis(100);

impl ConnectAttempt {
    /// Waits for the end; `None` where the runtime has ended before.
    pub(super) async fn wait(&mut self) -> ConnectResult {
        let result = self.result.wait_for(Option::is_some).await;
        result.ok().and_then(|result| result.clone())
    }

    /// Tells whether the attempt is overdue to begin, or to end.
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

/// What a caller finds who needs the connection.
pub(super) enum Availability {
    Up(Arc<Batcher>),
    Connecting(ConnectAttempt),
    Unfit,
}

impl Connection {
    pub(super) fn new(server: &Arc<Server>, runtime: Handle) -> Self {
        Self::with(server, runtime, None)
    }

    /// One that tells of changed keys.
    pub(super) fn tracking(server: &Arc<Server>, runtime: Handle, to: &Arc<Tracking>) -> Self {
        Self::with(server, runtime, Some(Arc::downgrade(to)))
    }

    fn with(server: &Arc<Server>, runtime: Handle, tracking: Option<Weak<Tracking>>) -> Self {
        let connection = Self(Arc::new(ConnectionInner {
            server: Arc::clone(server),
            runtime,
            tracking,
            state: Mutex::new(ConnectionState::Down),
        }));
        server.watch_over(connection.downgrade());
        connection
    }

    pub(super) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    pub(super) fn server(&self) -> &Server {
        &self.0.server
    }

    /// The connection, if it is up.
    pub(super) fn up(&self) -> Option<Arc<Batcher>> {
        match &*self.state() {
            ConnectionState::Up(batcher) => Some(Arc::clone(batcher)),
            _ => None,
        }
    }

    /// The connection, or the attempt to make it, which begins now if need be.
    pub(super) fn availability(&self) -> Availability {
        let mut state = self.state();
        match &*state {
            ConnectionState::Up(batcher) => Availability::Up(Arc::clone(batcher)),
            ConnectionState::Connecting(attempt) => Availability::Connecting(attempt.clone()),
            ConnectionState::Unfit => Availability::Unfit,
            ConnectionState::Down => {
                let (tell, result) = watch::channel(None);
                let begins_by = Instant::now() + BEGINS_WITHIN;
                let attempt = ConnectAttempt {
                    result,
                    begun: Arc::default(),
                    begins_by,
                    ends_by: begins_by + self.0.server.connect_timeout,
                };
                *state = ConnectionState::Connecting(attempt.clone());
                // A runtime that has ended drops the task in `spawn`, and the drop locks the state.
                drop(state);
                let guard = AttemptGuard {
                    connection: Arc::downgrade(&self.0),
                    begun: Arc::clone(&attempt.begun),
                };
                self.0.runtime.spawn(connect(guard, tell));
                Availability::Connecting(attempt)
            }
        }
    }

    /// The connection, made if need be. The connect timeout bounds that.
    pub(super) async fn connected(&self) -> Result<Arc<Batcher>, Fault> {
        match self.availability() {
            Availability::Up(batcher) => Ok(batcher),
            Availability::Connecting(mut attempt) => connect_result(attempt.wait().await),
            Availability::Unfit => Err(ended()),
        }
    }

    /// Drops a connection that has failed, unless another has replaced it meanwhile.
    pub(super) fn discard(&self, failed: &Arc<Batcher>) {
        self.discard_if(|current| Arc::ptr_eq(current, failed));
    }

    /// Drops the connection: after a protocol error, or since its server has moved.
    pub(super) fn discard_any(&self) {
        self.discard_if(|_| true);
    }

    fn discard_if(&self, is: impl Fn(&Arc<Batcher>) -> bool) {
        let mut state = self.state();
        let discarded = match &*state {
            ConnectionState::Up(current) if is(current) => {
                mem::replace(&mut *state, ConnectionState::Down)
            }
            _ => return,
        };
        drop(state);
        drop(discarded);
        self.0.server.lost_connection();
    }

    async fn open(&self, within: Instant) -> Result<(Arc<Batcher>, u64), Fault> {
        let (mut wire, moves) = self.0.server.open(within).await?;
        if let Some(tracking) = &self.0.tracking {
            wire.tell(Tracking::receiver(tracking));
        }
        let (ends, ended) = oneshot::channel();
        let batcher = Batcher::new(wire, &self.0.runtime, ends);
        let (this, failed) = (Arc::downgrade(&self.0), Arc::downgrade(&batcher));
        let server = Arc::downgrade(&self.0.server);
        self.0.server.background.spawn(async move {
            let _ = ended.await;
            if let Some(this) = this.upgrade()
                && let Some(failed) = failed.upgrade()
            {
                Self(this).discard(&failed);
            }
            // Also where its runtime has ended, and the connection with it.
            if let Some(server) = server.upgrade() {
                server.lost_connection();
            }
        });
        Ok((batcher, moves))
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        // The state is replaced as a whole, so a panic cannot leave half of it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects on the connection's runtime. The result is kept, and told to all who wait.
async fn connect(guard: AttemptGuard, tell: watch::Sender<ConnectResult>) {
    guard.begun.store(true, Ordering::Release);
    // A client that is gone needs no connection.
    let Some(connection) = guard.connection.upgrade().map(Connection) else {
        return;
    };
    let server = &connection.0.server;
    let within = Instant::now() + server.connect_timeout;
    let opened = connection.open(within).await;
    let moves = opened.as_ref().map_or(0, |(_, moves)| *moves);
    let result = opened.map(|(batcher, _)| batcher);
    let now = match &result {
        Ok(batcher) => ConnectionState::Up(Arc::clone(batcher)),
        Err(_) => ConnectionState::Down,
    };
    let before = mem::replace(&mut *connection.state(), now);
    drop(before);
    // It has moved before it was known that this connection is to be dropped then.
    if server.moves() != moves {
        connection.discard_any();
    }
    let _ = tell.send(Some(result));
}

/// Resets the state when an attempt is dropped before its end: with its runtime, or by a panic of
/// tokio's where the runtime has no I/O.
struct AttemptGuard {
    connection: Weak<ConnectionInner>,
    begun: Arc<AtomicBool>,
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        let Some(connection) = self.connection.upgrade().map(Connection) else {
            return;
        };
        let now = if thread::panicking() {
            ConnectionState::Unfit
        } else {
            ConnectionState::Down
        };
        let mut state = connection.state();
        let before = match &*state {
            ConnectionState::Connecting(attempt) if Arc::ptr_eq(&attempt.begun, &self.begun) => {
                mem::replace(&mut *state, now)
            }
            _ => return,
        };
        drop(state);
        drop(before);
    }
}

/// A connection for who does not keep it open.
#[derive(Clone)]
pub(super) struct WeakConnection(Weak<ConnectionInner>);

impl WeakConnection {
    pub(super) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(super) fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection)
    }

    pub(super) fn discard(&self) {
        if let Some(connection) = self.upgrade() {
            connection.discard_any();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.0.server.address())
            .finish()
    }
}
