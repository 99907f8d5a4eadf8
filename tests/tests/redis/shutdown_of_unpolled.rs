//! A shutdown beside calls that are kept and not polled: what they were granted goes back when it has
//! waited for them for as long as the store may take to answer.

use std::time::Duration;

use tests::wait;

use crate::support::{client, nothing_left, pair, polled, told_of_the_end};

const SECOND: Duration = Duration::from_secs(1);

/// A lease was handed to a waiter that is not polled.
#[tokio::test]
async fn a_shutdown_gives_back_what_was_handed_to_one_that_is_not_polled() {
    let (server, locks) = pair().await;
    let request = || locks.lock("sync:42").ttl(30 * SECOND);
    let lease = request().acquire().await.unwrap();
    let mut next = Box::pin(request().wait(60 * SECOND).acquire());
    assert!(polled(next.as_mut(), 1).await.is_none());
    lease.release().await.unwrap();
    locks.shutdown().await;
    nothing_left(&server).await;
    told_of_the_end(next.await);
    nothing_left(&server).await;
}

/// A request was granted, and its call is not polled.
#[tokio::test]
async fn a_shutdown_gives_back_what_was_granted_to_one_that_is_not_polled() {
    let (server, locks) = pair().await;
    let mut next = Box::pin(locks.lock("sync:42").ttl(30 * SECOND).acquire());
    assert!(polled(next.as_mut(), 1).await.is_none());
    wait::until("it is granted", || server.size() == 1).await;
    locks.shutdown().await;
    nothing_left(&server).await;
    told_of_the_end(next.await);
    nothing_left(&server).await;
}

/// A waiter that was granted by another process, and is not polled.
#[tokio::test]
async fn a_shutdown_gives_back_what_was_granted_to_a_waiter_that_is_not_polled() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let held = other
        .lock("sync:42")
        .ttl(30 * SECOND)
        .acquire()
        .await
        .unwrap();
    let mut next = Box::pin(
        locks
            .lock("sync:42")
            .ttl(30 * SECOND)
            .wait(60 * SECOND)
            .acquire(),
    );
    let timed = tokio::time::timeout(SECOND / 2, next.as_mut()).await;
    assert!(timed.is_err());
    held.release().await.unwrap();
    wait::until("it is granted", || server.waiters("lock:sync:42") == 0).await;
    locks.shutdown().await;
    nothing_left(&server).await;
    told_of_the_end(next.await);
    nothing_left(&server).await;
}
