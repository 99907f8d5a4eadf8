//! The client's own thread: a runtime that no application can block, pause or shut down.
//!
//! Renewals have their connection here, and so has whatever is asked outside of every tokio runtime;
//! and time that must be real is measured here. A future that waits for the background may be polled
//! anywhere: on any tokio runtime, on another executor, on a paused clock.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};
use tokio::task::{self, JoinHandle};

use super::events::Events;
use super::process::{DroppedAtHome, Process};

/// A handle to the thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Background(Arc<Running>);

struct Running {
    handle: Handle,
    stop: Arc<Notify>,
    events: Events,
}

thread_local! {
    /// Whether this is the thread of some background.
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// How long a client that ends waits for a subscriber that is slow.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// A future had not finished when its time was over.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl Background {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let (started, start) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("lockattr".to_owned())
            .spawn(move || {
                IS_BACKGROUND.set(true);
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        // The other side waits for exactly this message.
                        let _ = started.send(Err(error));
                        return;
                    }
                };
                let _ = started.send(Ok(runtime.handle().clone()));
                runtime.block_on(stopped.notified());
                // A name look-up that hangs must not keep the thread.
                runtime.shutdown_background();
            })?;
        let handle = start
            .recv()
            .map_err(|_| io::Error::other("the lock client's thread ended at once"))??;
        Ok(Self(Arc::new(Running {
            handle,
            stop,
            events: Events::default(),
        })))
    }

    /// The thread's runtime.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.handle
    }

    /// Runs a task on the background's thread.
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.handle.spawn(task)
    }

    /// Emits an event. The subscriber, which may block, is called on this thread where it is the
    /// application's, and on a thread of its own where it is a background's.
    pub(crate) fn tell(&self, event: impl FnOnce() + Send + 'static) {
        if IS_BACKGROUND.get() {
            self.0.events.send(event);
        } else {
            event();
        }
    }

    /// Waits until everything told so far has reached the subscriber, within bounds.
    pub(crate) async fn told(&self) {
        let (tell, told) = oneshot::channel();
        self.0.events.when_told(move || {
            let _ = tell.send(());
        });
        let _ = self.until(Instant::now() + LAST_EVENTS, told).await;
    }

    /// The same for a thread that ends, until a moment.
    pub(crate) fn wait_until_told(&self, at: Instant) {
        let (tell, told) = mpsc::channel();
        self.0.events.when_told(move || {
            let _ = tell.send(());
        });
        let _ = told.recv_timeout(at.saturating_duration_since(Instant::now()));
    }

    /// Polls a step of a store: in the context of the runtime that polls it, or of this one where there
    /// is none. A panic of a store's is none of whoever asks it; the answer is `None` then.
    pub(crate) async fn ask<F: Future>(&self, step: F) -> Option<F::Output> {
        let mut step = pin!(step);
        std::future::poll_fn(|cx| {
            // The usual caller is a task of a runtime's, which costs less to find out than a handle.
            let outside = task::try_id().is_none()
                && Handle::try_current().is_err_and(|error| error.is_missing_context());
            let _context = outside.then(|| self.0.handle.enter());
            match catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(cx))) {
                Ok(polled) => polled.map(Some),
                Err(_) => Poll::Ready(None),
            }
        })
        .await
    }

    /// Waits in real time, whatever clock the caller's runtime has.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        // The timer belongs to the runtime in whose context it is made, not to the one that polls.
        let sleep = {
            let _context = self.0.handle.enter();
            DroppedAtHome::new(
                Box::pin(tokio::time::sleep_until(at.into())),
                Process::here(),
            )
        };
        sleep.await;
    }

    /// Polls `work` until it is done or, in real time, `at` has come.
    pub(crate) async fn until<F: Future>(
        &self,
        at: Instant,
        work: F,
    ) -> Result<F::Output, Elapsed> {
        let mut work = pin!(work);
        let mut over = pin!(self.sleep_until(at));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            over.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}
