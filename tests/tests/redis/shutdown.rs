//! How long a shutdown waits where nothing answers: no longer than the longest lease is left.

use std::future::pending;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;

use crate::support::{behind_a_proxy, pair};

const SECOND: Duration = Duration::from_secs(1);
/// For a machine with other work; far less than two attempts to reach the server.
const ROOM: Duration = Duration::from_millis(800);

async fn shuts_down_within(locks: &Client, longest: Duration) {
    let begun = Instant::now();
    locks.shutdown().await;
    let took = begun.elapsed();
    println!("{took:?} of {longest:?}");
    assert!(took < longest + ROOM, "{took:?} of {longest:?}");
}

#[tokio::test]
async fn a_shutdown_ends_with_the_lease_where_the_server_stands_still() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
    server.freeze();
    shuts_down_within(&locks, lease.remaining()).await;
    server.thaw();
}

#[tokio::test]
async fn a_shutdown_ends_with_the_longest_of_several_leases() {
    let (server, locks) = pair().await;
    let mut leases = Vec::new();
    for (key, ttl) in [("a", SECOND / 2), ("b", SECOND), ("c", SECOND * 7 / 10)] {
        let request = locks.lock(key).ttl(ttl).renew(false);
        leases.push(request.acquire().await.unwrap());
    }
    server.freeze();
    let longest = leases.iter().map(lockattr::Lease::remaining).max();
    shuts_down_within(&locks, longest.unwrap()).await;
    server.thaw();
}

#[tokio::test]
async fn a_shutdown_ends_with_the_lease_of_a_body_that_it_stops() {
    #[distributed_lock(key = "sync:42", ttl = "1s", client = locks)]
    async fn hangs(locks: &Client) -> Result<(), Error> {
        pending().await
    }
    let (server, locks) = pair().await;
    let body = {
        let locks = locks.clone();
        tokio::spawn(async move { hangs(&locks).await })
    };
    wait::until("it runs", || locks.stats().granted == 1).await;
    server.freeze();
    shuts_down_within(&locks, SECOND).await;
    let ended = body.await.unwrap();
    assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
    server.thaw();
}

/// A lease that was dropped before is no longer waited for than one that is held.
#[tokio::test]
async fn a_shutdown_ends_with_the_lease_of_a_release_that_is_not_answered() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
    proxy.swallow_all();
    let left = lease.remaining();
    drop(lease);
    shuts_down_within(&locks, left).await;
}

/// The same where a release is awaited at the same time, on a connection that swallows everything.
#[tokio::test]
async fn a_shutdown_ends_with_the_lease_of_a_release_that_is_awaited() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
    proxy.swallow_all();
    let left = lease.remaining();
    let releasing = tokio::spawn(lease.release());
    tokio::task::yield_now().await;
    shuts_down_within(&locks, left).await;
    let _ = releasing.await.unwrap();
}

#[distributed_lock(key = "sync:42", ttl = "1s", once = "1h", client = locks)]
async fn once(
    locks: &Client,
    inside: impl Future<Output: Send> + Send,
) -> Result<Option<()>, Error> {
    inside.await;
    Ok(Some(()))
}

/// The mark that is owed would last for an hour.
#[tokio::test]
async fn a_shutdown_waits_for_a_mark_that_is_owed_no_longer_than_for_its_lease() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    once(&locks, async { proxy.refuse() }).await.unwrap();
    let shut_down = shuts_down_within(&locks, SECOND);
    tokio::time::timeout(20 * SECOND, shut_down).await.unwrap();
}
