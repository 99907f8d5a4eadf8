//! What most of these tests begin with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle as Thread};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause};
use tests::etcd::Etcd;
use tests::wait;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// What a call that cannot be answered may take: connecting, and two replies, one second each.
pub(crate) const BOUND: Duration = Duration::from_secs(3);

/// Room on top of a bound for a machine with other work.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// After a fault that makes the cluster elect a leader.
pub(crate) const ELECTION: Duration = Duration::from_secs(4);

/// A ttl that is worth waiting for.
pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn client(cluster: &Etcd) -> Client {
    client_at(&cluster.url()).await
}

pub(crate) async fn client_at(url: &str) -> Client {
    let start = Instant::now();
    loop {
        match Client::connect(url).await {
            Err(Error::Unavailable { .. }) if start.elapsed() < wait::PATIENCE / 2 => {}
            client => return client.expect("the cluster answers"),
        }
    }
}

pub(crate) async fn take(locks: &Client, key: &str) -> Lease {
    let request = locks.lock(key).ttl(TTL);
    request.acquire().await.expect("a free key")
}

/// How a lease was lost, which is to be told within this time.
pub(crate) async fn told_within(limit: Duration, lease: &Lease) -> LossCause {
    match timeout(limit + SLACK, lease.lost()).await {
        Ok(Error::Lost { cause, .. }) => cause,
        other => panic!("not within {limit:?}: {other:?}"),
    }
}

pub(crate) async fn nap(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// How many stand in the queue of a key.
pub(crate) fn queued(cluster: &Etcd, key: &str) -> usize {
    cluster
        .keys(&format!("lock:claim:{{lock:{key}}}waiter:"))
        .len()
}

/// Waits until no lock, slot or place is left.
pub(crate) async fn nothing_left(cluster: &Etcd) {
    let start = Instant::now();
    loop {
        let left: Vec<_> = cluster
            .keys("lock:")
            .into_iter()
            .map(|key| key.name)
            .collect();
        let left: Vec<_> = left
            .iter()
            .filter(|name| !name.starts_with("lock:token:"))
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_millis(500) + SLACK,
            "left: {left:?}"
        );
        nap(20).await;
    }
}

/// Callers that wait for one key, each with a client of its own, and give it back at once.
pub(crate) struct Callers {
    key: String,
    served: Arc<Mutex<Vec<(usize, Instant)>>>,
    calls: Vec<JoinHandle<Result<(), Error>>>,
}

impl Callers {
    pub(crate) fn of(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            served: Arc::default(),
            calls: Vec::new(),
        }
    }

    /// One more, which is in the queue when this returns.
    pub(crate) async fn arrive(&mut self, cluster: &Etcd, locks: &Client) {
        let before = queued(cluster, &self.key);
        self.call(locks, Duration::from_secs(60));
        wait::until("it is queued", || queued(cluster, &self.key) > before).await;
    }

    pub(crate) fn call(&mut self, locks: &Client, wait: Duration) {
        let (number, served) = (self.calls.len(), Arc::clone(&self.served));
        let request = locks.lock(self.key.as_str()).ttl(TTL).wait(wait);
        self.calls.push(tokio::spawn(async move {
            let lease = request.acquire().await?;
            served.lock().unwrap().push((number, Instant::now()));
            lease.release().await
        }));
    }

    pub(crate) fn served(&self) -> Vec<usize> {
        self.served
            .lock()
            .unwrap()
            .iter()
            .map(|(number, _)| *number)
            .collect()
    }

    /// Waits until so many have been served, and says in which order.
    pub(crate) async fn within(&self, limit: Duration, count: usize) -> Vec<usize> {
        let what = format!("{count} callers are served");
        wait::within(&what, limit, || self.served().len() >= count).await;
        self.served()
    }

    pub(crate) async fn end(self) {
        for call in self.calls {
            call.await.expect("no panic").expect("it is served");
        }
    }
}

/// Does something again and again on a thread of its own, until it is dropped.
pub(crate) struct Meanwhile {
    over: Arc<AtomicBool>,
    thread: Option<Thread<()>>,
}

impl Meanwhile {
    pub(crate) fn every(pause: Duration, work: impl Fn() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                work();
                thread::sleep(pause);
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
