//! What locks cost the database.

use std::time::{Duration, Instant};

use tests::postgres::Postgres;
use tests::wait;
use tokio_postgres::NoTls;

use crate::support::{SLACK, client, nap, taken};

#[tokio::test]
async fn field_store_27_nobody_is_notified_where_nobody_waits() {
    let server = Postgres::with(&["log_statement=all"]);
    let (one, two) = (client(&server).await, client(&server).await);
    let before = (
        server.statements("pg_notify"),
        server.statements(" LISTEN") + server.statements(";LISTEN"),
    );
    for key in 0..5 {
        let lease = taken(&one, &format!("k{key}")).await;
        assert!(two.lock(format!("k{key}")).acquire().await.is_err());
        lease.token().await.unwrap();
        lease.release().await.unwrap();
    }
    assert_eq!(server.statements("pg_notify"), before.0);

    // Where somebody waits, it is told in a transaction that changes nothing.
    let lease = taken(&one, "a").await;
    let waiter = tokio::spawn(two.lock("a").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    lease.release().await.unwrap();
    let _next = waiter.await.unwrap().unwrap();
    assert_eq!(server.statements("pg_notify"), before.0 + 1);
    let log = server.log();
    let mut told = log.lines().filter(|line| line.contains("pg_notify"));
    assert!(told.all(|line| !line.contains("lockattr.release")), "{log}");
}

#[tokio::test]
async fn field_store_27_a_lock_is_free_also_where_nobody_can_be_notified() {
    let server = Postgres::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let lease = taken(&one, "a").await;
    let waiter = tokio::spawn(two.lock("a").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    // Whoever notifies has all others that do wait for the end of its commit. This one waits itself, for a
    // standby that there is not.
    server.rows("ALTER ROLE postgres SET synchronous_commit = local");
    server.rows("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.end_sessions("true");
    wait::until("it waits", || server.waiters() == 1).await;
    server.rows("SELECT pg_reload_conf()");
    let (db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let stuck = tokio::spawn(async move {
        let work = "SET synchronous_commit = on; CREATE TABLE work (n integer); NOTIFY others";
        drop(db.batch_execute(work).await);
    });
    let is_stuck = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait::until("it is stuck", || server.ask(is_stuck) == "1").await;

    let begun = Instant::now();
    lease.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(1) + SLACK,
        "{:?}",
        begun.elapsed()
    );
    next.release().await.unwrap();
    taken(&two, "b").await.release().await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(2) + SLACK,
        "{:?}",
        begun.elapsed()
    );
    stuck.abort();
}

#[tokio::test]
async fn field_store_27_a_snapshot_that_stays_open_leaves_renewals_bounded() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let (db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    db.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lockattr.locks")
        .await
        .unwrap();
    // As many renewals of a lock as half an hour brings to one with a ttl of six seconds.
    let lease = taken(&locks, "a").await;
    let renew = format!(
        "SELECT count(*) FROM generate_series(1, 900) AS i, LATERAL \
           (SELECT lockattr.renew(ARRAY[0], ARRAY['lock:a'], ARRAY['{}'], ARRAY[30000 + i], \
             ARRAY[false])) AS renewed",
        lease.owner()
    );
    server.rows(&renew);
    let begun = Instant::now();
    for _ in 0..5 {
        lease.extend(Duration::from_secs(30)).await.unwrap();
    }
    let each = begun.elapsed() / 5;
    assert!(each < Duration::from_millis(100), "{each:?}");
    let size = server.ask("SELECT pg_total_relation_size('lockattr.locks')");
    assert!(size.parse::<u64>().unwrap() < 2_000_000, "{size} bytes");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn what_is_over_is_swept_away_and_last_tokens_later() {
    let (server, locks) = crate::support::pair().await;
    let lost = locks
        .lock("lost")
        .ttl(Duration::from_millis(50))
        .renew(false)
        .acquire()
        .await;
    let fenced = taken(&locks, "fenced").await;
    fenced.token().await.unwrap();
    fenced.release().await.unwrap();
    let held = taken(&locks, "held").await;
    nap(100).await;
    server.rows("SELECT lockattr.sweep()");
    let names = || {
        let rows = server.rows("SELECT name FROM lockattr.locks ORDER BY name");
        rows.into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(names(), ["lock:fenced", "lock:held", "lock:lost"]);
    let later = |by: &str| {
        server.rows(&format!(
            "UPDATE lockattr.locks SET until = until - interval '{by}' WHERE name <> 'lock:held'; \
             SELECT lockattr.sweep()"
        ));
    };
    later("2 minutes");
    assert_eq!(names(), ["lock:fenced", "lock:held"]);
    later("8 days");
    assert_eq!(names(), ["lock:held"]);
    held.release().await.unwrap();
    drop(lost);
}

/// Transactions of others in so much time, beside as many locks as there are.
async fn others_transactions(server: &Postgres, length: Duration) -> u32 {
    let (db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    db.batch_execute("CREATE TABLE IF NOT EXISTS work (n integer); TRUNCATE work")
        .await
        .unwrap();
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < length {
        db.batch_execute("INSERT INTO work VALUES (1)")
            .await
            .unwrap();
        count += 1;
    }
    count
}

#[tokio::test]
async fn field_store_27_whoever_waits_for_a_lock_slows_nobody_who_does_not() {
    let server = Postgres::start();
    let locks = [client(&server).await, client(&server).await];
    let length = Duration::from_millis(300);
    let (mut alone, mut beside) = (0, 0);
    // The best of some rounds, in turns: others may be at work on the machine.
    for _ in 0..4 {
        alone = alone.max(others_transactions(&server, length).await);
        let lease = taken(&locks[0], "a").await;
        let waiters: Vec<_> = (0..10)
            .map(|_| tokio::spawn(locks[1].lock("a").wait(Duration::from_secs(20)).acquire()))
            .collect();
        wait::until("it waits", || server.waiters() >= 1).await;
        beside = beside.max(others_transactions(&server, length).await);
        for waiter in waiters {
            waiter.abort();
        }
        lease.release().await.unwrap();
        let free = || server.locks().is_empty();
        wait::within("nothing is left", SLACK, free).await;
    }
    assert!(
        beside > alone / 3,
        "{alone} transactions alone, {beside} beside waiters"
    );
}
