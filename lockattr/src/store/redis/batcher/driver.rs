//! The task that sends the batches of a connection and hands out their replies.
//!
//! Batches are sent in order and answered in order. The task ends when the last handle of the batcher is
//! gone; where its runtime ends before, every reply that is awaited fails in doubt.

use std::collections::VecDeque;
use std::iter;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use tokio_util::sync::ReusableBoxFuture;

use super::{BatcherInner, BatcherState, Fault, in_memory_of};
use crate::runtime::waker;

/// So many batches at most are sent and not answered; further commands wait.
const MOST_BATCHES: usize = 32;

/// Sends batches, and hands out the replies.
pub(super) struct Driver {
    inner: Arc<BatcherInner>,
    redis: MultiplexedConnection,
    sent: VecDeque<SentBatch>,
    /// The memory of batches that were answered.
    spare: Vec<SpareBatch>,
    /// Empty but while replies are handed out.
    wakers: Vec<Waker>,
}

/// Commands that were sent together. Their replies come in the same order.
struct SentBatch {
    reply: BatchReply,
    outcome: Option<BatchOutcome>,
    /// The indices of the pending replies.
    replies: Vec<usize>,
}

type BatchReply = ReusableBoxFuture<'static, BatchOutcome>;

/// The replies to a batch, and what it had borrowed.
type BatchOutcome = (RedisResult<Vec<Value>>, Pipeline, MultiplexedConnection);

struct SpareBatch {
    reply: Option<BatchReply>,
    redis: MultiplexedConnection,
    pipeline: Pipeline,
    replies: Vec<usize>,
}

impl Driver {
    pub(super) fn new(inner: Arc<BatcherInner>, redis: MultiplexedConnection) -> Self {
        Self {
            inner,
            redis,
            sent: VecDeque::new(),
            spare: Vec::new(),
            wakers: Vec::new(),
        }
    }

    /// Sends what may be sent, unless the last handle is gone.
    fn send(&mut self, cx: &mut Context<'_>) -> BatcherState {
        loop {
            let mut pending = self.inner.pending();
            let nothing_to_send = pending.unsent.is_empty() || self.sent.len() >= MOST_BATCHES;
            if pending.state != BatcherState::Open || nothing_to_send {
                let before = waker::replace(&mut pending.driver, cx.waker());
                let state = pending.state;
                drop(pending);
                drop(before);
                return state;
            }
            let mut batch = self.spare.pop().unwrap_or_else(|| SpareBatch {
                reply: None,
                redis: self.redis.clone(),
                pipeline: Pipeline::new(),
                replies: Vec::new(),
            });
            pending.fill(&mut batch.pipeline, &mut batch.replies);
            if batch.replies.is_empty() {
                drop(pending);
                self.spare.push(batch);
                continue;
            }
            pending.batches += 1;
            drop(pending);
            let mut batch = batch.into_sent();
            // The first poll sends it: the next batch has to come after it.
            let _ = batch.poll(cx);
            self.sent.push_back(batch);
        }
    }

    /// Hands out the replies to the oldest batch, if they have come.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(first) = self.sent.front_mut()
            && first.poll(cx).is_ready()
            && let Some(SentBatch {
                reply,
                outcome: Some((answers, mut pipeline, redis)),
                mut replies,
            }) = self.sent.pop_front()
        {
            self.hand_out(&replies, answers);
            pipeline.clear();
            replies.clear();
            self.spare.push(SpareBatch {
                reply: Some(reply),
                redis,
                pipeline,
                replies,
            });
            return true;
        }
        false
    }

    fn hand_out(&mut self, replies: &[usize], answers: RedisResult<Vec<Value>>) {
        let answers = answers.map_err(Fault::from).and_then(|answers| {
            if answers.len() == replies.len() {
                Ok(answers)
            } else {
                Err(Fault::protocol_error(&Value::Array(answers)))
            }
        });
        match answers {
            Ok(answers) => self.answer(replies, answers.into_iter().map(Ok)),
            Err(fault) => self.answer(replies, iter::repeat_with(|| Err(fault.clone()))),
        }
    }

    fn answer(&mut self, replies: &[usize], answers: impl Iterator<Item = Result<Value, Fault>>) {
        let mut pending = self.inner.pending();
        pending.batches = self.sent.len();
        for (index, answer) in replies.iter().zip(answers) {
            self.wakers.extend(pending.answer(*index, answer));
        }
        drop(pending);
        let count = u64::try_from(replies.len()).unwrap_or(u64::MAX);
        self.inner.replies.fetch_add(count, Ordering::Relaxed);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let received = self.receive(cx);
        if self.send(cx) == BatcherState::Closed {
            // Whoever awaits a reply holds a handle, so nobody does.
            return Poll::Ready(());
        }
        // The callers that were answered run, and what they ask next is sent, before the next batch is
        // handed out. So the server and the callers work at the same time.
        let next = self.sent.front();
        if next.is_some_and(|next| received || next.outcome.is_some()) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// A runtime that ends drops its tasks, and nothing is answered any more.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut pending = self.inner.pending();
        pending.state = BatcherState::Ended;
        let unsent = mem::take(&mut pending.unsent);
        drop(pending);
        let unsent = unsent.into_iter().map(|(_, index)| index);
        let sent = mem::take(&mut self.sent);
        let sent = sent.into_iter().flat_map(|batch| batch.replies);
        let replies: Vec<_> = sent.chain(unsent).collect();
        self.answer(&replies, iter::repeat_with(|| Err(Fault::closed())));
    }
}

impl SpareBatch {
    /// The commands in the pipeline, which the first poll sends.
    fn into_sent(self) -> SentBatch {
        let Self {
            reply,
            mut redis,
            pipeline,
            replies,
        } = self;
        let count = replies.len();
        let sending = async move {
            let answers = redis.send_packed_commands(&pipeline, 0, count).await;
            (answers, pipeline, redis)
        };
        SentBatch {
            reply: in_memory_of(reply, sending),
            outcome: None,
            replies,
        }
    }
}

impl SentBatch {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.outcome.is_none() {
            self.outcome = Some(ready!(self.reply.poll(cx)));
        }
        Poll::Ready(())
    }
}
