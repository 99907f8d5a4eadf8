//! A store of one's own that fails in ways of its own: what could not be asked is asked again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::store::{
    Acquired, Ear, Found, Release, Renewal, Renewed, Reply, Request, Store, Token,
};
use lockattr::{Client, Memory};

use crate::support::nap;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Panics,
    NeverAnswers,
}

/// Its first renewal fails, and every other step works.
#[derive(Clone, Debug)]
struct Faulty {
    memory: Memory,
    fault: Fault,
    renewals: Arc<AtomicUsize>,
}

impl Store for Faulty {
    fn acquire<'a>(&'a self, request: Request<'a>) -> Reply<'a, Acquired> {
        self.memory.acquire(request)
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], patience: Duration) -> Reply<'a, Renewed> {
        Box::pin(async move {
            if self.renewals.fetch_add(1, Ordering::SeqCst) == 0 {
                match self.fault {
                    Fault::Panics => panic!("the store has a fault"),
                    Fault::NeverAnswers => std::future::pending().await,
                }
            }
            self.memory.renew(leases, patience).await
        })
    }

    fn release<'a>(&'a self, release: Release<'a>) -> Reply<'a, Found> {
        self.memory.release(release)
    }

    fn token<'a>(
        &'a self,
        held: &'a [String],
        locks: &'a [String],
        owner: &'a str,
    ) -> Reply<'a, Token> {
        self.memory.token(held, locks, owner)
    }

    fn ear<'a>(&'a self, owner: &'a str) -> Box<dyn Ear + 'a> {
        self.memory.ear(owner)
    }
}

async fn outlives_one(fault: Fault) {
    let store = Faulty {
        memory: Memory::new(),
        fault,
        renewals: Arc::default(),
    };
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
    outlives_one(Fault::Panics).await;
}

#[tokio::test]
async fn a_renewal_that_is_never_answered_is_tried_again() {
    outlives_one(Fault::NeverAnswers).await;
}
