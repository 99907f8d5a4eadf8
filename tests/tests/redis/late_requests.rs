//! Requests that the server carries out when their sender has stopped waiting for an answer: what they
//! take is given back, whichever of the names it was, and looking for it comes to an end.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, LockRequest};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};

use crate::support::{CLEARED, Listening, client, nap, nothing_left, pair};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(20);
/// How late the request is.
const LATE: Duration = Duration::from_secs(3);
/// The same where a call has to be served meanwhile.
const LATER: Duration = Duration::from_secs(4);

async fn until(moment: Instant) {
    sleep_until(moment.into()).await;
}

/// A holder of slot 0 of three, and a lease of slot 1 whose first request is still on its way when this
/// returns. It arrives at the moment that is answered.
async fn beside_a_late_request(
    server: &Server,
    locks: &Client,
    proxy: &Proxy,
) -> (lockattr::Lease, lockattr::Lease, Instant) {
    let far = Client::connect(proxy.url()).await.unwrap();
    let of = |locks: &Client| locks.lock("sync:42").ttl(TTL).permits(3);
    let holder = of(locks).acquire().await.unwrap();
    assert_eq!(holder.slot(), 0);
    proxy.treat(Way::Requests, Treatment::Delay(LATE));
    let arrives = Instant::now() + LATE;
    let call = tokio::spawn(of(&far).acquire());
    nap(300).await;
    proxy.treat(Way::Requests, Treatment::Pass);
    let lease = call.await.unwrap().unwrap();
    assert_eq!(lease.slot(), 1);
    let early = Instant::now() + SECOND / 2 < arrives;
    assert!(early, "too slow to show anything");
    assert_eq!(server.holders("lock:sync:42").len(), 2);
    (holder, lease, arrives)
}

#[tokio::test]
async fn a_slot_taken_late_is_given_back_where_the_lease_was_before() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let (holder, lease, arrives) = beside_a_late_request(&server, &locks, &proxy).await;
    holder.release().await.unwrap();
    lease.release().await.unwrap();
    until(arrives + SECOND / 5).await;
    nothing_left(&server).await;
}

/// The same where the lease is given back after the late request has come.
#[tokio::test]
async fn a_slot_asked_for_late_is_that_of_the_lease() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let (holder, lease, arrives) = beside_a_late_request(&server, &locks, &proxy).await;
    holder.release().await.unwrap();
    until(arrives + SECOND / 5).await;
    assert_eq!(server.holders("lock:sync:42"), [lease.owner()]);
    lease.release().await.unwrap();
    nothing_left(&server).await;
}

/// The same where the lease is not released but dropped.
#[tokio::test]
async fn a_slot_taken_late_is_given_back_where_the_lease_was_dropped() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let (holder, lease, arrives) = beside_a_late_request(&server, &locks, &proxy).await;
    holder.release().await.unwrap();
    drop(lease);
    until(arrives + SECOND / 5).await;
    nothing_left(&server).await;
}

