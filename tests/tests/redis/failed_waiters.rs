//! Waiters whose call ends in an error: they leave no place in the wait queue, and no lock is granted
//! to them afterwards.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{CLEARED, Listening, client, nap, nothing_left, pair};

const PATIENT: Duration = Duration::from_secs(60);
/// Far longer than any test here waits: what is granted to nobody would stand out its ttl.
const TTL: Duration = Duration::from_secs(20);

type Waiter = JoinHandle<Result<Lease, Error>>;

/// A waiter that has its place in the wait queue, after `before` others, when this returns.
async fn queued(server: &Server, locks: &Client, before: u64) -> Waiter {
    let request = locks.lock("sync:42").ttl(TTL).wait(PATIENT);
    let call = tokio::spawn(request.acquire());
    let is_queued = || server.waiters("lock:sync:42") == before + 1;
    wait::until("it is queued", is_queued).await;
    let listen = usize::try_from(before).unwrap() + 1;
    wait::until("it listens", || server.subscribers() >= listen).await;
    nap(100).await;
    call
}

/// The server refuses to queue anybody for as long as a waiter needs to look; then the waiter has
/// failed, or is dropped.
async fn fails_or_is_dropped(server: &Server, mut call: Waiter) {
    let _: () = server.ask("ACL SETUSER default -zadd");
    let answer = tokio::time::timeout(Duration::from_secs(3), &mut call).await;
    println!("{answer:?}");
    let _: () = server.ask("ACL SETUSER default +zadd");
    call.abort();
    nap(200).await;
}

/// Other calls find out that the connection is dead, so that the waiter has none to look over.
async fn others_fail_for(locks: &Client, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let answer = locks.lock("meanwhile").acquire().await;
        let unavailable = matches!(answer, Err(Error::Unavailable { .. }));
        assert!(unavailable, "{answer:?}");
        nap(50).await;
    }
}

async fn has_left(server: &Server) {
    let is_gone = || server.waiters("lock:sync:42") == 0;
    wait::within("it has left its place", CLEARED, is_gone).await;
}

async fn fails_as_unavailable(call: Waiter) {
    let answer = call.await.unwrap();
    let unavailable = matches!(answer, Err(Error::Unavailable { .. }));
    assert!(unavailable, "{answer:?}");
}

#[tokio::test]
async fn a_waiter_whose_look_is_refused_is_granted_nothing_afterwards() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let call = queued(&server, &other, 0).await;
    let _: () = server.ask("CONFIG SET maxmemory 1");
    fails_as_unavailable(call).await;
    let _: () = server.ask("CONFIG SET maxmemory 0");
    lease.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn the_waiter_behind_one_whose_look_was_refused_is_the_next() {
    let (server, locks) = pair().await;
    let (failing, next) = (client(&server).await, client(&server).await);
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let call = queued(&server, &failing, 0).await;
    let _: () = server.ask("CONFIG SET maxmemory 1");
    fails_as_unavailable(call).await;
    let _: () = server.ask("CONFIG SET maxmemory 0");
    let request = next.lock("sync:42").ttl(TTL).wait(PATIENT);
    let next = tokio::spawn(request.acquire());
    wait::until("it listens", || server.subscribers() >= 1).await;
    nap(300).await;
    lease.release().await.unwrap();
    let next = tokio::time::timeout(CLEARED, next).await;
    let next = next.expect("the next waiter is granted the lock");
    next.unwrap().unwrap().release().await.unwrap();
    nothing_left(&server).await;
}

/// Of slots, each counts: none goes to a waiter that has failed.
#[tokio::test]
async fn a_waiter_for_a_slot_whose_look_is_refused_is_granted_nothing_afterwards() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let of = |locks: &Client| locks.lock("sync:42").ttl(TTL).permits(2);
    let (first, second) = (of(&locks).acquire().await, of(&locks).acquire().await);
    let call = tokio::spawn(of(&other).wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    wait::until("it listens", || server.subscribers() == 1).await;
    nap(100).await;
    fails_or_is_dropped(&server, call).await;
    let listening = Listening::of(&server, &other, &locks).await;
    second.unwrap().release().await.unwrap();
    first.unwrap().release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}

/// Of several locks, whichever it was that the waiter was queued for.
#[tokio::test]
async fn a_waiter_for_several_locks_whose_look_is_refused_is_granted_nothing_afterwards() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = locks.lock("b").ttl(TTL).acquire().await.unwrap();
    let request = other.lock_all(["a", "b"]).ttl(TTL).wait(PATIENT);
    let call = tokio::spawn(request.acquire());
    wait::until("it is queued", || server.waiters("lock:b") == 1).await;
    wait::until("it listens", || server.subscribers() == 1).await;
    nap(100).await;
    fails_or_is_dropped(&server, call).await;
    let listening = Listening::of(&server, &other, &locks).await;
    lease.release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}

