//! A custom store that sleeps, as every store over a network does: wherever it is called from, it is
//! polled within a tokio context, where timers work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token, WakeUps,
};
use lockattr::{Client, Error, Lease, Memory, distributed_lock};
use tests::wait;
use tokio::time::sleep;

use crate::support::{by_hand, in_a_process_of_its_own, polled, runtimes};

const NAP: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_secs(60);

/// Each of its steps takes a moment, and it counts the releases that it has finished.
#[derive(Clone, Debug, Default)]
struct Sleeping {
    memory: Memory,
    released: Arc<AtomicUsize>,
}

impl Sleeping {
    fn client(&self) -> Client {
        Client::builder().store(self.clone()).unwrap()
    }

    fn is_free(&self) -> bool {
        self.memory.holder("lock:sync:42").is_none()
    }

    fn is_given_back(&self) {
        let is_given_back = || self.is_free() && self.released.load(Ordering::SeqCst) > 0;
        wait::block_until("it is given back", is_given_back);
    }
}

impl Store for Sleeping {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(async move {
            sleep(NAP).await;
            self.memory.acquire(claim, attempt).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            sleep(NAP).await;
            self.memory.renew(leases, patience).await
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(async move {
            sleep(NAP).await;
            let found = self.memory.release(claim, release).await;
            self.released.fetch_add(1, Ordering::SeqCst);
            found
        })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(async move {
            sleep(NAP).await;
            self.memory.token(lease).await
        })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        self.memory.wakeups(claim)
    }
}

async fn held(locks: &Client) -> Lease {
    locks.lock("sync:42").ttl(TTL).acquire().await.unwrap()
}

#[test]
fn a_lease_that_is_dropped_outside_of_every_runtime_goes_back() {
    let store = Sleeping::default();
    let [runtime, _] = runtimes();
    let lease = runtime.block_on(held(&store.client()));
    drop(runtime);
    drop(lease);
    store.is_given_back();
}

#[test]
fn a_lease_that_is_dropped_within_a_runtime_that_shuts_down_then_goes_back() {
    for runtime in runtimes() {
        let store = Sleeping::default();
        runtime.block_on(async { drop(held(&store.client()).await) });
        runtime.shutdown_background();
        store.is_given_back();
    }
}

/// The task that holds it ends with its runtime.
#[test]
fn a_lease_that_is_dropped_by_a_runtime_that_shuts_down_goes_back() {
    for runtime in runtimes() {
        let store = Sleeping::default();
        let locks = store.client();
        runtime.spawn(async move {
            let _lease = held(&locks).await;
            std::future::pending::<()>().await;
        });
        runtime.block_on(async {
            wait::until("it is held", || !store.is_free()).await;
            sleep(NAP).await;
        });
        drop(runtime);
        store.is_given_back();
    }
}

#[test]
fn a_lease_that_is_dropped_while_a_panic_unwinds_goes_back() {
    in_a_process_of_its_own("custom_stores::alone::a_panic_unwinds");
}

#[test]
fn a_locked_body_that_panics_gives_its_lease_back() {
    in_a_process_of_its_own("custom_stores::alone::a_body_panics");
}

#[test]
fn a_lease_that_is_dropped_at_the_end_of_a_thread_goes_back() {
    in_a_process_of_its_own("custom_stores::alone::a_thread_ends");
}

/// Its futures are polled within a runtime wherever the caller's are polled.
#[test]
fn a_caller_without_a_runtime_is_served() {
    in_a_process_of_its_own("custom_stores::alone::nothing_runs");
}

#[test]
fn a_call_that_is_dropped_outside_of_every_runtime_leaves_nothing() {
    let store = Sleeping::default();
    let [runtime, _] = runtimes();
    let locks = store.client();
    let mut call = Box::pin(locks.lock("sync:42").ttl(TTL).acquire());
    assert!(runtime.block_on(polled(call.as_mut(), 1)).is_none());
    drop(runtime);
    thread::sleep(4 * NAP);
    drop(call);
    thread::sleep(10 * NAP);
    assert!(store.is_free());
}

/// A release that has begun within a runtime and goes on without one.
#[test]
fn a_release_that_is_dropped_half_way_outside_of_its_runtime_goes_on() {
    let store = Sleeping::default();
    let [runtime, _] = runtimes();
    let lease = runtime.block_on(held(&store.client()));
    let mut release = Box::pin(lease.release());
    assert!(runtime.block_on(polled(release.as_mut(), 1)).is_none());
    drop(runtime);
    drop(release);
    store.is_given_back();
}

/// Each in a process of its own.
mod alone {
    use super::{
        AssertUnwindSafe, Client, Error, Lease, Sleeping, TTL, by_hand, catch_unwind,
        distributed_lock, held, runtimes, thread,
    };

    #[test]
    #[ignore = "run by a test, in a process of its own"]
    fn a_panic_unwinds() {
        let store = Sleeping::default();
        let [runtime, _] = runtimes();
        let lease = runtime.block_on(held(&store.client()));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _lease = lease;
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        store.is_given_back();
    }

    #[test]
    #[ignore = "run by a test, in a process of its own"]
    fn a_body_panics() {
        #[distributed_lock(key = "sync:42", client = locks)]
        async fn panics(locks: &Client) -> Result<(), Error> {
            panic!("on purpose");
        }
        for runtime in runtimes() {
            let store = Sleeping::default();
            let locks = store.client();
            let unwound = catch_unwind(AssertUnwindSafe(|| runtime.block_on(panics(&locks))));
            assert!(unwound.is_err());
            drop(runtime);
            store.is_given_back();
        }
    }

    #[test]
    #[ignore = "run by a test, in a process of its own"]
    fn a_thread_ends() {
        thread_local! {
            static KEPT: std::cell::RefCell<Option<Lease>> = const { std::cell::RefCell::new(None) };
        }
        let store = Sleeping::default();
        let [runtime, _] = runtimes();
        let lease = runtime.block_on(held(&store.client()));
        // It goes with what the thread keeps for itself.
        let thread = thread::spawn(move || KEPT.set(Some(lease)));
        thread.join().expect("it ends without a panic");
        store.is_given_back();
    }

    #[test]
    #[ignore = "run by a test, in a process of its own"]
    fn nothing_runs() {
        let store = Sleeping::default();
        by_hand(async {
            let lease = held(&store.client()).await;
            lease.token().await.unwrap();
            lease.extend(TTL * 2).await.unwrap();
            lease.release().await.unwrap();
        });
        assert!(store.is_free());
    }
}

#[tokio::test]
async fn what_a_store_does_not_say_that_it_can_is_refused() {
    let locks = Sleeping::default().client();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let off = lease.hand_off().unwrap_err();
    let memory = Client::builder().store(Memory::new()).unwrap();
    let lease = memory.lock("sync:43").acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let up = locks.take_up(&text).await.unwrap_err();
    let shared = locks.lock("sync:44").shared().acquire().await.unwrap_err();
    for (told, why) in [(off, "taken up"), (up, "taken up"), (shared, "no readers")] {
        let Error::Invalid { reason, .. } = told else {
            panic!("{told:?}")
        };
        assert!(reason.contains(why), "{reason}");
    }
}
