//! The commands of many callers on one connection, sent in batches.
//!
//! To send a command and to read its reply costs the redis client more than the lock does. Where many
//! callers ask at the same time, their commands are collected; a driver task sends what has come together
//! in one batch and hands the replies out again. Where few ask, each command is sent alone: to wait for
//! the driver would cost each caller a wake-up.
//!
//! Commands reach the server in the order in which they were given to [`Batcher::send`] and first
//! polled. Timeouts and the replacement of a failed connection are left to the caller.

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
use super::target::{DriverTask, RawConnection};
use crate::runtime::waker;

mod driver;

use driver::Driver;

/// So many commands at most are sent alone at the same time.
const MOST_ALONE: usize = 4;

/// So many commands at most are in one batch: enough to share its cost, and few enough that those who are
/// answered go on while the server is busy with the next batch.
const BATCH_SIZE: usize = 32;

/// An open connection, and the replies that are awaited on it. The connection is closed with the last
/// handle.
pub(super) struct Batcher {
    redis: MultiplexedConnection,
    inner: Arc<BatcherInner>,
    task: DriverTask,
}

/// What callers and the driver share.
#[derive(Default)]
struct BatcherInner {
    pending: Mutex<PendingReplies>,
    /// How many replies have come, so that a connection that is merely busy is not taken for dead.
    replies: AtomicU64,
}

#[derive(Default)]
struct PendingReplies {
    /// Commands yet to be sent in a batch, each with the index of its reply.
    unsent: VecDeque<(Cmd, usize)>,
    replies: Slab<PendingReply>,
    /// The driver's waker, while nothing is to be sent.
    driver: Option<Waker>,
    /// How many batches were sent and are not answered.
    batches: usize,
    /// How many commands were sent alone and are not answered.
    alone: usize,
    /// The memory of such commands that were answered.
    reusable: Vec<Reusable>,
    state: BatcherState,
}

/// The reply to a command that was sent alone, and the connection that it borrowed.
type LoneReply = ReusableBoxFuture<'static, (RedisResult<Value>, MultiplexedConnection)>;

struct Reusable {
    reply: LoneReply,
    redis: MultiplexedConnection,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum BatcherState {
    #[default]
    Open,
    /// The last handle is gone.
    Closed,
    /// The driver has ended, with its runtime.
    Ended,
}

/// The reply to a command that is sent in a batch.
enum PendingReply {
    Awaited {
        waker: Option<Waker>,
        is_sent: bool,
    },
    Answered(Result<Value, Fault>),
    /// Its caller is gone.
    Abandoned,
}

impl Batcher {
    /// Has a connection driven on this runtime.
    pub(super) fn new(connection: RawConnection, runtime: &Handle) -> Arc<Self> {
        let RawConnection { redis, task } = connection;
        let inner: Arc<BatcherInner> = Arc::default();
        runtime.spawn(Driver::new(Arc::clone(&inner), redis.clone()));
        Arc::new(Self { redis, inner, task })
    }

    /// Whether it is told of changed keys.
    pub(super) fn is_told(&self) -> bool {
        self.task.is_told()
    }

    /// The connection itself, for what is sent beside callers' commands.
    pub(super) fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }

    /// How many replies have come.
    pub(super) fn replies(&self) -> u64 {
        self.inner.replies.load(Ordering::Relaxed)
    }

    /// Whether the connection has ended with its runtime.
    pub(super) fn has_ended(&self) -> bool {
        self.inner.pending().state == BatcherState::Ended
    }

    /// Sends a command, after all that were sent before.
    pub(super) fn send(self: Arc<Self>, command: Cmd) -> Sending {
        let mut pending = self.inner.pending();
        if pending.may_send_alone() {
            pending.alone += 1;
            let reusable = pending.reusable.pop();
            drop(pending);
            let route = Route::Alone {
                reply: self.alone(command, reusable),
                is_sent: false,
            };
            let batcher = self;
            return Sending { batcher, route };
        }
        let index = if pending.state == BatcherState::Ended {
            pending
                .replies
                .insert(PendingReply::Answered(Err(Fault::closed())))
        } else {
            let index = pending.replies.insert(PendingReply::Awaited {
                waker: None,
                is_sent: false,
            });
            pending.unsent.push_back((command, index));
            index
        };
        let driver = pending.driver.take();
        drop(pending);
        driver.into_iter().for_each(Waker::wake);
        Sending {
            batcher: self,
            route: Route::Batched(index),
        }
    }

    /// Sends a command for keys that are on their way to this node of a cluster, directly after the word
    /// that says so.
    pub(super) fn send_asking(self: Arc<Self>, command: Cmd) -> Sending {
        let mut pair = Pipeline::with_capacity(2);
        pair.cmd("ASKING").add_command(command);
        let mut redis = self.redis.clone();
        let sending = async move {
            let replies = redis.send_packed_commands(&pair, 1, 1).await;
            let reply = replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil));
            (reply, redis)
        };
        self.inner.pending().alone += 1;
        Sending {
            batcher: self,
            route: Route::Alone {
                reply: ReusableBoxFuture::new(sending),
                is_sent: false,
            },
        }
    }

    /// A command that is sent when it is first polled.
    fn alone(&self, command: Cmd, reusable: Option<Reusable>) -> LoneReply {
        let (before, mut redis) = match reusable {
            Some(Reusable { reply, redis }) => (Some(reply), redis),
            None => (None, self.redis.clone()),
        };
        let sending = async move {
            let reply = redis.send_packed_command(&command).await;
            (reply, redis)
        };
        in_memory_of(before, sending)
    }
}

