//! What a call and a lease cost this process, counted. One test, since it counts what the whole program
//! allocates.

#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::alloc::System;
use std::collections::BTreeSet;
#[cfg(feature = "metrics")]
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tests::server::Server;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The redis client's for two commands: each one's arguments and their ends.
const OF_REDIS: usize = 2 * 2;

/// The key, the lease, and for each of the two steps its future, which is behind a trait, and the owner,
/// whose text a lease that is held has no room for.
const OF_A_CALL: usize = 6;

const CALLS: usize = 1_000;

const HELD: usize = 10_000;

#[distributed_lock(key = "sync:<user_id>", ttl = "60s", client = locks)]
async fn sync_user(locks: &Client, user_id: u64) -> Result<(), Error> {
    Ok(())
}

async fn by_hand(locks: &Client) {
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    lease.release().await.unwrap();
}

async fn by_attribute(locks: &Client) {
    sync_user(locks, 42).await.unwrap();
}

#[distributed_lock(key = "sync:<user_id>", ttl = "60s", client = locks, blocking)]
fn sync_user_blocking(locks: &Client, user_id: u64) -> Result<(), Error> {
    Ok(())
}

fn by_hand_blocking(locks: &Client) {
    let lease = locks.lock("sync:42").acquire_blocking().unwrap();
    lease.release_blocking().unwrap();
}

fn by_attribute_blocking(locks: &Client) {
    sync_user_blocking(locks, 42).unwrap();
}

/// The allocations of a call, which are the same each time.
async fn allocations(call: impl AsyncFn()) -> usize {
    for _ in 0..CALLS {
        call().await;
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        call().await;
    }
    of_each(&region)
}

/// The same of a call that waits on this thread. It starts no thread, and so no runtime.
fn allocations_blocking(call: impl Fn()) -> usize {
    for _ in 0..CALLS {
        call();
    }
    let threads = threads();
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        call();
    }
    let each = of_each(&region);
    assert_eq!(self::threads(), threads);
    each
}

/// The ids of the threads of this process, which are not used again soon.
fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| task.unwrap().file_name();
    tasks
        .map(|task| name(task).into_string().unwrap())
        .collect()
}

fn of_each(region: &Region<'_, System>) -> usize {
    let change = region.change();
    assert_eq!(change.reallocations, 0);
    // The keeper's thread may wake up once or twice.
    let (each, left) = (change.allocations / CALLS, change.allocations % CALLS);
    assert!(left < CALLS / 50, "{change:?}");
    each
}

#[tokio::test]
async fn calls_and_leases_cost_little() {
    let server = Server::start();
    let locks = Client::connect(server.url()).await.unwrap();

    let each = allocations(async || by_hand(&locks).await).await;
    assert_eq!(each, OF_REDIS + OF_A_CALL);
    let each = allocations(async || by_attribute(&locks).await).await;
    assert_eq!(each, OF_REDIS + OF_A_CALL);

    // Also of threads that wait, of their own and of a runtime.
    let of_threads = |locks: &Client| {
        let each = allocations_blocking(|| by_hand_blocking(locks));
        assert_eq!(each, OF_REDIS + OF_A_CALL);
        let each = allocations_blocking(|| by_attribute_blocking(locks));
        assert_eq!(each, OF_REDIS + OF_A_CALL);
    };
    std::thread::scope(|scope| scope.spawn(|| of_threads(&locks)).join().unwrap());
    let its = locks.clone();
    tokio::task::spawn_blocking(move || of_threads(&its))
        .await
        .unwrap();

    // The same where what is observed is recorded: a function's metrics are registered once.
    #[cfg(feature = "metrics")]
    {
        recorder::install();
        let each = allocations(async || by_hand(&locks).await).await;
        assert_eq!(each, OF_REDIS + OF_A_CALL);
        let each = allocations(async || by_attribute(&locks).await).await;
        assert_eq!(each, OF_REDIS + OF_A_CALL);
        assert!(recorder::RECORDED.load(Ordering::Relaxed) > 4 * CALLS);
    }

    // The handles included.
    let region = Region::new(ALLOCATOR);
    let mut leases = Vec::with_capacity(HELD);
    let mut keys = 0;
    for user in 0..HELD {
        let lock = locks.lock(format!("sync:{user}"));
        let lease = lock.ttl(Duration::from_secs(600)).acquire().await.unwrap();
        keys += lease.key().len();
        leases.push(lease);
    }
    let change = region.change();
    let grown = change.bytes_allocated - change.bytes_deallocated - keys;
    let each = grown / HELD;
    assert!(each < 288, "{each} bytes");
    drop(leases);
    locks.shutdown().await;
    assert_eq!(server.size(), 0);
}

/// A recorder that allocates nothing when something is recorded.
#[cfg(feature = "metrics")]
mod recorder {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
        Recorder, SharedString, Unit,
    };

    pub(super) static RECORDED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn install() {
        let installed = metrics::set_global_recorder(Counting);
        assert!(installed.is_ok(), "nobody else records");
    }

    struct Counting;

    fn count() {
        RECORDED.fetch_add(1, Ordering::Relaxed);
    }

    impl CounterFn for Counting {
        fn increment(&self, _: u64) {
            count();
        }

        fn absolute(&self, _: u64) {}
    }

    impl GaugeFn for Counting {
        fn increment(&self, _: f64) {
            count();
        }

        fn decrement(&self, _: f64) {
            count();
        }

        fn set(&self, _: f64) {
            count();
        }
    }

    impl HistogramFn for Counting {
        fn record(&self, _: f64) {
            count();
        }
    }

    impl Recorder for Counting {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Self))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(Self))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Self))
        }
    }
}
