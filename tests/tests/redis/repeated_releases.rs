//! Releases that the store could not carry out are asked again: soon when it answers again, and ever more
//! rarely where it refuses them and answers others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockattr::Client;
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;

use crate::support::{CLEARED, nap};

const SECOND: Duration = Duration::from_secs(1);

/// A network that is away for long, so that the pauses have grown, and is back right after a release has
/// failed once more. The news are one answer, and are not repeated.
async fn goes_out_soon_after_an_outage(at_last: Duration) {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let request = locks.lock("sync:42").ttl(120 * SECOND);
    let lease = request.acquire().await.unwrap();
    proxy.refuse();
    drop(lease);
    nap(16_000).await;
    let before = proxy.accepted();
    wait::until("it fails once more", || proxy.accepted() > before).await;
    tokio::time::sleep(at_last).await;
    proxy.heal();
    let healed = Instant::now();
    let other = loop {
        if let Ok(other) = locks.lock("other").acquire().await {
            break other;
        }
    };
    assert!(healed.elapsed() < SECOND / 5, "too slow to show anything");
    let is_free = || server.keys() == ["lock:other"];
    wait::within("it is given back", CLEARED, is_free).await;
    drop(other);
}

#[tokio::test]
async fn a_release_goes_out_when_the_store_answers_again_right_after_it_has_failed() {
    goes_out_soon_after_an_outage(SECOND / 50).await;
}

#[tokio::test]
async fn a_release_goes_out_when_the_store_answers_again_within_its_pause() {
    goes_out_soon_after_an_outage(SECOND / 2).await;
}

/// How many commands a server has refused: for each key it counts them for a minute.
fn refused(server: &Server) -> u64 {
    let log: Vec<BTreeMap<String, redis::Value>> = server.ask("ACL LOG 1000");
    let counts = log.iter().map(|entry| match entry["count"] {
        redis::Value::Int(count) => u64::try_from(count).unwrap(),
        ref other => panic!("{other:?}"),
    });
    counts.sum()
}

#[tokio::test]
async fn releases_that_are_refused_become_rare_beside_a_store_that_answers() {
    const REFUSED: u64 = 200;
    let server = Server::start();
    let _: () = server.ask("CONFIG SET acllog-max-len 1000");
    server.set_user("app", "on >pass ~* &* +@all");
    let locks = Client::connect(server.url_as("app", "pass")).await.unwrap();
    let mut held = Vec::new();
    for id in 0..REFUSED {
        let request = locks.lock(format!("refused:{id}")).ttl(600 * SECOND);
        held.push(request.acquire().await.unwrap());
    }
    let _: () = server.ask("ACL SETUSER app resetkeys ~lock:free:* ~lock:wait:{lock:free:*");
    drop(held);
    let mut before = 0;
    for second in 0..24 {
        if second == 16 {
            before = refused(&server);
            assert!(before > REFUSED, "they are refused");
        }
        for id in 0..10 {
            let request = locks.lock(format!("free:{second}:{id}"));
            let lease = request.ttl(SECOND).acquire().await.unwrap();
            lease.release().await.unwrap();
            nap(100).await;
        }
    }
    let each = (refused(&server) - before) / REFUSED;
    assert!(each <= 4, "{each} times each within eight seconds");
    // They are given back all the same, once the server lets them.
    let _: () = server.ask("ACL SETUSER app ~*");
    wait::within("all are given back", 8 * SECOND, || server.size() == 0).await;
}