/// A waiter whose look is held up on its way, and which is granted the lock by a later one. It has
/// given the lock back when this returns; its look arrives at the moment that is answered at the
/// latest.
async fn served_before_its_look(
    server: &Server,
    locks: &Client,
    request: impl Fn(&Client) -> LockRequest,
    extended_to: Option<Duration>,
) -> (Proxy, Client, Instant) {
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let call = tokio::spawn(request(&far).ttl(TTL).wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    // The first of a queue looks after a second; no second look is sent while the first is out.
    proxy.treat(Way::Requests, Treatment::Delay(LATER));
    nap(1_200).await;
    proxy.treat(Way::Requests, Treatment::Pass);
    let arrives = Instant::now() + LATER;
    sleep(SECOND).await;
    lease.release().await.unwrap();
    let lease = call.await.unwrap().unwrap();
    if let Some(ttl) = extended_to {
        lease.extend(ttl).await.unwrap();
    }
    lease.release().await.unwrap();
    let early = Instant::now() + SECOND * 29 / 20 < arrives;
    assert!(early, "too slow to show anything");
    (proxy, far, arrives)
}

/// The late look finds a lock held by another, and enters the wait queue of that lock.
async fn leaves_no_place_beside_a_holder(
    held: &str,
    request: impl Fn(&Client) -> LockRequest,
    extended_to: Option<Duration>,
) {
    let (server, locks) = pair().await;
    let (_proxy, far, arrives) =
        served_before_its_look(&server, &locks, request, extended_to).await;
    let lease = locks.lock(held).ttl(TTL).acquire().await.unwrap();
    let listening = Listening::of(&server, &far, &locks).await;
    until(arrives + SECOND / 5).await;
    let queued = || server.waiters("lock:sync:42") + server.waiters("lock:sync:43");
    wait::within("nobody is queued", CLEARED, || queued() == 0).await;
    lease.release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}

#[tokio::test]
async fn a_late_look_leaves_no_place_in_the_queue() {
    leaves_no_place_beside_a_holder("sync:42", |far| far.lock("sync:42"), None).await;
}

/// The place names the ttl that was asked for.
#[tokio::test]
async fn a_late_look_leaves_no_place_in_the_queue_where_the_lease_was_extended() {
    let longer = Some(TTL * 2);
    leaves_no_place_beside_a_holder("sync:42", |far| far.lock("sync:42"), longer).await;
}

#[tokio::test]
async fn a_late_look_leaves_no_place_in_the_queue_where_the_lease_was_shortened() {
    let shorter = Some(TTL / 2);
    leaves_no_place_beside_a_holder("sync:42", |far| far.lock("sync:42"), shorter).await;
}

/// The late look finds the lock free, and takes it.
#[tokio::test]
async fn a_late_look_leaves_no_lock() {
    let (server, locks) = pair().await;
    let request = |far: &Client| far.lock("sync:42");
    let (_proxy, _far, arrives) = served_before_its_look(&server, &locks, request, None).await;
    until(arrives + SECOND / 5).await;
    nothing_left(&server).await;
}

/// The same for several locks: it is queued for one, and may take both.
#[tokio::test]
async fn a_late_look_for_several_locks_leaves_neither_lock_nor_place() {
    let both = |far: &Client| far.lock_all(["sync:42", "sync:43"]);
    leaves_no_place_beside_a_holder("sync:43", both, None).await;
}

/// A server that stood still under many calls with long ttls: once it has carried out what came to it,
/// nothing is asked any more, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_for_late_requests_ends_when_nothing_can_come_any_more() {
    const DAY: Duration = Duration::from_secs(12 * 60 * 60);
    let (server, locks) = pair().await;
    drop(locks.lock("first").acquire().await.unwrap());
    server.freeze();
    let calls: Vec<_> = (0..300)
        .map(|number| tokio::spawn(locks.lock(format!("sync:{number}")).ttl(DAY).acquire()))
        .collect();
    nap(5_000).await;
    server.thaw();
    for call in calls {
        fails_as_unavailable(call).await;
    }
    nap(500).await;
    nothing_left(&server).await;
    nap(1_000).await;
    let before = server.commands();
    nap(6_000).await;
    let asked = server.commands().since(&before);
    assert!(asked.total() <= 20, "{asked:?}");
    assert_eq!(server.keys(), [""; 0]);
}

/// The same for requests that a proxy has lost on connections that are closed since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_for_lost_requests_ends_when_their_connections_are_closed() {
    const DAY: Duration = Duration::from_secs(12 * 60 * 60);
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let calls: Vec<_> = (0..300)
        .map(|number| tokio::spawn(far.lock(format!("sync:{number}")).ttl(DAY).acquire()))
        .collect();
    for call in calls {
        fails_as_unavailable(call).await;
    }
    proxy.heal();
    proxy.cut();
    let before = server.commands();
    nap(500).await;
    nothing_left(&server).await;
    // They are looked for as long as they had been on their way, and less and less often: after pauses that
    // are a third longer each time, from 25 ms on, which are twenty within seven seconds, and of these
    // twelve after the first half of a second.
    let later = server.commands();
    nap(6_000).await;
    let now = server.commands();
    let (asked, asked_later) = (now.since(&before), now.since(&later));
    assert!(asked.of("evalsha") <= 300 * 20, "{asked:?}");
    assert!(asked_later.of("evalsha") <= 300 * 12, "{asked_later:?}");
    // On a busy machine they end later than on one that is not.
    let begun = Instant::now();
    loop {
        let before = server.commands();
        nap(3_000).await;
        let asked = server.commands().since(&before);
        if asked.total() <= 20 {
            break;
        }
        assert!(begun.elapsed() < PATIENT / 2, "{asked:?}");
    }
    assert_eq!(server.keys(), [""; 0]);
}

