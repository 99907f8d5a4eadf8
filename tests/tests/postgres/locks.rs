//! Locks of every kind on one server.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::postgres::Postgres;
use tests::reruns::a_burst_costs_two_runs;
use tests::wait;

use crate::support::{SLACK, client, nap, pair, taken};

#[tokio::test]
async fn a_lock_is_a_row_with_its_owner_and_gone_when_it_is_given_back() {
    let (server, locks) = pair().await;
    let lease = taken(&locks, "sync:it's \\ 42").await;
    let row = server.rows(
        "SELECT name, owner, state, permits, since <= clock_timestamp(), until - since = ttl, \
           extract(epoch FROM ttl)::integer, token FROM lockattr.locks",
    );
    let expected = [
        "lock:sync:it's \\ 42",
        lease.owner(),
        "held",
        "1",
        "t",
        "t",
        "30",
        "0",
    ];
    assert_eq!(row, [expected]);
    let busy = locks.lock("sync:it's \\ 42").acquire().await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    lease.release().await.unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM lockattr.locks"), "0");
}

#[tokio::test]
async fn a_key_that_cannot_be_stored_is_invalid() {
    let (_server, locks) = pair().await;
    let error = locks.lock("a\0b").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("U+0000"), "{error}");
}

#[tokio::test]
async fn slots_and_lists_are_kept_and_given_back() {
    let (server, locks) = pair().await;
    let slot = async || locks.lock("geo").permits(2).acquire().await;
    let (one, two) = (slot().await.unwrap(), slot().await.unwrap());
    assert_eq!(server.locks(), ["lock:geo"]);
    let owners = [one.owner(), two.owner()].map(str::to_owned);
    assert_eq!(server.holders("lock:geo"), owners);
    assert!(matches!(slot().await, Err(Error::Busy { .. })));
    drop((one, two));
    wait::until("both are free", || server.locks().is_empty()).await;

    let both = locks.lock_all(["b", "a"]).acquire().await.unwrap();
    assert_eq!(server.locks(), ["lock:a", "lock:b"]);
    let busy = locks.lock_all(["c", "b"]).acquire().await.unwrap_err();
    assert!(busy.to_string().contains("`b`"), "{busy}");
    both.release().await.unwrap();
    assert!(server.locks().is_empty());
}

#[distributed_lock(key = "report:<day>", once = "1h", on_busy = skip, client = locks)]
async fn report(locks: &Client, day: u32) -> Result<Option<u32>, Error> {
    Ok(Some(day))
}

#[distributed_lock(key = "poll", min_hold = "1s", on_busy = skip, client = locks)]
async fn poll(locks: &Client) -> Result<Option<()>, Error> {
    Ok(Some(()))
}

#[tokio::test]
async fn marks_and_minimum_holds_stay_for_their_time() {
    let (server, locks) = pair().await;
    assert_eq!(report(&locks, 7).await.unwrap(), Some(7));
    assert_eq!(report(&locks, 7).await.unwrap(), None);
    let states = server.rows("SELECT name, state FROM lockattr.locks");
    assert_eq!(states, [["lock:report:7", "done"]]);
    let begun = Instant::now();
    assert!(poll(&locks).await.unwrap().is_some());
    while poll(&locks).await.unwrap().is_none() {
        nap(20).await;
    }
    let took = begun.elapsed();
    assert!(
        Duration::from_millis(900) < took && took < Duration::from_secs(1) + SLACK,
        "{took:?}"
    );
}

#[tokio::test]
async fn tokens_grow_from_lease_to_lease_also_over_a_crash_of_the_server() {
    let (server, locks) = pair().await;
    let mut last = 0;
    for round in 0..4 {
        let lease = taken(&locks, "a").await;
        let token = lease.token().await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        lease.release().await.unwrap();
        if round == 1 {
            server.kill();
            server.restart();
        }
        if round == 2 {
            // The clock is set back by an hour: the last token is remembered.
            let ahead = "UPDATE lockattr.locks SET token = token + 3600000000";
            server.rows(ahead);
            last += 3_600_000_000;
        }
    }
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_ttl_and_a_client_its_runtimes() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let held = tokio::task::spawn_blocking({
        let locks = locks.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let lease = runtime.unwrap().block_on(async {
                locks
                    .lock("a")
                    .ttl(Duration::from_millis(600))
                    .acquire()
                    .await
                    .unwrap()
            });
            // Nothing runs here any more, and renewals go on.
            std::thread::sleep(Duration::from_millis(1500));
            lease
        }
    });
    let held = held.await.unwrap();
    assert_eq!(server.owner("lock:a").as_deref(), Some(held.owner()));
    held.release().await.unwrap();
    assert!(server.locks().is_empty());
    assert_eq!(server.logged_errors(), [""; 0]);
}

#[tokio::test]
async fn a_client_has_two_sessions_and_leaves_none_behind() {
    let server = Postgres::start();
    let locks = client(&server).await;
    let mut leases = Vec::new();
    for key in 0..50 {
        let key = format!("k{key}");
        leases.push(
            locks
                .lock(key)
                .ttl(Duration::from_secs(2))
                .acquire()
                .await
                .unwrap(),
        );
    }
    nap(2500).await;
    assert_eq!(server.sessions(), 2);
    assert_eq!(server.locks().len(), 50);
    drop(leases);
    wait::until("all are free", || server.locks().is_empty()).await;
    drop(locks);
    wait::until("the sessions end", || server.sessions() == 0).await;
}

#[tokio::test]
async fn a_lock_costs_two_messages_and_a_handover_three() {
    let server = Postgres::with(&["log_statement=all"]);
    let (one, two) = (client(&server).await, client(&server).await);
    let lease = taken(&one, "a").await;
    lease.release().await.unwrap();
    let begun = server.statements("");
    let lease = taken(&one, "a").await;
    lease.release().await.unwrap();
    assert_eq!(server.statements("") - begun, 2);

    // Whoever waits is granted it, and told: it asks no more.
    let lease = taken(&one, "b").await;
    let waiter = tokio::spawn(two.lock("b").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    nap(300).await;
    let begun = (server.statements(""), Instant::now());
    lease.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    let took = begun.1.elapsed();
    next.release().await.unwrap();
    let pings = server.statements("SET LOCAL statement_timeout=1000;\n");
    let handover = server.statements("") - begun.0 - pings;
    assert!(
        (3..=4).contains(&handover),
        "{handover} messages\n{}",
        server.log()
    );
    assert!(took < Duration::from_millis(700), "{took:?}");
}

#[test]
fn threads_without_a_runtime_exclude_each_other() {
    let server = Postgres::start();
    tests::threads::exclude_each_other(&server.url());
}

#[tokio::test]
async fn of_many_events_during_a_run_one_is_seen_to_after_it() {
    let (server, locks) = pair().await;
    let others = client(&server).await;
    a_burst_costs_two_runs(&locks, &others, SLACK * 4).await;
}
