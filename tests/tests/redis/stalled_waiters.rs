//! Grants that must not be lost where a waiter further ahead in the wait queue stalls or is gone.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;

use crate::support::{BOUND, LOOK, SLACK, client, nap, pair, polled, queued_call, runtimes};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);

/// Who is handed the key may be polled late or never: nobody else waits for that without a bound.
#[tokio::test]
async fn a_caller_behind_one_that_is_not_polled_is_answered_within_its_bound() {
    let (server, locks) = pair().await;
    for patience in [Duration::ZERO, SECOND / 5] {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let unpolled = queued_call(&locks, PATIENT).await;
        lease.release().await.unwrap();
        let start = Instant::now();
        let request = locks.lock("sync:42").wait(patience);
        let limit = patience + BOUND + SLACK;
        let answer = tokio::time::timeout(limit, request.acquire()).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer within {limit:?}"));
        println!("{patience:?}: {answer:?} after {:?}", start.elapsed());
        assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
        drop(unpolled);
        wait::until("the key is free", || server.size() == 0).await;
    }
}

/// The same where the lease that was handed over has run out meanwhile: the key is free.
#[tokio::test]
async fn a_caller_that_is_handed_a_lease_and_not_polled_blocks_the_key_for_its_ttl_at_most() {
    let (_server, locks) = pair().await;
    let of = |wait| locks.lock("sync:42").ttl(SECOND).wait(wait).acquire();
    let lease = of(Duration::ZERO).await.unwrap();
    let mut unpolled = Box::pin(of(PATIENT));
    assert!(polled(unpolled.as_mut(), 1).await.is_none());
    lease.release().await.unwrap();
    let limit = SECOND + BOUND + SLACK;
    let next = tokio::time::timeout(limit, of(PATIENT)).await;
    next.unwrap_or_else(|_| panic!("no turn within {limit:?}"))
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// One whose runtime is blocked in the middle of giving back: the keeper gives the key back, and then
/// it is the turn of the next, also in the same process.
#[test]
fn a_release_on_a_runtime_that_is_blocked_holds_up_no_caller_of_another_runtime() {
    let server = Server::start();
    let [blocked, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let ttl = SECOND;
    let lease = blocked
        .block_on(locks.lock("sync:42").ttl(ttl).acquire())
        .unwrap();
    thread::scope(|scope| {
        let (begun, begins) = std::sync::mpsc::channel();
        let (tell_queued, is_queued) = std::sync::mpsc::channel();
        scope.spawn(move || {
            is_queued.recv().unwrap();
            blocked.block_on(async {
                let mut release = Box::pin(lease.release());
                // The request is not sent before this runtime is run again.
                assert!(polled(release.as_mut(), 1).await.is_none());
                begun.send(()).unwrap();
                thread::sleep(6 * SECOND);
                release.await.unwrap();
            });
        });
        lasting.block_on(async {
            // With another ttl, so that the lease is not for it.
            let mut next = Box::pin(locks.lock("sync:42").wait(PATIENT).acquire());
            assert!(polled(next.as_mut(), 1).await.is_none());
            tell_queued.send(()).unwrap();
            begins.recv().unwrap();
            let start = Instant::now();
            let next = next.await;
            let took = start.elapsed();
            println!("{took:?}");
            assert!(took < ttl + SECOND + SLACK, "{took:?}");
            next.unwrap().release().await.unwrap();
        });
    });
}

/// One that is not renewed needs the whole ttl that it asked for.
#[tokio::test]
async fn a_lease_that_is_not_renewed_is_not_one_that_has_half_run_out() {
    let (_server, locks) = pair().await;
    let ttl = 2 * SECOND;
    let of = |wait| {
        locks
            .lock("sync:42")
            .ttl(ttl)
            .renew(false)
            .wait(wait)
            .acquire()
    };
    let lease = of(Duration::ZERO).await.unwrap();
    let mut next = Box::pin(of(PATIENT));
    assert!(polled(next.as_mut(), 1).await.is_none());
    nap(800).await;
    lease.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(next.remaining() > ttl * 9 / 10, "{:?}", next.remaining());
}

#[tokio::test]
async fn giving_back_several_keys_wakes_who_waits_for_any_one_of_them() {
    let (server, locks) = pair().await;
    for key in ["a", "b", "c"] {
        let other = client(&server).await;
        let all = locks.lock_all(["a", "b", "c"]).acquire().await.unwrap();
        let call = tokio::spawn(other.lock(key).wait(PATIENT).acquire());
        let lock = format!("lock:{key}");
        wait::until("it is queued", || server.waiters(&lock) == 1).await;
        wait::until("it listens", || server.subscribers() == 1).await;
        nap(100).await;
        all.release().await.unwrap();
        // In the same step.
        let holder = server.owner(&lock);
        let lease = call.await.unwrap().unwrap();
        assert_eq!(holder.as_deref(), Some(lease.owner()), "{key}");
        lease.release().await.unwrap();
        drop(other);
        wait::until("it is gone", || server.subscribers() == 0).await;
    }
}

/// A waiter that counts fewer slots is put back into the queue, whose expiry stays set.
#[tokio::test]
async fn a_queue_into_which_a_waiter_was_put_back_has_an_expiry() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let of_two = || locks.lock("sync:42").permits(2).acquire();
    let (first, second) = (of_two().await.unwrap(), of_two().await.unwrap());
    let _call = tokio::spawn(other.lock("sync:42").wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    let queue = "lock:wait:{lock:sync:42}";
    assert!(server.pttl(queue) > 0);
    second.release().await.unwrap();
    assert_eq!(server.waiters("lock:sync:42"), 1);
    assert!(server.pttl(queue) > 0, "{}", server.pttl(queue));
    drop(first);
}

/// The first request of a caller is delayed, its second one enters the queue, and then the caller is
/// dropped: a grant by the late first request is given back.
#[tokio::test]
async fn a_request_that_comes_after_its_caller_has_left_the_queue_leaves_no_key() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    proxy.treat(Way::Requests, Treatment::Delay(3 * SECOND));
    let start = Instant::now();
    let request = far.lock("sync:42").ttl(20 * SECOND).wait(PATIENT);
    let call = tokio::spawn(request.acquire());
    nap(200).await;
    proxy.heal();
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    nap(100).await;
    call.abort();
    wait::until("it has left", || server.waiters("lock:sync:42") == 0).await;
    lease.release().await.unwrap();
    println!("free after {:?}", start.elapsed());
    assert!(start.elapsed() < 3 * SECOND, "too slow to show anything");
    nap(3_300 - u64::try_from(start.elapsed().as_millis()).unwrap()).await;
    println!("{:?}", server.keys());
    wait::within("nothing is left", 8 * SECOND, || server.size() == 0).await;
}

/// A caller that is dropped during an outage stays in the queue until its entry expires: a lock that
/// is granted to it meanwhile goes back at once.
#[tokio::test]
async fn a_key_that_comes_for_a_caller_that_is_gone_goes_back_at_once() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let ttl = 3 * SECOND;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let _another = locks.lock("other").acquire().await.unwrap();
    let call = tokio::spawn(far.lock("sync:42").ttl(ttl).wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    nap(100).await;
    proxy.refuse();
    call.abort();
    // The keeper tries for as long as the key could be held.
    nap(4_500).await;
    proxy.heal();
    // Its client listens because somebody waits for something else.
    let _listening = tokio::spawn(far.lock("other").wait(PATIENT).acquire());
    wait::until("it listens again", || server.subscribers() == 1).await;
    assert_eq!(server.waiters("lock:sync:42"), 1);
    lease.release().await.unwrap();
    let start = Instant::now();
    let free = || server.get("lock:sync:42").is_none();
    wait::within("the key is free", ttl / 2, free).await;
    println!("{:?}", start.elapsed());
}

/// A release whose future is dropped has been asked for, which is no loss.
#[tokio::test]
async fn a_release_that_is_dropped_on_its_way_is_no_loss() {
    let (server, locks) = pair().await;
    for _ in 0..10 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let mut release = Box::pin(lease.release());
        assert!(polled(release.as_mut(), 1).await.is_none());
        // It is on its way.
        nap(5).await;
        drop(release);
        wait::until("it is free", || server.size() == 0).await;
        nap(20).await;
    }
    assert_eq!(locks.stats().lost, 0);
}

