//! What stands at the servers, which two releases have to agree on; and what does not grow there.

use std::time::Instant;

use tests::zookeeper::{Control, Ensemble};

use crate::support::{a_client, client, nodes, seconds, shared};

#[tokio::test]
async fn places_slots_and_keys_are_where_they_are_documented() {
    let mut control = Control::of(shared().address(0));
    let locks = a_client().await;
    let lease = locks.lock("wire:a/b").acquire().await.unwrap();
    let place = control.children("/locks/lock:wire:a%2fb").remove(0);
    assert_eq!(place, format!("{}+20000+1-0000000000", lease.owner()));
    let slot = locks.lock("wire:slots").permits(3).acquire().await.unwrap();
    let stored = nodes(&mut control, "wire:slots");
    assert!(stored[0].starts_with(&format!("{}+20000+3-", slot.owner())));
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
