//! Several processes on one server.

use std::time::{Duration, Instant};

use tests::firing::fire;
use tests::postgres::Postgres;
use tests::record::Record;
use tests::wait;
use tests::worker::Worker;

use crate::support::{SLACK, client, nap};

#[test]
fn processes_that_make_the_tables_at_once_exclude_each_other_and_log_no_error() {
    let server = Postgres::start();
    let fired = fire(4, &server.url(), 40, 3);
    assert!(fired.count("busy") > 0, "{:?}", fired.findings.outcomes);
    assert!(server.locks().is_empty());
    assert_eq!(server.logged_errors(), [""; 0]);
}

#[tokio::test]
async fn a_killed_holder_frees_its_key_within_its_ttl_for_one_that_waits() {
    let server = Postgres::start();
    let record = Record::new();
    let locks = client(&server).await;
    let ttl = Duration::from_secs(2);
    let mut holder = Worker::start(
        "hold",
        &server.url(),
        &record,
        &["42", "2000", "60000", "0"],
    );
    holder.says("entered");
    nap(1000).await;
    holder.kill();
    let killed = Instant::now();
    let waiting = locks
        .lock("sync:42")
        .wait(Duration::from_secs(10))
        .acquire();
    let _lease = waiting.await.unwrap();
    let took = killed.elapsed();
    assert!(ttl / 4 < took && took < ttl + SLACK, "{took:?}");
}

#[tokio::test]
async fn a_holder_frozen_past_its_ttl_is_told_and_harms_nobody() {
    let server = Postgres::start();
    let record = Record::new();
    let locks = client(&server).await;
    let mut holder = Worker::start(
        "hold",
        &server.url(),
        &record,
        &["42", "1000", "60000", "0"],
    );
    holder.says("entered");
    holder.freeze();
    let next = locks
        .lock("sync:42")
        .wait(Duration::from_secs(10))
        .acquire()
        .await
        .unwrap();
    holder.thaw();
    let outcome = holder.says("outcome");
    assert!(outcome.contains("Lost"), "{outcome}");
    assert!(holder.finish().success());
    assert_eq!(server.owner("lock:sync:42").as_deref(), Some(next.owner()));
}

#[tokio::test]
async fn those_who_wait_are_served_in_their_order_whoever_is_killed_among_them() {
    let server = Postgres::start();
    let record = Record::new();
    let locks = client(&server).await;
    let lease = locks.lock("sync:1").acquire().await.unwrap();
    let wait = |length: &str| {
        Worker::start(
            "hold",
            &server.url(),
            &record,
            &["1", "1000", length, "20000"],
        )
    };
    let mut waiters = Vec::new();
    for index in 0..4 {
        waiters.push(wait("100"));
        wait::until("it waits", || server.waiters() == index + 1).await;
    }
    waiters[1].kill();
    lease.release().await.unwrap();
    for waiter in [0, 2, 3] {
        waiters[waiter].says("outcome");
    }
    let entered: Vec<_> = record
        .entries()
        .into_iter()
        .filter(|entry| entry.event == tests::record::Event::Enter)
        .map(|entry| entry.process)
        .collect();
    let expected: Vec<_> = [0, 2, 3].map(|waiter| waiters[waiter].id()).to_vec();
    assert_eq!(entered, expected);
}
