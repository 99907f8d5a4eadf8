//! What the commands on one connection have in common.
//!
//! The future of a command is larger than what an allocator keeps at hand, and every command needs
//! one for the length of a round trip; those that are done are used again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio_util::sync::ReusableBoxFuture;

/// As many are kept for later, so that a burst does not cost its memory for ever.
const KEPT: usize = 1024;

pub(super) type Sent = ReusableBoxFuture<'static, RedisResult<Value>>;

#[derive(Default)]
pub(super) struct Desk {
    used: Mutex<Vec<Sent>>,
    /// How many replies have come, so that a connection that is merely busy is not taken for dead.
    replies: AtomicU64,
}

impl Desk {
    pub(super) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    pub(super) fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }

    /// A command that is sent when it is first polled.
    pub(super) fn send(&self, mut redis: MultiplexedConnection, command: Cmd) -> Sent {
        let sending = async move { redis.send_packed_command(&command).await };
        let used = self.used().pop();
        match used {
            Some(mut sent) => {
                sent.set(sending);
                sent
            }
            None => ReusableBoxFuture::new(sending),
        }
    }

    /// Takes back one that has been answered.
    pub(super) fn put_back(&self, sent: Sent) {
        let mut used = self.used();
        if used.len() < KEPT {
            used.push(sent);
        }
    }

    fn used(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
