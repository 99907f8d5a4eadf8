//! Paths to the crate that depend on where they stand.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, crate = lockattr)]
async fn relative() {}

#[distributed_lock(key = "b", on_busy = skip, crate = "::lockattr")]
async fn quoted() {}

fn main() {}
