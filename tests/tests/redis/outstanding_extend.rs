//! Shorter ttls that were asked for and are not answered yet, beside whatever else is asked of the same
//! lease; and how long an `extend` is waited for.

use std::time::{Duration, Instant};

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token,
};
use lockattr::{Client, Error, Lease, Memory};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;
use tokio::runtime::{Builder, Runtime};

use crate::support::{BOUND, SLACK, client, nap, never_two, pair, polled, runtimes};

const SECOND: Duration = Duration::from_secs(1);

/// A runtime that runs only while it is blocked on.
fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn has_a_connection(locks: &Client) {
    let request = locks.lock("before").wait(20 * SECOND);
    request.acquire().await.unwrap().release().await.unwrap();
}

/// An extend that is dropped with its request on its way, on a runtime that does not write it yet.
fn dropped_on_its_way(slow: &Runtime, lease: &Lease, ttl: Duration) {
    let mut extend = Box::pin(lease.extend(ttl));
    assert!(slow.block_on(polled(extend.as_mut(), 1)).is_none());
}

#[test]
fn a_longer_extend_after_a_dropped_shorter_one_lets_nobody_else_in() {
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let request = locks.lock("sync:42").ttl(30 * SECOND);
    let lease = lasting.block_on(request.acquire()).unwrap();
    let slow = current_thread();
    slow.block_on(has_a_connection(&locks));
    dropped_on_its_way(&slow, &lease, 2 * SECOND);
    lasting.block_on(lease.extend(60 * SECOND)).unwrap();
    slow.block_on(nap(200));
    lasting.block_on(never_two(&server, &lease, 5));
    assert!(lease.remaining() > Duration::ZERO, "it is renewed");
}

/// The next caller goes on under the same owner, if it goes on with the lease.
#[test]
fn a_lease_that_is_handed_on_runs_no_longer_than_its_key() {
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let request = locks.lock("sync:42").ttl(30 * SECOND);
    let lease = lasting.block_on(request.acquire()).unwrap();
    let slow = current_thread();
    slow.block_on(has_a_connection(&locks));
    dropped_on_its_way(&slow, &lease, 2 * SECOND);
    let request = locks.lock("sync:42").ttl(2 * SECOND).wait(9 * SECOND);
    let mut next = Box::pin(request.acquire());
    assert!(lasting.block_on(polled(next.as_mut(), 1)).is_none());
    lasting.block_on(lease.release()).unwrap();
    let lease = lasting.block_on(next).unwrap();
    lasting.block_on(lease.extend(60 * SECOND)).unwrap();
    slow.block_on(nap(200));
    lasting.block_on(never_two(&server, &lease, 5));
}

/// Which of both the server has carried out last is not known from the order of the answers.
#[tokio::test]
async fn an_extend_that_is_answered_after_a_later_shorter_one_runs_no_longer_than_its_key() {
    let (server, locks) = pair().await;
    let request = locks.lock("sync:42").ttl(30 * SECOND);
    let lease = request.acquire().await.unwrap();
    let mut longer = Box::pin(lease.extend(60 * SECOND));
    let answered = polled(longer.as_mut(), 1).await;
    let is_longer = || server.pttl("lock:sync:42") > 30_000;
    wait::until("the longer one is carried out", is_longer).await;
    lease.extend(2 * SECOND).await.unwrap();
    // On a busy machine it is answered before it could be left alone.
    if answered.is_none() {
        longer.await.unwrap();
    }
    let left = lease.remaining();
    let in_store = server.pttl("lock:sync:42");
    assert!(
        left <= 2 * SECOND || in_store > 30_000,
        "{left:?}, {in_store} ms"
    );
    never_two(&server, &lease, 5).await;
}

