//! What most of these tests begin with.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tests::server::Server;
use tokio::runtime::Runtime;

/// What an acquire that cannot be answered may take: two attempts of connecting and a reply, one
/// second each.
pub(crate) const BOUND: Duration = Duration::from_secs(4);

/// Room on top of a bound for a machine with other work.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

pub(crate) async fn client(server: &Server) -> Client {
    match Client::connect(server.url()).await {
        Ok(client) => client,
        Err(problem) => panic!("no client: {problem}\n{}", server.log()),
    }
}

/// A server, and a client for it.
pub(crate) async fn pair() -> (Server, Client) {
    let server = Server::start();
    let client = client(&server).await;
    (server, client)
}

/// The function that most stories are about. Its body is whatever `body` does.
#[distributed_lock(key = "sync:<user_id>", ttl = "2s", on_busy = skip, client = locks)]
pub(crate) async fn job<F: Future<Output: Send>>(
    locks: &Client,
    user_id: u64,
    body: F,
) -> Result<Option<F::Output>, Error> {
    Ok(Some(body.await))
}

/// The same with another ttl and nothing skipped.
#[distributed_lock(key = "sync:<user_id>", ttl = ttl, client = locks)]
pub(crate) async fn timed<F: Future<Output: Send>>(
    locks: &Client,
    user_id: u64,
    ttl: Duration,
    body: F,
) -> Result<F::Output, Error> {
    Ok(body.await)
}

/// Sleeps in real time, for bodies.
pub(crate) async fn nap(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Polls a future at its wake-ups until it is done or has been polled `count` times.
pub(crate) async fn polled<F: Future>(mut future: Pin<&mut F>, count: usize) -> Option<F::Output> {
    let mut done = 0;
    poll_fn(|context| {
        done += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if done >= count => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The two kinds of runtime, fresh ones.
pub(crate) fn runtimes() -> [Runtime; 2] {
    let current = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let multi = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    [current, multi].map(|runtime| runtime.expect("a runtime"))
}

/// An executor that is not tokio's: it parks its thread.
pub(crate) fn by_hand<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