/// Fifty clients that come back at once stand far behind each time, and are first soon after: when a
/// holder dies then, somebody looks in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_dies_before_a_long_queue_that_moves_fast_costs_its_ttl_and_a_look() {
    let server = Server::start();
    let turns = Arc::new(Mutex::new(vec![Instant::now()]));
    let mut callers = Vec::new();
    for _ in 0..50 {
        let (locks, turns) = (client(&server).await, Arc::clone(&turns));
        callers.push(tokio::spawn(async move {
            loop {
                let request = locks.lock("sync:42").ttl(SECOND).wait(PATIENT);
                let lease = request.acquire().await.unwrap();
                turns.lock().unwrap().push(Instant::now());
                nap(2).await;
                lease.release().await.unwrap();
            }
        }));
    }
    let dying = client(&server).await;
    for _ in 0..3 {
        nap(1_500).await;
        let request = dying.lock("sync:42").ttl(SECOND).renew(false);
        let lease = request.wait(PATIENT).acquire().await.unwrap();
        let died = Instant::now();
        std::mem::forget(lease);
        let going_on = || turns.lock().unwrap().iter().any(|turn| *turn > died);
        let limit = SECOND + LOOK + SLACK;
        let took = wait::within("somebody looks", limit, going_on).await;
        println!("{took:?}, {} turns before", turns.lock().unwrap().len());
        turns.lock().unwrap().clear();
    }
    callers.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A far server: a subscription that speaks, though its answers take their time, is not made anew.
#[tokio::test]
async fn a_subscription_over_a_long_way_is_kept_while_it_speaks() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let late = Treatment::Delay(Duration::from_millis(250));
    proxy.treat(Way::Requests, late);
    proxy.treat(Way::Replies, late);
    let patient = Client::builder().connect_timeout(5 * SECOND);
    let far = patient.connect_lazily(proxy.url()).unwrap();
    let _lease = locks.lock("sync:42").acquire().await.unwrap();
    let _call = tokio::spawn(async move { far.lock("sync:42").wait(PATIENT).acquire().await });
    wait::until("it listens", || server.subscribers() == 1).await;
    let id = || {
        let list: String = server.ask("CLIENT LIST TYPE pubsub");
        list.split(' ').next().unwrap_or_default().to_owned()
    };
    let (first, channels): (_, Vec<String>) = (id(), server.ask("PUBSUB CHANNELS"));
    // Its subscription is confirmed.
    nap(500).await;
    for round in 0..12 {
        nap(600 + 37 * round).await;
        let _: u64 = server.ask(&format!("PUBLISH {} nobody", channels[0]));
        assert_eq!(id(), first, "in round {round}");
    }
}
