//! The same on a cluster: on every node, while hash slots move, and without some of the nodes.

use std::time::Duration;

use lockattr::Client;
use lockattr::store::inspect::{Ended, EntryKind};
use tests::cluster::Cluster;
use tests::inspected::{end, entry, is_held_by, list, list_parts, show};
use tests::wait;

use super::{fill, owner, waiter};
use crate::support::SLACK;

async fn connected(cluster: &Cluster) -> Client {
    Client::connect(cluster.url()).await.expect("a cluster")
}

#[tokio::test]
async fn locks_of_all_nodes_are_listed_shown_and_ended() {
    let cluster = Cluster::start(3, 0);
    let locks = connected(&cluster).await;
    let mut held = Vec::new();
    for primary in 0..3 {
        let key = cluster.key_at(primary, 0);
        held.push(locks.lock(&key).acquire().await.unwrap());
    }
    let _first = locks.lock("geo").permits(3).acquire().await.unwrap();
    let _second = locks.lock("geo").permits(3).acquire().await.unwrap();
    // What is left where it does not belong any more is no lock.
    let key = cluster.key_at(1, 7);
    let slot = cluster.slot(&format!("lock:{key}"));
    let strange = cluster.primary(0);
    let from: String = cluster.primary(1).ask("CLUSTER MYID");
    let _: () = strange.ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
    let _: () = strange.ask("ASKING");
    let _: () = strange.ask(&format!("SET lock:{key} {} PX 60000", owner()));
    let _: () = strange.ask(&format!("CLUSTER SETSLOT {slot} STABLE"));

    let listed = list(&locks, "").await;
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert_eq!(listed["geo"].entries.len(), 2);
    let others = connected(&cluster).await;
    for lease in &held {
        let key = lease.key();
        assert!(is_held_by(&listed[key].entries[0], lease));
        let (_, keeper) = cluster.keeper(&format!("lock:{key}"));
        let queued = || keeper.waiters(&format!("lock:{key}"));
        let waiter = waiter(&others, key, 1, queued).await;
        wait::until("it listens", || keeper.subscribers() >= 1).await;
        let shown = show(&locks, key).await;
        assert_eq!(shown.queue.len(), 1);
        let entry = &shown.listed.entries[0];
        assert_eq!(end(&locks, key, entry).await, Ended::Ended);
        let next = tokio::time::timeout(SLACK, waiter).await;
        drop(next.expect("in at once").unwrap().unwrap());
    }
}

#[tokio::test]
async fn a_lock_whose_hash_slot_is_on_two_nodes_is_listed_once_shown_and_ended() {
    let cluster = Cluster::start(3, 0);
    let locks = connected(&cluster).await;
    let key = cluster.key_at(0, 0);
    let lock = format!("lock:{key}");
    let held = locks.lock(&key).acquire().await.unwrap();
    let _: () = cluster
        .primary(0)
        .words(&[
            "ZADD",
            &format!("lock:wait:{{{lock}}}"),
            "1",
            &format!("{} 5000 1 nobody", owner()),
        ])
        .unwrap();
    let moving = cluster.begin_to_move(&lock, 1);
    moving.key(&lock);
    let listed = list(&locks, "").await;
    assert_eq!(listed.len(), 1);
    assert!(is_held_by(&listed[&key].entries[0], &held));
    assert_eq!(listed[&key].waiters, 1);
    let shown = show(&locks, &key).await;
    assert!(is_held_by(&shown.listed.entries[0], &held));
    assert_eq!((shown.listed.waiters, shown.queue.len()), (1, 1));
    let entry = &shown.listed.entries[0];
    assert_eq!(end(&locks, &key, entry).await, Ended::Ended);
    moving.end();
    assert_eq!(end(&locks, &key, entry).await, Ended::Gone);
}

/// The node from which they go has so many keys that others have been scanned long before.
#[tokio::test(flavor = "multi_thread")]
async fn field_store_31_hash_slots_that_move_while_their_node_is_scanned_are_neither_lost_nor_doubled()
 {
    let cluster = Cluster::start(3, 0);
    let locks = connected(&cluster).await;
    let keys: Vec<_> = (0..12).map(|number| cluster.key_at(0, number)).collect();
    for key in &keys {
        let value = owner();
        let words = ["SET", &format!("lock:{key}"), &value, "PX", "600000"];
        cluster.primary(0).words::<()>(&words).unwrap();
    }
    let begin = format!("other:{{lock:{}}}", cluster.key_at(0, 20));
    fill(cluster.primary(0), 200_000, &begin);
    let inspector = locks.inspect().unwrap();
    let mut listing = inspector.list("");
    let (mut pages, mut listed) = (0, Vec::new());
    while let Some(page) = listing.next().await.unwrap() {
        assert!(page.missing.is_empty(), "{:?}", page.missing);
        listed.extend(page.locks.into_iter().map(|listed| listed.lock));
        pages += 1;
        if pages == 2 {
            for key in &keys {
                cluster.begin_to_move(&format!("lock:{key}"), 1).end();
            }
        }
    }
    listed.sort();
    let mut expected = keys;
    expected.sort();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn field_store_31_a_primary_that_is_down_is_told_and_the_others_are_listed() {
    let cluster = Cluster::with(3, 0, &["--cluster-require-full-coverage", "no"]);
    let locks = connected(&cluster).await;
    let mut held = Vec::new();
    for primary in 0..3 {
        let key = cluster.key_at(primary, 0);
        held.push(locks.lock(&key).acquire().await.unwrap());
    }
    cluster.kill(1);
    let (listed, missing) = list_parts(&locks, "").await;
    let address = cluster.primary(1).address().to_string();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert_eq!(missing[0].part, address);
    assert!(
        missing[0].error.to_string().contains(&address),
        "{missing:?}"
    );
    let keys: Vec<_> = listed.keys().cloned().collect();
    let mut expected = [cluster.key_at(0, 0), cluster.key_at(2, 0)];
    expected.sort();
    assert_eq!(keys, expected);
    let entry = entry(&locks, &expected[0]).await;
    assert!(matches!(entry.kind, EntryKind::Held { .. }));
    let inspector = locks.inspect().unwrap();
    let key = held[1].key();
    let shown = tokio::time::timeout(Duration::from_secs(6), inspector.show(key)).await;
    assert!(shown.expect("within the bound").is_err());
}
