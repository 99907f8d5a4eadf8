//! One argument given twice.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", ttl = "30s", on_busy = skip, ttl = "60s")]
async fn twice() {}

fn main() {}
