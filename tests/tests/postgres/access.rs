//! Roles, the first start, standbys, and what is set for a database.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, POSTGRES_SCHEMA};
use tests::postgres::Postgres;
use tests::wait;

use crate::support::{BOUND, SLACK, client, connected, nap, taken};

#[tokio::test]
async fn field_store_28_thirty_clients_make_the_tables_at_once() {
    let server = Postgres::start();
    let clients: Vec<_> = (0..30)
        .map(|_| {
            let builder = Client::builder().connect_timeout(Duration::from_secs(20));
            let builder = builder.reply_timeout(Duration::from_secs(20));
            tokio::spawn(builder.connect(server.url()))
        })
        .collect();
    let mut locks = Vec::new();
    for client in clients {
        locks.push(
            client
                .await
                .unwrap()
                .unwrap_or_else(|error| panic!("{error}")),
        );
    }
    let lease = taken(&locks[0], "a").await;
    assert!(matches!(
        locks[29].lock("a").acquire().await,
        Err(Error::Busy { .. })
    ));
    lease.release().await.unwrap();
    assert_eq!(server.logged_errors(), [""; 0]);
}

#[tokio::test]
async fn field_store_28_a_role_without_rights_is_refused_by_name_and_works_after_an_administrator()
{
    let server = Postgres::start();
    server.rows("CREATE ROLE jobs LOGIN");
    let error = Client::connect(server.url_as("jobs"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("permission denied for database postgres"),
        "{error}"
    );
    assert!(error.contains("POSTGRES_SCHEMA"), "{error}");

    server.rows(POSTGRES_SCHEMA);
    let error = Client::connect(server.url_as("jobs"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("permission denied for schema lockattr"),
        "{error}"
    );

    server.rows("GRANT USAGE ON SCHEMA lockattr TO jobs");
    let error = Client::connect(server.url_as("jobs"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("permission denied for table locks"),
        "{error}"
    );

    server.rows("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockattr TO jobs");
    let jobs = connected(Client::builder(), &server, &server.url_as("jobs")).await;
    let admin = client(&server).await;
    let lease = taken(&jobs, "a").await;
    let waiter = tokio::spawn(admin.lock("a").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    // It may be run again at any time.
    server.rows(POSTGRES_SCHEMA);
    taken(&jobs, "a").await.release().await.unwrap();
}

#[tokio::test]
async fn field_store_28_what_a_role_or_a_database_has_set_makes_no_difference() {
    let server = Postgres::start();
    server.rows(
        "CREATE ROLE odd SUPERUSER LOGIN; \
         ALTER ROLE odd SET default_transaction_isolation = serializable; \
         ALTER ROLE odd SET default_transaction_read_only = on; \
         ALTER ROLE odd SET default_transaction_deferrable = on; \
         ALTER ROLE odd SET search_path = odd, public; \
         ALTER ROLE odd SET lock_timeout = '1ms'; \
         ALTER ROLE odd SET synchronous_commit = off; \
         ALTER ROLE odd SET idle_session_timeout = '300ms'; \
         ALTER ROLE odd SET standard_conforming_strings = off; \
         CREATE SCHEMA odd; CREATE TABLE odd.locks (name text); \
         CREATE FUNCTION odd.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS \
           'SELECT timestamptz ''2000-01-01''';",
    );
    let url = server.url_as("odd");
    let (one, two) = (
        connected(Client::builder(), &server, &url).await,
        connected(Client::builder(), &server, &url).await,
    );
    // Sessions end when they are idle, and are begun anew.
    for _ in 0..2 {
        let lease = taken(&one, "it's").await;
        let waiter = tokio::spawn(two.lock("it's").wait(Duration::from_secs(20)).acquire());
        wait::until("it waits", || server.waiters() == 1).await;
        nap(500).await;
        lease.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        nap(500).await;
    }
    // Many at once, of whom serializable transactions would fail.
    let tasks: Vec<_> = (0..40)
        .map(|task| {
            let locks = if task % 2 == 0 {
                one.clone()
            } else {
                two.clone()
            };
            tokio::spawn(async move {
                let lease = locks
                    .lock("crowd")
                    .wait(Duration::from_secs(20))
                    .acquire()
                    .await;
                lease.unwrap().release().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let errors = server.logged_errors();
    let idle = "terminating connection due to idle-session timeout";
    assert!(
        errors.iter().all(|error| error.contains(idle)),
        "{errors:?}"
    );
}

#[tokio::test]
async fn field_store_28_a_statement_timeout_of_a_millisecond_is_set_aside() {
    let server = Postgres::start();
    let admin = client(&server).await;
    server
        .rows("CREATE ROLE hasty SUPERUSER LOGIN; ALTER ROLE hasty SET statement_timeout = '1ms'");
    let hasty = connected(Client::builder(), &server, &server.url_as("hasty")).await;
    for key in 0..20 {
        taken(&hasty, &format!("k{key}"))
            .await
            .release()
            .await
            .unwrap();
    }
    drop(admin);
}

#[tokio::test]
async fn field_store_28_a_standby_is_refused_and_the_primary_is_found_among_several() {
    let server = Postgres::start();
    let admin = client(&server).await;
    let standby = server.standby();
    let error = Client::connect(standby.url())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("standby"), "{error}");

    let both = format!(
        "postgres://postgres@{},{}/postgres",
        standby.address(),
        server.address()
    );
    let locks = connected(Client::builder(), &server, &both).await;
    let lease = taken(&locks, "a").await;
    assert!(matches!(
        admin.lock("a").acquire().await,
        Err(Error::Busy { .. })
    ));
    lease.release().await.unwrap();

    // The primary ends, the standby takes its place, and the old one comes back as a standby of it.
    let held = locks
        .lock("held")
        .ttl(Duration::from_secs(10))
        .acquire()
        .await
        .unwrap();
    let replayed = || {
        let lag = "SELECT count(*) FROM pg_stat_replication \
                   WHERE replay_lsn = pg_current_wal_lsn()";
        server.ask(lag) == "1"
    };
    wait::until("the standby has it", replayed).await;
    server.kill();
    standby.promote();
    let begun = Instant::now();
    let next = loop {
        match locks.lock("a").acquire().await {
            Ok(next) => break next,
            Err(error) => {
                assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
                assert!(begun.elapsed() < BOUND + SLACK, "{error}");
            }
        }
    };
    assert_eq!(standby.owner("lock:a").as_deref(), Some(next.owner()));
    assert!(matches!(
        locks.lock("held").acquire().await,
        Err(Error::Busy { .. })
    ));
    nap(4000).await;
    assert!(
        held.remaining() > Duration::from_secs(5),
        "{:?}",
        held.remaining()
    );
    held.release().await.unwrap();
}

#[tokio::test]
async fn what_a_url_cannot_have_is_told() {
    let server = Postgres::start();
    for (url, says) in [
        (
            "postgres://postgres@127.0.0.1:1/postgres".to_owned(),
            "127.0.0.1:1",
        ),
        (
            format!("postgres://postgres@{}/nowhere", server.address()),
            "\"nowhere\" does not exist",
        ),
        (
            format!("postgres://nobody@{}/postgres", server.address()),
            "\"nobody\" does not exist",
        ),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
    server.rows("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
    let latin = server
        .url()
        .replace("/postgres", "/latin")
        .replace("//latin", "//postgres");
    let error = Client::connect(&latin).await.unwrap_err().to_string();
    assert!(
        error.contains("LATIN1") && error.contains("ENCODING UTF8"),
        "{error}"
    );
}

/// A database that an earlier release has begun gets what it has not yet, while that release's locks are held.
#[tokio::test]
async fn a_database_of_an_earlier_release_is_brought_up_to_date() {
    let server = Postgres::start();
    let before = client(&server).await;
    let held = taken(&before, "held").await;
    server.rows(
        "DROP FUNCTION lockattr.take_over; DROP FUNCTION lockattr.take_beside; \
         DROP TABLE lockattr.holders; ALTER TABLE lockattr.waiters DROP COLUMN weight",
    );
    let locks = client(&server).await;
    let busy = locks.lock("held").shared().acquire().await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    let waiter = locks.lock("held").permits(5).weight(2);
    let waiter = tokio::spawn(waiter.wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    held.release().await.unwrap();
    let lease = waiter.await.unwrap().unwrap();
    let lease = before.take_up(lease.hand_off().unwrap()).await.unwrap();
    lease.release().await.unwrap();
}
