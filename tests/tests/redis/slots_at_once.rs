//! Free slots are taken by all who want them at once, whatever others of the same process ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, Lease, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;

use crate::support::{nap, nothing_left, pair, polled};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);
/// An answer that waits for nobody, on a machine with other work.
const AT_ONCE: Duration = Duration::from_millis(700);

#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[distributed_lock(key = "pool", permits = permits, wait = "30s", client = locks)]
async fn work(
    locks: &Client,
    permits: u32,
    inside: &Inside,
    length: Duration,
) -> Result<(), Error> {
    let now = inside.now.fetch_add(1, Ordering::SeqCst) + 1;
    inside.most.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(length).await;
    inside.now.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

/// A server that is a round trip away, and the client that reaches it.
async fn at_a_distance(server: &Server, round_trip: Duration) -> (Proxy, Client) {
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    proxy.treat(Way::Requests, Treatment::Delay(round_trip / 2));
    proxy.treat(Way::Replies, Treatment::Delay(round_trip / 2));
    (proxy, locks)
}

/// `callers` who want one of `permits` slots each and stay for `length`; how many were inside at the
/// same time, at most.
async fn most_inside(locks: &Client, callers: usize, permits: u32, length: Duration) -> usize {
    let inside = Arc::new(Inside::default());
    let calls: Vec<_> = (0..callers)
        .map(|_| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tokio::spawn(async move { work(&locks, permits, &inside, length).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    inside.most.load(Ordering::SeqCst)
}

#[tokio::test]
async fn field_28_fifty_callers_of_fifty_slots_are_inside_at_once_10ms_away() {
    let server = Server::start();
    let (_proxy, locks) = at_a_distance(&server, SECOND / 100).await;
    let most = most_inside(&locks, 50, 50, SECOND / 2).await;
    assert_eq!(most, 50);
    nothing_left(&server).await;
}

#[tokio::test]
async fn field_28_fifty_callers_of_fifty_slots_are_inside_at_once_40ms_away() {
    let server = Server::start();
    let (_proxy, locks) = at_a_distance(&server, SECOND / 25).await;
    let most = most_inside(&locks, 50, 50, SECOND).await;
    assert_eq!(most, 50);
    nothing_left(&server).await;
}

/// More callers than slots, and another client that has a part of them.
#[tokio::test]
async fn field_28_the_slots_that_others_leave_are_all_in_use_at_once() {
    let (server, other) = pair().await;
    let (_proxy, locks) = at_a_distance(&server, SECOND / 25).await;
    let mut leases = Vec::new();
    for _ in 0..20 {
        let request = other.lock("pool").permits(50);
        leases.push(request.acquire().await.unwrap());
    }
    let most = most_inside(&locks, 60, 50, SECOND).await;
    assert_eq!(most, 30);
    drop(leases);
    nothing_left(&server).await;
}

/// Slots that one client gives back at once are handed to all who wait in another at once.
#[tokio::test]
async fn field_28_slots_that_come_free_together_are_taken_together() {
    let (server, other) = pair().await;
    let (_proxy, locks) = at_a_distance(&server, SECOND / 25).await;
    let mut leases = Vec::new();
    for _ in 0..20 {
        let request = other.lock("pool").permits(20);
        leases.push(request.acquire().await.unwrap());
    }
    let call = {
        let locks = locks.clone();
        tokio::spawn(async move { most_inside(&locks, 20, 20, SECOND).await })
    };
    wait::until("somebody waits", || server.waiters("lock:pool") > 0).await;
    nap(500).await;
    for lease in leases {
        lease.release().await.unwrap();
    }
    assert_eq!(call.await.unwrap(), 20);
    nothing_left(&server).await;
}

async fn at_once(request: lockattr::LockRequest) -> Result<Lease, Error> {
    let answer = tokio::time::timeout(AT_ONCE, request.acquire()).await;
    answer.expect("an answer at once")
}

/// A caller that counts fewer waits for its turn, and those who come later wait behind it.
#[tokio::test]
async fn nobody_passes_a_waiter_that_counts_fewer() {
    let (server, locks) = pair().await;
    let of = |permits| locks.lock("pool").permits(permits);
    let first = of(3).acquire().await.unwrap();
    let waiter = tokio::spawn(of(1).wait(PATIENT).acquire());
    wait::until("it waits", || server.waiters("lock:pool") == 1).await;
    for permits in [1, 2, 3, 4] {
        let answer = at_once(of(permits)).await;
        assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
    }
    let behind = tokio::spawn(of(3).wait(PATIENT).acquire());
    wait::until("it waits", || server.waiters("lock:pool") == 2).await;
    first.release().await.unwrap();
    let alone = waiter.await.unwrap().unwrap();
    assert!(!behind.is_finished());
    alone.release().await.unwrap();
    assert_eq!(behind.await.unwrap().unwrap().slot(), 0);
}

/// A waiter whose future is not polled at all keeps nobody from a free slot.
#[tokio::test]
async fn a_free_slot_is_taken_at_once_past_a_waiter_that_is_not_polled() {
    let (_server, locks) = pair().await;
    let of = |permits| locks.lock("pool").permits(permits);
    let _first = of(3).acquire().await.unwrap();
    let mut waiter = Box::pin(of(1).wait(PATIENT).acquire());
    assert!(polled(waiter.as_mut(), 1).await.is_none());
    let second = at_once(of(3)).await.unwrap();
    assert_eq!(second.slot(), 1);
}
