//! `extend` that is broken off, refused or goes unanswered: the lease goes on being renewed.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;

use crate::support::{LOOK, SLACK, client, nap, pair, polled};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(3);
const SHORTER: Duration = Duration::from_secs(1);
const LONGER: Duration = Duration::from_secs(9);

/// The lease is held for longer than any ttl that it had, and given back as its holder's own.
async fn is_held_on(server: &Server, lease: Lease) {
    for _ in 0..45 {
        nap(100).await;
        let left = lease.remaining();
        assert!(left > Duration::ZERO, "lost: {:?}", lease.lost().await);
        let holder = server.get("lock:sync:42");
        assert_eq!(holder.as_deref(), Some(lease.owner()));
    }
    lease.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

async fn after_an_extend_that_is_dropped(ttl: Duration, on_its_way: Duration) {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let mut extend = Box::pin(lease.extend(ttl));
    // On a busy machine it may be answered by then.
    drop(polled(extend.as_mut(), 1).await);
    tokio::time::sleep(on_its_way).await;
    drop(extend);
    is_held_on(&server, lease).await;
}

#[tokio::test]
async fn a_lease_whose_shorter_extend_was_dropped_at_once_is_renewed() {
    after_an_extend_that_is_dropped(SHORTER, Duration::ZERO).await;
}

#[tokio::test]
async fn a_lease_whose_shorter_extend_was_dropped_when_it_was_done_is_renewed() {
    after_an_extend_that_is_dropped(SHORTER, SECOND / 10).await;
}

#[tokio::test]
async fn a_lease_whose_longer_extend_was_dropped_is_renewed() {
    after_an_extend_that_is_dropped(LONGER, Duration::ZERO).await;
}

/// The server refuses what renews, for as long as `during` takes.
async fn while_refused<T>(server: &Server, during: impl Future<Output = T>) -> T {
    let _: () = server.ask("ACL SETUSER default -pexpire");
    let answer = during.await;
    let _: () = server.ask("ACL SETUSER default +pexpire");
    answer
}

async fn after_an_extend_that_is_refused(ttl: Duration) {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    // It may be tried more than once, and is not waited for any longer than this.
    let trying = tokio::time::timeout(SECOND / 4, lease.extend(ttl));
    let answer = while_refused(&server, trying).await;
    println!("{answer:?}");
    assert!(!matches!(answer, Ok(Ok(()))), "it was refused");
    is_held_on(&server, lease).await;
}

#[tokio::test]
async fn a_lease_whose_shorter_extend_was_refused_is_renewed() {
    after_an_extend_that_is_refused(SHORTER).await;
}

#[tokio::test]
async fn a_lease_whose_longer_extend_was_refused_is_renewed() {
    after_an_extend_that_is_refused(LONGER).await;
}

/// The request is lost with its connection; other connections work.
#[tokio::test]
async fn a_lease_whose_shorter_extend_was_never_answered_is_renewed() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let lease = far.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    proxy.treat(Way::Requests, Treatment::Swallow);
    let answer = {
        let mut extend = Box::pin(lease.extend(SHORTER));
        let first = polled(extend.as_mut(), 1).await;
        assert!(first.is_none());
        nap(50).await;
        proxy.heal();
        extend.await
    };
    println!("{answer:?}");
    is_held_on(&server, lease).await;
}

/// One that is not renewed has until the end that it had: a refused request has changed nothing.
#[tokio::test]
async fn a_lease_that_is_not_renewed_keeps_its_end_where_an_extend_is_refused() {
    for ttl in [SHORTER, LONGER] {
        let (server, locks) = pair().await;
        let request = locks.lock("sync:42").ttl(TTL).renew(false);
        let lease = request.acquire().await.unwrap();
        let answer = while_refused(&server, lease.extend(ttl)).await;
        let refused = matches!(answer, Err(Error::Unavailable { .. }));
        assert!(refused, "{answer:?}");
        let left = lease.remaining();
        assert!(left > TTL * 2 / 3, "{left:?} after a refused {ttl:?}");
        nap(1_500).await;
        lease.release().await.unwrap();
        assert_eq!(server.size(), 0);
    }
}

/// An extend that was broken off leaves the lease as one that can be extended.
#[tokio::test]
async fn an_extend_after_one_that_was_dropped_holds() {
    let (server, locks) = pair().await;
    let request = locks.lock("sync:42").ttl(TTL).renew(false);
    let lease = request.acquire().await.unwrap();
    let mut extend = Box::pin(lease.extend(SHORTER));
    drop(polled(extend.as_mut(), 1).await);
    drop(extend);
    lease.extend(LONGER).await.unwrap();
    let left = lease.remaining();
    assert!(left > LONGER * 9 / 10, "{left:?}");
    // Whatever was on its way has arrived.
    nap(200).await;
    let in_store = server.pttl("lock:sync:42");
    assert!(in_store > 8_000, "{in_store} ms");
    lease.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

/// A ttl that is shorter than what is left of `min_hold` opens the lock no sooner, however the lease
/// ends.
#[tokio::test]
async fn an_extend_to_less_than_the_rest_of_min_hold_keeps_the_lock_closed() {
    const MIN_HOLD: Duration = Duration::from_secs(3);
    #[derive(Clone, Copy, Debug)]
    enum End {
        RunsOut,
        Released,
        Dropped,
    }
    async fn is_closed(end: End, renew: bool) {
        let (server, locks) = pair().await;
        let other = client(&server).await;
        let request = locks.lock("sync:42").ttl(5 * SECOND).min_hold(MIN_HOLD);
        let begun = Instant::now();
        let lease = request.renew(renew).acquire().await.unwrap();
        lease.extend(SECOND / 2).await.unwrap();
        let mut kept = None;
        match end {
            End::RunsOut => kept = Some(lease),
            End::Released => lease.release().await.unwrap(),
            End::Dropped => drop(lease),
        }
        let request = other.lock("sync:42").wait(20 * SECOND);
        let next = request.acquire().await.unwrap();
        let closed = begun.elapsed();
        println!("{end:?}, renew = {renew}: {closed:?}");
        assert!(closed >= MIN_HOLD * 59 / 60, "{end:?}: {closed:?}");
        assert!(closed < MIN_HOLD + LOOK + SLACK, "{end:?}: {closed:?}");
        next.release().await.unwrap();
        drop(kept);
    }
    tokio::join!(
        is_closed(End::RunsOut, false),
        is_closed(End::Released, false),
        is_closed(End::Released, true),
        is_closed(End::Dropped, true),
    );
}

/// The process dies with the lease: nothing but the lock's own expiry keeps it closed.
#[tokio::test]
async fn a_lock_whose_holder_dies_after_an_extend_stays_closed_for_its_min_hold() {
    let (server, locks) = pair().await;
    let request = locks.lock("sync:42").ttl(5 * SECOND).min_hold(4 * SECOND);
    let lease = request.renew(false).acquire().await.unwrap();
    lease.extend(SECOND / 2).await.unwrap();
    let left = server.pttl("lock:sync:42");
    assert!(left > 3_000, "{left} ms");
    assert!(lease.remaining() <= SECOND / 2, "{:?}", lease.remaining());
}
