//! Where the work of a quorum goes on when nobody waits for it, and in which time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::runtime::background::{Background, Elapsed};
use crate::runtime::clock::Clock;

/// The client's own thread, and the clock of the nodes.
#[derive(Clone, Debug)]
pub(super) struct QuorumContext {
    pub(super) background: Background,
    pub(super) clock: Clock,
}

impl QuorumContext {
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

    /// Goes on with something until it is done, whatever becomes of the runtime that calls. It is polled here
    /// first: what it asks a node for reaches that node before whatever is asked from here later.
    pub(super) fn go_on(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(task) = begun(Box::pin(task)) {
            self.spawn(task);
        }
    }

    /// The same where nothing is lost while the runtime that calls is blocked. It costs less, since nothing
    /// goes from thread to thread; should that runtime end, the client's own thread goes on.
    pub(super) fn go_on_here(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(task) = begun(Box::pin(task)) else {
            return;
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(Carried {
                task: Some(task),
                context: self.clone(),
            })),
            Err(_) => self.spawn(task),
        }
    }

    fn spawn(&self, task: BoxedTask) {
        match (self.clock, Handle::try_current()) {
            (Clock::Tokio, Ok(runtime)) => drop(runtime.spawn(task)),
            _ => drop(self.background.spawn(task)),
        }
    }
}

type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that was polled once, unless it is done.
fn begun(mut task: BoxedTask) -> Option<BoxedTask> {
    let mut context = Context::from_waker(Waker::noop());
    task.as_mut()
        .poll(&mut context)
        .is_pending()
        .then_some(task)
}

/// A task that outlives the runtime that it is polled on.
struct Carried {
    task: Option<BoxedTask>,
    context: QuorumContext,
}

impl Future for Carried {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        let polled = task.as_mut().poll(cx);
        if polled.is_ready() {
            self.task = None;
        }
        polled
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(task) = self.task.take()
            && self.context.clock == Clock::Real
        {
            self.context.background.spawn(task);
        }
    }
}
