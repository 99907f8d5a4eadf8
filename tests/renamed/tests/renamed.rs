//! The dependency under another name, given to the attribute.

use std::future::Future;

use my_locks::{Client, Error, distributed_lock};

#[distributed_lock(
    key = "renamed:<id>",
    ttl = "30s",
    wait = std::time::Duration::ZERO,
    bind = lease,
    crate = ::my_locks
)]
async fn renamed(mut id: u8) -> Result<String, Error> {
    id += 1;
    Ok(format!("{} {id}", lease.key()))
}

#[distributed_lock(key = "continue", on_busy = skip, on_lost = continue, crate = ::my_locks)]
async fn to_the_end() {}

#[distributed_lock(key = "made:<id>", crate = ::my_locks)]
fn made(id: u8) -> impl Future<Output = Result<u8, Error>> {
    std::future::ready(Ok(id))
}

#[tokio::test]
async fn the_name_of_the_crate_is_the_users() {
    let locks = Client::connect("memory:").await.unwrap();
    assert_eq!(locks.scope(renamed(1)).await.unwrap(), "renamed:1 2");
    locks.scope(to_the_end()).await;
    assert_eq!(locks.scope(made(1)).await.unwrap(), 1);
}
