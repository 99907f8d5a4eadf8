//! What the locks of a cluster look like from outside, and how they are ended there.

use std::time::{Duration, SystemTime};

use lockattr::store::inspect::{Ended, Entry, EntryKind, Severity};
use lockattr::{Client, Error, Lease, distributed_lock};
use tests::etcd::Etcd;
use tests::inspected::{end, entry, is_held_by, list, show};
use tests::statuses::{is_told_of_everything, is_told_of_slots};
use tests::wait;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{SLACK, TTL, client, queued, take, told_within};

/// Leaves the mark that `done` is done.
#[distributed_lock(key = "done", once = "60s", on_done = error, client = locks)]
async fn once(locks: &Client) -> Result<(), Error> {
    Ok(())
}

async fn waiter(
    cluster: &Etcd,
    locks: &Client,
    key: &str,
    permits: u32,
) -> JoinHandle<Result<Lease, Error>> {
    let before = queued(cluster, key);
    let request = locks.lock(key).ttl(TTL).permits(permits);
    let waiter = tokio::spawn(request.wait(Duration::from_secs(60)).acquire());
    wait::until("it is queued", || queued(cluster, key) > before).await;
    waiter
}

async fn in_at_once(waiter: JoinHandle<Result<Lease, Error>>) -> Lease {
    let next = timeout(SLACK, waiter).await.expect("in at once");
    next.expect("no panic").expect("a lease")
}

