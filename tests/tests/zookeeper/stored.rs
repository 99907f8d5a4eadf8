//! What stands at the servers, which two releases have to agree on; and what does not grow there.

use std::time::Instant;

use lockattr::{Client, Error, distributed_lock};
use tests::zookeeper::{Control, Ensemble};

use crate::support::{a_client, client, nodes, seconds, shared};

#[tokio::test]
async fn places_slots_and_keys_are_where_they_are_documented() {
    let mut control = Control::of(shared().address(0));
    let locks = a_client().await;
    let lease = locks.lock("wire:a/b").acquire().await.unwrap();
    let place = control.children("/locks/lock:wire:a%2fb").remove(0);
    assert_eq!(place, format!("{}+20000+1!-0000000000", lease.owner()));
    let slot = locks.lock("wire:slots").permits(3).acquire().await.unwrap();
    let stored = nodes(&mut control, "wire:slots");
    assert!(stored[0].starts_with(&format!("{}+20000+1of3!-", slot.owner())));
    assert_eq!(stored[1], "slot-0");
    lease.release().await.unwrap();
    slot.release().await.unwrap();
}

#[tokio::test]
async fn field_store_21_keys_that_are_used_once_leave_nothing() {
    let server = Ensemble::single();
    let locks = client(&server.url(), seconds(20)).await;
    let mut control = Control::of(server.address(0));
    let mut calls = Vec::new();
    for task in 0..20 {
        let locks = locks.clone();
        calls.push(tokio::spawn(async move {
            for key in 0..100 {
                let lease = locks.lock(format!("used:{task}:{key}")).acquire().await;
                lease.unwrap().release().await.unwrap();
            }
        }));
    }
    for call in calls {
        call.await.unwrap();
    }
    // The servers remove containers whose last child has gone; keys are used all the while.
    let begun = Instant::now();
    while !control.children("/locks").is_empty() {
        let key = format!("used:{}:7", begun.elapsed().as_millis() % 20);
        let lease = locks.lock(&key).acquire().await.unwrap();
        lease.release().await.unwrap();
        assert!(
            begun.elapsed() < seconds(15),
            "{}",
            control.children("/locks").len()
        );
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    }
}

#[distributed_lock(key = "marked:<number>", once = "1s", client = locks)]
async fn marked(locks: &Client, number: u32) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn field_store_21_marks_that_are_over_go_whether_the_servers_know_ttls_or_not() {
    for (settings, knows_ttls) in [(&["extendedTypesEnabled=true"][..], true), (&[], false)] {
        let server = Ensemble::with(1, settings);
        let mut control = Control::of(server.address(0));
        let locks = client(&server.url(), seconds(8)).await;
        for number in 0..3 {
            marked(&locks, number).await.unwrap();
        }
        let left = control.children("/locks/lock:marked:1");
        assert!(
            left.len() == 1 && left[0].starts_with("done-0-"),
            "{left:?}"
        );
        if knows_ttls {
            // The servers need no client for it.
            locks.shutdown().await;
            drop(locks);
        }
        let begun = Instant::now();
        while !control.children("/locks").is_empty() {
            assert!(
                begun.elapsed() < seconds(10),
                "{:?}",
                control.children("/locks")
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
