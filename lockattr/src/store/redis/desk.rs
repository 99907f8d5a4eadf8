//! The commands of many callers on one connection, sent together.
//!
//! To send a command and to read its reply costs the redis client more than the lock does. Where there
//! are many, whoever has one puts it on a desk and waits there; what lies on it when the driver comes
//! by goes to the server in one piece, and the replies are handed out again. Where there are few, they
//! are sent as they are: to wait for the driver would cost each a wake-up.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use slab::Slab;
use tokio::runtime::Handle;
use tokio_util::sync::ReusableBoxFuture;

use super::fault::Fault;
use super::target::{Connection, Driven};
use crate::runtime::waker;

mod driver;

use driver::Driver;

/// So many commands at most are on their way one by one, while nothing lies on the desk.
const FEW: usize = 4;

/// As many commands at most go in one piece: enough to share its cost, and few enough that those who
/// are answered go on while the server is busy with the next.
const TOGETHER: usize = 32;

/// A connection that stands. It is closed when the last handle is gone.
pub(super) struct Desk {
    redis: MultiplexedConnection,
    shared: Arc<Shared>,
    _driven: Option<Driven>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// How many replies have come, so that a connection that is merely busy is not taken for dead.
    replies: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// What is to be sent, and where its reply is to go.
    waiting: VecDeque<(Cmd, usize)>,
    places: Slab<Place>,
    /// Whom to wake when there is something to be sent.
    driver: Option<Waker>,
    /// How many pieces are on their way.
    pieces: usize,
    /// How many commands are on their way one by one.
    singles: usize,
    /// What is left of such that were answered, and used again.
    used: Vec<Used>,
    state: State,
}

/// The reply to a command that goes by itself, and what it took to get it.
type Single = ReusableBoxFuture<'static, (RedisResult<Value>, MultiplexedConnection)>;

struct Used {
    reply: Single,
    redis: MultiplexedConnection,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Nobody has it any more.
    Closed,
    /// There is no driver any more.
    Over,
}

/// Where the reply to a command goes.
enum Place {
    /// On the desk, or sent.
    Waiting(Option<Waker>, Sent),
    Answered(Result<Value, Fault>),
    /// Nobody waits any longer.
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    NotYet,
    Yes,
}

impl Desk {
    /// Has a connection driven on this runtime.
    pub(super) fn new(connection: Connection, runtime: &Handle) -> Arc<Self> {
        let Connection { redis, driven } = connection;
        let shared: Arc<Shared> = Arc::default();
        runtime.spawn(Driver::new(Arc::clone(&shared), redis.clone()));
        Arc::new(Self {
            redis,
            shared,
            _driven: driven,
        })
    }

    pub(super) fn replies(&self) -> u64 {
        self.shared.replies.load(Ordering::Relaxed)
    }

    /// Whether the connection has ended with its runtime.
    pub(super) fn has_ended_here(&self) -> bool {
        self.shared.table().state == State::Over
    }

    /// Sends a command, after all that were sent before.
    pub(super) fn send(self: Arc<Self>, command: Cmd) -> Sending {
        let mut table = self.shared.table();
        if table.has_few() {
            table.singles += 1;
            let used = table.used.pop();
            drop(table);
            let way = Way::Single(self.single(command, used), Sent::NotYet);
            return Sending { desk: self, way };
        }
        let place = if table.state == State::Over {
            table.places.insert(Place::Answered(Err(Fault::closed())))
        } else {
            let place = table.places.insert(Place::Waiting(None, Sent::NotYet));
            table.waiting.push_back((command, place));
            place
        };
        let driver = table.driver.take();
        drop(table);
        driver.into_iter().for_each(Waker::wake);
        let way = Way::Place(place);
        Sending { desk: self, way }
    }

    /// A command that is sent when it is first polled.
    fn single(&self, command: Cmd, used: Option<Used>) -> Single {
        let (before, mut redis) = match used {
            Some(Used { reply, redis }) => (Some(reply), redis),
            None => (None, self.redis.clone()),
        };
        let sending = async move {
            let reply = redis.send_packed_command(&command).await;
            (reply, redis)
        };
        in_place_of(before, sending)
    }
}

