//! Outcomes that are not offered.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = "skip")]
async fn quoted() {}

#[distributed_lock(key = "b", on_busy = Skip)]
async fn capital() {}

#[distributed_lock(key = "c", on_busy = wait("5s"))]
async fn wait() {}

#[distributed_lock(key = "d", on_busy = Ok(()))]
async fn value_without_return() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "e", on_busy = panic)]
async fn no_such_outcome() {}

#[distributed_lock(key = "f", on_busy = skip, on_lost = skip, on_unavailable = ignore)]
async fn not_offered_here() {}

#[distributed_lock(key = "g", on_busy = wait)]
async fn waiting() {}

fn main() {}
