//! A recorder that is installed while calls are under way: what begins after it is recorded, wholly; what
//! began before is not. One test, since a process has one recorder.
#![cfg(feature = "metrics")]
#![allow(missing_docs, reason = "the names of tests say what they show")]

use lockattr::{Client, Error, distributed_lock};
use tests::metrics::{self, Of};
use tests::server::Server;
use tests::wait;

#[distributed_lock(key = "late:<id>", ttl = "30s", wait = "60s", client = locks)]
async fn late(locks: &Client, id: u64) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_late_recorder_is_told_of_what_begins_after_it() {
    let server = Server::start();
    let locks = Client::connect(server.url()).await.unwrap();
    late(&locks, 1).await.unwrap();
    // Under way: a lease, and a call that waits for it.
    let lease = locks.lock("late:2").acquire().await.unwrap();
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move { late(&locks, 2).await })
    };
    let other = Client::connect(server.url()).await.unwrap();
    let waits = other
        .lock("late:2")
        .wait(std::time::Duration::from_secs(60));
    let waits = tokio::spawn(waits.acquire());
    wait::until("one waits", || server.waiters("lock:late:2") == 1).await;
    metrics::record();
    late(&locks, 1).await.unwrap();
    let of = Of("late");
    assert_eq!(of.number("acquired_total"), Some(1.0));
    lease.release().await.unwrap();
    drop(waits.await.unwrap().unwrap());
    waiting.await.unwrap().unwrap();
    late(&locks, 1).await.unwrap();
    // The one that waited was granted after it: it holds, though its waiting was not seen.
    assert_eq!(of.number("acquired_total"), Some(3.0));
    assert_eq!(of.samples("wait_seconds").len(), 2);
    assert_eq!(of.samples("hold_seconds").len(), 3);
    for gauge in ["held", "waiting"] {
        assert_eq!(of.number(gauge), Some(0.0), "{gauge}");
        // By hand: from before it.
        assert_eq!(Of("").number(gauge), None, "{gauge}");
    }
}
