//! Behind PgBouncer.

use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::pgbouncer::PgBouncer;
use tests::postgres::Postgres;
use tests::wait;
use tokio_postgres::NoTls;

use crate::support::{BOUND, SLACK, client, connected, nap, taken};

/// Somebody else in the same pool, who leaves what he has set to the next. The timeouts are set last: they
/// are those of every statement behind them as well.
async fn leaves_settings_behind(bouncer: &PgBouncer) {
    let (db, connection) = tokio_postgres::connect(&bouncer.url(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    db.batch_execute(
        "SET search_path = nowhere; SET default_transaction_isolation = serializable; \
         SET default_transaction_read_only = on; SET standard_conforming_strings = off; \
         SET TimeZone = 'Pacific/Apia'; SET IntervalStyle = 'iso_8601'; \
         SET synchronous_commit = off; DEALLOCATE ALL; PREPARE acquire AS SELECT 1; \
         SET lock_timeout = '1ms'; SET statement_timeout = '1ms'",
    )
    .await
    .unwrap();
}

/// Where wake-ups go straight to the server.
fn url(bouncer: &PgBouncer, server: &Postgres) -> String {
    format!("{}?listen={}", bouncer.url(), server.address())
}

async fn works(server: &Postgres, locks: &Client, other: &Client) {
    let lease = taken(locks, "a'\\b").await;
    lease.token().await.unwrap();
    let waiter = tokio::spawn(other.lock("a'\\b").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    nap(300).await;
    let begun = Instant::now();
    lease.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(700),
        "{:?}",
        begun.elapsed()
    );
    next.release().await.unwrap();
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn field_store_24_a_pooler_in_session_mode_is_as_good_as_the_server() {
    let server = Postgres::start();
    let bouncer = PgBouncer::before(&server, "session", 10);
    leaves_settings_behind(&bouncer).await;
    let one = connected(Client::builder(), &server, &bouncer.url()).await;
    let two = connected(Client::builder(), &server, &bouncer.url()).await;
    works(&server, &one, &two).await;
}

#[tokio::test]
async fn field_store_24_a_pooler_that_shares_sessions_is_refused_or_carries_commands_alone() {
    for mode in ["transaction", "statement"] {
        let server = Postgres::start();
        let bouncer = PgBouncer::before(&server, mode, 2);
        // The pool is made of sessions with other settings.
        leaves_settings_behind(&bouncer).await;
        let error = Client::connect(bouncer.url())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("listen=HOST:PORT"), "{mode}: {error}");
        assert!(server.locks().is_empty(), "{mode}");

        let url = url(&bouncer, &server);
        let one = connected(Client::builder(), &server, &url).await;
        let two = connected(Client::builder(), &server, &url).await;
        leaves_settings_behind(&bouncer).await;
        works(&server, &one, &two).await;
    }
}

#[tokio::test]
async fn field_store_24_orders_to_the_pooler_cost_no_lease() {
    let server = Postgres::start();
    let bouncer = PgBouncer::before(&server, "transaction", 2);
    let locks = connected(Client::builder(), &server, &url(&bouncer, &server)).await;
    let direct = client(&server).await;
    let held = locks
        .lock("held")
        .ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();

    bouncer.order("RECONNECT").await;
    taken(&locks, "a").await.release().await.unwrap();

    // Whoever comes in between is forgotten by the pooler, so nobody does.
    bouncer.order("KILL postgres").await;
    bouncer.order("RESUME postgres").await;
    let lease = locks.lock("c").acquire().await;
    lease
        .unwrap_or_else(|error| panic!("{error}\n{}", bouncer.log()))
        .release()
        .await
        .unwrap();

    bouncer.order("PAUSE").await;
    let begun = Instant::now();
    let error = locks.lock("b").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(begun.elapsed() < 3 * BOUND, "{:?}", begun.elapsed());
    bouncer.order("RESUME").await;
    // What was asked for meanwhile is given back.
    let free = async || {
        direct
            .lock("b")
            .wait(Duration::from_secs(10))
            .acquire()
            .await
    };
    free().await.unwrap().release().await.unwrap();

    assert_eq!(server.owner("lock:held").as_deref(), Some(held.owner()));
    held.release().await.unwrap();
    let none = || server.locks().is_empty();
    wait::within("nothing is left", SLACK + Duration::from_secs(1), none).await;
}
