//! Lists: every kind of lock once, by pattern, of many keys, and without keeping others waiting.

use std::time::{Duration, Instant};

use lockattr::Client;
use lockattr::store::inspect::EntryKind;
use tests::inspected::{is_held_by, list};
use tests::server::Server;

use super::{fill, once, waiter};
use crate::support::{SLACK, client, nap, pair};

#[tokio::test]
async fn each_kind_of_lock_is_listed_once() {
    let (server, locks) = pair().await;
    let others = client(&server).await;
    let held = locks.lock("held").acquire().await.unwrap();
    held.token().await.unwrap();
    let queued = || server.waiters("lock:held");
    let waiter = waiter(&others, "held", 1, queued).await;
    let first = locks.lock("geo").permits(4).acquire().await.unwrap();
    let second = locks.lock("geo").permits(4).acquire().await.unwrap();
    let third = locks.lock("geo").permits(4).acquire().await.unwrap();
    first.release().await.unwrap();
    let pair = locks.lock_all(["a:1", "a:2"]).acquire().await.unwrap();
    let closed = locks.lock("closed").min_hold(Duration::from_secs(60));
    closed.acquire().await.unwrap().release().await.unwrap();
    once(&locks).await.unwrap();
    let _: () = server.ask("HSET lock:hash a b");
    let _: () = server.ask("SET lock:for-ever text");
    let _: () = server.ask("SET lock:other text PX 60000");
    let _: () = server.ask("SET elsewhere text");
    let _: () = server.ask("ZADD lock:wait:{lock:left} 1 nobody");
    let _: () = server.ask("SET lock:token:{lock:left-alone} 1 PX 60000");

    let listed = list(&locks, "").await;
    let keys: Vec<_> = listed.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "a:1", "a:2", "closed", "done", "for-ever", "geo", "hash", "held", "left", "other"
        ]
    );
    for (key, lease) in [("held", &held), ("a:1", &pair), ("a:2", &pair)] {
        let [entry] = listed[key].entries.as_slice() else {
            panic!("{:?}", listed[key])
        };
        assert!(is_held_by(entry, lease), "{entry:?}");
        let EntryKind::Held { since, .. } = &entry.kind else {
            unreachable!()
        };
        let age = since.expect("since when").elapsed().unwrap_or_default();
        assert!(age < Duration::from_secs(20), "{age:?}");
        let remaining = entry.remaining.expect("an end");
        assert!(remaining <= Duration::from_secs(30), "{remaining:?}");
    }
    assert_eq!(listed["held"].waiters, 1);
    assert_eq!(
        (listed["left"].entries.len(), listed["left"].waiters),
        (0, 1)
    );
    let slots: Vec<_> = listed["geo"]
        .entries
        .iter()
        .map(|entry| entry.slot)
        .collect();
    assert_eq!(slots, [1, 2]);
    assert_eq!(listed["geo"].permits, Some(4));
    assert!(is_held_by(&listed["geo"].entries[0], &second));
    assert!(is_held_by(&listed["geo"].entries[1], &third));
    let kind = |key: &str| listed[key].entries[0].kind.clone();
    assert!(matches!(kind("closed"), EntryKind::Closed { .. }));
    assert!(matches!(kind("done"), EntryKind::Done { .. }));
    for (key, what) in [
        ("hash", "a hash"),
        ("for-ever", "a string without expiry"),
        ("other", "a string that no lock has written"),
    ] {
        let found = what.to_owned();
        assert_eq!(kind(key), EntryKind::Foreign { found });
    }
    waiter.abort();
}

#[tokio::test]
async fn a_pattern_and_the_prefix_mean_what_they_say() {
    let server = Server::start();
    let locks = Client::builder()
        .prefix("[app]*:")
        .connect(server.url())
        .await
        .unwrap();
    let mut held = Vec::new();
    for key in ["sync:1", "sync:22", "[a]", "größe:ß"] {
        held.push(locks.lock(key).acquire().await.unwrap());
    }
    let _slot = locks.lock("sync:3").permits(3).acquire().await.unwrap();
    let other = Client::builder().prefix("app:").connect(server.url());
    let other = other.await.unwrap();
    let _other = other.lock("sync:1").acquire().await.unwrap();
    for (pattern, keys) in [
        ("", vec!["[a]", "größe:ß", "sync:1", "sync:22", "sync:3"]),
        ("sync:*", vec!["sync:1", "sync:22", "sync:3"]),
        ("sync:?", vec!["sync:1", "sync:3"]),
        ("*:?", vec!["größe:ß", "sync:1", "sync:3"]),
        ("[a]", vec!["[a]"]),
        ("s*y*n*c*2*", vec!["sync:22"]),
        ("sync", vec![]),
    ] {
        let listed = list(&locks, pattern).await;
        assert_eq!(listed.keys().collect::<Vec<_>>(), keys, "{pattern}");
    }
}

/// Ten thousand among two hundred thousand here; BENCHMARKS.md has ten times as many.
#[tokio::test(flavor = "multi_thread")]
async fn field_store_31_many_locks_among_more_keys_are_listed_once_and_nobody_is_slowed() {
    let (server, locks) = pair().await;
    fill(&server, 190_000, "session:");
    fill(&server, 10_000, "lock:user:");
    let _: () = server.ask("CONFIG SET slowlog-log-slower-than 20000");
    let _: () = server.ask("SLOWLOG RESET");
    let others = client(&server).await;
    let calls = tokio::spawn(async move {
        loop {
            let begun = Instant::now();
            let lease = others.lock("other").acquire().await.unwrap();
            lease.release().await.unwrap();
            assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
            nap(1).await;
        }
    });
    let listed = list(&locks, "user:*").await;
    assert_eq!(listed.len(), 10_000);
    assert!(listed.values().all(|listed| listed.entries.len() == 1));
    assert!(!calls.is_finished(), "others were kept waiting");
    calls.abort();
    let commands = server.commands();
    assert_eq!(commands.of("keys"), 0);
    // A machine with other work may stop the server within one of them.
    let (slow, steps): (u64, _) = (server.ask("SLOWLOG LEN"), commands.of("scan"));
    assert!(
        slow * 20 < steps,
        "{slow} commands took more than 20 ms, in {steps} steps"
    );
}
