//! What the locks of a database look like from outside, and how they are ended there.

use std::time::{Duration, SystemTime};

use lockattr::store::inspect::{Ended, EntryKind, Finding, Severity};
use lockattr::{Client, Error, Lease, LossCause, distributed_lock};
use tests::inspected::{end, entry, list, show};
use tests::postgres::Postgres;
use tests::statuses::{is_told_of_everything, is_told_of_slots};
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{SLACK, client, connected, pair, taken};

const PATIENT: Duration = Duration::from_secs(60);

/// One that waits in the server's queue, as the so manieth.
async fn waiter(server: &Postgres, key: &str, queued: usize) -> JoinHandle<Result<Lease, Error>> {
    let locks = client(server).await;
    let request = locks.lock(key).wait(PATIENT);
    let waiter = tokio::spawn(request.acquire());
    wait::until("it is queued", || server.waiters() == queued).await;
    waiter
}

async fn in_at_once(waiter: JoinHandle<Result<Lease, Error>>) -> Lease {
    let next = tokio::time::timeout(SLACK, waiter).await;
    next.expect("in at once").unwrap().unwrap()
}

/// Leaves the mark that `done` is done.
#[distributed_lock(key = "done", once = "60s", on_done = error, client = locks)]
async fn once(locks: &Client) -> Result<(), Error> {
    Ok(())
}

/// Leaves `closed` closed.
async fn close(locks: &Client) {
    let closed = locks.lock("closed").min_hold(PATIENT).acquire().await;
    closed.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn every_kind_is_listed_once_and_shown() {
    let (server, locks) = pair().await;
    let begun = SystemTime::now() - Duration::from_secs(1);
    let held = taken(&locks, "a:it's_%").await;
    let token = taken(&locks, "given back").await;
    token.token().await.unwrap();
    token.release().await.unwrap();
    once(&locks).await.unwrap();
    close(&locks).await;
    let slot = async || locks.lock("geo").permits(3).acquire().await.unwrap();
    let (first, _second) = (slot().await, slot().await);
    // Its second slot alone stands.
    first.release().await.unwrap();
    let other = connected(Client::builder().prefix("lock:a:"), &server, &server.url()).await;
    let _other = taken(&other, "it").await;
    let first = waiter(&server, "a:it's_%", 1).await;
    let second = waiter(&server, "a:it's_%", 2).await;

    let listed = list(&locks, "*").await;
    let keys: Vec<_> = listed.keys().map(String::as_str).collect();
    assert_eq!(keys, ["a:it", "a:it's_%", "closed", "done", "geo"]);
    assert_eq!(listed["a:it's_%"].waiters, 2);
    let kinds: Vec<_> = listed.values().flat_map(|lock| &lock.entries).collect();
    let [_, held_entry, closed, done, geo] = kinds.as_slice() else {
        panic!("{kinds:?}")
    };
    assert!(
        matches!(&held_entry.kind, EntryKind::Held { owner, since: Some(since) }
        if *owner == held.owner() && (begun..=SystemTime::now()).contains(since))
    );
    assert!(matches!(&closed.kind, EntryKind::Closed { since: Some(since), .. } if *since > begun));
    assert!(matches!(&done.kind, EntryKind::Done { since } if *since > begun));
    assert_eq!((geo.slot, listed["geo"].permits), (1, Some(3)));
    assert!(kinds.iter().all(|entry| {
        entry.remaining > Some(Duration::from_secs(15)) && entry.remaining <= Some(PATIENT)
    }));
    assert_eq!(list(&locks, "a:??").await.len(), 1);
    assert_eq!(list(&locks, "c*d").await.len(), 1);
    let others = list(&other, "").await.into_keys().collect::<Vec<_>>();
    assert_eq!(others, ["it", "it's_%"]);

    let shown = show(&locks, "a:it's_%").await;
    assert_eq!(shown.listed.waiters, 2);
    assert_eq!(shown.listed.entries.len(), 1);
    assert_eq!(shown.queue.len(), 2);
    assert_eq!(Some(shown.queue[0].owner.clone()), queued_first(&server));
    assert!(shown.queue.iter().all(|waiting| {
        waiting.since > Some(begun) && waiting.ttl == Some(Duration::from_secs(30))
    }));
    let free = show(&locks, "given back").await;
    assert!(free.listed.entries.is_empty() && free.queue.is_empty());

    // Another client, which does not hold it itself.
    let Err(Error::Busy { since, .. }) = other.lock("it's_%").acquire().await else {
        panic!("it is held")
    };
    let EntryKind::Held { since: shown, .. } = &held_entry.kind else {
        unreachable!()
    };
    assert_eq!(since, *shown);
    let nul = locks.inspect().unwrap().show("a\0b").await;
    assert!(matches!(nul, Err(Error::Invalid { .. })), "{nul:?}");
    first.abort();
    second.abort();
}

fn queued_first(server: &Postgres) -> Option<String> {
    let first = "SELECT owner FROM lockattr.waiters ORDER BY place LIMIT 1";
    server.rows(first).into_iter().flatten().next()
}

#[tokio::test]
async fn thousands_are_listed_by_pages() {
    let (server, locks) = pair().await;
    server.rows(
        "INSERT INTO lockattr.locks (name, owner, state, permits, since, until, ttl) \
         SELECT n, '*', 'held', 3, now(), 'infinity', '100 years' \
         FROM generate_series(1, 2500) i, unnest(ARRAY['lock:k' || i, 'else:' || i]) n; \
         INSERT INTO lockattr.holders (lock, owner, state, permits, weight, slot, since, until, ttl) \
         SELECT n, slot || '9ad5b1f9c07c3f9d0a1b2c3d4e5f600@h:7', 'held', 3, 1, slot, now(), now() + '1 hour', '1 hour' \
         FROM generate_series(1, 2500) i, unnest(ARRAY['lock:k' || i, 'else:' || i]) n, unnest(ARRAY[0, 2]) slot; \
         INSERT INTO lockattr.waiters (owner, lock, locks, permits, ttl, channel, seen) \
         SELECT i || '@h:1', 'lock:w' || i % 1200, ARRAY['lock:w' || i % 1200], 1, '1 s', 'c', now() \
         FROM generate_series(1, 2400) i",
    );
    let listed = list(&locks, "").await;
    assert_eq!(listed.len(), 3700);
    for (key, lock) in &listed {
        let slots: Vec<_> = lock.entries.iter().map(|entry| entry.slot).collect();
        let is_whole = if key.starts_with('k') {
            slots == [0, 2]
        } else {
            slots.is_empty() && lock.waiters == 2
        };
        assert!(is_whole, "{lock:?}");
    }
}

#[tokio::test]
async fn a_hold_that_is_ended_is_the_next_waiters_and_its_holder_is_told() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_secs(3);
    let held = locks.lock("sync:42").ttl(ttl).acquire().await.unwrap();
    let waiter = waiter(&server, "sync:42", 1).await;
    let shown = entry(&locks, "sync:42").await;
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Ended);
    let next = in_at_once(waiter).await;
    let owner = server.owner("lock:sync:42");
    assert_eq!(owner.as_deref(), Some(next.owner()));
    let lost = tokio::time::timeout(ttl / 3 + SLACK, held.lost()).await;
    let lost = lost.expect("told at its renewal");
    assert!(
        matches!(&lost, Error::Lost { cause, .. } if *cause == LossCause::Taken),
        "{lost}"
    );
    // Whoever came after the question stays.
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Changed);
    assert_eq!(server.owner("lock:sync:42"), owner);
    next.release().await.unwrap();
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Gone);
}

