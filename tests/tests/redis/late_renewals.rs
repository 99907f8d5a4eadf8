//! Renewals that are carried out when nobody waits for them any more: a lease runs no longer than its
//! key does.

use std::time::Duration;

use lockattr::{Client, Error};
use tests::proxy::{Treatment, Way};
use tests::server::Server;

use crate::support::{behind_a_proxy, nap, never_two};

const SECOND: Duration = Duration::from_secs(1);

/// The network keeps what shortens the ttl for a while, and what renews it overtakes that.
#[tokio::test]
async fn a_shorter_extend_that_comes_late_does_not_let_two_hold_the_key() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let request = locks.lock("sync:42").ttl(30 * SECOND);
    let lease = request.acquire().await.unwrap();
    proxy.treat(Way::Requests, Treatment::Delay(2 * SECOND));
    let extended = lease.extend(SECOND).await;
    // Nothing else gets through either: the lease may end before the call is given up.
    assert!(
        matches!(
            extended,
            Err(Error::Unavailable { .. } | Error::Lost { .. })
        ),
        "{extended:?}"
    );
    proxy.heal();
    never_two(&server, &lease, 6).await;
}

/// The same for a renewal with the ttl that the lease had before it was extended.
#[tokio::test]
async fn a_renewal_that_comes_after_a_longer_extend_does_not_let_two_hold_the_key() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let ttl = 3 * SECOND;
    let lease = locks.lock("sync:42").ttl(ttl).acquire().await.unwrap();
    proxy.treat(Way::Requests, Treatment::Delay(3 * SECOND));
    // The first renewal is on its way by then, and given up.
    nap(1_900).await;
    proxy.heal();
    // The attempt to connect that was on its way may fail yet.
    while lease.extend(60 * SECOND).await.is_err() {
        nap(50).await;
    }
    never_two(&server, &lease, 8).await;
}

/// The same for a request that was asked again before its answer came, which knows its own grant.
#[tokio::test]
async fn a_request_that_comes_after_a_longer_extend_does_not_let_two_hold_the_key() {
    let (server, proxy, locks) = behind_a_proxy().await;
    proxy.treat(Way::Requests, Treatment::Delay(3 * SECOND));
    let request = locks.lock_all(["sync:42", "sync:43"]).ttl(2 * SECOND);
    let asking = tokio::spawn(request.acquire());
    nap(300).await;
    proxy.heal();
    let lease = asking.await.unwrap().unwrap();
    lease.extend(60 * SECOND).await.unwrap();
    never_two(&server, &lease, 8).await;
}

/// Of two keys the ttl of one is shortened, and the other is refused.
#[tokio::test]
async fn a_shorter_extend_that_is_refused_for_one_of_two_keys_does_not_let_two_hold_the_other() {
    let server = Server::start();
    server.set_user("app", "on >pass ~* &* +@all");
    let locks = Client::connect(server.url_as("app", "pass")).await.unwrap();
    let request = locks.lock_all(["sync:42", "sync:43"]).ttl(30 * SECOND);
    let lease = request.acquire().await.unwrap();
    let _: () = server.ask("ACL SETUSER app resetkeys ~lock:sync:42");
    let extended = lease.extend(SECOND).await;
    assert!(
        matches!(extended, Err(Error::Unavailable { .. })),
        "{extended:?}"
    );
    never_two(&server, &lease, 4).await;
}
