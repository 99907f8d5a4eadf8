//! A reference that does not live long enough is reported in the body, as in a plain async fn.
use std::future::Future;

use lockattr::{Error, distributed_lock};

#[distributed_lock(key = "a")]
async fn tail<'a>(first: &'a str, other: &str) -> Result<&'a str, Error> {
    if first.is_empty() {
        return Ok(first);
    }
    Ok(other)
}

#[distributed_lock(key = "b", on_busy = skip, on_lost = continue)]
async fn early<'a>(first: &'a str, other: &str) -> Option<&'a str> {
    if first.is_empty() {
        return Some(other);
    }
    Some(first)
}

#[distributed_lock(key = "c")]
fn future<'a>(first: &'a str, other: &'a str) -> impl Future<Output = Result<&'static str, Error>> {
    async move { Ok(if first.is_empty() { first } else { other }) }
}

struct Names(String);

impl Names {
    #[distributed_lock(key = "d")]
    async fn elided(&self, other: &str) -> Result<&str, Error> {
        Ok(other)
    }
}

#[distributed_lock(key = "e", on_lost = return Ok(first))]
async fn returned<'a>(first: &'a str, other: &str) -> Result<&'a str, Error> {
    Ok(other)
}

fn main() {}
