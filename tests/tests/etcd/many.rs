//! Many leases, long history, and no space left (17).

use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::etcd::Etcd;
use tokio::task::JoinSet;

use crate::support::{TTL, client, nap, nothing_left, queued, take};

async fn holds(count: usize, ttl: Duration) {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let start = Instant::now();
    let mut taking = JoinSet::new();
    for number in 0..count {
        let request = locks.lock(format!("k{number}")).ttl(ttl);
        taking.spawn(request.acquire());
        if taking.len() >= 200 {
            taking.join_next().await;
        }
    }
    drop(taking.join_all().await);
    println!("{count} taken and given back in {:?}", start.elapsed());

    let mut leases = Vec::new();
    for number in 0..count {
        leases.push(
            locks
                .lock(format!("k{number}"))
                .ttl(ttl)
                .acquire()
                .await
                .unwrap(),
        );
    }
    println!("{count} held after {:?}", start.elapsed());
    let before = cluster.received("LeaseKeepAlive");
    nap(u64::try_from(2 * ttl.as_millis()).unwrap()).await;
    let lost = leases
        .iter()
        .filter(|lease| lease.remaining().is_zero())
        .count();
    let kept = cluster.received("LeaseKeepAlive") - before;
    println!("{kept} keep-alives in two ttls, {lost} lost");
    assert_eq!(lost, 0);
    for lease in leases {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_17_a_thousand_leases_are_kept() {
    holds(1_000, TTL).await;
}

/// Takes minutes: `cargo test -p tests --features etcd --test etcd --release -- --ignored --nocapture many`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn field_store_17_many_thousands_of_leases_are_kept() {
    holds(10_000, Duration::from_secs(30)).await;
    holds(50_000, Duration::from_secs(60)).await;
}

/// Keys that are used once leave nothing but a few free leases, which end by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_17_nothing_is_left_of_keys_that_are_used_once() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    for number in 0..1_000 {
        take(&locks, &format!("k{number}"))
            .await
            .release()
            .await
            .unwrap();
    }
    assert_eq!(cluster.keys(""), []);
    assert!(cluster.leases() < 10, "{} leases", cluster.leases());
    tests::wait::until("they end", || cluster.leases() == 0).await;
}

/// A full server takes nothing new, and what is held is renewed and given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_17_without_space_what_is_held_is_kept_and_given_back() {
    let cluster = Etcd::with(1, &["--quota-backend-bytes", "1000000"]);
    let locks = client(&cluster).await;
    let lease = take(&locks, "k").await;
    let large = "x".repeat(100_000);
    let start = Instant::now();
    while cluster.try_ask("/v3/kv/put", &put("fill", &large)).is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "it is never full"
        );
    }
    let told = locks.lock("other").ttl(TTL).acquire().await;
    match told {
        Err(Error::Unavailable { source, .. }) => {
            let told = source.to_string();
            assert!(
                told.contains("space") && told.contains("alarm disarm"),
                "{told}"
            );
        }
        other => panic!("{other:?}"),
    }
    nap(4_000).await;
    assert!(lease.remaining() > Duration::ZERO, "it is renewed");
    lease.release().await.unwrap();
    assert!(cluster.get("lock:k").is_none());
    nothing_left(&cluster).await;
}

fn put(key: &str, value: &str) -> String {
    // Both are text that is its own encoding, near enough for what only takes space.
    let pad = |text: &str| format!("{text}{}", "A".repeat((4 - text.len() % 4) % 4));
    format!(r#"{{"key":"{}","value":"{}"}}"#, pad(key), pad(value))
}

/// The limit holds for every step, not only for the first one: waiting, leaving a queue, and giving back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_keys_as_a_list_may_have_are_waited_for_and_given_back() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let keys = |count| (0..count).map(|number| format!("k{number}"));
    let wait = Duration::from_secs(20);
    let all = |locks: &Client| locks.lock_all(keys(42)).ttl(TTL).wait(wait);
    let too_many = one.lock_all(keys(43)).acquire().await;
    assert!(
        matches!(too_many, Err(Error::Invalid { .. })),
        "{too_many:?}"
    );
    let held = all(&one).acquire().await.unwrap();
    let waiting = tokio::spawn(all(&two).acquire());
    tests::wait::until("it waits", || queued(&cluster, "k0") > 0).await;
    let leaves = all(&one).wait(Duration::from_millis(300)).acquire().await;
    assert!(matches!(leaves, Err(Error::Busy { .. })), "{leaves:?}");
    let dropped = tokio::time::timeout(Duration::from_millis(300), all(&one).acquire()).await;
    assert!(dropped.is_err());
    held.release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    lease.token().await.unwrap();
    lease.extend(10 * TTL).await.unwrap();
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
    let marked = all(&one).once(Duration::from_secs(1));
    let marked = marked.acquire().await.unwrap();
    marked.mark_done();
    marked.release().await.unwrap();
    let done = all(&two).acquire().await;
    assert!(matches!(done, Err(Error::Done { .. })), "{done:?}");
}
