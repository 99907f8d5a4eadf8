//! A transaction of the application's that is fenced: it commits only while nobody else can hold the lock.

use std::time::{Duration, Instant};

use lockattr::Error;
use tests::postgres::Postgres;
use tests::wait;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::support::{SLACK, client, nap, taken};

const FENCE: &str = "SELECT lockattr.fence($1, $2)";

/// The error that says that the lease is gone.
fn gone() -> SqlState {
    SqlState::from_code("LK001")
}

async fn database(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn token(lease: u64) -> i64 {
    i64::try_from(lease).unwrap()
}

#[tokio::test]
async fn a_transaction_of_a_holder_that_was_overtaken_does_not_commit() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let mut db = database(&server).await;
    db.batch_execute("CREATE TABLE account (balance integer); INSERT INTO account VALUES (1)")
        .await
        .unwrap();
    let short = locks.lock("a").ttl(Duration::from_millis(400)).renew(false);
    let lease = short.acquire().await.unwrap();
    let first = token(lease.token().await.unwrap());
    let transaction = db.transaction().await.unwrap();
    transaction
        .execute(FENCE, &[&"lock:a", &first])
        .await
        .unwrap();
    transaction
        .execute("UPDATE account SET balance = 2", &[])
        .await
        .unwrap();
    transaction.commit().await.unwrap();

    // It stands still for longer than its ttl, and goes on to write.
    nap(500).await;
    for overtaken in [false, true] {
        let next = if overtaken {
            Some(taken(&locks, "a").await)
        } else {
            None
        };
        let transaction = db.transaction().await.unwrap();
        transaction
            .execute("UPDATE account SET balance = 3", &[])
            .await
            .unwrap();
        let error = transaction
            .execute(FENCE, &[&"lock:a", &first])
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some(&gone()), "{error}");
        drop(transaction);
        drop(next);
    }
    assert_eq!(server.ask("SELECT balance FROM account"), "2");
}

#[tokio::test]
async fn nobody_takes_the_lock_before_a_fenced_transaction_has_ended() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let mut db = database(&server).await;
    let short = locks.lock("a").ttl(Duration::from_millis(400)).renew(false);
    let lease = short.acquire().await.unwrap();
    let token = token(lease.token().await.unwrap());
    let transaction = db.transaction().await.unwrap();
    transaction
        .execute(FENCE, &[&"lock:a", &token])
        .await
        .unwrap();
    nap(600).await;

    // Its time is over, and the transaction goes on: others find the lock busy, at once.
    let begun = Instant::now();
    let busy = locks.lock("a").acquire().await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    assert!(begun.elapsed() < SLACK);
    let waiter = tokio::spawn(locks.lock("a").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    nap(300).await;
    assert!(!waiter.is_finished());
    transaction.commit().await.unwrap();
    let committed = Instant::now();
    let _next = waiter.await.unwrap().unwrap();
    assert!(committed.elapsed() < SLACK, "{:?}", committed.elapsed());
}

#[tokio::test]
async fn a_fenced_transaction_keeps_no_lease_from_being_renewed_and_its_lock_until_its_end() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let mut db = database(&server).await;
    let lease = locks
        .lock("a")
        .ttl(Duration::from_millis(600))
        .acquire()
        .await
        .unwrap();
    let other = taken(&locks, "b").await;
    let token = token(lease.token().await.unwrap());
    let transaction = db.transaction().await.unwrap();
    transaction
        .execute(FENCE, &[&"lock:a", &token])
        .await
        .unwrap();
    nap(1500).await;
    assert!(lease.remaining() > Duration::ZERO);
    assert_eq!(server.owner("lock:a").as_deref(), Some(lease.owner()));

    // Given back before the end, it is free after the end; nobody else waits for that.
    drop(lease);
    let begun = Instant::now();
    other.release().await.unwrap();
    let again = taken(&locks, "b").await;
    again.release().await.unwrap();
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    transaction.commit().await.unwrap();
    let free = || server.locks().is_empty();
    wait::within("it is free", Duration::from_secs(1) + SLACK, free).await;
}

#[tokio::test]
async fn only_the_last_token_of_the_lease_that_stands_is_good() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let db = database(&server).await;
    let lease = taken(&locks, "a").await;
    let first = token(lease.token().await.unwrap());
    for wrong in [first - 1, first + 1, 0] {
        let error = db.execute(FENCE, &[&"lock:a", &wrong]).await.unwrap_err();
        assert_eq!(error.code(), Some(&gone()), "{error}");
    }
    let other_lock = db.execute(FENCE, &[&"lock:b", &first]).await;
    assert_eq!(other_lock.unwrap_err().code(), Some(&gone()));
    db.execute(FENCE, &[&"lock:a", &first]).await.unwrap();
    lease.release().await.unwrap();

    // Whoever has the lock now has drawn none: the one before it counts no more.
    let next = taken(&locks, "a").await;
    let error = db.execute(FENCE, &[&"lock:a", &first]).await.unwrap_err();
    assert_eq!(error.code(), Some(&gone()), "{error}");
    next.release().await.unwrap();
}
