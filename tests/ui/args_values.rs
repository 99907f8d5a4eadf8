//! Values of another kind than the argument takes.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, renew = "true")]
async fn quoted_flag() {}

#[distributed_lock(key = "b", on_busy = skip, bind = "lease")]
async fn quoted_name() {}

#[distributed_lock(key = "c", on_busy = skip, bind = user_id)]
async fn taken_name(user_id: u64) {
    println!("{user_id}");
}

#[distributed_lock(key = "d", on_busy = skip, client = "redis://127.0.0.1/")]
async fn client_url() {}

#[distributed_lock(key = "e", on_busy = skip, client = locks)]
async fn client_of_another_type(locks: String) {}

#[distributed_lock(key = "f", on_busy = skip, redact = key)]
async fn redact_of_what(key: u8) {}

#[distributed_lock(key = "g", on_busy = skip, redact = "true")]
async fn quoted_redact() {}

fn main() {}
