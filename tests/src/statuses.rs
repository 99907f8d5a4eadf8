//! What a client is told of a key without taking it, whichever store it is on.

use std::time::Duration;

use lockattr::{Client, Holder, Status};
use tokio::time::sleep;

use crate::wait::PATIENCE;

/// The status of a key.
pub async fn status(client: &Client, key: &str) -> Status {
    client.status(key).await.expect("an answer")
}

/// The only holder of a key, and how many wait for it.
pub async fn holder(client: &Client, key: &str) -> (Holder, u64) {
    match status(client, key).await {
        Status::Held {
            mut holders,
            waiters,
            ..
        } if holders.len() == 1 => (holders.remove(0), waiters),
        status => panic!("{status:?}"),
    }
}

/// Waits until so many are told to wait for a key.
pub async fn until_waited_for(client: &Client, key: &str, count: u64) {
    let start = std::time::Instant::now();
    while holder(client, key).await.1 != count {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {count}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Goes with a key of one holder through all that may be told of it; `ttl` is one that the store keeps.
pub async fn is_told_of_everything(locks: &Client, other: &Client, ttl: Duration) {
    let key = "status:42";
    let Status::Free { waiters: 0, .. } = status(other, key).await else {
        panic!("it is free");
    };
    let minute = Duration::from_secs(60);
    let lease = locks.lock(key).ttl(ttl).acquire().await.expect("free");
    let (held_by, waiters) = holder(other, key).await;
    let origin = lease.owner().split_once('@').expect("host and pid").1;
    assert_eq!(
        (held_by.origin.as_str(), held_by.slot, waiters),
        (origin, 0, 0)
    );
    assert!(!held_by.has_left && !status(other, key).await.is_free());
    // Some stores give a lease a little longer than its ttl, in whole seconds.
    let longest = ttl + ttl / 10 + Duration::from_secs(2);
    assert!(held_by.remaining > Duration::ZERO && held_by.remaining <= longest);
    let age = held_by.since.expect("every store says it").elapsed();
    assert!(age.unwrap_or_default() < Duration::from_secs(20));

    let waits = tokio::spawn(other.lock(key).ttl(ttl).wait(minute).acquire());
    until_waited_for(locks, key, 1).await;
    lease.release().await.expect("held");
    let second = waits.await.expect("no panic").expect("its turn");
    assert!(!second.owner().is_empty());
    assert_eq!(holder(locks, key).await.1, 0);
    second.release().await.expect("held");
    assert!(status(other, key).await.is_free());

    let once = locks.lock("status:done").ttl(ttl).once(minute);
    let lease = once.acquire().await.expect("free");
    lease.mark_done();
    lease.release().await.expect("held");
    match status(other, "status:done").await {
        Status::Done {
            since, remaining, ..
        } => {
            assert!(since.elapsed().unwrap_or_default() < Duration::from_secs(20));
            let told = Duration::from_secs(40)..Duration::from_secs(70);
            assert!(told.contains(&remaining), "{remaining:?}");
        }
        status => panic!("{status:?}"),
    }

    let quarter = Duration::from_secs(15);
    let closed = locks.lock("status:closed").ttl(ttl).min_hold(quarter);
    let lease = closed.acquire().await.expect("free");
    lease.release().await.expect("held");
    let (left, _) = holder(other, "status:closed").await;
    assert!(left.has_left, "{left:?}");
    assert!(!status(other, "status:closed").await.is_free());
}

/// The same of a key with several holders.
pub async fn is_told_of_slots(locks: &Client, other: &Client, ttl: Duration) {
    let take = || locks.lock("status:slots").permits(3).ttl(ttl).acquire();
    let first = take().await.expect("free");
    let second = take().await.expect("free");
    let told = async |client: &Client| match client.status("status:slots").await {
        Ok(Status::Held {
            holders, permits, ..
        }) => (
            holders.iter().map(|holder| holder.slot).collect::<Vec<_>>(),
            permits,
        ),
        status => panic!("{status:?}"),
    };
    assert_eq!(told(other).await, (vec![0, 1], 3));
    assert!(status(other, "status:slots").await.is_free());
    first.release().await.expect("held");
    assert_eq!(told(other).await, (vec![1], 3));
    let third = take().await.expect("free");
    let fourth = take().await.expect("free");
    assert_eq!(told(locks).await, (vec![0, 1, 2], 3));
    assert!(!status(other, "status:slots").await.is_free());
    drop((second, third, fourth));
}
