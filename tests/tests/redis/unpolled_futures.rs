//! Futures that are kept and not polled, as the losing branch of a loop around `select!` keeps them:
//! what they have begun costs nobody else his lease or his turn.

use std::pin::Pin;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tokio::sync::oneshot;

use crate::support::{LOOK, SLACK, behind_a_proxy, client, nap, pair, polled};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(1);

/// Polls once. The reply is delayed, or another thread could receive it within that poll.
async fn polled_without_a_reply<F: Future>(proxy: &Proxy, future: Pin<&mut F>) {
    proxy.treat(Way::Replies, Treatment::Delay(SECOND / 10));
    assert!(polled(future, 1).await.is_none());
    nap(50).await;
    proxy.heal();
}

/// The watchdog goes on, as beside every other body that does not come to be polled.
#[tokio::test]
async fn a_lease_whose_extend_is_not_polled_is_renewed() {
    let (server, proxy, locks) = behind_a_proxy().await;
    for ttl in [SECOND, 10 * SECOND] {
        let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
        let mut extend = Box::pin(lease.extend(ttl));
        polled_without_a_reply(&proxy, extend.as_mut()).await;
        nap(2_500).await;
        let left = lease.remaining();
        assert!(left > Duration::ZERO, "{:?}", lease.lost().await);
        drop(extend);
        lease.release().await.unwrap();
        assert_eq!(server.size(), 0);
    }
}

/// The same on a runtime that is blocked for a while.
#[tokio::test]
async fn a_lease_that_is_extended_on_a_blocked_runtime_is_renewed() {
    let (_server, locks) = pair().await;
    let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
    let blocking = async { std::thread::sleep(3 * SECOND) };
    let (extended, ()) = tokio::join!(lease.extend(10 * SECOND), blocking);
    extended.unwrap();
    let left = lease.remaining();
    assert!(
        left > Duration::ZERO,
        "extended, and {:?}",
        lease.lost().await
    );
}

/// Every wait is bounded, that for a token of a shared lease too.
#[tokio::test]
async fn a_token_is_drawn_beside_a_draw_that_is_not_polled() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let other = lease.share();
    let mut drawing = Box::pin(lease.token());
    polled_without_a_reply(&proxy, drawing.as_mut()).await;
    let drawn = tokio::time::timeout(8 * SECOND, other.token()).await;
    let drawn = drawn
        .expect("an answer within the bounds of the store")
        .unwrap();
    assert_eq!(drawing.await.unwrap(), drawn);
}

#[distributed_lock(key = "sync:42", ttl = TTL, client = locks)]
async fn around<F: Future<Output: Send>>(locks: &Client, inside: F) -> Result<F::Output, Error> {
    Ok(inside.await)
}

#[distributed_lock(key = "sync:42", wait = "10s", client = locks)]
async fn inner<F: Future<Output: Send>>(locks: &Client, inside: F) -> Result<F::Output, Error> {
    Ok(inside.await)
}

/// Two side by side under one call. When this returns the first has run, and the second, which waits,
/// has not been polled since.
async fn waits_unpolled(locks: &Client) -> impl Future<Output = Result<(), Error>> + use<'_> {
    let (end, ended) = oneshot::channel::<()>();
    let mut first = Box::pin(inner(locks, ended));
    let mut second = Box::pin(inner(locks, nap(0)));
    assert!(polled(first.as_mut(), 1).await.is_none());
    assert!(polled(second.as_mut(), 1).await.is_none());
    end.send(()).unwrap();
    first.await.unwrap().unwrap();
    second
}

/// Three side by side under one call: the first runs, the second waits and is polled no more, and
/// nobody is inside when the first has ended.
#[tokio::test]
async fn a_joined_call_waits_for_no_other_that_waits_and_is_not_polled() {
    let (_server, locks) = pair().await;
    let side_by_side = async {
        let _second = waits_unpolled(&locks).await;
        let start = Instant::now();
        let third = inner(&locks, nap(0)).await;
        (third, start.elapsed())
    };
    let (third, took) = around(&locks, side_by_side).await.unwrap();
    assert!(
        third.is_ok() && took < TTL + SLACK,
        "{third:?} after {took:?}"
    );
}

/// Who does not wait is told that it is busy only while somebody is inside.
#[tokio::test]
async fn a_joined_call_that_does_not_wait_is_not_busy_beside_one_that_is_not_polled() {
    #[distributed_lock(key = "sync:42", client = locks)]
    async fn at_once(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let (_server, locks) = pair().await;
    let side_by_side = async {
        let _second = waits_unpolled(&locks).await;
        tokio::time::sleep(TTL + SLACK).await;
        at_once(&locks).await
    };
    around(&locks, side_by_side).await.unwrap().unwrap();
}

/// However many they are: who is not polled costs whoever comes after them a ttl, and not a while each.
#[tokio::test]
async fn a_waiter_behind_many_that_are_not_polled_has_its_turn_after_a_ttl() {
    let (server, locks) = pair().await;
    let ttl = 2 * SECOND;
    let request = || locks.lock("sync:42").ttl(ttl).wait(30 * SECOND);
    let other = client(&server).await;
    let held = other.lock("sync:42").acquire().await.unwrap();
    let mut unpolled = Vec::new();
    for _ in 0..40 {
        let mut call = Box::pin(request().acquire());
        assert!(polled(call.as_mut(), 1).await.is_none());
        unpolled.push(call);
    }
    held.release().await.unwrap();
    let start = Instant::now();
    let lease = request().acquire().await.unwrap();
    let took = start.elapsed();
    lease.release().await.unwrap();
    drop(unpolled);
    assert!(took < ttl + LOOK + SLACK, "{took:?}");
}
