//! One lock, with all of its slots and everybody who waits.

use std::time::Duration;

use lockattr::store::inspect::EntryKind;
use tests::inspected::{is_held_by, show};
use tokio::task::JoinHandle;

use super::waiter;
use crate::support::{client, pair};

#[tokio::test]
async fn a_lock_is_shown_with_its_queue_in_order() {
    let (server, locks) = pair().await;
    let held = locks.lock("sync:42").acquire().await.unwrap();
    let mut waiters = Vec::new();
    let mut clients = Vec::new();
    for number in 1..=3 {
        let other = client(&server).await;
        let queued = || server.waiters("lock:sync:42");
        waiters.push(waiter(&other, "sync:42", number, queued).await);
        clients.push(other);
    }
    let shown = show(&locks, "sync:42").await;
    assert!(is_held_by(&shown.listed.entries[0], &held), "{shown:?}");
    assert_eq!(shown.listed.waiters, 3);
    let queued: Vec<String> = server.ask("ZRANGE lock:wait:{lock:sync:42} 0 -1");
    assert_eq!(shown.queue.len(), queued.len());
    for (waiting, entry) in shown.queue.iter().zip(&queued) {
        assert!(entry.starts_with(&waiting.owner), "{waiting:?} {entry}");
        assert_eq!(waiting.ttl, Some(Duration::from_secs(30)));
        let waits = waiting.since.expect("since when").elapsed();
        assert!(waits.unwrap_or_default() < Duration::from_secs(20));
    }
    assert!(shown.parts.is_empty());
    waiters.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn every_slot_is_shown_up_to_the_last_one_that_there_may_be() {
    let (server, locks) = pair().await;
    let held = locks.lock("geo").permits(3).acquire().await.unwrap();
    let owner = held.owner();
    let _: () = server.ask(&format!("SET lock:slot:{{lock:geo}}999 {owner} PX 60000"));
    let _: () = server.ask("HSET lock:slot:{lock:geo}7 a b");
    let shown = show(&locks, "geo").await;
    let slots: Vec<_> = shown
        .listed
        .entries
        .iter()
        .map(|entry| entry.slot)
        .collect();
    assert_eq!(slots, [0, 7, 999]);
    let found = "a hash".to_owned();
    assert_eq!(shown.listed.entries[1].kind, EntryKind::Foreign { found });
}

#[tokio::test]
async fn what_is_free_is_shown_as_nothing() {
    let (server, locks) = pair().await;
    let shown = show(&locks, "sync:42").await;
    assert!(shown.listed.entries.is_empty() && shown.queue.is_empty());
    assert_eq!(server.keys(), Vec::<String>::new());
    // Something else under the name of its queue is not a queue.
    let _: () = server.ask("SET lock:wait:{lock:sync:42} text");
    assert_eq!(show(&locks, "sync:42").await.listed.waiters, 0);
}
