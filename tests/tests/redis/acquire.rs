//! Taking a key: grants whose reply is lost, waiting, and many callers at once.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Treatment, Way};
use tests::wait;

use crate::support::{BOUND, SLACK, behind_a_proxy, client, job, nap, pair};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn field_16_a_server_paused_for_longer_than_a_reply_may_take_is_not_busy() {
    let (server, locks) = pair().await;
    // Longer than both attempts; what they asked is carried out afterwards.
    server.pause(6 * SECOND);
    let start = Instant::now();
    let result = job(&locks, 42, async { panic!("the body ran") })
        .await
        .map(drop);
    assert!(
        matches!(result, Err(Error::Unavailable { .. })),
        "{result:?}"
    );
    assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
    wait::until("the pause is over", || {
        let paused = Instant::now();
        server.try_ask::<()>("GET nothing").is_ok() && paused.elapsed() < SECOND / 2
    })
    .await;
    // Whatever was granted meanwhile is given back, long before its ttl would do that.
    let again = async || job(&locks, 42, async {}).await.unwrap().is_some();
    let start = Instant::now();
    while !again().await {
        assert!(start.elapsed() < SECOND, "the key is not free");
        nap(20).await;
    }
    wait::until("nothing is left", || server.size() == 0).await;
}

#[tokio::test]
async fn field_16_a_swallowed_reply_is_asked_again_as_the_same_owner() {
    let (server, proxy, locks) = behind_a_proxy().await;
    for user in 0..3 {
        proxy.treat(Way::Replies, Treatment::Swallow);
        let acquire = async {
            let lease = locks
                .lock(format!("sync:{user}"))
                .ttl(60 * SECOND)
                .acquire()
                .await
                .unwrap();
            // The grant whose reply was lost was recognised.
            assert_eq!(
                server.get(&format!("lock:sync:{user}")).as_deref(),
                Some(lease.owner())
            );
            lease
        };
        let heal = async {
            wait::until("the grant", || server.size() == 1).await;
            proxy.heal();
        };
        let (lease, ()) = tokio::join!(acquire, heal);
        lease.release().await.unwrap();
        assert_eq!(server.size(), 0);
    }
}

#[tokio::test]
async fn field_16_a_grant_whose_reply_never_comes_is_given_back() {
    let (server, proxy, locks) = behind_a_proxy().await;
    proxy.treat(Way::Replies, Treatment::Swallow);
    let error = locks
        .lock("sync:42")
        .ttl(60 * SECOND)
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(server.size(), 1);
    proxy.heal();
    wait::within("it is given back", 10 * SECOND, || server.size() == 0).await;
}

#[distributed_lock(key = "sync:herd", ttl = "5s", wait = "60s", client = locks)]
async fn herd(locks: &Client, start: Instant) -> Result<Duration, Error> {
    let waited = start.elapsed();
    nap(20).await;
    Ok(waited)
}

#[distributed_lock(key = "sync:herd", ttl = "9s", on_busy = skip, client = locks)]
async fn skipping(locks: &Client, millis: u64) -> Result<Option<()>, Error> {
    nap(millis).await;
    Ok(Some(()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_17_a_herd_of_300_is_served_one_after_the_other() {
    let (server, locks) = pair().await;
    let before = server.commands();
    let start = Instant::now();
    let tasks: Vec<_> = (0..300)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { herd(&locks, start).await })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.push(task.await.unwrap().unwrap());
    }
    waits.sort();
    let used = server.commands().since(&before);
    let asked = used.of("set") + used.of("evalsha");
    println!(
        "300 waiters, 20 ms each: {asked} commands, median wait {:?}, longest {:?}",
        waits[150], waits[299]
    );
    // One after the other, and each grant of the store serves five callers.
    assert!(
        waits[299] >= 299 * Duration::from_millis(20),
        "{:?}",
        waits[299]
    );
    assert_eq!(asked, 2 * 300_u64.div_ceil(5), "{used:?}");
    assert_eq!(locks.stats().granted, 300);
    assert_eq!(server.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_17_300_that_skip_ask_once_each_at_most() {
    let (server, locks) = pair().await;
    let holder = {
        let locks = locks.clone();
        tokio::spawn(async move { skipping(&locks, 60_000).await })
    };
    wait::until("it is held", || server.size() == 1).await;
    let before = server.commands();
    for _ in 0..300 {
        assert_eq!(skipping(&locks, 0).await.unwrap(), None);
    }
    let used = server.commands().since(&before);
    println!(
        "300 that skip: {} SET, {} EVALSHA",
        used.of("set"),
        used.of("evalsha")
    );
    // Refused, and told by whom; at most one renewal of the holder on top.
    assert!(
        used.of("set") <= 300 && used.of("evalsha") <= 302,
        "{used:?}"
    );
    assert_eq!(locks.stats().busy, 300);
    holder.abort();
    wait::until("it is given back", || server.size() == 0).await;
}

#[tokio::test]
async fn a_waiter_that_gives_up_passes_its_turn_on() {
    let (server, locks) = pair().await;
    let first = locks.lock("sync:42").acquire().await.unwrap();
    let second = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("sync:42").wait(60 * SECOND).acquire().await })
    };
    nap(50).await;
    let third = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("sync:42").wait(60 * SECOND).acquire().await })
    };
    nap(50).await;
    second.abort();
    first.release().await.unwrap();
    let lease = tokio::time::timeout(5 * SECOND, third)
        .await
        .expect("its turn")
        .unwrap()
        .unwrap();
    lease.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_wait_ends_as_busy_when_its_time_is_over_and_not_before() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = other.lock("sync:42").acquire().await.unwrap();
    let start = Instant::now();
    let error = locks
        .lock("sync:42")
        .wait(SECOND)
        .acquire()
        .await
        .unwrap_err();
    let took = start.elapsed();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    assert!(
        took >= Duration::from_millis(900) && took < SECOND + SLACK,
        "{took:?}"
    );
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_of_another_process_gets_the_key_soon_after_its_release() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = other.lock("sync:42").acquire().await.unwrap();
    let release = async {
        nap(700).await;
        lease.release().await.unwrap();
        Instant::now()
    };
    let acquire = async {
        let lease = locks
            .lock("sync:42")
            .wait(20 * SECOND)
            .acquire()
            .await
            .unwrap();
        let at = Instant::now();
        lease.release().await.unwrap();
        at
    };
    let (released, acquired) = tokio::join!(release, acquire);
    let took = acquired.saturating_duration_since(released);
    assert!(took < SECOND + SLACK, "{took:?}");
}

#[tokio::test]
async fn a_held_lease_that_is_never_renewed_lets_a_waiter_in_at_its_end() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = other
        .lock("sync:42")
        .ttl(SECOND)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let start = Instant::now();
    let next = locks
        .lock("sync:42")
        .wait(20 * SECOND)
        .acquire()
        .await
        .unwrap();
    // Never sleeps past the holder's remaining ttl.
    assert!(start.elapsed() < SECOND + SLACK, "{:?}", start.elapsed());
    drop((lease, next));
}
