//! A connection that stands, and what the commands on it have in common.
//!
//! The future of a command is larger than what an allocator keeps at hand, and holds a handle of the
//! connection; every command needs one for the length of a round trip, and those that are done are
//! used again.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio_util::sync::ReusableBoxFuture;

/// As many are kept for later, so that a burst does not cost its memory for ever.
const KEPT: usize = 1024;

pub(super) struct Desk {
    redis: MultiplexedConnection,
    used: Mutex<Vec<Used>>,
    /// How many replies have come, so that a connection that is merely busy is not taken for dead.
    replies: AtomicU64,
}

type Reply = ReusableBoxFuture<'static, (RedisResult<Value>, MultiplexedConnection)>;

/// What is left of a command that was answered.
struct Used {
    reply: Reply,
    redis: MultiplexedConnection,
}

impl Desk {
    pub(super) fn new(redis: MultiplexedConnection) -> Arc<Self> {
        Arc::new(Self {
            redis,
            used: Mutex::default(),
            replies: AtomicU64::new(0),
        })
    }

    pub(super) fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }

    pub(super) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    pub(super) fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }

    /// A command that is sent when it is first polled.
    pub(super) fn send(self: Arc<Self>, command: Cmd) -> Sending {
        let sending = |mut redis: MultiplexedConnection| async move {
            let reply = redis.send_packed_command(&command).await;
            (reply, redis)
        };
        let used = self.used().pop();
        let reply = match used {
            Some(Used { mut reply, redis }) => {
                reply.set(sending(redis));
                reply
            }
            None => ReusableBoxFuture::new(sending(self.redis())),
        };
        Sending {
            desk: self,
            reply: Some(reply),
        }
    }

    fn keep(&self, used: Used) {
        let mut all = self.used();
        if all.len() < KEPT {
            all.push(used);
        }
    }

    fn used(&self) -> MutexGuard<'_, Vec<Used>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command on its way.
pub(super) struct Sending {
    pub(super) desk: Arc<Desk>,
    /// Nothing once it has come.
    reply: Option<Reply>,
}

impl Future for Sending {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut reply) = self.reply.take() else {
            unreachable!("a future is not polled after its end");
        };
        let Poll::Ready((answer, redis)) = reply.poll(cx) else {
            self.reply = Some(reply);
            return Poll::Pending;
        };
        self.desk.count_reply();
        self.desk.keep(Used { reply, redis });
        Poll::Ready(answer)
    }
}
