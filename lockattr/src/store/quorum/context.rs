//! Where the work of a quorum goes on when nobody waits for it, and in which time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::runtime::background::{Background, Elapsed};
use crate::runtime::clock::Clock;

/// The client's own thread, and the clock of the nodes.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) background: Background,
    pub(super) clock: Clock,
}

impl Context {
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) async fn sleep(&self, length: Duration) {
        let at = self.now() + length;
        self.clock.sleep_until(&self.background, at).await;
    }

    pub(super) async fn within<F: Future>(
        &self,
        length: Duration,
        work: F,
    ) -> Result<F::Output, Elapsed> {
        let at = self.now() + length;
        self.clock.until(&self.background, at, work).await
    }

    /// Goes on with something until it is done. It is polled here first: what it asks a node for reaches
    /// that node before whatever is asked from here later.
    pub(super) fn go_on(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
        let polled = task
            .as_mut()
            .poll(&mut TaskContext::from_waker(Waker::noop()));
        if polled.is_ready() {
            return;
        }
        match (self.clock, Handle::try_current()) {
            (Clock::Tokio, Ok(runtime)) => drop(runtime.spawn(task)),
            // A runtime of the application's may end at any time.
            _ => drop(self.background.spawn(task)),
        }
    }
}
