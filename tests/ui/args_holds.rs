//! Slips in how long and by how many a key is held.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, permits = 0)]
async fn nobody() {}

#[distributed_lock(key = "a", on_busy = skip, permits = "3")]
async fn quoted() {}

#[distributed_lock(key = "a", on_busy = skip, min_hold = "0s")]
async fn no_time() {}

#[distributed_lock(key = "a", on_busy = skip, once = "1d 30")]
async fn no_unit() {}

#[distributed_lock(key = "a", on_busy = skip, on_lost = cancel())]
async fn no_grace() {}

#[distributed_lock(key = "a", on_busy = skip, on_lost = cancel("2"))]
async fn grace_without_unit() {}

#[distributed_lock(key = [], on_busy = skip)]
async fn no_keys() {}

#[distributed_lock(key = ["a:<id>", "b:<ib>"], on_busy = skip)]
async fn one_of_two(id: u64) {}

#[distributed_lock(key = "a", on_busy = skip, once = "1h", on_done = error)]
async fn cannot_tell() {}

fn main() {}
