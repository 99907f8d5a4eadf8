//! Several processes on one cluster: exclusion, crashes, freezes.

use std::time::{Duration, Instant};

use tests::etcd::Etcd;
use tests::firing::fire;
use tests::record::{self, Event, Record};
use tests::wait;
use tests::worker::Worker;

use crate::support::{SLACK, client, nothing_left};

#[test]
fn four_processes_fire_50_users_in_5_rounds_and_no_user_runs_twice_at_a_time() {
    let cluster = Etcd::start(3);
    let fired = fire(4, &cluster.url(), 50, 5);
    assert!(fired.count("busy") > 0, "{:?}", fired.findings.outcomes);
    assert_eq!(fired.findings.bodies, fired.count("done"));
    assert!(cluster.keys("lock:").is_empty());
}

/// A lease of etcd's is longer than the ttl by a second, and ends within one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_frees_its_key_soon_after_its_ttl() {
    let cluster = Etcd::start(1);
    let record = Record::new();
    let locks = client(&cluster).await;
    let ttl = Duration::from_secs(2);
    let words = ["42", "2000", "60000", "0"];
    let mut holder = Worker::start("hold", &cluster.url(), &record, &words);
    holder.says("entered");
    holder.kill();
    let killed = Instant::now();
    let request = locks.lock("sync:42").wait(Duration::from_secs(10));
    let lease = request.acquire().await.unwrap();
    let took = killed.elapsed();
    assert!(took <= ttl + Duration::from_secs(2) + SLACK, "{took:?}");
    assert!(took >= ttl / 4, "nobody waited: {took:?}");
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_frozen_past_its_ttl_is_not_polled_again_and_harms_nobody() {
    let cluster = Etcd::start(1);
    let record = Record::new();
    let locks = client(&cluster).await;
    let words = ["42", "1000", "60000", "0"];
    let mut holder = Worker::start("hold", &cluster.url(), &record, &words);
    holder.says("entered");
    wait::until("the body is at work", || record.count(Event::Beat) > 3).await;
    holder.freeze();
    let frozen = record::now();
    wait::until("the lease ends", || cluster.get("lock:sync:42").is_none()).await;

    let next = locks.lock("sync:42").acquire().await.unwrap();
    let theirs = cluster.get("lock:sync:42").unwrap();
    holder.thaw();
    let outcome = holder.says("outcome");
    assert!(outcome.contains("Lost"), "{outcome}");
    assert!(holder.finish().success());
    let late = |entry: &record::Entry| entry.event != Event::Outcome && entry.at > frozen;
    assert!(!record.entries().iter().any(late));
    assert_eq!(cluster.get("lock:sync:42"), Some(theirs));
    next.release().await.unwrap();
    nothing_left(&cluster).await;
}