/// A future that has the memory of one that is over, if there is one.
fn in_place_of<T>(
    before: Option<ReusableBoxFuture<'static, T>>,
    next: impl Future<Output = T> + Send + 'static,
) -> ReusableBoxFuture<'static, T> {
    match before {
        Some(mut before) => {
            before.set(next);
            before
        }
        None => ReusableBoxFuture::new(next),
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        if table.state == State::Open {
            table.state = State::Closed;
        }
        let driver = table.driver.take();
        drop(table);
        driver.into_iter().for_each(Waker::wake);
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Whether there are so few commands that each can go by itself, and none is before it that does
    /// not.
    fn has_few(&self) -> bool {
        self.state == State::Open
            && self.singles < FEW
            && self.pieces == 0
            && self.waiting.is_empty()
    }

    /// Leaves an answer; whom to wake.
    fn answer(&mut self, place: usize, answer: Result<Value, Fault>) -> Option<Waker> {
        if let Place::Waiting(waker, _) = &mut self.places[place] {
            let waker = waker.take();
            self.places[place] = Place::Answered(answer);
            waker
        } else {
            self.places.remove(place);
            None
        }
    }

    /// Takes what goes in one piece.
    fn take(&mut self, pipeline: &mut Pipeline, places: &mut Vec<usize>) {
        while places.len() < TOGETHER
            && let Some((command, place)) = self.waiting.pop_front()
        {
            if let Place::Waiting(_, sent) = &mut self.places[place] {
                *sent = Sent::Yes;
                pipeline.add_command(command);
                places.push(place);
            } else {
                self.places.remove(place);
            }
        }
    }
}

/// A command on its way, or its reply.
pub(super) struct Sending {
    pub(super) desk: Arc<Desk>,
    way: Way,
}

enum Way {
    /// Sent when it is polled first.
    Single(Single, Sent),
    Place(usize),
    /// The reply was taken.
    Over,
}

impl Sending {
    /// Whether the command has left this process, or is going to: it cannot be kept back any more.
    pub(super) fn is_out(&self) -> bool {
        match self.way {
            Way::Single(_, sent) => sent == Sent::Yes,
            Way::Place(place) => {
                let table = self.desk.shared.table();
                !matches!(table.places[place], Place::Waiting(_, Sent::NotYet))
            }
            Way::Over => false,
        }
    }
}

impl Future for Sending {
    type Output = Result<Value, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.desk.shared;
        let place = match &mut this.way {
            Way::Place(place) => *place,
            Way::Single(reply, sent) => {
                *sent = Sent::Yes;
                let (answer, redis) = ready!(reply.poll(cx));
                if let Way::Single(reply, _) = mem::replace(&mut this.way, Way::Over) {
                    let mut table = shared.table();
                    table.singles -= 1;
                    table.used.push(Used { reply, redis });
                }
                shared.replies.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(answer.map_err(Fault::from));
            }
            Way::Over => unreachable!("a future is not polled after its end"),
        };
        let mut table = shared.table();
        if let Place::Waiting(waker, _) = &mut table.places[place] {
            let before = waker::replace(waker, cx.waker());
            drop(table);
            drop(before);
            return Poll::Pending;
        }
        let left = table.places.remove(place);
        drop(table);
        this.way = Way::Over;
        match left {
            Place::Answered(answer) => Poll::Ready(answer),
            _ => unreachable!("a place is answered once"),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let place = match self.way {
            Way::Place(place) => place,
            Way::Single(..) => {
                self.desk.shared.table().singles -= 1;
                return;
            }
            Way::Over => return,
        };
        let mut table = self.desk.shared.table();
        let left = match &mut table.places[place] {
            waiting @ Place::Waiting(..) => mem::replace(waiting, Place::Left),
            _ => table.places.remove(place),
        };
        drop(table);
        // A waker may be the last handle of a task, whose end may come back here.
        drop(left);
    }
}
