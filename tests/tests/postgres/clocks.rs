//! Whose time counts.

use std::time::{Duration, Instant};

use lockattr::Error;
use tests::postgres::Postgres;
use tests::wait;
use tokio_postgres::NoTls;

use crate::support::{SLACK, client, connected, nap, taken};

#[tokio::test]
async fn field_store_25_an_acquire_that_has_waited_for_longer_than_its_ttl_has_a_whole_lease() {
    let server = Postgres::start();
    let locks = client(&server).await;
    // What keeps others from taking a lock, for less than a statement waits.
    let (mut db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let blocking = db.transaction().await.unwrap();
    let enter = "SELECT lockattr.enter(ARRAY['lock:a'])";
    blocking.execute(enter, &[]).await.unwrap();
    let ttl = Duration::from_millis(150);
    let asked = tokio::spawn(locks.lock("a").ttl(ttl).renew(false).acquire());
    nap(180).await;
    blocking.rollback().await.unwrap();
    let lease = asked.await.unwrap().unwrap();
    assert!(lease.remaining() > ttl / 4, "{:?}", lease.remaining());
}

#[tokio::test]
async fn field_store_25_a_transaction_that_began_long_ago_sees_the_time_as_it_is() {
    let server = Postgres::start();
    let _made = client(&server).await;
    let (mut db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let old = db.transaction().await.unwrap();
    old.execute("SELECT 1", &[]).await.unwrap();
    nap(300).await;
    // As if it had waited for its turn all the while.
    let take = "SELECT answer FROM lockattr.acquire(ARRAY['lock:a'],1,1,'o@h:1',100,NULL,false)";
    old.execute(take, &[]).await.unwrap();
    let left = "SELECT until > clock_timestamp() FROM lockattr.locks WHERE name = 'lock:a'";
    assert!(old.query_one(left, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn field_store_25_time_zones_and_daylight_saving_make_no_difference() {
    let server = Postgres::start();
    let _made = client(&server).await;
    // A ttl of days over the night when clocks are changed, in sessions of several zones.
    for zone in [
        "UTC",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
    ] {
        let role = zone.replace(['/', '_'], "").to_lowercase();
        server.rows(&format!(
            "CREATE ROLE {role} SUPERUSER LOGIN; ALTER ROLE {role} SET timezone = '{zone}'"
        ));
        let locks = connected(lockattr::Client::builder(), &server, &server.url_as(&role)).await;
        let half_a_year = Duration::from_secs(182 * 24 * 3600);
        let lease = locks.lock("a").ttl(half_a_year).acquire().await.unwrap();
        let left = "SELECT extract(epoch FROM until - since)::bigint FROM lockattr.locks \
                    WHERE name = 'lock:a'";
        assert_eq!(
            server.ask(left),
            half_a_year.as_secs().to_string(),
            "{zone}"
        );
        let other = client(&server).await;
        assert!(
            matches!(other.lock("a").acquire().await, Err(Error::Busy { .. })),
            "{zone}"
        );
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn field_store_25_a_clock_that_is_set_forward_costs_leases_which_are_told() {
    let server = Postgres::start();
    let (locks, other) = (client(&server).await, client(&server).await);
    let ttl = Duration::from_millis(1500);
    let lease = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    server.set_clock("1 hour");
    let next = taken(&other, "a").await;
    let begun = Instant::now();
    lease.lost().await;
    assert!(begun.elapsed() < ttl / 3 + SLACK, "{:?}", begun.elapsed());
    let lost = lease.release().await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    next.release().await.unwrap();
}

#[tokio::test]
async fn field_store_25_a_clock_that_is_set_back_blocks_no_key_and_costs_no_lease() {
    let server = Postgres::start();
    let (locks, other) = (client(&server).await, client(&server).await);
    let ttl = Duration::from_secs(2);
    let lease = locks.lock("held").ttl(ttl).acquire().await.unwrap();
    let crashed = locks
        .lock("crashed")
        .ttl(ttl)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(
        other
            .lock("crashed")
            .wait(Duration::from_secs(20))
            .acquire(),
    );
    wait::until("it waits", || server.waiters() == 1).await;
    server.set_clock("-1 hour");
    let begun = Instant::now();
    let _next = waiter.await.unwrap().unwrap();
    // A look of the waiter, and a ttl from then on.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1) + ttl + SLACK, "{took:?}");
    drop(crashed);
    // Its next renewal is of the time that it is.
    nap(500).await;
    let ahead = "SELECT until > clock_timestamp() + interval '1 minute' FROM lockattr.locks \
                 WHERE name = 'lock:held'";
    assert_eq!(server.ask(ahead), "f");
    assert!(lease.remaining() > Duration::ZERO);
    lease.release().await.unwrap();
}
