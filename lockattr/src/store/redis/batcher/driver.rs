//! The task of a connection: it writes the commands, and hands out the replies.
//!
//! It ends with the connection, or when the last handle of the batcher is gone. Where its runtime ends
//! before, every reply that is awaited fails in doubt.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use redis::{RedisError, Value};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use super::{BatcherInner, BatcherState, Fault};
use crate::runtime::waker;
use crate::store::redis::wire::Wire;

/// So many callers at most are answered at a time. They run, and what they ask next is sent, before more are
/// answered: so the server and the callers work at the same time.
const MOST_ANSWERED: usize = 32;

/// On a multi-thread runtime a part of those who wait, and at least so many. Few callers who are answered
/// together ask together, and the server stands idle while they run; of fewer, each is worth a write.
const PARTS: usize = 4;
const LEAST_ANSWERED: usize = 4;

/// Sends what is to be sent, and hands out the replies.
pub(super) struct Driver {
    inner: Arc<BatcherInner>,
    wire: Wire,
    /// The indices of the replies to come, in their order.
    sent: VecDeque<usize>,
    /// Whether this task runs before callers that were woken earlier.
    runs_early: bool,
    /// How many callers were woken since something was sent.
    woken: usize,
    /// What is about to be handed out. Empty otherwise, and so is `wakers`.
    answers: Vec<(usize, Result<Value, Fault>)>,
    wakers: Vec<Waker>,
    /// Dropped with the task.
    _ends: oneshot::Sender<()>,
}

impl Driver {
    pub(super) fn new(
        inner: Arc<BatcherInner>,
        wire: Wire,
        runtime: &Handle,
        ends: oneshot::Sender<()>,
    ) -> Self {
        Self {
            inner,
            wire,
            sent: VecDeque::new(),
            runs_early: runtime.runtime_flavor() == RuntimeFlavor::MultiThread,
            woken: 0,
            answers: Vec::new(),
            wakers: Vec::new(),
            _ends: ends,
        }
    }

    /// Adds what is to be sent, unless the last handle is gone. Says also whether there was no room for all.
    ///
    /// A multi-thread runtime runs a task that was just woken before those that were woken earlier. So the
    /// first of many callers who were answered would have its next command sent alone, and each after it.
    /// The others run first, once, and their commands go together.
    fn take_unsent(&mut self, cx: &mut Context<'_>) -> (BatcherState, bool) {
        let mut pending = self.inner.pending();
        let before = waker::replace(&mut pending.driver, cx.waker());
        let are_few = !pending.unsent.is_empty()
            && pending.unsent.len() < mem::take(&mut self.woken)
            && self.runs_early;
        if are_few {
            cx.waker().wake_by_ref();
        } else {
            pending.send_all(&mut self.wire, &mut self.sent);
        }
        let (state, is_full) = (pending.state, !are_few && !pending.unsent.is_empty());
        drop(pending);
        drop(before);
        (state, is_full)
    }

    /// Hands out what has come, and says whether more may have. An error is that of the connection.
    fn receive(&mut self, cx: &mut Context<'_>) -> Result<bool, Fault> {
        let mut outcome: Result<(), Fault> = Ok(());
        let most = self.most_answered();
        while self.answers.len() < most
            && let Some(index) = self.sent.front()
            && let Poll::Ready(reply) = self.wire.poll_reply(cx)
        {
            match reply {
                Ok(reply) => self.answers.push((*index, Ok(reply))),
                Err(error) => {
                    outcome = Err(error.into());
                    break;
                }
            }
            self.sent.pop_front();
        }
        let may_be_more = self.answers.len() == most;
        self.hand_out();
        outcome?;
        if may_be_more {
            cx.waker().wake_by_ref();
        } else {
            self.listen(cx)?;
        }
        Ok(may_be_more)
    }

    fn most_answered(&self) -> usize {
        // On a current-thread runtime the writes that this adds cost more than it gains where the server
        // has the same core: see the benchmarks.
        if self.runs_early {
            (self.sent.len() / PARTS).clamp(LEAST_ANSWERED, MOST_ANSWERED)
        } else {
            MOST_ANSWERED
        }
    }

    /// Finds the end of a connection on which no reply is awaited; what comes there answers nothing.
    fn listen(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        if self.sent.is_empty()
            && let Poll::Ready(unasked) = self.wire.poll_reply(cx)
        {
            return Err(unasked.map_or_else(Fault::from, |reply| Fault::protocol_error(&reply)));
        }
        Ok(())
    }

    fn hand_out(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let count = u64::try_from(self.answers.len()).unwrap_or(u64::MAX);
        self.inner.replies.fetch_add(count, Ordering::Relaxed);
        let mut pending = self.inner.pending();
        for (index, answer) in self.answers.drain(..) {
            self.wakers.extend(pending.answer(index, answer));
        }
        drop(pending);
        self.woken += self.wakers.len();
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Answers everybody, and everybody who asks from now on.
    fn end(&mut self, state: BatcherState, fault: &Fault) {
        let mut pending = self.inner.pending();
        pending.state = state;
        let unsent = mem::take(&mut pending.unsent);
        drop(pending);
        let sent = self.sent.drain(..);
        self.answers
            .extend(sent.map(|index| (index, Err(fault.clone()))));
        let unsent = unsent.into_iter();
        self.answers
            .extend(unsent.map(|unsent| (unsent.index, Err(Fault::unsent()))));
        self.hand_out();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // First, since what has come by now is no reply to what is sent next.
        if let Err(fault) = self.listen(cx) {
            self.end(BatcherState::Failed, &fault);
            return Poll::Ready(());
        }
        let (state, is_full) = self.take_unsent(cx);
        if state == BatcherState::Closed {
            // Whoever awaits a reply holds a handle, so nobody does.
            return Poll::Ready(());
        }
        let written = match self.wire.poll_write(cx) {
            Poll::Ready(Err(error)) => Err(RedisError::from(error).into()),
            Poll::Ready(Ok(())) => {
                // There is room again, and the replies that would wake this task may be here by now.
                if is_full {
                    cx.waker().wake_by_ref();
                }
                Ok(())
            }
            Poll::Pending => Ok(()),
        };
        // Also where it cannot be written: the server may have said why before it has closed.
        let over = match self.receive(cx) {
            Ok(true) => Ok(()),
            Ok(false) => written,
            Err(fault) => Err(fault),
        };
        if let Err(fault) = over {
            self.end(BatcherState::Failed, &fault);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// A runtime that ends drops its tasks, and nothing is answered any more.
impl Drop for Driver {
    fn drop(&mut self) {
        let state = self.inner.pending().state;
        if state == BatcherState::Open {
            self.end(BatcherState::Ended, &Fault::closed());
        }
    }
}
