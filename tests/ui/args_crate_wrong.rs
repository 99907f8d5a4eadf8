//! A path that leads nowhere is one error.
use lockattr::distributed_lock;

#[distributed_lock(
    key = "a:<id>",
    ttl = "30s",
    on_busy = skip,
    bind = lease,
    crate = ::my_locks
)]
async fn nowhere(id: u8) {
    let _ = lease;
}

#[distributed_lock(key = "b", on_busy = skip, crate = crate::locks)]
#[distributed_lock(key = "c", on_busy = skip)]
async fn no_module() {}

#[distributed_lock(key = "d", on_busy = skip, crate = ::std)]
async fn another_crate() {}

fn main() {}
