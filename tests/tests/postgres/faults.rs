//! A server that is silent, gone or slow, and calls that go away meanwhile.

use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::postgres::{Postgres, url};
use tests::proxy::{Proxy, Treatment, Way};
use tests::wait;

use crate::support::{BOUND, SLACK, client, connected, nap, pair, taken};

/// How soon nothing is left of calls that have ended.
const CLEARED: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_silent_server_is_an_outage_within_the_bound_and_no_lease_is_lost_that_outlives_it() {
    let server = Postgres::start();
    let locks = Client::connect(server.url()).await;
    let locks = locks.unwrap_or_else(|error| panic!("{error}"));
    let held = locks
        .lock("held")
        .ttl(Duration::from_secs(12))
        .acquire()
        .await
        .unwrap();
    server.freeze();
    let begun = Instant::now();
    let (one, other) = tokio::join!(
        locks.lock("a").acquire(),
        locks.lock("b").wait(Duration::from_secs(60)).acquire()
    );
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    assert!(begun.elapsed() < BOUND + SLACK, "{:?}", begun.elapsed());
    server.thaw();
    // What the server carries out late is given back.
    let only = || server.locks() == ["lock:held"];
    wait::within("nothing else is left", CLEARED, only).await;
    taken(&locks, "a").await.release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_ends_at_its_deadline_where_the_server_is_gone() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_millis(1500);
    let lease = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let other = locks
        .lock("b")
        .ttl(Duration::from_secs(10))
        .acquire()
        .await
        .unwrap();
    server.kill();
    let begun = Instant::now();
    lease.lost().await;
    assert!(begun.elapsed() < ttl + SLACK, "{:?}", begun.elapsed());
    server.restart();
    nap(5000).await;
    assert!(
        other.remaining() > Duration::from_secs(6),
        "{:?}",
        other.remaining()
    );
    other.release().await.unwrap();
}

#[tokio::test]
async fn what_dropped_calls_have_asked_for_is_given_back_when_it_comes() {
    let (server, locks) = pair().await;
    let held = taken(&locks, "held").await;
    server.freeze();
    for key in 0..10 {
        let locks = locks.clone();
        let wait = Duration::from_secs(if key % 2 == 0 { 0 } else { 60 });
        let key = if key < 8 {
            format!("k{key}")
        } else {
            "held".to_owned()
        };
        let call = tokio::spawn(locks.lock(key).wait(wait).acquire());
        nap(10).await;
        call.abort();
    }
    nap(300).await;
    server.thaw();
    let only = || server.locks() == ["lock:held"] && server.waiters() == 0;
    wait::within("nothing else is left", CLEARED, only).await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn replies_that_are_lost_or_late_leave_nothing_and_grant_nothing_twice() {
    let server = Postgres::start();
    let proxy = Proxy::before(server.address());
    let locks = connected(Client::builder(), &server, &url(proxy.address())).await;
    let direct = client(&server).await;
    for treatment in [
        Treatment::Swallow,
        Treatment::Delay(Duration::from_millis(1500)),
    ] {
        proxy.treat(Way::Replies, treatment);
        let calls: Vec<_> = (0..5)
            .map(|key| {
                let locks = locks.clone();
                tokio::spawn(async move { locks.lock(format!("k{key}")).acquire().await })
            })
            .collect();
        nap(1200).await;
        proxy.heal();
        for call in calls {
            match call.await.unwrap() {
                Ok(lease) => {
                    let other = direct.lock(lease.key()).acquire().await;
                    assert!(matches!(other, Err(Error::Busy { .. })), "{other:?}");
                    lease.release().await.unwrap();
                }
                Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error:?}"),
            }
        }
        let free = || server.locks().is_empty();
        wait::within("nothing is left", CLEARED, free).await;
    }
}

