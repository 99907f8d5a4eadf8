//! Several processes on one server: what the attribute is for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tests::firing::fire;
use tests::record::{self, Event, Record};
use tests::server::Server;
use tests::wait;
use tests::worker::Worker;

use crate::support::{SLACK, client};

#[test]
fn four_processes_fire_200_users_in_5_rounds_and_no_user_runs_twice_at_a_time() {
    let server = Server::start();
    let fired = fire(4, &server.url(), 200, 5);
    assert!(fired.count("busy") > 0, "{:?}", fired.findings.outcomes);
    assert_eq!(fired.findings.bodies, fired.count("done"));
    // Everybody was served in the end, and there was something to keep apart.
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in fired
        .entries
        .iter()
        .filter(|entry| entry.event == Event::Enter)
    {
        *runs.entry(&entry.key).or_default() += 1;
    }
    assert_eq!(runs.len(), 200);
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_frees_its_key_within_its_ttl() {
    let server = Server::start();
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
    // Long enough for a renewal: what counts is the ttl, not when the body began.
    let beat = server.pttl("lock:sync:42");
    wait::until("a renewal", || server.pttl("lock:sync:42") < beat).await;
    wait::until("a renewal", || server.pttl("lock:sync:42") > 1_900).await;
    holder.kill();
    let killed = Instant::now();
    assert!(server.get("lock:sync:42").is_some());
    let lease = locks
        .lock("sync:42")
        .wait(Duration::from_secs(10))
        .acquire()
        .await
        .unwrap();
    let took = killed.elapsed();
    assert!(took <= ttl + SLACK, "{took:?}");
    assert!(took >= ttl / 4, "nobody waited: {took:?}");
    lease.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_frozen_past_its_ttl_is_not_polled_again_and_harms_nobody() {
    let server = Server::start();
    let record = Record::new();
    let locks = client(&server).await;
    let mut holder = Worker::start(
        "hold",
        &server.url(),
        &record,
        &["42", "1000", "60000", "0"],
    );
    holder.says("entered");
    wait::until("the body is at work", || record.count(Event::Beat) > 3).await;
    holder.freeze();
    let frozen = record::now();
    wait::until("the lease ends", || server.get("lock:sync:42").is_none()).await;

    let next = locks
        .lock("sync:42")
        .ttl(Duration::from_secs(30))
        .acquire()
        .await
        .unwrap();
    let theirs = server.get("lock:sync:42").unwrap();
    assert_eq!(theirs, next.owner());
    holder.thaw();
    let outcome = holder.says("outcome");
    assert!(outcome.contains("Lost"), "{outcome}");
    assert!(holder.finish().success());

    // Nothing was polled after the freeze, and nobody else's lease was touched.
    let late: Vec<_> = record
        .entries()
        .into_iter()
        .filter(|entry| entry.event != Event::Outcome && entry.at > frozen)
        .collect();
    assert!(late.is_empty(), "{late:?}");
    assert_eq!(server.get("lock:sync:42").as_deref(), Some(theirs.as_str()));
    assert!(server.pttl("lock:sync:42") > 20_000);
    next.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

#[test]
fn a_holder_frozen_for_less_than_its_ttl_goes_on() {
    let server = Server::start();
    let record = Record::new();
    let mut holder = Worker::start("hold", &server.url(), &record, &["42", "4000", "3000", "0"]);
    holder.says("entered");
    holder.freeze();
    let pttl = server.pttl("lock:sync:42");
    wait::block_until("a while", || server.pttl("lock:sync:42") < pttl - 800);
    holder.thaw();
    let outcome = holder.says("outcome");
    assert!(outcome.contains("Ok"), "{outcome}");
    assert!(holder.finish().success());
    assert_eq!(server.size(), 0);
}
