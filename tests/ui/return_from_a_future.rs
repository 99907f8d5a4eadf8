//! Outcomes that the value of a returned future cannot carry.
use std::future::Future;
use std::pin::Pin;

use lockattr::distributed_lock;

#[distributed_lock(key = "a")]
fn opaque() -> impl Future<Output = u64> {
    async move { 1 }
}

#[distributed_lock(key = "b", on_busy = skip)]
fn boxed() -> Pin<Box<dyn Future<Output = Result<u64, lockattr::Error>>>> {
    Box::pin(async move { "text" })
}

fn main() {}