#[test]
fn a_runtime_that_is_blocked_and_gone_keeps_its_leases() {
    let server = Postgres::start();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let locks = first.block_on(client(&server));
    let lease = first.block_on(async {
        let lease = locks
            .lock("a")
            .ttl(Duration::from_millis(1500))
            .acquire()
            .await
            .unwrap();
        std::thread::sleep(Duration::from_millis(2200));
        lease
    });
    assert!(lease.remaining() > Duration::ZERO);
    drop(first);
    std::thread::sleep(Duration::from_millis(1800));
    assert!(lease.remaining() > Duration::ZERO);
    runtime().block_on(async {
        assert!(matches!(
            locks.lock("a").acquire().await,
            Err(Error::Busy { .. })
        ));
        lease.release().await.unwrap();
        taken(&locks, "a").await.release().await.unwrap();
    });
}

#[tokio::test]
async fn callers_that_stand_behind_a_stuck_session_hold_up_no_renewal() {
    let (server, locks) = pair().await;
    let lease = locks
        .lock("held")
        .ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    // Somebody stands still in the middle of a step.
    let (db, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    db.batch_execute("BEGIN; SELECT lockattr.enter(ARRAY['lock:stuck'])")
        .await
        .unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| tokio::spawn(locks.lock("stuck").wait(Duration::from_secs(3)).acquire()))
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(lease.remaining() > Duration::ZERO);
        nap(50).await;
    }
    let other = taken(&locks, "other").await;
    other.release().await.unwrap();
    db.batch_execute("ROLLBACK").await.unwrap();
    for call in calls {
        if let Ok(lease) = call.await.unwrap() {
            lease.release().await.unwrap();
        }
    }
    lease.release().await.unwrap();
    let free = || server.locks().is_empty() && server.waiters() == 0;
    wait::within("nothing is left", CLEARED, free).await;
}

/// The release is done, and its answer is lost. When it is asked again another has the lock.
#[tokio::test]
async fn a_release_that_is_asked_twice_is_no_loss_where_the_next_one_has_the_lock_by_then() {
    let (server, others) = pair().await;
    let proxy = Proxy::before(server.address());
    let locks = connected(Client::builder(), &server, &url(proxy.address())).await;
    for key in ["a", "b"] {
        let lease = taken(&locks, key).await;
        let wait = Duration::from_secs(20);
        let next = tokio::spawn(others.lock(key).wait(wait).acquire());
        wait::until("it waits", || server.waiters() == 1).await;
        proxy.treat(Way::Replies, Treatment::Swallow);
        let releasing = tokio::spawn(lease.release());
        let next = next.await.unwrap().unwrap();
        proxy.heal();
        releasing.await.unwrap().unwrap();
        next.release().await.unwrap();
    }
}

/// Somebody has written into the table by hand: it concerns that lock alone.
#[tokio::test]
async fn what_somebody_has_written_by_hand_is_in_the_way_of_nothing_else() {
    let (server, locks) = pair().await;
    let others = client(&server).await;
    let held = taken(&others, "for-ever").await;
    server.ask("UPDATE lockattr.locks SET until = 'infinity', since = '-infinity'");
    let begun = Instant::now();
    let refused = locks.lock("for-ever").acquire().await;
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    for (name, state) in [
        ("lock:a", "held"),
        ("{lock:a}x", "held"),
        ("lock:b", "done"),
    ] {
        server.ask(&format!(
            "INSERT INTO lockattr.locks (name, owner, state, permits, since, until, ttl) \
             VALUES ('{name}', 'o', '{state}', -1, '4000-01-01 BC', 'infinity', '1 hour')"
        ));
    }
    let inspector = locks.inspect().unwrap();
    let mut listing = inspector.list("*");
    let mut listed = Vec::new();
    while let Some(page) = listing.next().await.unwrap() {
        listed.extend(page.locks.into_iter().map(|one| one.lock));
    }
    listed.sort();
    assert_eq!(listed, ["a", "b", "for-ever"]);
    for key in listed {
        inspector.show(&key).await.unwrap();
    }
    held.release().await.unwrap();
    taken(&locks, "for-ever").await.release().await.unwrap();
}
