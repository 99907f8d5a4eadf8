//! What a call and a lease cost this process, counted. One test, since it counts what the whole program
//! allocates.

#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::alloc::System;
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tests::server::Server;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The redis client's for two commands: each one's arguments and their ends, its bytes, the place of
/// its reply, and what its parser keeps.
const OF_REDIS: usize = 2 * 5;

/// The key, the lease, and for each of the two steps its future, which is behind a trait, and the owner,
/// whose text a lease that is held has no room for.
const OF_A_CALL: usize = 6;

const CALLS: usize = 1_000;

const HELD: usize = 10_000;

#[distributed_lock(key = "sync:<user_id>", ttl = "60s", client = locks)]
async fn sync_user(locks: &Client, user_id: u64) -> Result<(), Error> {
    Ok(())
}

async fn by_hand(locks: &Client) {
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    lease.release().await.unwrap();
}

async fn by_attribute(locks: &Client) {
    sync_user(locks, 42).await.unwrap();
}

/// The allocations of a call, which are the same each time.
async fn allocations(call: impl AsyncFn()) -> usize {
    for _ in 0..CALLS {
        call().await;
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        call().await;
    }
    let change = region.change();
    assert_eq!(change.reallocations, 0);
    // The keeper's thread may wake up once or twice.
    let (each, left) = (change.allocations / CALLS, change.allocations % CALLS);
    assert!(left < CALLS / 50, "{change:?}");
    each
}

#[tokio::test]
async fn calls_and_leases_cost_little() {
    let server = Server::start();
    let locks = Client::connect(server.url()).await.unwrap();

    let each = allocations(async || by_hand(&locks).await).await;
    assert_eq!(each, OF_REDIS + OF_A_CALL);
    let each = allocations(async || by_attribute(&locks).await).await;
    assert_eq!(each, OF_REDIS + OF_A_CALL);

    // The handles included.
    let region = Region::new(ALLOCATOR);
    let mut leases = Vec::with_capacity(HELD);
    let mut keys = 0;
    for user in 0..HELD {
        let lock = locks.lock(format!("sync:{user}"));
        let lease = lock.ttl(Duration::from_secs(600)).acquire().await.unwrap();
        keys += lease.key().len();
        leases.push(lease);
    }
    let change = region.change();
    let grown = change.bytes_allocated - change.bytes_deallocated - keys;
    let each = grown / HELD;
    assert!(each < 288, "{each} bytes");
    drop(leases);
    locks.shutdown().await;
    assert_eq!(server.size(), 0);
}
