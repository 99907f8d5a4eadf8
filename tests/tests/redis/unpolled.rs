//! Waiters that are kept and not polled: whoever comes after them pays a ttl at most, and is told busy
//! only while somebody holds the lock.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, LockRequest, distributed_lock};
use tests::server::Server;
use tests::wait;

use crate::support::{Call, LOOK, SLACK, client, nap, pair};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(2);
/// For how long another client holds the lock at first.
const HELD: Duration = Duration::from_millis(500);

/// A lock that another client gives back after a while, a waiter at the front of its client's queue
/// that is polled for a moment and then kept, and when that began.
async fn front_is_not_polled(
    server: &Server,
    request: impl Fn(&Client) -> LockRequest,
    locks: &Client,
) -> (Call, Instant) {
    let other = client(server).await;
    let held = request(&other).acquire().await.unwrap();
    let begun = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(HELD).await;
        held.release().await.unwrap();
    });
    let mut call: Call = Box::pin(request(locks).wait(20 * SECOND).acquire());
    let moment = Duration::from_millis(100);
    let polled = tokio::time::timeout(moment, &mut call).await;
    assert!(polled.is_err(), "{polled:?}");
    (call, begun)
}

fn limit() -> Duration {
    HELD + TTL + LOOK + SLACK
}

/// One that waits is granted the lock before a moment.
async fn has_its_turn(request: LockRequest, before: Instant) {
    let call = request.wait(20 * SECOND).acquire();
    let answer = tokio::time::timeout_at(before.into(), call).await;
    let lease = answer.expect("its turn").unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn field_26_a_waiter_behind_one_that_is_not_polled_has_its_turn_after_a_ttl() {
    let (server, locks) = pair().await;
    let request = |locks: &Client| locks.lock("sync:42").ttl(TTL);
    let (unpolled, begun) = front_is_not_polled(&server, request, &locks).await;
    has_its_turn(request(&locks), begun + limit()).await;
    drop(unpolled);
}

#[tokio::test]
async fn field_26_calls_that_skip_run_again_after_a_ttl_behind_one_that_is_not_polled() {
    #[distributed_lock(key = "sync:42", ttl = TTL, on_busy = skip, client = locks)]
    async fn run(locks: &Client) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    let (server, locks) = pair().await;
    let request = |locks: &Client| locks.lock("sync:42").ttl(TTL);
    let (unpolled, begun) = front_is_not_polled(&server, request, &locks).await;
    let (mut ran, mut skipped) = (0, 0);
    while begun.elapsed() < limit() {
        nap(50).await;
        run(&locks).await.unwrap();
    }
    for _ in 0..40 {
        match run(&locks).await.unwrap() {
            Some(()) => ran += 1,
            None => skipped += 1,
        }
        nap(50).await;
    }
    assert!(ran >= 35, "{ran} ran, {skipped} skipped");
    drop(unpolled);
}

/// Who does not wait is told busy only while somebody holds the lock.
#[tokio::test]
async fn field_26_a_call_is_told_busy_only_while_the_lock_is_held() {
    let (server, locks) = pair().await;
    let request = |locks: &Client| locks.lock("sync:42").ttl(TTL);
    let (unpolled, begun) = front_is_not_polled(&server, request, &locks).await;
    let mut wrong = 0;
    while begun.elapsed() < limit() {
        let free_before = server.get("lock:sync:42").is_none();
        let answer = request(&locks).acquire().await;
        if free_before && server.get("lock:sync:42").is_none() {
            wrong += usize::from(matches!(answer, Err(Error::Busy { .. })));
        }
        drop(answer);
        nap(100).await;
    }
    assert_eq!(wrong, 0, "told busy while nobody held it");
    drop(unpolled);
}

#[tokio::test]
async fn field_26_slots_behind_a_waiter_that_is_not_polled_are_taken_after_a_ttl() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let request = |locks: &Client| locks.lock("sync:42").permits(2).ttl(TTL);
    let kept = request(&other).acquire().await.unwrap();
    let (unpolled, begun) = front_is_not_polled(&server, request, &locks).await;
    has_its_turn(request(&locks), begun + limit()).await;
    kept.release().await.unwrap();
    drop(unpolled);
}

#[tokio::test]
async fn field_26_several_locks_behind_a_waiter_that_is_not_polled_are_taken_after_a_ttl() {
    let (server, locks) = pair().await;
    let request = |locks: &Client| locks.lock_all(["a", "b"]).ttl(TTL);
    let (unpolled, begun) = front_is_not_polled(&server, request, &locks).await;
    has_its_turn(request(&locks), begun + limit()).await;
    drop(unpolled);
}

/// Several that are not polled cost no more than one.
#[tokio::test]
async fn field_26_a_waiter_behind_three_that_are_not_polled_has_its_turn_after_a_ttl() {
    let (server, locks) = pair().await;
    let request = |locks: &Client| locks.lock("sync:42").ttl(TTL);
    let (unpolled, begun) = front_is_not_polled(&server, request, &locks).await;
    let mut more: Vec<Call> = Vec::new();
    for _ in 0..2 {
        let mut call: Call = Box::pin(request(&locks).wait(20 * SECOND).acquire());
        let moment = Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, &mut call).await.is_err());
        more.push(call);
    }
    has_its_turn(request(&locks), begun + HELD + 3 * TTL + LOOK + SLACK).await;
    drop((unpolled, more));
}

/// When it is polled again it goes on waiting, or has what it was given.
#[tokio::test]
async fn field_26_a_waiter_that_is_polled_again_late_has_its_turn() {
    let (server, locks) = pair().await;
    let request = |locks: &Client| locks.lock("sync:42").ttl(TTL);
    let (mut unpolled, _) = front_is_not_polled(&server, request, &locks).await;
    tokio::time::sleep(HELD + TTL + SECOND).await;
    let others = request(&locks).acquire().await;
    drop(others.expect("it is free"));
    let answer = tokio::time::timeout(LOOK + SLACK, &mut unpolled).await;
    let lease = answer.expect("its turn").unwrap();
    assert_eq!(server.owner("lock:sync:42").as_deref(), Some(lease.owner()));
    lease.release().await.unwrap();
    wait::until("nothing is left", || server.size() == 0).await;
}