async fn fails_as_unavailable(call: JoinHandle<Result<lockattr::Lease, Error>>) {
    let answer = call.await.unwrap();
    let unavailable = matches!(answer, Err(Error::Unavailable { .. }));
    assert!(unavailable, "{answer:?}");
}

/// The server stands still for longer than the ttl of the request that comes late.
async fn free_soon_after_a_long_stand(ttl: Duration, request: impl Fn(&Client) -> LockRequest) {
    let (server, locks) = pair().await;
    drop(request(&locks).ttl(ttl).acquire().await.unwrap());
    wait::until("it is free", || server.size() == 0).await;
    let next = client(&server).await;
    server.freeze();
    let call = tokio::spawn(request(&locks).ttl(ttl).acquire());
    sleep(ttl + 4 * SECOND).await;
    fails_as_unavailable(call).await;
    server.thaw();
    let thawed = Instant::now();
    // Sooner than it would run out by itself.
    let limit = CLEARED.min(ttl * 9 / 10);
    let call = request(&next).ttl(ttl).wait(PATIENT).acquire();
    let answer = tokio::time::timeout(limit, call).await;
    let lease = answer.expect("it is free soon").unwrap();
    println!("{ttl:?}: {:?}", thawed.elapsed());
    lease.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn field_27_a_lock_is_free_soon_after_its_server_stood_still_for_longer_than_a_ttl_of_1s() {
    free_soon_after_a_long_stand(SECOND, |locks| locks.lock("sync:42")).await;
}

#[tokio::test]
async fn field_27_a_lock_is_free_soon_after_its_server_stood_still_for_longer_than_a_ttl_of_3s() {
    free_soon_after_a_long_stand(3 * SECOND, |locks| locks.lock("sync:42")).await;
}

/// And for longer than a connection may be silent while the server answers others.
#[tokio::test]
async fn field_27_a_lock_is_free_soon_after_its_server_stood_still_for_half_a_minute() {
    free_soon_after_a_long_stand(31 * SECOND, |locks| locks.lock("sync:42")).await;
}

#[tokio::test]
async fn field_27_several_locks_are_free_soon_after_their_server_stood_still() {
    free_soon_after_a_long_stand(3 * SECOND, |locks| locks.lock_all(["a", "b"])).await;
}

/// The last slot that a request asks for is free again as well.
#[tokio::test]
async fn field_27_slots_are_free_soon_after_their_server_stood_still() {
    let (server, locks) = pair().await;
    let next = client(&server).await;
    let of = |locks: &Client| locks.lock("sync:42").ttl(3 * SECOND).permits(2);
    drop(of(&locks).acquire().await.unwrap());
    wait::until("it is free", || server.size() == 0).await;
    server.freeze();
    let calls: Vec<_> = (0..2).map(|_| tokio::spawn(of(&locks).acquire())).collect();
    sleep(7 * SECOND).await;
    for call in calls {
        fails_as_unavailable(call).await;
    }
    server.thaw();
    let both = async {
        let first = of(&next).wait(PATIENT).acquire().await.unwrap();
        let second = of(&next).wait(PATIENT).acquire().await.unwrap();
        (first, second)
    };
    let leases = tokio::time::timeout(CLEARED, both).await;
    drop(leases.expect("both are free soon"));
    nothing_left(&server).await;
}

/// A waiter among the requests that come late: it is in no queue afterwards.
#[tokio::test]
async fn field_27_no_place_is_left_after_a_server_stood_still_for_longer_than_a_ttl() {
    let (server, locks) = pair().await;
    let holder = client(&server).await;
    let lease = holder.lock("sync:42").ttl(60 * SECOND).acquire();
    let lease = lease.await.unwrap();
    let of = |locks: &Client| locks.lock("sync:42").ttl(SECOND);
    // So that its first request is one that is queued at once.
    assert!(of(&locks).acquire().await.is_err());
    server.freeze();
    let call = tokio::spawn(of(&locks).wait(PATIENT).acquire());
    sleep(6 * SECOND).await;
    fails_as_unavailable(call).await;
    server.thaw();
    nap(1_500).await;
    assert_eq!(server.waiters("lock:sync:42"), 0);
    lease.release().await.unwrap();
    nothing_left(&server).await;
}
