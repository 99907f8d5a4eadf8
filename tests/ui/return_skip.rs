//! `on_busy = skip` and `rerun` where the return type has no value for it.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip)]
async fn result_with_a_value() -> Result<u64, lockattr::Error> {
    Ok(1)
}

#[distributed_lock(key = "rerun", on_busy = rerun)]
async fn rerun() -> Result<u64, lockattr::Error> {
    Ok(1)
}

fn main() {}
