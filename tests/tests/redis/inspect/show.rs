//! One lock, with all who hold it and everybody who waits.

use std::time::Duration;

use lockattr::store::inspect::{Ended, EntryKind};
use lockattr::{Error, LossCause};
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
async fn those_who_hold_a_lock_together_are_shown_and_ended_each() {
    let (server, locks) = pair().await;
    let of = |weight| locks.lock("geo").permits(1_000_000).weight(weight);
    let light = of(1).acquire().await.unwrap();
    let heavy = of(999_990).acquire().await.unwrap();
    let closed = of(2).min_hold(Duration::from_secs(60));
    closed.acquire().await.unwrap().release().await.unwrap();
    let shown = show(&locks, "geo").await.listed;
    assert_eq!((shown.permits, shown.shared), (Some(1_000_000), false));
    let [one, two, three] = &shown.entries[..] else {
        panic!("{shown:?}")
    };
    assert_eq!([one, two, three].map(|entry| entry.slot), [0, 1, 2]);
    assert_eq!([one, two, three].map(|entry| entry.weight), [1, 999_990, 2]);
    assert!(matches!(&one.kind, EntryKind::Held { owner, .. } if owner == light.owner()));
    assert!(matches!(three.kind, EntryKind::Closed { .. }));
    let inspector = locks.inspect().unwrap();
    assert_eq!(inspector.end("geo", two).await.unwrap(), Ended::Ended);
    assert_eq!(inspector.end("geo", two).await.unwrap(), Ended::Changed);
    assert_eq!(inspector.end("geo", three).await.unwrap(), Ended::Ended);
    assert!(matches!(
        heavy.release().await,
        Err(Error::Lost {
            cause: LossCause::Deleted,
            ..
        })
    ));
    let [entry] = &show(&locks, "geo").await.listed.entries[..] else {
        panic!("one is left")
    };
    assert_eq!(&entry.kind, &one.kind);
    light.release().await.unwrap();

    let reader = || locks.lock("doc").shared().acquire();
    let readers = [reader().await.unwrap(), reader().await.unwrap()];
    let mut listing = inspector.list("doc");
    let mut listed = Vec::new();
    while let Some(page) = listing.next().await.unwrap() {
        listed.extend(page.locks);
    }
    let [doc] = &listed[..] else {
        panic!("{listed:?}")
    };
    assert_eq!(
        (doc.entries.len(), doc.shared, doc.permits),
        (2, true, None)
    );
    for entry in &doc.entries {
        assert_eq!(inspector.end("doc", entry).await.unwrap(), Ended::Ended);
    }
    assert_eq!(server.keys(), Vec::<String>::new());
    drop(readers);
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
