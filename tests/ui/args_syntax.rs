//! Argument lists that are not `name = value`.
use lockattr::distributed_lock;

#[distributed_lock(key: "a", on_busy = skip)]
async fn colon() {}

#[distributed_lock(key("b"), on_busy = skip)]
async fn call() {}

#[distributed_lock(key = "c", on_busy = skip, renew)]
async fn no_value() {}

#[distributed_lock(key = "d" on_busy = skip)]
async fn no_comma() {}

#[distributed_lock(key = "e", on_busy =, ttl = "30s")]
async fn nothing_after_equals() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "f", on_busy == skip)]
async fn two_equals() {}

#[distributed_lock(key = "g", skip)]
async fn policy_without_its_argument() {}

#[distributed_lock(user_id, on_busy = skip)]
async fn argument_without_key(user_id: u64) {}

#[distributed_lock(key = "h", return None)]
async fn value_without_its_occasion() -> Option<u64> {
    None
}

#[distributed_lock(key([]), on_busy = skip)]
async fn call_with_an_empty_list() {}

#[distributed_lock(key("i", "j"), on_busy = skip)]
async fn call_with_two() {}

fn main() {}
