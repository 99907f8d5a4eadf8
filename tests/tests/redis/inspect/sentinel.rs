//! The same on the primary that sentinels name.

use std::time::Instant;

use lockattr::Client;
use lockattr::store::inspect::Ended;
use tests::inspected::{end, entry, is_held_by, list};
use tests::sentinel::Sentinels;
use tests::server::Server;
use tests::wait;

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_is_followed() {
    let sentinels = Sentinels::start();
    let locks = Client::connect(sentinels.url()).await.unwrap();
    let held = locks.lock("sync:42").acquire().await.unwrap();
    let listed = list(&locks, "").await;
    assert!(is_held_by(&listed["sync:42"].entries[0], &held));
    let replica = &sentinels.servers[1];
    wait::until("the replica has it", || {
        replica.get("lock:sync:42").is_some()
    })
    .await;
    let primary = sentinels.fail_over(&[0, 1, 2]);
    let primary = &sentinels.servers[primary];
    follows(&locks, primary).await;
    let listed = list(&locks, "").await;
    assert!(is_held_by(&listed["sync:42"].entries[0], &held));
    let shown = entry(&locks, "sync:42").await;
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Ended);
    assert_eq!(primary.get("lock:sync:42"), None);
}

/// Waits until the client has heard of the new primary: the old one goes on for a while.
async fn follows(locks: &Client, primary: &Server) {
    let start = Instant::now();
    loop {
        let lease = locks.lock("probe").acquire().await;
        if primary.get("lock:probe").is_some() {
            return;
        }
        drop(lease);
        assert!(start.elapsed() < wait::PATIENCE, "it does not follow");
    }
}
