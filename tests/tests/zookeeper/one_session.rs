//! Many callers of one client, which has one session; and what becomes of their tokens and nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lockattr::{Error, LossCause};
use tests::proxy::Proxy;
use tests::zookeeper::{Control, url};

use crate::support::{SLACK, a_client, client, millis, nodes, nothing_left, seconds, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_23_callers_of_one_client_never_take_one_anothers_place() {
    let proxies = [
        Proxy::before(shared().address(0)),
        Proxy::before(shared().address(0)),
    ];
    let at = |proxy: &Proxy| url([proxy.address()].into_iter());
    let clients = [
        client(&at(&proxies[0]), seconds(20)).await,
        client(&at(&proxies[1]), seconds(20)).await,
    ];
    let inside = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..200)
        .map(|call| {
            let (locks, inside) = (clients[call % 2].clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let lease = match locks.lock("crowd").wait(seconds(60)).acquire().await {
                    Ok(lease) => lease,
                    Err(Error::Unavailable { .. }) => return 0,
                    Err(other) => panic!("{other}"),
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let token = lease.token().await.unwrap_or(0);
                tokio::time::sleep(millis(3)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                // One that was cut off is given back in the background.
                let _ = lease.release().await;
                token
            })
        })
        .collect();
    for cut in 0..10 {
        tokio::time::sleep(millis(80)).await;
        proxies[cut % 2].cut();
    }
    let mut tokens = Vec::new();
    for call in calls {
        tokens.push(call.await.unwrap());
    }
    tokens.retain(|token| *token != 0);
    assert!(tokens.len() > 100, "{}", tokens.len());
    tokens.sort_unstable();
    tokens.dedup_by(|one, other| one == other && panic!("a token was drawn twice"));
    let mut control = Control::of(shared().address(0));
    nothing_left(&mut control, "crowd", seconds(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_23_tokens_grow_over_single_locks_slots_and_lists() {
    let locks = a_client().await;
    let mut last = 0;
    for turn in 0..4 {
        let request = match turn % 3 {
            0 => locks.lock("token:a"),
            1 => locks.lock_all(["token:a", "token:b"]),
            _ => locks.lock("token:a").permits(2),
        };
        let lease = request.acquire().await.unwrap();
        let token = lease.token().await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_23_a_node_that_an_operator_deletes_is_told_within_a_second() {
    let mut control = Control::of(shared().address(0));
    let locks = a_client().await;
    for (key, age) in [("young", 0), ("old", 900)] {
        let lease = locks.lock(key).acquire().await.unwrap();
        tokio::time::sleep(millis(age)).await;
        let place = nodes(&mut control, key).remove(0);
        let begun = Instant::now();
        control
            .delete(&format!("/locks/lock:{key}/{place}"))
            .unwrap();
        let loss = lease.lost().await;
        let took = begun.elapsed();
        assert!(took < seconds(1) + SLACK, "{key}: {took:?}");
        assert!(
            matches!(
                loss,
                Error::Lost {
                    cause: LossCause::Deleted,
                    ..
                }
            ),
            "{loss}"
        );
    }
    // A waiter whose place is deleted queues again, at the end.
    let other = a_client().await;
    let lease = locks.lock("place").acquire().await.unwrap();
    let waits = other.lock("place").wait(seconds(20));
    let waits = tokio::spawn(async move { waits.acquire().await });
    crate::support::queued(&mut control, "place", 2).await;
    let theirs = nodes(&mut control, "place");
    let theirs = theirs
        .iter()
        .find(|place| !place.starts_with(lease.owner()));
    control
        .delete(&format!("/locks/lock:place/{}", theirs.unwrap()))
        .unwrap();
    crate::support::queued(&mut control, "place", 2).await;
    lease.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
}
