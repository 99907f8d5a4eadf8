//! Taking turns: one at a time is inside, and of those who wait whoever is polled first is the next.
//!
//! Unlike a fair mutex it hands nothing to a waiter, which may not be polled any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::process::Process;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: AtomicBool,
    over: Notify,
}

/// A turn, which is over when this is dropped.
#[derive(Debug)]
pub(crate) struct MyTurn {
    turns: Arc<Turns>,
    process: Process,
}

impl Turns {
    /// Waits for a turn.
    ///
    /// Cancel-safe.
    pub(crate) async fn take(self: Arc<Self>) -> MyTurn {
        loop {
            // Before it is looked at, so that no end is missed.
            let over = self.over.notified();
            if !self.taken.swap(true, Ordering::AcqRel) {
                break;
            }
            over.await;
        }
        MyTurn {
            turns: self,
            process: Process::here(),
        }
    }
}

impl Drop for MyTurn {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.turns.taken.store(false, Ordering::Release);
            self.turns.over.notify_waiters();
        }
    }
}
