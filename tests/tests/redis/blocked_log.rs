//! A subscriber that stands still, as one whose pipe is full: what is told from the client's thread
//! must not keep its leases from being renewed.

use std::time::Duration;

use lockattr::{Client, Lease, Memory};
use tests::log::{self, Blocked};
use tests::server::Server;
use tests::wait;
use tracing::Level;

use crate::support::{behind_a_proxy, in_a_process_of_its_own, pair};

/// Long enough for a server to be away for the half of it.
const TTL: Duration = Duration::from_secs(3);

async fn take(locks: &Client, key: &str) -> Lease {
    locks.lock(key).ttl(TTL).acquire().await.unwrap()
}

async fn stands_still(blocked: &Blocked) {
    wait::until("the subscriber stands still", || blocked.threads() > 0).await;
}

/// The leases go on for longer than they could without being renewed.
async fn are_renewed<const N: usize>(locks: &Client, leases: [Lease; N]) {
    let before = locks.stats().renewed;
    let renewals = 6 * u64::try_from(N).unwrap();
    wait::until("they are renewed", || {
        for lease in &leases {
            assert!(!lease.remaining().is_zero(), "{lease:?} was lost");
        }
        locks.stats().renewed >= before + renewals
    })
    .await;
    for lease in leases {
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_outage_is_told_to_a_subscriber_that_blocks() {
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    let blocked = log::block("out of order for 7000");
    let leases = [take(&locks, "sync:1").await, take(&locks, "sync:2").await];
    memory.refuse(Some("out of order for 7000"));
    stands_still(&blocked).await;
    memory.refuse(None);
    are_renewed(&locks, leases).await;
    drop(blocked);
    wait::until("it is told in the end", || {
        let told = log::about("out of order for 7000");
        told.iter().any(|told| {
            told.level == Level::WARN && told.target == "lockattr" && told.text.contains("leases=")
        })
    })
    .await;
}

#[tokio::test]
async fn the_age_of_a_lease_is_told_to_a_subscriber_that_blocks() {
    let (_server, locks) = pair().await;
    let blocked = log::block("sync:7001");
    let short = Duration::from_millis(400);
    let old = locks.lock("sync:7001").ttl(short).acquire().await.unwrap();
    let other = take(&locks, "sync:7002").await;
    stands_still(&blocked).await;
    are_renewed(&locks, [old, other]).await;
}

#[tokio::test]
async fn a_release_that_failed_is_told_to_a_subscriber_that_blocks() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let blocked = log::block("sync:7003");
    let kept = take(&locks, "sync:7004").await;
    let dropped = take(&locks, "sync:7003").await;
    proxy.refuse();
    // Where no runtime is, so that the client's thread asks.
    std::thread::spawn(|| drop(dropped));
    stands_still(&blocked).await;
    proxy.heal();
    are_renewed(&locks, [kept]).await;
    wait::until("it goes back all the same", || {
        server.get("lock:sync:7003").is_none()
    })
    .await;
}

#[tokio::test]
async fn a_loss_found_late_is_told_to_a_subscriber_that_blocks() {
    let (server, locks) = pair().await;
    let blocked = log::block("sync:7005");
    let kept = take(&locks, "sync:7006").await;
    let dropped = take(&locks, "sync:7005").await;
    let _: () = server.ask("DEL lock:sync:7005");
    std::thread::spawn(|| drop(dropped));
    stands_still(&blocked).await;
    are_renewed(&locks, [kept]).await;
}

#[tokio::test]
async fn a_channel_without_subscription_is_told_to_a_log_that_blocks() {
    let server = Server::start();
    server.set_user("worker", "on >secret ~* &* +@all");
    let url = server.url_as("worker", "secret");
    let locks = Client::builder()
        .prefix("blocked:")
        .connect(&url)
        .await
        .unwrap();
    let blocked = log::block("blocked:wake:");
    let kept = take(&locks, "sync:1").await;
    let _: () = server.ask("ACL SETUSER worker -subscribe");
    let other = Client::builder()
        .prefix("blocked:")
        .connect(server.url())
        .await
        .unwrap();
    let held = take(&other, "sync:2").await;
    let waits = tokio::spawn(locks.lock("sync:2").wait(TTL).acquire());
    stands_still(&blocked).await;
    are_renewed(&locks, [kept]).await;
    held.release().await.unwrap();
    waits.abort();
}

/// More than wait to be told at a time: what is left out is told in the end. It is counted for the
/// whole process, with what other tests have left out.
#[test]
fn what_a_blocked_subscriber_is_not_told_is_counted() {
    in_a_process_of_its_own("blocked_log::alone::what_is_not_told_is_counted");
}

/// What was logged before has been received when the client is shut down.
#[tokio::test]
async fn shutting_down_waits_for_a_slow_subscriber() {
    let (server, locks) = pair().await;
    let slow = log::block("sync:7010");
    let lease = take(&locks, "sync:7010").await;
    let _: () = server.ask("DEL lock:sync:7010");
    // Not joined: where the answer is there at once, the subscriber holds up the thread that drops.
    std::thread::spawn(|| drop(lease));
    stands_still(&slow).await;
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(slow);
    });
    locks.shutdown().await;
    assert_eq!(log::about("sync:7010").len(), 1);
}

/// And one that never listens again does not keep a client from being shut down.
#[tokio::test]
async fn shutting_down_does_not_wait_for_a_subscriber_that_blocks() {
    let (server, locks) = pair().await;
    let blocked = log::block("sync:7011");
    let lease = take(&locks, "sync:7011").await;
    let _: () = server.ask("DEL lock:sync:7011");
    // Not joined, for the same reason.
    std::thread::spawn(|| drop(lease));
    stands_still(&blocked).await;
    let down = tokio::time::timeout(Duration::from_secs(5), locks.shutdown());
    down.await.unwrap();
}

mod alone {
    use super::{are_renewed, log, pair, take, wait};

    #[tokio::test]
    #[ignore = "run by a test, in a process of its own"]
    async fn what_is_not_told_is_counted() {
        const COUNT: usize = 400;
        let (server, locks) = pair().await;
        let mut leases = Vec::new();
        for number in 0..COUNT {
            leases.push(take(&locks, &format!("many:{number}")).await);
        }
        let kept = take(&locks, "sync:1").await;
        // Before the first loss, which a renewal may find.
        let blocked = log::block("many:");
        let keys = server.keys();
        let keys = keys.iter().filter(|key| key.contains("many"));
        for keys in keys.collect::<Vec<_>>().chunks(50) {
            let keys: Vec<_> = keys.iter().map(|key| key.as_str()).collect();
            let _: u64 = server.words(&[&["DEL"], &keys[..]].concat()).unwrap();
        }
        std::thread::spawn(|| drop(leases));
        wait::until("all losses are known", || {
            locks.stats().lost == u64::try_from(COUNT).unwrap()
        })
        .await;
        are_renewed(&locks, [kept]).await;
        drop(blocked);
        let count = |text: &str| -> usize {
            let (_, count) = text.split_once("dropped=").unwrap();
            count.split(' ').next().unwrap().parse().unwrap()
        };
        wait::until("each is told or counted", || {
            let dropped = log::about("dropped=");
            let dropped: usize = dropped.iter().map(|told| count(&told.text)).sum();
            dropped > 0 && dropped + log::about("many:").len() == COUNT
        })
        .await;
    }
}
