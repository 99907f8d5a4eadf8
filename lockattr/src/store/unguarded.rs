//! No lock at all: what a body runs on that is told to run without one.

use std::time::{Duration, Instant};

use super::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewal, Renewed, Reply, Store, Token,
    relied_on_until,
};
use crate::error::StoreError;

/// Grants everything to everybody.
#[derive(Debug)]
pub(crate) struct Unguarded;

impl Store for Unguarded {
    fn acquire<'a>(&'a self, claim: Claim<'a>, _: Attempt) -> Reply<'a, Acquired> {
        Box::pin(async move {
            Ok(Acquired::Granted {
                slot: 0,
                until: relied_on_until(Instant::now(), claim.ttl),
                in_doubt: false,
            })
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async {
            let now = Instant::now();
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
}
