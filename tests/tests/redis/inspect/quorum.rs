//! The same on a quorum: what a majority has, and what each node has.

use std::time::Duration;

use lockattr::store::inspect::{Ended, EntryKind};
use lockattr::{Client, LossCause};
use tests::inspected::{end, is_held_by, list, list_parts, show};
use tests::server::Server;
use tests::wait;

use super::owner;
use crate::support::SLACK;

fn start() -> Vec<Server> {
    (0..3).map(|_| Server::start()).collect()
}

async fn connected(servers: &[Server]) -> Client {
    let urls = servers.iter().map(Server::url);
    Client::builder().quorum(urls).await.expect("a quorum")
}

fn put(server: &Server, key: &str, owner: &str) {
    let words = ["SET", &format!("lock:{key}"), owner, "PX", "60000"];
    server.words::<()>(&words).unwrap();
}

#[tokio::test]
async fn what_a_majority_has_is_listed_shown_and_ended() {
    let servers = start();
    let locks = connected(&servers).await;
    let held = locks.lock("sync:42").ttl(Duration::from_secs(6));
    let held = held.acquire().await.unwrap();
    let done = |since: u64| format!("done@{}", 1_700_000_000_000 + since);
    for (count, server) in (0..).zip(&servers) {
        put(server, "done", &done(count));
        // Each node names another.
        put(server, "split", &owner());
    }
    put(&servers[0], "left", &owner());
    let holds_all = || {
        let holders = servers.iter().map(|server| server.owner("lock:sync:42"));
        holders.flatten().count() == 3
    };
    wait::until("all nodes vote", holds_all).await;

    let listed = list(&locks, "").await;
    let keys: Vec<_> = listed.keys().map(String::as_str).collect();
    assert_eq!(keys, ["done", "sync:42"]);
    assert!(is_held_by(&listed["sync:42"].entries[0], &held));

    let shown = show(&locks, "split").await;
    assert!(shown.listed.entries.is_empty(), "{shown:?}");
    assert_eq!(shown.parts.len(), 3);
    for server in &servers {
        let address = server.address().to_string();
        let part = shown.parts.iter().find(|part| part.part == address);
        let entries = part.expect("each node").entries.as_ref().unwrap();
        assert!(matches!(entries[0].kind, EntryKind::Held { .. }));
    }

    let mark = show(&locks, "done").await.listed.entries.remove(0);
    // Another time that it was done.
    put(&servers[0], "done", &done(60_000));
    put(&servers[1], "done", &done(60_001));
    assert_eq!(end(&locks, "done", &mark).await, Ended::Changed);
    let mark = show(&locks, "done").await.listed.entries.remove(0);
    assert_eq!(end(&locks, "done", &mark).await, Ended::Ended);
    assert!(
        servers
            .iter()
            .all(|server| server.get("lock:done").is_none())
    );

    let others = connected(&servers).await;
    let waiter = others.lock("sync:42").wait(Duration::from_secs(60));
    let waiter = tokio::spawn(waiter.acquire());
    let queued = || {
        let queues = servers.iter().map(|server| server.waiters("lock:sync:42"));
        queues.sum::<u64>() >= 1
    };
    wait::until("it is queued", queued).await;
    let shown = show(&locks, "sync:42").await;
    assert_eq!(shown.queue.len(), 1);
    let entry = &shown.listed.entries[0];
    assert_eq!(end(&locks, "sync:42", entry).await, Ended::Ended);
    let next = tokio::time::timeout(SLACK, waiter).await;
    let next = next.expect("in at once").unwrap().unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(2) + SLACK, held.lost()).await;
    let lost = lost.expect("told at its renewal").to_string();
    assert!(lost.contains(&LossCause::Taken.to_string()), "{lost}");
    assert_eq!(end(&locks, "sync:42", entry).await, Ended::Changed);
    drop(next);
}

#[tokio::test]
async fn a_node_that_is_down_is_told_and_a_majority_is_needed() {
    let servers = start();
    let locks = connected(&servers).await;
    let held = locks.lock("sync:42").acquire().await.unwrap();
    servers[2].kill();
    let away = servers[2].address().to_string();
    let (listed, missing) = list_parts(&locks, "").await;
    assert!(is_held_by(&listed["sync:42"].entries[0], &held));
    let parts: Vec<_> = missing.iter().map(|missing| &missing.part).collect();
    assert_eq!(parts, [&away]);
    let shown = show(&locks, "sync:42").await;
    assert!(is_held_by(&shown.listed.entries[0], &held));
    let part = shown.parts.iter().find(|part| part.part == away);
    assert!(part.expect("each node").entries.is_err());

    servers[1].kill();
    let inspector = locks.inspect().unwrap();
    let mut listing = inspector.list("");
    let told = loop {
        match listing.next().await {
            Ok(Some(page)) => assert!(page.locks.is_empty()),
            told => break told,
        }
    };
    assert!(told.is_err(), "{told:?}");
    // Nobody is known to hold it, and what the last node has is shown.
    let shown = show(&locks, "sync:42").await;
    assert!(shown.listed.entries.is_empty());
    let known = shown.parts.iter().filter(|part| part.entries.is_ok());
    assert_eq!(known.count(), 1);
    let entry = shown
        .parts
        .iter()
        .find_map(|part| part.entries.as_ref().ok());
    let ended = inspector.end("sync:42", &entry.unwrap()[0]).await;
    assert!(ended.is_err(), "{ended:?}");
}

/// One by one, and one that has left the key closed beside one that reads: by each node since another moment.
#[tokio::test]
async fn readers_are_listed_shown_and_ended() {
    let servers = start();
    let locks = connected(&servers).await;
    let reader = || locks.lock("doc").shared();
    let closed = reader().min_hold(Duration::from_secs(60));
    closed.acquire().await.unwrap().release().await.unwrap();
    let held = reader().acquire().await.unwrap();
    let at_all = || {
        servers
            .iter()
            .all(|server| server.holders("lock:doc").len() == 2)
    };
    wait::until("all nodes have both", at_all).await;
    let listed = list(&locks, "").await;
    assert!(listed["doc"].shared);
    let shown = show(&locks, "doc").await.listed;
    assert_eq!(
        (shown.entries.len(), shown.shared, shown.permits),
        (2, true, None)
    );
    let is_closed =
        |entry: &&lockattr::store::inspect::Entry| matches!(entry.kind, EntryKind::Closed { .. });
    let entry = shown.entries.iter().find(is_closed).expect("it is closed");
    let inspector = locks.inspect().unwrap();
    for expected in [Ended::Ended, Ended::Gone] {
        assert_eq!(inspector.end("doc", entry).await.unwrap(), expected);
    }
    let shown = show(&locks, "doc").await.listed;
    assert_eq!(shown.entries.len(), 1);
    assert!(is_held_by(&shown.entries[0], &held));
    let ended = inspector.end("doc", &shown.entries[0]).await.unwrap();
    assert_eq!(ended, Ended::Ended);
    held.release().await.expect_err("it was ended");
    drop(locks.lock("doc").acquire().await.unwrap());
}