#[tokio::test]
async fn a_mark_a_closed_time_a_slot_and_one_of_two_keys_end_alone() {
    let (server, locks) = pair().await;
    once(&locks).await.unwrap();
    let shown = entry(&locks, "done").await;
    let mut earlier = shown.clone();
    if let EntryKind::Done { since } = &mut earlier.kind {
        *since -= Duration::from_micros(1);
    }
    assert_eq!(end(&locks, "done", &earlier).await, Ended::Changed);
    assert_eq!(end(&locks, "done", &shown).await, Ended::Ended);
    once(&locks).await.unwrap();
    assert_eq!(end(&locks, "done", &shown).await, Ended::Changed);

    close(&locks).await;
    let shown = entry(&locks, "closed").await;
    let waiter_of_closed = waiter(&server, "closed", 1).await;
    assert_eq!(end(&locks, "closed", &shown).await, Ended::Ended);
    drop(in_at_once(waiter_of_closed).await);

    let slot = async || locks.lock("geo").permits(2).acquire().await.unwrap();
    let (first, second) = (slot().await, slot().await);
    let shown = show(&locks, "geo").await.listed.entries[1].clone();
    assert_eq!(end(&locks, "geo", &shown).await, Ended::Ended);
    assert_eq!(server.holders("lock:geo"), [first.owner()]);
    drop(second);

    let both = locks.lock_all(["a", "b"]).acquire().await.unwrap();
    let shown = entry(&locks, "b").await;
    assert_eq!(end(&locks, "b", &shown).await, Ended::Ended);
    assert_eq!(server.owner("lock:b"), None);
    assert_eq!(server.owner("lock:a").as_deref(), Some(both.owner()));
}

