//! Arguments that are each right, and wrong together.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, renew = false, on_lost = continue)]
async fn no_lock_left() {}

fn main() {}
