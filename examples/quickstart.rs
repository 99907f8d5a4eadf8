//! The shortest program: one locked function, called twice at once.
//!
//! `cargo run --example quickstart`, with `REDIS_URL` for a server of your own.

use std::time::Duration;

use lockattr::{Client, distributed_lock};

/// At most one of these per user runs at a time, in all processes that use the same server.
#[distributed_lock(key = "sync:<user_id>", ttl = "30s", on_busy = skip)]
async fn sync_user(user_id: u64) {
    println!("syncing user {user_id} …");
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("user {user_id} is in sync");
}

#[tokio::main]
async fn main() -> Result<(), lockattr::Error> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:".to_owned());
    Client::connect(url).await?.install()?;

    // Three calls at once: two for user 42, of which one is skipped, and one for user 7.
    tokio::join!(sync_user(42), sync_user(42), sync_user(7));
    Ok(())
}
