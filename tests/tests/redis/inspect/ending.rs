//! Ending what was shown, and nothing else.

use std::time::Duration;

use lockattr::store::inspect::{Ended, EntryKind};
use lockattr::{Error, LossCause};
use tests::inspected::{end, entry, show};
use tests::wait;

use super::{once, waiter};
use crate::support::{SLACK, client, pair};

#[tokio::test]
async fn field_store_32_the_next_waiter_is_in_at_once_and_the_holder_is_told_at_its_renewal() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_secs(6);
    let held = locks.lock("sync:42").ttl(ttl).acquire().await.unwrap();
    let others = client(&server).await;
    let queued = || server.waiters("lock:sync:42");
    let waiter = waiter(&others, "sync:42", 1, queued).await;
    wait::until("it listens", || server.subscribers() >= 1).await;

    let shown = entry(&locks, "sync:42").await;
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Ended);
    let next = tokio::time::timeout(SLACK, waiter).await;
    let next = next.expect("in at once").unwrap().unwrap();
    assert_eq!(server.owner("lock:sync:42"), Some(next.owner().to_owned()));
    let lost = tokio::time::timeout(ttl / 3 + SLACK, held.lost()).await;
    let lost = lost.expect("told at its renewal");
    let cause = LossCause::Taken;
    assert!(
        matches!(&lost, Error::Lost { cause: told, .. } if *told == cause),
        "{lost}"
    );
    // What is printed is what the store answers.
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Changed);
    assert_eq!(server.owner("lock:sync:42"), Some(next.owner().to_owned()));
    next.release().await.unwrap();
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Gone);
}

#[tokio::test]
async fn field_store_32_a_holder_that_came_after_the_question_stays() {
    let (server, locks) = pair().await;
    let first = locks.lock("sync:42").acquire().await.unwrap();
    let shown = entry(&locks, "sync:42").await;
    first.release().await.unwrap();
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Gone);
    let second = locks.lock("sync:42").acquire().await.unwrap();
    assert_eq!(end(&locks, "sync:42", &shown).await, Ended::Changed);
    assert_eq!(
        server.owner("lock:sync:42"),
        Some(second.owner().to_owned())
    );

    let brief = locks
        .lock("brief")
        .ttl(Duration::from_millis(200))
        .renew(false);
    let brief = brief.acquire().await.unwrap();
    let shown = entry(&locks, "brief").await;
    wait::until("it expires", || server.get("lock:brief").is_none()).await;
    assert_eq!(end(&locks, "brief", &shown).await, Ended::Gone);
    drop(brief);
}

#[tokio::test]
async fn field_store_32_one_of_three_keys_and_one_slot_end_alone() {
    let (server, locks) = pair().await;
    let all = locks.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    let shown = entry(&locks, "b").await;
    assert_eq!(end(&locks, "b", &shown).await, Ended::Ended);
    for (key, owner) in [
        ("a", Some(all.owner())),
        ("b", None),
        ("c", Some(all.owner())),
    ] {
        assert_eq!(server.owner(&format!("lock:{key}")).as_deref(), owner);
    }

    let mut slots = Vec::new();
    for _ in 0..3 {
        slots.push(locks.lock("geo").permits(3).acquire().await.unwrap());
    }
    let others = client(&server).await;
    let waits = others.lock("geo").permits(3).wait(Duration::from_secs(60));
    let waiter = tokio::spawn(waits.acquire());
    wait::until("it is queued", || server.waiters("lock:geo") == 1).await;
    wait::until("it listens", || server.subscribers() >= 1).await;
    let shown = show(&locks, "geo").await.listed.entries[1].clone();
    assert_eq!(end(&locks, "geo", &shown).await, Ended::Ended);
    let next = tokio::time::timeout(SLACK, waiter).await;
    let next = next.expect("in at once").unwrap().unwrap();
    assert_eq!(next.slot(), 1);
    let holders = show(&locks, "geo").await.listed.entries;
    let held = holders
        .iter()
        .filter(|entry| matches!(entry.kind, EntryKind::Held { .. }));
    assert_eq!(held.count(), 3);
    assert_eq!(end(&locks, "geo", &shown).await, Ended::Changed);
}

#[tokio::test]
async fn field_store_32_a_mark_and_a_closed_time_end_and_what_is_not_a_locks_does_not() {
    let (server, locks) = pair().await;
    once(&locks).await.unwrap();
    assert!(matches!(once(&locks).await, Err(Error::Done { .. })));
    let shown = entry(&locks, "done").await;
    let mut earlier = shown.clone();
    if let EntryKind::Done { since } = &mut earlier.kind {
        *since -= Duration::from_millis(1);
    }
    assert_eq!(end(&locks, "done", &earlier).await, Ended::Changed);
    assert_eq!(end(&locks, "done", &shown).await, Ended::Ended);
    assert_eq!(server.get("lock:done"), None);
    once(&locks).await.unwrap();

    let closed = locks.lock("closed").min_hold(Duration::from_secs(60));
    closed.acquire().await.unwrap().release().await.unwrap();
    let others = client(&server).await;
    let queued = || server.waiters("lock:closed");
    let waiter = waiter(&others, "closed", 1, queued).await;
    wait::until("it listens", || server.subscribers() >= 1).await;
    let shown = entry(&locks, "closed").await;
    assert_eq!(end(&locks, "closed", &shown).await, Ended::Ended);
    let next = tokio::time::timeout(SLACK, waiter).await;
    drop(next.expect("in at once").unwrap().unwrap());

    let _: () = server.ask("HSET lock:hash a b");
    let shown = entry(&locks, "hash").await;
    let inspector = locks.inspect().unwrap();
    let refused = inspector.end("hash", &shown).await;
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert!(server.keys().contains(&"lock:hash".to_owned()));
}
