//! No lock at all: what a body runs on that is told to run without one.

use std::time::Duration;

use super::{
    Acquired, Attempt, Claim, Found, Held, Listed, Release, Renewal, Renewed, Reply, Store, Token,
    relied_on_until,
};
use crate::error::StoreError;
use crate::runtime::clock::Clock;

/// Grants everything to everybody.
#[derive(Debug)]
pub(crate) struct Unguarded;

impl Store for Unguarded {
    fn acquire<'a>(&'a self, claim: Claim<'a>, _: Attempt) -> Reply<'a, Acquired> {
        Box::pin(async move {
            let until = relied_on_until(Clock::Tokio.now(), claim.ttl);
            Ok(Acquired::granted(0, until))
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async {
            let now = Clock::Tokio.now();
            let renew = |lease: &Held<'_>| {
                let until = relied_on_until(now, lease.claim.ttl);
                Ok(Renewal::Until(until))
            };
            Ok(leases.iter().map(renew).collect())
        })
    }

    fn release<'a>(&'a self, _: Claim<'a>, _: Release<'a>) -> Reply<'a, Found> {
        Box::pin(async { Ok(Found::Ours) })
    }

    fn token<'a>(&'a self, _: Held<'a>) -> Reply<'a, Token> {
        Box::pin(async {
            Err(StoreError::refused(
                "the body runs without a lock, and there is no token without one",
            ))
        })
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        Box::pin(async move { Ok(Listed::new(lock, Vec::new(), 0)) })
    }

    fn in_callers_time(&self) -> bool {
        true
    }
}
