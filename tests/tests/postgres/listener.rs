//! The stream of wake-ups: lost, cut, silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockattr::Client;
use tests::postgres::{Postgres, url};
use tests::proxy::{Proxy, Treatment, Way};
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{SLACK, client, connected, nap, taken};

/// What a lost wake-up costs a waiter at most.
const LOOK: Duration = Duration::from_secs(1);

/// Many callers of two clients, who come back at once; ended with the test.
fn turns(clients: &[Client], key: &'static str, done: &Arc<AtomicUsize>) -> Vec<JoinHandle<()>> {
    let turn = |locks: &Client| {
        let (locks, done) = (locks.clone(), Arc::clone(done));
        tokio::spawn(async move {
            loop {
                let lease = locks
                    .lock(key)
                    .wait(Duration::from_secs(20))
                    .acquire()
                    .await;
                if let Ok(lease) = lease {
                    nap(1).await;
                    done.fetch_add(1, Ordering::Relaxed);
                    drop(lease.release().await);
                } else {
                    nap(20).await;
                }
            }
        })
    };
    clients.iter().map(turn).collect()
}

#[tokio::test]
async fn field_store_26_a_listener_that_is_ended_at_the_moment_of_a_release_costs_one_look() {
    let server = Postgres::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let mut slow = Vec::new();
    for _ in 0..60 {
        let lease = taken(&one, "a").await;
        let waiter = tokio::spawn(two.lock("a").wait(Duration::from_secs(20)).acquire());
        wait::until("it waits", || server.waiters() == 1).await;
        let begun = Instant::now();
        let ending = tokio::task::spawn_blocking({
            let url = server.url();
            move || end_listeners(&url)
        });
        lease.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        slow.push(begun.elapsed());
        next.release().await.unwrap();
        ending.await.unwrap();
    }
    slow.sort();
    assert!(slow[slow.len() - 1] < LOOK + SLACK, "{slow:?}");
    assert_eq!(server.locks(), [""; 0]);
}

fn end_listeners(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (db, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        db.simple_query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'lockattr' \
               AND (query LIKE '%LISTEN%' OR query LIKE '%renew%')",
        )
        .await
        .unwrap();
    });
}

#[tokio::test]
async fn field_store_26_waiters_are_woken_again_after_the_server_was_restarted_or_has_crashed() {
    let server = Postgres::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let done = Arc::new(AtomicUsize::new(0));
    let tasks = turns(
        &[one.clone(), two.clone(), one.clone(), two.clone()],
        "a",
        &done,
    );
    for crash in [false, true] {
        let before = done.load(Ordering::Relaxed);
        wait::until("turns are taken", || {
            done.load(Ordering::Relaxed) > before + 20
        })
        .await;
        if crash {
            server.kill();
        } else {
            server.stop();
        }
        let before = done.load(Ordering::Relaxed);
        nap(300).await;
        server.restart();
        // Whoever held it may have to be waited for: its ttl is two seconds.
        let limit = 2 * LOOK + Duration::from_secs(2) + SLACK;
        let goes_on = || done.load(Ordering::Relaxed) > before + 20;
        wait::within("turns are taken", limit, goes_on).await;
    }
    for task in tasks {
        task.abort();
    }
    let free = || server.locks().is_empty();
    wait::within("nothing is left", SLACK + LOOK, free).await;
}

#[tokio::test]
async fn field_store_26_a_listener_that_is_silent_without_a_reset_is_replaced() {
    let server = Postgres::start();
    let proxy = Proxy::before(server.address());
    let listen = format!("{}?listen={}", server.url(), proxy.address());
    let one = client(&server).await;
    let two = connected(Client::builder(), &server, &listen).await;
    let lease = taken(&one, "a").await;
    let waiter = tokio::spawn(two.lock("a").wait(Duration::from_secs(20)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    // For as long as nothing is said, the server is asked every other second.
    proxy.treat(Way::Replies, Treatment::Swallow);
    nap(2800).await;
    let before = proxy.accepted();
    proxy.heal();
    // What was swallowed stays lost with its connection.
    let replaced = || proxy.accepted() > before;
    wait::within("it connects anew", Duration::from_secs(2) + SLACK, replaced).await;
    nap(300).await;
    let begun = Instant::now();
    lease.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(begun.elapsed() < LOOK + SLACK, "{:?}", begun.elapsed());
    next.release().await.unwrap();
}

#[tokio::test]
async fn field_store_26_nobody_spins_while_the_server_is_away() {
    let server = Postgres::start();
    let proxy = Proxy::before(server.address());
    let one = connected(Client::builder(), &server, &url(proxy.address())).await;
    let holder = client(&server).await;
    let lease = taken(&holder, "a").await;
    let waiters: Vec<_> = (0..20)
        .map(|_| tokio::spawn(one.lock("a").wait(Duration::from_secs(20)).acquire()))
        .collect();
    wait::until("one waits for all", || server.waiters() == 1).await;
    proxy.refuse();
    let before = proxy.accepted();
    nap(2000).await;
    let tries = proxy.accepted() - before;
    assert!(
        (1..60).contains(&tries),
        "{tries} connections in two seconds"
    );
    for waiter in waiters {
        waiter.abort();
    }
    drop(lease);
}

#[tokio::test]
async fn field_store_26_each_waiter_looks_once_when_the_stream_is_there_again() {
    let server = Postgres::with(&["log_statement=all"]);
    let (one, two) = (client(&server).await, client(&server).await);
    let mut leases = Vec::new();
    let mut waiters = Vec::new();
    for key in 0..30 {
        let key = format!("k{key}");
        leases.push(taken(&one, &key).await);
        waiters.push(tokio::spawn(
            two.lock(key).wait(Duration::from_secs(30)).acquire(),
        ));
    }
    wait::until("all wait", || server.waiters() == 30).await;
    nap(300).await;
    let before = server.statements("lockattr.acquire");
    let begun = Instant::now();
    let of_two = "query LIKE '%LISTEN%' OR query LIKE '%renew%'";
    assert_eq!(server.end_sessions(&format!("({of_two})")), 2);
    nap(500).await;
    let looks = server.statements("lockattr.acquire") - before;
    // Each looks by itself every second as well.
    let by_themselves = 30 * (1 + usize::try_from(begun.elapsed().as_millis() / 700).unwrap());
    assert!((30..=30 + by_themselves).contains(&looks), "{looks} looks");
    for waiter in waiters {
        waiter.abort();
    }
}
