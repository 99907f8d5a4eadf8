//! What is told and counted: enough to find a fault, and not more.

use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tests::log;
use tests::server::Server;
use tracing::Level;

use crate::support::{client, job, nap, pair, timed};

#[distributed_lock(key = "sync:<user_id>", ttl = "2s", on_busy = skip, client = locks)]
async fn tick(locks: &Client, user_id: u64) {}

#[tokio::test]
async fn field_24_a_hundred_skips_are_a_hundred_events_and_no_warning() {
    log::listen();
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = locks.lock("sync:2424").acquire().await.unwrap();
    for _ in 0..100 {
        tick(&other, 2424).await;
    }
    let told = log::about("sync:2424");
    assert_eq!(told.len(), 100, "{told:#?}");
    let level = told[0].level;
    assert!(level > Level::WARN, "{level}");
    assert!(
        told.iter()
            .all(|told| told.level == level && told.target.starts_with("lockattr"))
    );
    assert_eq!(other.stats().busy, 100);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn an_ordinary_call_is_told_at_no_level_that_wakes_anybody() {
    log::listen();
    let (_server, locks) = pair().await;
    timed(&locks, 2425, Duration::from_millis(600), nap(1_000))
        .await
        .unwrap();
    let loud: Vec<_> = log::about("sync:2425")
        .into_iter()
        .filter(|told| told.level <= Level::WARN)
        .collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

#[tokio::test]
async fn everything_is_counted_where_it_belongs() {
    let (server, locks) = pair().await;
    assert_eq!(locks.stats().granted, 0);
    job(&locks, 1, async {}).await.unwrap();
    let other = client(&server).await;
    let lease = other.lock("sync:1").acquire().await.unwrap();
    assert_eq!(job(&locks, 1, async {}).await.unwrap(), None);
    lease.release().await.unwrap();
    let ttl = Duration::from_millis(600);
    timed(&locks, 2, ttl, async {
        let _: () = server.ask("DEL lock:sync:2");
        nap(5_000).await;
    })
    .await
    .unwrap_err();
    timed(&locks, 3, ttl, nap(700)).await.unwrap();
    let stats = locks.stats();
    assert_eq!(
        (stats.granted, stats.busy, stats.lost),
        (3, 1, 1),
        "{stats:?}"
    );
    assert_eq!((stats.released, stats.release_failed), (2, 0), "{stats:?}");
    assert!(stats.renewed >= 2, "{stats:?}");
    server.kill();
    assert!(matches!(
        job(&locks, 1, async {}).await,
        Err(Error::Unavailable { .. })
    ));
    assert_eq!(locks.stats().unavailable, 1);
}

#[tokio::test]
async fn field_10_a_body_that_hangs_is_warned_of_again_and_again_with_key_and_age() {
    log::listen();
    let server = Server::start();
    let locks = client(&server).await;
    let body = std::future::pending::<()>();
    let hangs = timed(&locks, 1010, Duration::from_millis(400), body);
    tokio::time::timeout(Duration::from_millis(9_500), hangs)
        .await
        .unwrap_err();
    let warned: Vec<_> = log::about("sync:1010")
        .into_iter()
        .filter(|told| told.level == Level::WARN && told.text.contains("held_ms"))
        .collect();
    assert!((2..=10).contains(&warned.len()), "{warned:#?}");
}
