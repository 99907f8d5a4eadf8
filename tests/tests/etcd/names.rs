//! Names that begin alike, and a release that comes late (18).

use std::time::Duration;

use lockattr::{Client, Error};
use tests::etcd::Etcd;
use tests::proxy::{Proxy, Treatment, Way};

use crate::support::{TTL, client, client_at, nap, nothing_left, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_18_names_that_begin_alike_do_not_wait_for_each_other() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let names = ["a", "ab", "a/", "a/b", "a0", "A"];
    let mut held = Vec::new();
    for name in names {
        let lease = one.lock(name).ttl(TTL).permits(2).acquire().await;
        held.push(lease.unwrap_or_else(|problem| panic!("{name}: {problem}")));
    }
    for name in names {
        // The second slot, beside the others' first.
        let lease = two.lock(name).ttl(TTL).permits(2).acquire().await.unwrap();
        assert_eq!(lease.slot(), 1, "{name}");
        let third = one.lock(name).ttl(TTL).permits(2).acquire().await;
        assert!(matches!(third, Err(Error::Busy { .. })), "{third:?}");
        lease.release().await.unwrap();
    }
    for lease in held {
        lease.release().await.unwrap();
    }
    // A waiter for one is in the way of nobody.
    let lease = take(&one, "a").await;
    let waiting = tokio::spawn(
        two.lock("a")
            .ttl(TTL)
            .wait(Duration::from_secs(20))
            .acquire(),
    );
    nap(200).await;
    for name in &names[1..] {
        take(&one, name).await.release().await.unwrap();
    }
    lease.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    nothing_left(&cluster).await;
}

/// The answer of a release is lost, the key is taken again, and the release is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_18_a_release_that_is_repeated_leaves_the_next_grant_alone() {
    let cluster = Etcd::start(1);
    let proxy = Proxy::before(cluster.addresses()[0]);
    let url = cluster.url_of(&[proxy.address()]);
    let builder = Client::builder().reply_timeout(Duration::from_millis(300));
    let locks = builder.connect(&url).await.unwrap();
    let others = client_at(&cluster.url()).await;
    for round in 0..5 {
        let lease = take(&locks, "k").await;
        proxy.treat(Way::Replies, Treatment::Swallow);
        let releasing = tokio::spawn(async move { lease.release().await });
        // It is done, and not answered.
        tests::wait::until("it is deleted", || cluster.get("lock:k").is_none()).await;
        let next = take(&others, "k").await;
        proxy.heal();
        let released = releasing.await.unwrap();
        assert!(released.is_ok(), "{round}: {released:?}");
        nap(500).await;
        assert!(next.remaining() > Duration::ZERO);
        assert!(cluster.get("lock:k").is_some(), "{round}");
        next.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// Several keys are one step, in either order, under contention.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_keys_are_taken_in_one_step_and_never_by_two() {
    let cluster = Etcd::start(1);
    let mut tasks = Vec::new();
    for task in 0..4 {
        let locks = client(&cluster).await;
        tasks.push(tokio::spawn(async move {
            let keys = if task % 2 == 0 {
                ["a", "b"]
            } else {
                ["b", "a"]
            };
            let mut tokens = Vec::new();
            for _ in 0..5 {
                let request = locks.lock_all(keys).ttl(TTL).wait(Duration::from_secs(20));
                let lease = request.acquire().await.unwrap();
                tokens.push(lease.token().await.unwrap());
                lease.release().await.unwrap();
            }
            assert!(tokens.is_sorted());
            tokens
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 20, "tokens are drawn once");
    nothing_left(&cluster).await;
}