/// The network of the waiter is away while it looks; the holder's is not.
#[tokio::test]
async fn a_waiter_whose_network_was_away_is_granted_nothing_afterwards() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let call = queued(&server, &far, 0).await;
    proxy.refuse();
    others_fail_for(&far, Duration::from_millis(1_500)).await;
    proxy.heal();
    // It may have gone on waiting, as if nothing had been; then it ends by being dropped.
    nap(500).await;
    call.abort();
    println!("{:?}", call.await);
    has_left(&server).await;
    let listening = Listening::of(&server, &far, &locks).await;
    lease.release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}

/// The port of the server is closed for a while, and it comes back with all that it had.
#[tokio::test]
async fn a_waiter_that_failed_while_its_server_restarted_is_granted_nothing_afterwards() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (locks, other) = (client(&server).await, client(&server).await);
    let request = locks.lock("sync:42").ttl(TTL).renew(false);
    let lease = request.acquire().await.unwrap();
    let call = queued(&server, &other, 0).await;
    server.kill();
    others_fail_for(&other, Duration::from_millis(1_500)).await;
    server.restart();
    assert!(server.get("lock:sync:42").is_some(), "it has kept the lock");
    nap(500).await;
    call.abort();
    println!("{:?}", call.await);
    has_left(&server).await;
    let listening = Listening::of(&server, &other, &locks).await;
    lease.release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}

/// The same where the lock is given back while the waiter's network is away: the grant meets nobody.
#[tokio::test]
async fn a_grant_made_while_the_waiter_was_away_goes_on_when_its_network_is_back() {
    let (server, locks) = pair().await;
    let next = client(&server).await;
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let call = queued(&server, &far, 0).await;
    let next = queued(&server, &next, 1).await;
    // The server takes the subscription for whole: nothing is closed.
    proxy.swallow_all();
    lease.release().await.unwrap();
    fails_as_unavailable(call).await;
    proxy.heal();
    let next = tokio::time::timeout(CLEARED, next).await;
    let next = next.expect("the next waiter is granted the lock");
    next.unwrap().unwrap().release().await.unwrap();
    nothing_left(&server).await;
}

/// A grant that finds no taker in the client that it reaches goes straight on to the next waiter.
#[tokio::test]
async fn a_grant_without_a_taker_goes_straight_on() {
    let (server, locks) = pair().await;
    let (gone, next) = (client(&server).await, client(&server).await);
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let listening = Listening::of(&server, &gone, &locks).await;
    let call = queued(&server, &gone, 0).await;
    let queue = "lock:wait:{lock:sync:42}";
    let entries: Vec<String> = server.words(&["ZRANGE", queue, "0", "-1"]).unwrap();
    call.abort();
    wait::until("it has left", || server.waiters("lock:sync:42") == 0).await;
    // What a request that comes late would do: the waiter that is gone is in the queue again.
    let again = ["ZADD", queue, "1", entries[0].as_str()];
    let _: u64 = server.words(&again).unwrap();
    let _: u64 = server.words(&["PEXPIRE", queue, "60000"]).unwrap();
    let next = queued(&server, &next, 1).await;
    lease.release().await.unwrap();
    let next = tokio::time::timeout(CLEARED, next).await;
    let next = next.expect("the next waiter is granted the lock");
    next.unwrap().unwrap().release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}

/// The same where the waiter was refused in the end, which took it out of the queue: a replica that lacks
/// this may take the server's place.
#[tokio::test]
async fn a_grant_to_a_waiter_that_was_refused_goes_straight_on() {
    let (server, locks) = pair().await;
    let (refused, next) = (client(&server).await, client(&server).await);
    let lease = locks.lock("sync:42").ttl(TTL).acquire().await.unwrap();
    let listening = Listening::of(&server, &refused, &locks).await;
    let wait = Duration::from_secs(1);
    let call = tokio::spawn(refused.lock("sync:42").ttl(TTL).wait(wait).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    let queue = "lock:wait:{lock:sync:42}";
    let entries: Vec<String> = server.words(&["ZRANGE", queue, "0", "-1"]).unwrap();
    let busy = call.await.unwrap();
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    wait::until("it has left", || server.waiters("lock:sync:42") == 0).await;
    let again = ["ZADD", queue, "1", entries[0].as_str()];
    let _: u64 = server.words(&again).unwrap();
    let _: u64 = server.words(&["PEXPIRE", queue, "60000"]).unwrap();
    let next = queued(&server, &next, 1).await;
    lease.release().await.unwrap();
    let next = tokio::time::timeout(CLEARED, next).await;
    let next = next.expect("the next waiter is granted the lock");
    next.unwrap().unwrap().release().await.unwrap();
    listening.ends_with_nothing_left(&server).await;
}
