//! Replies that cannot be kept, or are of nothing.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, on_done = replay)]
async fn nothing_is_done() {}

#[distributed_lock(key = "b", on_busy = skip, once_from = begin)]
async fn nothing_to_count() {}

#[distributed_lock(key = ["c", "d"], on_busy = skip, once = "1h", on_done = replay)]
async fn of_several() {}

#[distributed_lock(key = "e", on_busy = skip, once = "1h", on_done = replay, permits = 3)]
async fn of_several_holders() {}

#[distributed_lock(key = "f", on_busy = skip, once = "1h", on_done = replay(all))]
async fn of_what() {}

#[distributed_lock(key = "g", on_busy = skip, once = "1h", on_done = replays)]
async fn misspelt() {}

#[distributed_lock(key = "h", on_busy = skip, once = "1h", once_from = "start")]
async fn from_when() {}

#[distributed_lock(key = "i", on_busy = replay, once = "1h")]
async fn of_a_busy_key() {}

fn main() {}
