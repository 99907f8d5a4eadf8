//! What most of these tests begin with.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, distributed_lock};
use tests::proxy::Proxy;
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

/// A server, a proxy before it, and a client that is connected through the proxy.
pub(crate) async fn behind_a_proxy() -> (Server, Proxy, Client) {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let client = Client::connect(proxy.url()).await.unwrap();
    (server, proxy, client)
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

/// Whether the work of a key is marked as done.
pub(crate) fn is_done(server: &Server, lock: &str) -> bool {
    let value = server.get(lock);
    value.is_some_and(|value| value.starts_with("done@"))
}

/// Counts the bodies inside a critical section, and the most that were inside at a time.
#[derive(Default)]
pub(crate) struct Section {
    inside: AtomicUsize,
    most: AtomicUsize,
    runs: AtomicUsize,
}

impl Section {
    /// A body that is inside for so many milliseconds.
    pub(crate) async fn run(&self, millis: u64) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.runs.fetch_add(1, Ordering::SeqCst);
        nap(millis).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
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

    /// Waits until nothing but its own keys is left, and ends it.
    pub(crate) async fn ends_with_nothing_left(self, server: &Server) {
        let is_clear = || server.keys() == ["lock:listening", "lock:wait:{lock:listening}"];
        wait::within("nothing is left", CLEARED, is_clear).await;
        self.waiter.abort();
        let is_gone = || server.waiters("lock:listening") == 0;
        wait::until("it has left", is_gone).await;
        self.held.release().await.unwrap();
        nothing_left(server).await;
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

    /// One more caller, the first of its client. When this returns it is in the wait queue on the
    /// server and subscribed to its wake-ups.
    pub(crate) async fn arrive(&mut self, locks: &Client) {
        self.enqueue(locks).await;
        let is_subscribed = |entry: &String| {
            let channel = entry.rsplit(' ').next().unwrap_or_default();
            let count: (String, u64) = self.server.words(&["PUBSUB", "NUMSUB", channel]).unwrap();
            count.1 > 0
        };
        wait::until("they all listen", || {
            let range = format!("ZRANGE lock:wait:{{lock:{}}} 0 -1", self.key);
            self.server
                .ask::<Vec<String>>(&range)
                .iter()
                .all(is_subscribed)
        })
        .await;
    }

    /// The same without waiting for its subscription.
    pub(crate) async fn enqueue(&mut self, locks: &Client) {
        let before = self.queued();
        self.call(locks, Duration::from_secs(60));
        wait::until("it is queued", || self.queued() > before).await;
    }

    /// The length of the wait queue on the server.
    pub(crate) fn queued(&self) -> u64 {
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

/// A call that is in its client's wait queue when this returns.
pub(crate) async fn queued_call(locks: &Client, wait: Duration) -> Call {
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

/// Never two of them at a time, up to that long from now: whoever finds the key free finds the lease at
/// its end.
pub(crate) async fn never_two(server: &Server, lease: &Lease, seconds: u64) {
    let others = client(server).await;
    for _ in 0..seconds * 20 {
        nap(50).await;
        let other = others.lock("sync:42").acquire().await;
        let left = lease.remaining();
        let two = other.is_ok() && left > Duration::ZERO;
        assert!(
            !two,
            "another holds the key, and the lease runs for {left:?}"
        );
    }
}

/// Runs a test that is ignored otherwise in a process of its own, which it may abort and has for itself.
pub(crate) fn in_a_process_of_its_own(name: &str) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "{out}");
}