/// A boxed future, in the memory of one that is over where there is one.
fn in_memory_of<T>(
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

impl Drop for Batcher {
    fn drop(&mut self) {
        let mut pending = self.inner.pending();
        if pending.state == BatcherState::Open {
            pending.state = BatcherState::Closed;
        }
        let driver = pending.driver.take();
        drop(pending);
        driver.into_iter().for_each(Waker::wake);
    }
}

impl BatcherInner {
    fn pending(&self) -> MutexGuard<'_, PendingReplies> {
        // No panic happens under this lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingReplies {
    /// Whether the next command may be sent alone: few are, and no batch is before it.
    fn may_send_alone(&self) -> bool {
        self.state == BatcherState::Open
            && self.alone < MOST_ALONE
            && self.batches == 0
            && self.unsent.is_empty()
    }

    /// Records a reply. The answer is whom to wake.
    fn answer(&mut self, index: usize, answer: Result<Value, Fault>) -> Option<Waker> {
        if let PendingReply::Awaited { waker, .. } = &mut self.replies[index] {
            let waker = waker.take();
            self.replies[index] = PendingReply::Answered(answer);
            waker
        } else {
            self.replies.remove(index);
            None
        }
    }

    /// Moves unsent commands into a batch; those of callers that are gone are left out.
    fn fill(&mut self, pipeline: &mut Pipeline, replies: &mut Vec<usize>) {
        while replies.len() < BATCH_SIZE
            && let Some((command, index)) = self.unsent.pop_front()
        {
            if let PendingReply::Awaited { is_sent, .. } = &mut self.replies[index] {
                *is_sent = true;
                pipeline.add_command(command);
                replies.push(index);
            } else {
                self.replies.remove(index);
            }
        }
    }
}

/// A command that is being sent; its output is the reply.
pub(super) struct Sending {
    pub(super) batcher: Arc<Batcher>,
    route: Route,
}

enum Route {
    /// Sent when it is first polled.
    Alone { reply: LoneReply, is_sent: bool },
    /// In a batch; the index of the pending reply.
    Batched(usize),
    /// The reply was taken.
    Done,
}

impl Sending {
    /// Leaves nothing to wait for here.
    pub(super) fn take(&mut self) -> Self {
        Self {
            batcher: Arc::clone(&self.batcher),
            route: mem::replace(&mut self.route, Route::Done),
        }
    }

    /// Whether the command has left this process, or is about to and cannot be kept back.
    pub(super) fn is_sent(&self) -> bool {
        match self.route {
            Route::Alone { is_sent, .. } => is_sent,
            Route::Batched(index) => {
                let pending = self.batcher.inner.pending();
                !matches!(
                    pending.replies[index],
                    PendingReply::Awaited { is_sent: false, .. }
                )
            }
            Route::Done => false,
        }
    }
}

impl Future for Sending {
    type Output = Result<Value, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let inner = &this.batcher.inner;
        let index = match &mut this.route {
            Route::Batched(index) => *index,
            Route::Alone { reply, is_sent } => {
                *is_sent = true;
                let (answer, redis) = ready!(reply.poll(cx));
                if let Route::Alone { reply, .. } = mem::replace(&mut this.route, Route::Done) {
                    let mut pending = inner.pending();
                    pending.alone -= 1;
                    pending.reusable.push(Reusable { reply, redis });
                }
                inner.replies.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(answer.map_err(Fault::from));
            }
            Route::Done => unreachable!("a future is not polled after its end"),
        };
        let mut pending = inner.pending();
        if let PendingReply::Awaited { waker, .. } = &mut pending.replies[index] {
            let before = waker::replace(waker, cx.waker());
            drop(pending);
            drop(before);
            return Poll::Pending;
        }
        let reply = pending.replies.remove(index);
        drop(pending);
        this.route = Route::Done;
        match reply {
            PendingReply::Answered(answer) => Poll::Ready(answer),
            _ => unreachable!("a reply is awaited, or it was answered"),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let index = match self.route {
            Route::Batched(index) => index,
            Route::Alone { .. } => {
                self.batcher.inner.pending().alone -= 1;
                return;
            }
            Route::Done => return,
        };
        let mut pending = self.batcher.inner.pending();
        let left = match &mut pending.replies[index] {
            awaited @ PendingReply::Awaited { .. } => {
                mem::replace(awaited, PendingReply::Abandoned)
            }
            _ => pending.replies.remove(index),
        };
        drop(pending);
        // A waker may be the last handle of a task, whose drop may lock this again.
        drop(left);
    }
}
