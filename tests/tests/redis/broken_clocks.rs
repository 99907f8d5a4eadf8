//! A clock that a test pauses when it holds a lease already.

use std::time::Duration;

use lockattr::Client;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_lease_that_was_taken_before_the_clock_was_paused_is_nobody_elses() {
    let locks = Client::connect("memory:").await.unwrap();
    let lease = locks
        .lock("sync:42")
        .ttl(10 * SECOND)
        .acquire()
        .await
        .unwrap();
    tokio::time::pause();
    for _ in 0..60 {
        tokio::time::sleep(SECOND).await;
        let other = locks.lock_all(["sync:42", "sync:43"]).acquire().await;
        let left = lease.remaining();
        assert!(other.is_err() || left.is_zero(), "two hold it: {left:?}");
    }
}
