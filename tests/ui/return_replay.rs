//! `on_done = replay` where the return type cannot be kept, or cannot say why there is nothing to give back.
use lockattr::distributed_lock;

struct Receipt;

#[distributed_lock(key = "a", once = "1h", on_done = replay)]
async fn not_serialize() -> Result<Receipt, lockattr::Error> {
    Ok(Receipt)
}

#[distributed_lock(key = "b", on_busy = return 0, on_unavailable = return 0, on_lost = return 0, once = "1h", on_done = replay)]
async fn cannot_say_why() -> u64 {
    1
}

#[distributed_lock(key = "c", once = "1h", on_done = replay(errors))]
async fn errors_not_serialize() -> Result<u64, lockattr::Error> {
    Ok(1)
}

#[distributed_lock(key = "d", on_busy = skip, once = "1h", on_done = replay(errors))]
async fn no_errors() -> Option<u64> {
    Some(1)
}

fn main() {}
