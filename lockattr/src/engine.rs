//! The client's own thread: a runtime that no application can block, pause or shut down.
//!
//! Renewals have their connection here, and so has whatever is asked outside of every tokio runtime;
//! and time that must be real is measured here. A future that waits for the engine may be polled
//! anywhere: on any tokio runtime, on another executor, on a paused clock.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A handle to the thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<Running>);

#[derive(Debug)]
struct Running {
    handle: Handle,
    stop: Arc<Notify>,
}

/// A future had not finished when its time was over.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl Engine {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let (started, start) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("lockattr".to_owned())
            .spawn(move || {
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
        Ok(Self(Arc::new(Running { handle, stop })))
    }

    /// The thread's runtime.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.handle
    }

    /// Runs a task on the engine's thread.
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.handle.spawn(task)
    }

    /// Waits in real time, whatever clock the caller's runtime has.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        // The timer belongs to the runtime in whose context it is made, not to the one that polls.
        let sleep = {
            let _context = self.0.handle.enter();
            tokio::time::sleep_until(at.into())
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

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}