/// Both are confirmed in the end: the one that was waited for is not undone.
#[tokio::test]
async fn a_longer_extend_beside_a_shorter_one_holds() {
    let (server, locks) = pair().await;
    let request = locks.lock("sync:42").ttl(30 * SECOND).renew(false);
    let lease = request.acquire().await.unwrap();
    let (shorter, longer) = tokio::join!(lease.extend(2 * SECOND), lease.extend(60 * SECOND));
    shorter.unwrap();
    longer.unwrap();
    let (left, in_store) = (lease.remaining(), server.pttl("lock:sync:42"));
    assert!(
        left > 50 * SECOND && in_store > 50_000,
        "{left:?}, {in_store} ms"
    );
}

/// In whatever order they are refused, nothing has changed on the server.
#[tokio::test]
async fn shorter_extends_that_are_refused_leave_a_lease_as_it_was() {
    for first_is_shorter in [false, true] {
        let server = Server::start();
        server.set_user("app", "on >pass ~* &* +@all");
        let locks = Client::connect(server.url_as("app", "pass")).await.unwrap();
        let request = locks.lock("sync:42").ttl(30 * SECOND).renew(false);
        let lease = request.acquire().await.unwrap();
        let _: () = server.ask("ACL SETUSER app -evalsha -eval");
        let (first, second) = if first_is_shorter { (2, 3) } else { (3, 2) };
        let mut one = Box::pin(lease.extend(first * SECOND));
        let mut two = Box::pin(lease.extend(second * SECOND));
        assert!(polled(one.as_mut(), 1).await.is_none());
        assert!(polled(two.as_mut(), 1).await.is_none());
        let (one, two) = (one.await, two.await);
        assert!(one.is_err() && two.is_err(), "{one:?} {two:?}");
        let left = lease.remaining();
        assert!(left > 20 * SECOND, "{left:?}");
    }
}

#[tokio::test]
async fn an_extend_over_a_dead_network_ends_within_bounds() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let request = locks.lock("sync:42").ttl(3600 * SECOND);
    let lease = request.acquire().await.unwrap();
    lease.extend(3600 * SECOND).await.unwrap();
    proxy.swallow_all();
    for ttl in [1800 * SECOND, 7200 * SECOND] {
        let start = Instant::now();
        let extended = tokio::time::timeout(20 * SECOND, lease.extend(ttl)).await;
        let took = start.elapsed();
        assert!(took < BOUND + SLACK, "{ttl:?}: {took:?} {extended:?}");
    }
}

/// A store of one's own that renews nothing, and never says so.
#[derive(Clone, Debug)]
struct NeverRenews(Memory);

impl Store for NeverRenews {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        self.0.acquire(claim, attempt)
    }

    fn renew<'a>(&'a self, _: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(std::future::pending())
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        self.0.release(claim, release)
    }

    fn token<'a>(&'a self, _: Held<'a>) -> Reply<'a, Token> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_extend_ends_with_its_lease_where_a_store_never_answers() {
    let locks = Client::builder().store(NeverRenews(Memory::new())).unwrap();
    for ttl in [SECOND / 2, 10 * SECOND] {
        let lease = locks.lock("sync:42").ttl(SECOND).wait(5 * SECOND);
        let lease = lease.acquire().await.unwrap();
        let extended = tokio::time::timeout(8 * SECOND, lease.extend(ttl)).await;
        let lost = matches!(extended, Ok(Err(Error::Lost { .. })));
        assert!(lost, "{ttl:?}: {extended:?}");
    }
}

/// The lease goes on for long; the call does not.
#[tokio::test]
async fn an_extend_is_bounded_where_a_store_never_answers() {
    let locks = Client::builder().store(NeverRenews(Memory::new())).unwrap();
    let request = locks.lock("sync:42").ttl(3600 * SECOND);
    let lease = request.acquire().await.unwrap();
    for ttl in [1800 * SECOND, 7200 * SECOND] {
        let extended = tokio::time::timeout(30 * SECOND, lease.extend(ttl)).await;
        let unavailable = matches!(extended, Ok(Err(Error::Unavailable { .. })));
        assert!(unavailable, "{ttl:?}: {extended:?}");
    }
}
