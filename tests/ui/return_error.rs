//! Outcomes that the return type cannot carry.
use lockattr::distributed_lock;

#[distributed_lock(key = "a")]
async fn nothing() {}

#[distributed_lock(key = "b")]
async fn number() -> u64 {
    1
}

fn main() {}
