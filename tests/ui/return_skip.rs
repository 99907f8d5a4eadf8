//! `on_busy = skip` where the return type has no value for it.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip)]
async fn result_with_a_value() -> Result<u64, lockattr::Error> {
    Ok(1)
}

fn main() {}
