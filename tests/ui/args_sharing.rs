//! Who may hold a key at the same time: numbers and words that cannot be, alone and together.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, weight = 2)]
async fn weight_of_what() {}

#[distributed_lock(key = "b", on_busy = skip, permits = 10, weight = 11)]
async fn never_to_be_had() {}

#[distributed_lock(key = "c", on_busy = skip, permits = 10, weight = 0)]
async fn nothing() {}

#[distributed_lock(key = "d", on_busy = skip, permits = 1_000_001)]
async fn too_many() {}

#[distributed_lock(key = "e", on_busy = skip, permits = 3, weight = "2")]
async fn quoted_number() {}

#[distributed_lock(key = "f", on_busy = skip, permits = 3, weight = units)]
async fn number_of_another_type(units: u64) {}

#[distributed_lock(key = "g", on_busy = skip, shared = true)]
async fn shared_with_a_value() {}

#[distributed_lock(key = "h", on_busy = skip, shared, permits = 3)]
async fn readers_are_not_counted() {}

#[distributed_lock(key = "i", on_busy = skip, shared, once = "1h")]
async fn done_for_all_readers() {}

#[distributed_lock(key = ["j", "k"], on_busy = skip, shared)]
async fn readers_of_several() {}

#[distributed_lock(key = "l", on_busy = skip, shared, shared)]
async fn twice() {}

#[distributed_lock(key = "m", on_busy = skip, read)]
async fn another_word() {}

#[distributed_lock(key = "n", on_busy = skip, permits = 3, cost = 2)]
async fn another_name() {}

fn main() {}
