//! Nodes of a cluster that are silent, die, and are replaced by their replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::cluster::Cluster;
use tests::wait;

use crate::cluster::client;
use crate::support::{BOUND, SLACK, Section, nap};

/// Within so long of a replica's promotion its locks are to be had again.
const AFTER_PROMOTION: Duration = Duration::from_secs(2);

/// How long locks of these keys take: the longest and the median of a hundred.
async fn times(locks: &Client, keys: &[String]) -> (Duration, Duration) {
    let mut times = Vec::new();
    for key in keys.iter().cycle().take(100) {
        let begun = Instant::now();
        let lease = locks.lock(key).acquire().await.unwrap();
        lease.release().await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    (times[99], times[50])
}

/// A call that cannot be answered is told so, in time.
async fn unavailable(locks: &Client, key: &str) {
    let begun = Instant::now();
    let error = locks.lock(key).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(
        begun.elapsed() < BOUND + SLACK,
        "{:?}: {error}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_04_a_silent_primary_slows_nobody_elsewhere() {
    let cluster = Cluster::patient();
    let locks = client(&cluster).await;
    let (there, keys) = (
        cluster.key_at(0, 0),
        (1..3)
            .map(|primary| cluster.key_at(primary, 0))
            .collect::<Vec<_>>(),
    );
    let mut leases = Vec::new();
    for primary in [0, 1, 2, 1, 2] {
        let key = cluster.key_at(primary, 1 + leases.len());
        let request = locks.lock(key).ttl(Duration::from_secs(2));
        leases.push((primary, request.acquire().await.unwrap()));
    }
    let (_, before) = times(&locks, &keys).await;
    cluster.freeze(0);
    // Calls that have no answer yet, and others that come later.
    let stuck = tokio::spawn({
        let (locks, there) = (locks.clone(), there.clone());
        async move { unavailable(&locks, &there).await }
    });
    for _ in 0..5 {
        let (longest, median) = times(&locks, &keys).await;
        assert!(longest < Duration::from_millis(500), "{longest:?}");
        assert!(
            median < 2 * before + Duration::from_millis(5),
            "{median:?}, {before:?}"
        );
        nap(700).await;
    }
    stuck.await.unwrap();
    // A slot elsewhere moves, and the clients have to ask who keeps what.
    let moving = cluster.begin_to_move(&format!("lock:{}", keys[0]), 2);
    moving.end();
    let (longest, _) = times(&locks, &keys).await;
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    // A client that has yet to connect.
    let late = Client::builder().connect_lazily(cluster.url()).unwrap();
    let (longest, _) = times(&late, &keys).await;
    assert!(longest < Duration::from_millis(700), "{longest:?}");
    unavailable(&late, &there).await;
    for (primary, lease) in leases {
        if primary != 0 {
            assert!(lease.remaining() > Duration::ZERO);
            lease.release().await.unwrap();
        }
    }
    // The one that is there.
    assert_eq!(locks.stats().lost, 1);
    cluster.thaw(0);
    let again = || cluster.primary(0).get(&format!("lock:{there}")).is_none();
    wait::within("what came late is given back", BOUND, again).await;
    locks
        .lock(&there)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_04_leases_elsewhere_live_while_a_silent_primary_is_connected_to() {
    let cluster = Cluster::patient();
    let locks = client(&cluster).await;
    let mut leases = Vec::new();
    // Taken together, so that they are due together.
    for number in 0..10 {
        for primary in 0..3 {
            let request = locks.lock(cluster.key_at(primary, number));
            leases.push((primary, request.ttl(Duration::from_millis(900))));
        }
    }
    let mut held = Vec::new();
    for (primary, request) in leases {
        held.push((primary, request.acquire().await.unwrap()));
    }
    cluster.primary(0).drop_clients();
    cluster.freeze(0);
    nap(2_000).await;
    assert_eq!(locks.stats().lost, 10);
    for (_, lease) in held.into_iter().filter(|(primary, _)| *primary != 0) {
        assert!(lease.remaining() > Duration::ZERO);
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn field_04_a_silent_replica_is_nothing() {
    let cluster = Cluster::start(3, 1);
    let locks = client(&cluster).await;
    let keys: Vec<_> = (0..3).map(|primary| cluster.key_at(primary, 0)).collect();
    let (_, before) = times(&locks, &keys).await;
    cluster.freeze(3);
    for _ in 0..3 {
        let (longest, median) = times(&locks, &keys).await;
        assert!(longest < Duration::from_millis(500), "{longest:?}");
        assert!(
            median < 2 * before + Duration::from_millis(5),
            "{median:?}, {before:?}"
        );
        nap(700).await;
    }
    let late = client(&cluster).await;
    times(&late, &keys).await;
}

/// Takes a primary away, waits for the promotion of its replica, and then for a lock there.
async fn after_promotion(
    cluster: &Cluster,
    locks: &Client,
    (primary, key): (usize, String),
    take_away: impl Fn(usize),
) {
    let replica = cluster.replica_of(primary);
    take_away(primary);
    cluster.wait_until_promoted(replica);
    let begun = Instant::now();
    loop {
        match locks.lock(&key).acquire().await {
            Ok(lease) => {
                lease.release().await.unwrap();
                break;
            }
            Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
        }
    }
    let took = begun.elapsed();
    assert!(took < AFTER_PROMOTION, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_05_a_killed_primary_is_replaced_under_leases_and_waiters() {
    let cluster = Cluster::start(3, 1);
    // The one that dies is the only one that was named.
    let locks = Client::connect(cluster.url_of(&[0])).await.unwrap();
    let others = [client(&cluster).await, client(&cluster).await];
    let (held, waited) = (cluster.key_at(0, 1), cluster.key_at(0, 2));
    let lease = locks
        .lock(&held)
        .ttl(Duration::from_secs(6))
        .acquire()
        .await
        .unwrap();
    let before = locks
        .lock(&waited)
        .ttl(Duration::from_secs(6))
        .acquire()
        .await
        .unwrap();
    let section = Arc::new(Section::default());
    let calls: Vec<_> = (0..8)
        .map(|number| {
            let request = others[number % 2]
                .lock(&waited)
                .wait(Duration::from_secs(30));
            let section = Arc::clone(&section);
            tokio::spawn(async move {
                let lease = request.acquire().await.unwrap();
                section.run(10).await;
                lease.release().await.unwrap();
            })
        })
        .collect();
    let lock = format!("lock:{waited}");
    wait::until("they are queued", || cluster.primary(0).waiters(&lock) == 2).await;
    let offset = |node: usize| {
        let info = cluster.nodes()[node].info("replication");
        info["master_repl_offset"].parse::<u64>().unwrap()
    };
    let (written, replica) = (offset(0), cluster.replica_of(0));
    wait::until("the leases have reached the replica", || {
        offset(replica) >= written
    })
    .await;
    let there = (0, cluster.key_at(0, 0));
    after_promotion(&cluster, &locks, there, |one| cluster.kill(one)).await;
    assert_eq!(section.runs(), 0);
    before.release().await.unwrap();
    wait::within("all were inside", Duration::from_secs(3), || {
        section.runs() == 8
    })
    .await;
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(section.most(), 1);
    nap(3_000).await;
    assert!(lease.remaining() > Duration::from_secs(2));
    lease.release().await.unwrap();
    assert_eq!(locks.stats().lost, 0);
    wait::until("nothing is left", || cluster.left().is_empty()).await;
    // A client that starts now finds its way from a node that lives.
    client(&cluster).await;
}

#[tokio::test]
async fn field_05_a_silent_primary_is_replaced() {
    let cluster = Cluster::start(3, 1);
    let locks = client(&cluster).await;
    let key = cluster.key_at(0, 0);
    let there = (0, key.clone());
    after_promotion(&cluster, &locks, there, |one| cluster.freeze(one)).await;
    // It comes back with its old view, and is not believed.
    cluster.thaw(0);
    for _ in 0..20 {
        let lease = locks.lock(&key).acquire().await.unwrap();
        assert!(cluster.keeper(&format!("lock:{key}")).0 != 0);
        lease.release().await.unwrap();
        nap(50).await;
    }
}

#[tokio::test]
async fn field_05_two_primaries_die_one_after_the_other() {
    let cluster = Cluster::start(3, 1);
    let locks = client(&cluster).await;
    let keys = [(0, cluster.key_at(0, 0)), (1, cluster.key_at(1, 0))];
    for there in keys {
        after_promotion(&cluster, &locks, there, |one| cluster.kill(one)).await;
        nap(1_000).await;
    }
    for primary in 0..3 {
        let key = format!("key-{primary}");
        let lease = locks.lock(&key).acquire().await.unwrap();
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_of_which_nobody_answers_is_told_at_once() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let key = cluster.key_at(0, 0);
    for node in 0..3 {
        cluster.kill(node);
    }
    let begun = Instant::now();
    let error = locks.lock(&key).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(begun.elapsed() < SLACK, "{:?}: {error}", begun.elapsed());
}
