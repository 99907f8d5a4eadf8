//! An outage and a loss that the return type cannot carry, although busy has a value.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = return 0)]
async fn number() -> u64 {
    1
}

fn main() {}
