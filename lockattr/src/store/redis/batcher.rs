//! The commands of many callers on one connection, sent in batches.
//!
//! To send a command and to read its reply costs the redis client more than the lock does. So commands
//! are collected, and a driver task sends what has come together in one batch and hands the replies out
//! again. The same task reads and writes the connection: a command wakes one task, and its reply another.
//!
//! Commands reach the server in the order in which they were given to [`Batcher::send`]. Timeouts and the
//! replacement of a failed connection are left to the caller.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::{Cmd, Value};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::fault::Fault;
use super::wire::Wire;
use crate::runtime::waker;

mod driver;

use driver::Driver;

/// An open connection, and the replies that are awaited on it. The connection is closed with the last
/// handle.
pub(super) struct Batcher {
    inner: Arc<BatcherInner>,
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
    unsent: VecDeque<Unsent>,
    replies: Slab<PendingReply>,
    /// The driver's waker, while nothing is to be sent.
    driver: Option<Waker>,
    state: BatcherState,
}

/// A command yet to be sent.
struct Unsent {
    command: Cmd,
    /// Of its reply.
    index: usize,
    /// Whether it is for keys that are on their way to this node of a cluster, which a word directly before
    /// it says.
    asking: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum BatcherState {
    #[default]
    Open,
    /// The last handle is gone.
    Closed,
    /// The connection has failed.
    Failed,
    /// The driver has ended, with its runtime.
    Ended,
}

/// The reply to a command.
enum PendingReply {
    Awaited {
        waker: Option<Waker>,
        is_sent: bool,
    },
    Answered(Result<Value, Fault>),
    /// Nobody awaits it.
    Abandoned,
}

impl Batcher {
    /// Has a connection driven on this runtime; `ends` is dropped when it is not any more.
    pub(super) fn new(wire: Wire, runtime: &Handle, ends: oneshot::Sender<()>) -> Arc<Self> {
        let inner: Arc<BatcherInner> = Arc::default();
        runtime.spawn(Driver::new(Arc::clone(&inner), wire, runtime, ends));
        Arc::new(Self { inner })
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
    pub(super) fn send(self: Arc<Self>, command: Cmd, asking: bool) -> Sending {
        let mut pending = self.inner.pending();
        let index = pending.send(command, asking);
        wake_driver(pending);
        Sending {
            batcher: self,
            reply: Some(index),
        }
    }

    /// Sends commands with none of anybody else's between them.
    pub(super) fn send_all(self: &Arc<Self>, commands: Vec<Cmd>) -> Vec<Sending> {
        let mut pending = self.inner.pending();
        let send = |command| pending.send(command, false);
        let indices: Vec<_> = commands.into_iter().map(send).collect();
        wake_driver(pending);
        let sending = |index| Sending {
            batcher: Arc::clone(self),
            reply: Some(index),
        };
        indices.into_iter().map(sending).collect()
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        let mut pending = self.inner.pending();
        if pending.state == BatcherState::Open {
            pending.state = BatcherState::Closed;
        }
        wake_driver(pending);
    }
}

impl BatcherInner {
    fn pending(&self) -> MutexGuard<'_, PendingReplies> {
        // No panic happens under this lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the driver run, where nothing was to be sent before.
fn wake_driver(mut pending: MutexGuard<'_, PendingReplies>) {
    let driver = pending.driver.take();
    drop(pending);
    driver.into_iter().for_each(Waker::wake);
}

impl PendingReplies {
    /// Adds a command to those to be sent. The answer is the index of its reply.
    fn send(&mut self, command: Cmd, asking: bool) -> usize {
        let is_open = self.state == BatcherState::Open;
        let index = self.replies.insert(if is_open {
            PendingReply::Awaited {
                waker: None,
                is_sent: false,
            }
        } else {
            PendingReply::Answered(Err(Fault::unsent()))
        });
        if is_open {
            self.unsent.push_back(Unsent {
                command,
                index,
                asking,
            });
        }
        index
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

    /// Adds as many commands as there is room for to what is to be written, but for those of callers that
    /// are gone, and their replies to those that are to come.
    fn send_all(&mut self, wire: &mut Wire, sent: &mut VecDeque<usize>) {
        while wire.has_room()
            && let Some(next) = self.unsent.pop_front()
        {
            let PendingReply::Awaited { is_sent, .. } = &mut self.replies[next.index] else {
                self.replies.remove(next.index);
                continue;
            };
            *is_sent = true;
            if next.asking {
                wire.add(&redis::cmd("ASKING"));
                sent.push_back(self.replies.insert(PendingReply::Abandoned));
            }
            wire.add(&next.command);
            sent.push_back(next.index);
        }
    }
}

/// A command that is being sent; its output is the reply.
pub(super) struct Sending {
    pub(super) batcher: Arc<Batcher>,
    /// The index of the reply, until it is taken.
    reply: Option<usize>,
}

impl Sending {
    /// Leaves nothing to wait for here.
    pub(super) fn take(&mut self) -> Self {
        Self {
            batcher: Arc::clone(&self.batcher),
            reply: self.reply.take(),
        }
    }

    /// Whether the command has left this process, or is about to and cannot be kept back.
    pub(super) fn is_sent(&self) -> bool {
        self.reply.is_some_and(|index| {
            let pending = self.batcher.inner.pending();
            let reply = &pending.replies[index];
            !matches!(reply, PendingReply::Awaited { is_sent: false, .. })
        })
    }
}

impl Future for Sending {
    type Output = Result<Value, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let index = this.reply.expect("a future is not polled after its end");
        let mut pending = this.batcher.inner.pending();
        if let PendingReply::Awaited { waker, .. } = &mut pending.replies[index] {
            let before = waker::replace(waker, cx.waker());
            drop(pending);
            drop(before);
            return Poll::Pending;
        }
        let reply = pending.replies.remove(index);
        drop(pending);
        this.reply = None;
        match reply {
            PendingReply::Answered(answer) => Poll::Ready(answer),
            _ => unreachable!("a reply is awaited, or it was answered"),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let Some(index) = self.reply else { return };
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

#[cfg(test)]
mod tests;
