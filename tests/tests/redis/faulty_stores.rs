//! A store of one's own that fails in ways of its own: what could not be asked is asked again.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token, WakeUps,
};
use lockattr::{Client, Error, Memory, distributed_lock};

use crate::support::nap;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    RenewalPanics,
    RenewalIsNeverAnswered,
    ReleasePanics,
    /// Before there is a future of it.
    ReleasePanicsAtOnce,
}

/// The first step of one kind fails, and every other step works.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    memory: Memory,
    fault: Fault,
    renewals: Arc<AtomicUsize>,
    releases: Arc<AtomicUsize>,
}

impl Faulty {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            memory: Memory::new(),
            fault,
            renewals: Arc::default(),
            releases: Arc::default(),
        }
    }
}

impl Store for Faulty {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        self.memory.acquire(claim, attempt)
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            let is_first = self.renewals.fetch_add(1, Ordering::SeqCst) == 0;
            match self.fault {
                Fault::RenewalPanics if is_first => panic!("the store has a fault"),
                Fault::RenewalIsNeverAnswered if is_first => pending().await,
                _ => {}
            }
            self.memory.renew(leases, patience).await
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        let is_first = self.releases.fetch_add(1, Ordering::SeqCst) == 0;
        assert!(
            !is_first || !matches!(self.fault, Fault::ReleasePanicsAtOnce),
            "the store has a fault"
        );
        Box::pin(async move {
            assert!(
                !is_first || !matches!(self.fault, Fault::ReleasePanics),
                "the store has a fault"
            );
            self.memory.release(claim, release).await
        })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.memory.token(lease)
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        self.memory.wakeups(claim)
    }
}

async fn outlives_one(fault: Fault) {
    let store = Faulty::new(fault);
    let locks = Client::builder().store(store.clone()).unwrap();
    let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
    nap(2_500).await;
    let asked = store.renewals.load(Ordering::SeqCst);
    let left = lease.remaining();
    assert!(left > Duration::ZERO, "{fault:?}, asked {asked} times");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_renewal_that_panics_is_tried_again() {
    outlives_one(Fault::RenewalPanics).await;
}

#[tokio::test]
async fn a_renewal_that_is_never_answered_is_tried_again() {
    outlives_one(Fault::RenewalIsNeverAnswered).await;
}

/// A release that could not be asked never replaces the value of the body, and is tried again.
#[tokio::test]
async fn a_release_that_panics_keeps_the_value_and_is_tried_again() {
    #[distributed_lock(key = "sync:42", ttl = "60s", client = locks)]
    async fn job(locks: &Client) -> Result<u32, Error> {
        Ok(42)
    }
    let store = Faulty::new(Fault::ReleasePanics);
    let locks = Client::builder().store(store.clone()).unwrap();
    let value = tokio::spawn({
        let locks = locks.clone();
        async move { job(&locks).await }
    });
    let value = value.await;
    nap(1_500).await;
    let left = store.memory.holder("lock:sync:42");
    assert!(matches!(value, Ok(Ok(42))), "{value:?}, left: {left:?}");
    assert_eq!(left, None);
}
