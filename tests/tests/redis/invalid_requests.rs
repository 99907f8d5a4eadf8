//! A store of one's own that takes some requests from nobody: their callers are told, and nobody else.

use std::time::Duration;

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token, WakeUps,
};
use lockattr::{Client, Error, Memory, StoreError, distributed_lock};

use crate::support::nap;

const TTL: Duration = Duration::from_secs(30);
/// Longer than the store keeps anything.
const LONG: Duration = Duration::from_secs(120);

/// Keeps nothing for longer than a minute.
#[derive(Clone, Debug, Default)]
struct Short(Memory);

fn check(claim: &Claim<'_>) -> Result<(), StoreError> {
    if claim.ttl > Duration::from_secs(60) {
        return Err(StoreError::invalid("nothing is kept for over a minute"));
    }
    Ok(())
}

impl Store for Short {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(async move {
            // As over a network: others begin to wait meanwhile.
            nap(100).await;
            check(&claim)?;
            self.0.acquire(claim, attempt).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for lease in leases {
                answers.push(match check(&lease.claim) {
                    Ok(()) => self.0.renew(&[*lease], patience).await?.remove(0),
                    Err(error) => Err(error),
                });
            }
            Ok(answers)
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        self.0.release(claim, release)
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.0.token(lease)
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        self.0.wakeups(claim)
    }
}

fn says(error: &Error) -> bool {
    error.to_string() == "`sync:42` was not asked for: nothing is kept for over a minute"
}

#[tokio::test]
async fn no_fallback_stands_in_for_a_request_that_is_invalid() {
    #[distributed_lock(key = "sync:42", ttl = "2m", on_unavailable = run, client = locks)]
    async fn job(locks: &Client) -> Result<(), Error> {
        panic!("the body runs");
    }
    let locks = Client::builder().store(Short::default()).unwrap();
    let error = job(&locks).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(says(&error), "{error}");
}

#[tokio::test]
async fn who_waits_behind_an_invalid_request_is_served() {
    let locks = Client::builder().store(Short::default()).unwrap();
    let invalid = tokio::spawn(locks.lock("sync:42").ttl(LONG).acquire());
    nap(20).await;
    let valid = locks.lock("sync:42").ttl(TTL).wait(TTL).acquire();
    assert!(valid.await.is_ok());
    assert!(says(&invalid.await.unwrap().unwrap_err()));
}

#[tokio::test]
async fn a_lease_outlives_an_extend_that_is_invalid() {
    let locks = Client::builder().store(Short::default()).unwrap();
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    assert!(says(&lease.extend(LONG).await.unwrap_err()));
    assert!(lease.remaining() > TTL / 2 && lease.remaining() <= TTL);
    lease.release().await.unwrap();
}
