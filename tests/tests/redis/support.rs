//! What most of these tests begin with.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, distributed_lock};
use tests::server::Server;
use tests::wait;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// What an acquire that cannot be answered may take: two attempts of connecting and a reply, one
/// second each.
pub(crate) const BOUND: Duration = Duration::from_secs(4);

/// Room on top of a bound for a machine with other work.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// What a lost wake-up costs a waiter at most, where its holder's lease runs for longer.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

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

/// How soon after a store works again nothing is left of calls that have ended: 500 ms, and room for
/// a machine with other work.
pub(crate) const CLEARED: Duration = Duration::from_millis(1500);

/// Waits until no lock, slot or wait queue is left. Token counters outlive their leases on purpose.
pub(crate) async fn nothing_left(server: &Server) {
    let start = Instant::now();
    loop {
        let mut keys = server.keys();
        keys.retain(|key| !key.starts_with("lock:token:"));
        if keys.is_empty() {
            return;
        }
        let left: Vec<_> = keys.iter().map(|key| (key, server.pttl(key))).collect();
        assert!(start.elapsed() < CLEARED, "left with their ms: {left:?}");
        nap(5).await;
    }
}

/// A client that goes on listening: it waits for a lock of its own that is held all the while.
pub(crate) struct Listening {
    held: Lease,
    waiter: JoinHandle<Result<Lease, Error>>,
}

impl Listening {
    pub(crate) async fn of(server: &Server, locks: &Client, holder: &Client) -> Self {
        let held = holder.lock("listening").acquire().await.unwrap();
        let waiter = locks.lock("listening").wait(Duration::from_secs(60));
        let waiter = tokio::spawn(waiter.acquire());
        let is_queued = || server.waiters("lock:listening") == 1;
        wait::until("it is queued", is_queued).await;
        wait::until("it listens", || server.subscribers() >= 1).await;
        nap(100).await;
        Self { held, waiter }
    }

    pub(crate) async fn end(self, server: &Server) {
        self.waiter.abort();
        let is_gone = || server.waiters("lock:listening") == 0;
        wait::until("it has left", is_gone).await;
        self.held.release().await.unwrap();
    }
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
pub(crate) async fn polled<F: Future + ?Sized>(
    mut future: Pin<&mut F>,
    count: usize,
) -> Option<F::Output> {
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

/// Callers who wait for one key, and what becomes of them.
pub(crate) struct Callers<'a> {
    server: &'a Server,
    key: &'static str,
    served: Arc<Mutex<Vec<(usize, Instant)>>>,
    pub(crate) calls: Vec<JoinHandle<Result<(), Error>>>,
}

impl<'a> Callers<'a> {
    pub(crate) fn new(server: &'a Server, key: &'static str) -> Self {
        Self {
            server,
            key,
            served: Arc::default(),
            calls: Vec::new(),
        }
    }

    /// One more caller, which gives the key back as soon as it has it.
    pub(crate) fn call(&mut self, locks: &Client, wait: Duration) {
        let (number, served) = (self.calls.len(), Arc::clone(&self.served));
        let request = locks.lock(self.key).wait(wait);
        self.calls.push(tokio::spawn(async move {
            let lease = request.acquire().await?;
            served.lock().unwrap().push((number, Instant::now()));
            lease.release().await
        }));
    }

    /// One more caller, the first of its client, which stands in line on the server when this
    /// returns, and would hear if it were given the key.
    pub(crate) async fn arrive(&mut self, locks: &Client) {
        self.arrive_deaf(locks).await;
        let heard = |entry: &String| {
            let channel = entry.rsplit(' ').next().unwrap_or_default();
            let count: (String, u64) = self.server.words(&["PUBSUB", "NUMSUB", channel]).unwrap();
            count.1 > 0
        };
        wait::until("they all listen", || {
            let line = format!("ZRANGE lock:wait:{{lock:{}}} 0 -1", self.key);
            self.server.ask::<Vec<String>>(&line).iter().all(heard)
        })
        .await;
    }

    /// The same for one that may not hear.
    pub(crate) async fn arrive_deaf(&mut self, locks: &Client) {
        let before = self.in_line();
        self.call(locks, Duration::from_secs(60));
        wait::until("it stands in line", || self.in_line() > before).await;
    }

    /// How many stand in line on the server.
    pub(crate) fn in_line(&self) -> u64 {
        self.server.waiters(&format!("lock:{}", self.key))
    }

    /// Who was served so far, and when.
    pub(crate) fn served(&self) -> Vec<(usize, Instant)> {
        self.served.lock().unwrap().clone()
    }

    /// Waits until so many have been served, and says in which order.
    pub(crate) async fn within(&self, limit: Duration, count: usize) -> Vec<usize> {
        let what = format!("{count} callers are served");
        wait::within(&what, limit, || self.served().len() >= count).await;
        self.served()
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    }
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

/// A call on its way.
pub(crate) type Call = Pin<Box<dyn Future<Output = Result<Lease, Error>> + Send>>;

/// A caller that stands in its client's line when this returns.
pub(crate) async fn stands(locks: &Client, wait: Duration) -> Call {
    let mut call: Call = Box::pin(locks.lock("sync:42").wait(wait).acquire());
    assert!(polled(call.as_mut(), 1).await.is_none());
    call
}

/// A caller of a client that was shut down is told just that.
pub(crate) fn told_of_the_end<T: Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Unavailable { source, .. }) => {
            assert_eq!(source.to_string(), "the client was shut down");
        }
        told => panic!("{told:?}"),
    }
}