#[tokio::test]
async fn readers_and_weights_are_shown_and_one_of_them_ends_alone() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_secs(3);
    let reader = || locks.lock("doc").shared().ttl(ttl).acquire();
    let (first, second) = (reader().await.unwrap(), reader().await.unwrap());
    let heavy = locks.lock("units").permits(10).weight(7).acquire().await;
    let heavy = heavy.unwrap();
    let listed = list(&locks, "").await;
    let (doc, units) = (&listed["doc"], &listed["units"]);
    assert!(doc.shared && doc.permits.is_none() && doc.entries.len() == 2);
    assert_eq!((units.shared, units.permits), (false, Some(10)));
    assert_eq!((units.entries[0].slot, units.entries[0].weight), (0, 7));

    let writer = waiter(&server, "doc", 1).await;
    let shown = show(&locks, "doc").await.listed;
    let is_of = |lease: &Lease| {
        let owner = lease.owner().to_owned();
        move |kind: &EntryKind| matches!(kind, EntryKind::Held { owner: held, .. } if *held == owner)
    };
    let is_first = is_of(&first);
    let of_first = shown.entries.iter().find(|entry| is_first(&entry.kind));
    let of_first = of_first.unwrap();
    assert_eq!(end(&locks, "doc", of_first).await, Ended::Ended);
    assert_eq!(end(&locks, "doc", of_first).await, Ended::Changed);
    assert_eq!(server.holders("lock:doc"), [second.owner()]);
    let lost = tokio::time::timeout(ttl / 3 + SLACK, first.lost()).await;
    assert!(matches!(lost, Ok(Error::Lost { .. })), "{lost:?}");
    let shown = entry(&locks, "doc").await;
    assert_eq!(end(&locks, "doc", &shown).await, Ended::Ended);
    drop(in_at_once(writer).await);
    drop((second, heavy));
}

async fn diagnosed(client: &Client) -> Vec<Finding> {
    let findings = client.inspect().unwrap().diagnose().await.unwrap();
    for finding in &findings {
        let is_good = finding.severity == Severity::Good;
        assert_eq!(finding.advice.is_empty(), is_good, "{finding:?}");
    }
    findings
}

/// The topics of a severity.
fn topics(findings: &[Finding], severity: Severity) -> Vec<&str> {
    let found = findings.iter().filter(|found| found.severity == severity);
    found.map(|found| found.topic).collect()
}

#[tokio::test]
async fn a_healthy_server_is_fine_and_what_harms_locks_is_told() {
    let (server, locks) = pair().await;
    let found = diagnosed(&locks).await;
    // The servers of tests keep nothing on disk in time.
    assert_eq!(topics(&found, Severity::Warning), ["persistence"]);
    assert_eq!(
        topics(&found, Severity::Good).len(),
        found.len() - 1,
        "{found:?}"
    );
    let address = server.address().to_string();
    assert!(found.iter().all(|found| found.part == address), "{found:?}");
    assert_eq!(server.ask("SELECT count(*) FROM lockattr.locks"), "0");

    server.rows(
        "CREATE ROLE jobs LOGIN; GRANT USAGE ON SCHEMA lockattr TO jobs; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON lockattr.locks, lockattr.holders TO jobs; \
         GRANT SELECT ON lockattr.waiters TO jobs",
    );
    let jobs = Client::builder().connect_lazily(server.url_as("jobs"));
    let found = diagnosed(&jobs.unwrap()).await;
    assert_eq!(topics(&found, Severity::Fault), ["rights"; 3], "{found:?}");
    let said: Vec<_> = found.iter().map(|found| found.found.as_str()).collect();
    assert!(
        said.join("\n").contains("DELETE on lockattr.waiters"),
        "{said:?}"
    );

    let _standby = server.standby();
    let found = diagnosed(&locks).await;
    assert_eq!(topics(&found, Severity::Advice), ["standbys"], "{found:?}");
}

#[tokio::test]
async fn without_taking_it_a_client_is_told_who_holds_a_key() {
    let (server, locks) = pair().await;
    let others = client(&server).await;
    is_told_of_everything(&locks, &others, SLACK * 4).await;
    is_told_of_slots(&locks, &others, SLACK * 4).await;
}