/// Left closed for a minute.
async fn close(locks: &Client, key: &str) {
    let request = locks.lock(key).min_hold(Duration::from_secs(60));
    request.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_listed_once_and_shown() {
    let cluster = Etcd::start(1);
    let (locks, others) = (client(&cluster).await, client(&cluster).await);
    let begun = SystemTime::now() - Duration::from_secs(2);
    let held = take(&locks, "sync:42").await;
    // Two who have waited before: the holder has kept its place.
    let first = waiter(&cluster, &others, "sync:42", 1).await;
    held.release().await.unwrap();
    let held = in_at_once(first).await;
    let second = waiter(&cluster, &locks, "sync:42", 1).await;
    let mut slots = Vec::new();
    for _ in 0..2 {
        let request = locks.lock("geo").permits(3).ttl(TTL);
        slots.push(request.acquire().await.unwrap());
    }
    // The first slot is free, and the lock is listed by the other.
    slots.remove(0).release().await.unwrap();
    once(&locks).await.unwrap();
    close(&locks, "closed").await;
    cluster.put("lock:foreign", "something");
    cluster.put("lock:{foreign}", "no lock can be called so");
    cluster.put("locker", "is of another prefix");
    let fenced = take(&locks, "fenced").await;
    fenced.token().await.unwrap();
    fenced.release().await.unwrap();

    let found = list(&others, "").await;
    let keys: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(keys, ["closed", "done", "foreign", "geo", "sync:42"]);
    let one = |key: &str| -> &Entry {
        let [entry] = found[key].entries.as_slice() else {
            panic!("{:?}", found[key])
        };
        entry
    };
    let is_since = |since: SystemTime| since >= begun && since <= SystemTime::now();
    let minute = Duration::from_secs(55)..=Duration::from_secs(62);
    let remains_a_minute = |key| {
        one(key)
            .remaining
            .is_some_and(|left| minute.contains(&left))
    };
    assert!(is_held_by(one("sync:42"), &held), "{found:?}");
    assert_eq!(found["sync:42"].waiters, 1);
    assert_eq!(found["sync:42"].permits, None);
    assert!(
        is_held_by(one("geo"), &slots[0]) && one("geo").slot == 1,
        "{found:?}"
    );
    assert_eq!(found["geo"].permits, Some(3));
    assert!(
        matches!(&one("closed").kind, EntryKind::Closed { since: Some(since), .. } if is_since(*since)),
        "{found:?}"
    );
    assert!(
        matches!(one("done").kind, EntryKind::Done { since } if is_since(since)),
        "{found:?}"
    );
    assert!(
        remains_a_minute("closed") && remains_a_minute("done"),
        "{found:?}"
    );
    assert!(
        matches!(&one("foreign").kind, EntryKind::Foreign { found } if found.contains("lease")),
        "{found:?}"
    );
    assert_eq!(one("foreign").remaining, None);

    for (pattern, keys) in [
        ("sync:*", &["sync:42"][..]),
        ("*e", &["done"]),
        ("?eo", &["geo"]),
        ("geo", &["geo"]),
        ("none*", &[]),
    ] {
        let found = list(&others, pattern).await;
        let found: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(found, keys, "{pattern}");
    }

    let shown = show(&others, "sync:42").await;
    assert!(is_held_by(&shown.listed.entries[0], &held), "{shown:?}");
    let [waiting] = shown.queue.as_slice() else {
        panic!("{shown:?}")
    };
    assert_eq!(waiting.ttl, Some(TTL));
    assert!(waiting.since.is_some_and(is_since), "{shown:?}");
    let waits = waiting.owner.clone();
    let free = show(&others, "free").await;
    assert!(free.listed.entries.is_empty() && free.queue.is_empty());
    held.release().await.unwrap();
    assert_eq!(in_at_once(second).await.owner(), waits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_shown_is_ended_and_the_next_is_in_at_once() {
    let cluster = Etcd::start(1);
    let (locks, others) = (client(&cluster).await, client(&cluster).await);
    // One that has waited, and has kept its place in front of the next.
    let held = take(&locks, "sync:42").await;
    // Longer than the next one may take: it does not wait until the holder knows.
    let ttl = Duration::from_secs(9);
    let request = others.lock("sync:42").ttl(ttl);
    let waits = tokio::spawn(request.wait(Duration::from_secs(60)).acquire());
    wait::until("it is queued", || queued(&cluster, "sync:42") == 1).await;
    let third = client(&cluster).await;
    let next = waiter(&cluster, &third, "sync:42", 1).await;
    let before = entry(&others, "sync:42").await;
    held.release().await.unwrap();
    let held = in_at_once(waits).await;
    assert_eq!(end(&others, "sync:42", &before).await, Ended::Changed);
    let shown = entry(&others, "sync:42").await;
    assert!(is_held_by(&shown, &held));
    let place = format!("lock:claim:{{lock:sync:42}}waiter:{}", held.owner());
    let stands = || cluster.get(&place).is_some();
    assert!(stands(), "a holder that has waited keeps its place");
    assert_eq!(end(&others, "sync:42", &shown).await, Ended::Ended);
    assert!(!stands(), "nobody waits for it any more");
    let next = in_at_once(next).await;
    told_within(ttl / 3, &held).await;
    assert_eq!(end(&others, "sync:42", &shown).await, Ended::Changed);
    assert!(is_held_by(&entry(&locks, "sync:42").await, &next));
    next.release().await.unwrap();
    assert_eq!(end(&others, "sync:42", &shown).await, Ended::Gone);

    // One key of a list, by the client that holds it.
    let both = locks.lock_all(["a", "b"]).ttl(TTL).acquire().await.unwrap();
    let shown = entry(&locks, "b").await;
    assert_eq!(end(&locks, "b", &shown).await, Ended::Ended);
    assert!(cluster.get("lock:a").is_some() && cluster.get("lock:b").is_none());
    told_within(TTL / 3, &both).await;

    let mut slots = Vec::new();
    for _ in 0..2 {
        let request = locks.lock("geo").permits(2).ttl(TTL);
        slots.push(request.acquire().await.unwrap());
    }
    let next = waiter(&cluster, &others, "geo", 2).await;
    let shown = show(&locks, "geo").await.listed.entries;
    assert_eq!(end(&locks, "geo", &shown[1]).await, Ended::Ended);
    let next = in_at_once(next).await;
    assert_eq!(next.slot(), 1);
    assert_eq!(end(&locks, "geo", &shown[1]).await, Ended::Changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_and_closed_times_are_ended_and_what_is_no_lock_is_not() {
    let cluster = Etcd::start(1);
    let (locks, others) = (client(&cluster).await, client(&cluster).await);
    once(&locks).await.unwrap();
    let shown = entry(&locks, "done").await;
    let mut earlier = shown.clone();
    if let EntryKind::Done { since } = &mut earlier.kind {
        *since -= Duration::from_millis(1);
    }
    assert_eq!(end(&locks, "done", &earlier).await, Ended::Changed);
    assert_eq!(end(&locks, "done", &shown).await, Ended::Ended);
    once(&locks).await.unwrap();

    close(&locks, "closed").await;
    let next = waiter(&cluster, &others, "closed", 1).await;
    let shown = entry(&locks, "closed").await;
    let mut earlier = shown.clone();
    if let EntryKind::Closed {
        since: Some(since), ..
    } = &mut earlier.kind
    {
        *since -= Duration::from_secs(10);
    }
    assert_eq!(end(&locks, "closed", &earlier).await, Ended::Changed);
    assert_eq!(end(&locks, "closed", &shown).await, Ended::Ended);
    in_at_once(next).await.release().await.unwrap();

    cluster.put("lock:foreign", "something");
    let shown = entry(&locks, "foreign").await;
    let refused = locks.inspect().unwrap().end("foreign", &shown).await;
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert!(cluster.get("lock:foreign").is_some());
}

/// More than is read in one step, and than there are in a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_keys_are_each_listed_once() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let mut held = Vec::new();
    for from in (0..1_500).step_by(30) {
        let keys: Vec<_> = (from..from + 30).map(|key| format!("k:{key}")).collect();
        let request = locks.lock_all(keys).ttl(Duration::from_secs(60));
        held.push(request.acquire().await.unwrap());
    }
    assert_eq!(list(&locks, "k:*").await.len(), 1_500);
    let some = list(&locks, "k:14??").await;
    assert_eq!(some.len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_cluster_has_no_fault_and_a_member_that_is_away_is_one() {
    let cluster = Etcd::start(3);
    let locks = client(&cluster).await;
    let inspector = locks.inspect().unwrap();
    let findings = inspector.diagnose().await.unwrap();
    for finding in &findings {
        // Servers before 3.4.31 are told to have a fault of their own.
        let is_old = finding.topic == "server" && finding.severity == Severity::Warning;
        assert!(is_old || finding.severity == Severity::Good, "{finding:?}");
    }
    for topic in [
        "server",
        "role",
        "space",
        "encryption",
        "leader",
        "members",
        "latency",
        "rights",
    ] {
        assert!(
            findings.iter().any(|finding| finding.topic == topic),
            "{topic}: {findings:?}"
        );
    }
    assert_eq!(cluster.keys("lock:"), []);
    cluster.kill(2);
    let away = cluster.addresses()[2].to_string();
    let findings = inspector.diagnose().await.unwrap();
    let is_told = findings
        .iter()
        .any(|finding| finding.part == away && finding.severity == Severity::Fault);
    assert!(is_told, "{findings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_taking_it_a_client_is_told_who_holds_a_key() {
    let cluster = Etcd::start(1);
    let (locks, others) = (client(&cluster).await, client(&cluster).await);
    is_told_of_everything(&locks, &others, TTL).await;
    is_told_of_slots(&locks, &others, TTL).await;
}
