//! No lock at all: what a body runs on that is told to run without one.

use std::time::{Duration, Instant};

use super::{Acquired, Found, Release, Renewal, Renewed, Reply, Request, Store, Token};
use crate::error::StoreError;

/// Grants everything to everybody.
#[derive(Debug)]
pub(crate) struct Nowhere;

impl Store for Nowhere {
    fn acquire<'a>(&'a self, _: Request<'a>) -> Reply<'a, Acquired> {
        Box::pin(async {
            Ok(Acquired::Granted {
                index: 0,
                sent: Instant::now(),
                in_doubt: false,
            })
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], _: Duration) -> Reply<'a, Renewed> {
        Box::pin(async { Ok(leases.iter().map(|_| Ok(Found::Ours)).collect()) })
    }

    fn release<'a>(&'a self, _: Release<'a>) -> Reply<'a, Found> {
        Box::pin(async { Ok(Found::Ours) })
    }

    fn token<'a>(&'a self, _: &'a [String], _: &'a [String], _: &'a str) -> Reply<'a, Token> {
        Box::pin(async {
            Err(StoreError::refused(
                "the body runs without a lock, and there is no token without one",
            ))
        })
    }

    fn excludes(&self) -> bool {
        false
    }
}
