//! `permits` with `weight`: never too much, in the order of arrival, each with a slot of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lockattr::{Client, Error, Lease};
use tests::checker::{KILL, Rules, check};
use tests::proxy::Proxy;
use tests::record::{Event, Record};
use tests::wait;
use tests::worker::{self, Worker};
use tests::zookeeper::{Control, url};
use tokio::task::JoinHandle;

use crate::support::{
    SLACK, a_client, client, is_busy, millis, nothing_left, places, seconds, shared,
};

async fn take(locks: &Client, key: &str, weight: u32) -> Result<Lease, Error> {
    let request = locks.lock(key).permits(10).weight(weight);
    request.acquire().await
}

/// A call of a client of its own that stands in the queue when this returns.
async fn waits(control: &mut Control, key: &str, weight: u32) -> JoinHandle<Lease> {
    let (before, locks) = (places(control, key), a_client().await);
    let request = locks.lock(key).permits(10).weight(weight).wait(seconds(30));
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || places(control, key) > before).await;
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_have_no_more_than_there_is_and_the_lowest_slots() {
    let mut control = Control::of(shared().address(0));
    let (one, two) = (a_client().await, a_client().await);
    let key = "weigh:sum";
    let four = take(&one, key, 4).await.unwrap();
    let six = take(&two, key, 6).await.unwrap();
    is_busy(take(&one, key, 1).await);
    // Whoever counts more has a part of that; a plain call and a reader have none.
    let eleventh = two.lock(key).permits(11).acquire().await.unwrap();
    assert_eq!((four.slot(), six.slot(), eleventh.slot()), (0, 1, 2));
    is_busy(one.lock(key).acquire().await);
    is_busy(one.lock(key).shared().acquire().await);
    six.release().await.unwrap();
    // And whoever counts less is out.
    is_busy(one.lock(key).permits(5).acquire().await);
    let next = take(&two, key, 2).await.unwrap();
    assert_eq!(next.slot(), 1);
    let (first, last) = (four.token().await.unwrap(), next.token().await.unwrap());
    assert!(eleventh.token().await.unwrap() > last && last > first);
    for lease in [four, next, eleventh] {
        lease.release().await.unwrap();
    }
    let all = one.lock(key).permits(1_000_000).weight(1_000_000);
    all.acquire().await.unwrap().release().await.unwrap();
    nothing_left(&mut control, key, seconds(1)).await;
}

/// The heavy one is not passed by, and all who fit are woken when it has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heavy_are_served_in_the_order_of_their_arrival_and_woken() {
    let mut control = Control::of(shared().address(0));
    let (locks, key) = (a_client().await, "weigh:order");
    let one = take(&locks, key, 5).await.unwrap();
    let two = take(&locks, key, 4).await.unwrap();
    // Whose place was written to is none the less waited for.
    two.token().await.unwrap();
    let heavy = waits(&mut control, key, 8).await;
    let mut light = Vec::new();
    for weight in [1, 2, 3] {
        light.push(waits(&mut control, key, weight).await);
    }
    is_busy(take(&a_client().await, key, 1).await);
    one.release().await.unwrap();
    tokio::time::sleep(millis(100)).await;
    assert!(!heavy.is_finished() && light.iter().all(|one| !one.is_finished()));
    let released = Instant::now();
    two.release().await.unwrap();
    let heavy = heavy.await.unwrap();
    let first = light.remove(0).await.unwrap();
    assert!(light.iter().all(|one| !one.is_finished()));
    heavy.release().await.unwrap();
    for one in light {
        one.await.unwrap().release().await.unwrap();
    }
    // Each that looked by itself would have taken most of a second.
    assert!(released.elapsed() < seconds(1), "{:?}", released.elapsed());
    first.release().await.unwrap();
    nothing_left(&mut control, key, seconds(1)).await;
}

/// Behind one that is alone, has written to its place, and is not next to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_behind_one_alone_wait_for_it() {
    let mut control = Control::of(shared().address(0));
    let (locks, key) = (a_client().await, "weigh:alone");
    let alone = locks.lock(key).acquire().await.unwrap();
    alone.token().await.unwrap();
    let all = [
        waits(&mut control, key, 1).await,
        waits(&mut control, key, 1).await,
    ];
    alone.token().await.unwrap();
    tokio::time::sleep(millis(100)).await;
    assert!(all.iter().all(|one| !one.is_finished()));
    let released = Instant::now();
    alone.release().await.unwrap();
    let mut slots = HashSet::new();
    let mut leases = Vec::new();
    for one in all {
        let lease = one.await.unwrap();
        slots.insert(lease.slot());
        leases.push(lease);
    }
    assert!(released.elapsed() < millis(700), "{:?}", released.elapsed());
    assert_eq!(slots, HashSet::from([0, 1]));
    for lease in leases {
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heavy_one_that_is_gone_stands_in_nobodys_way() {
    let mut control = Control::of(shared().address(0));
    let (locks, key) = (a_client().await, "weigh:gone");
    let held = take(&locks, key, 5).await.unwrap();
    let gone = waits(&mut control, key, 8).await;
    let light = waits(&mut control, key, 1).await;
    let start = Instant::now();
    gone.abort();
    let light = light.await.unwrap();
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    held.release().await.unwrap();
    light.release().await.unwrap();
}

/// What stays closed keeps its permits and its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minimum_hold_keeps_the_weight_and_the_slot() {
    let mut control = Control::of(shared().address(0));
    let (locks, key) = (a_client().await, "weigh:closed");
    let first = take(&locks, key, 1).await.unwrap();
    let closes = locks.lock(key).permits(10).weight(7).min_hold(seconds(2));
    let closes = closes.acquire().await.unwrap();
    assert_eq!(closes.slot(), 1);
    let start = Instant::now();
    closes.release().await.unwrap();
    first.release().await.unwrap();
    let beside = take(&locks, key, 3).await.unwrap();
    assert_eq!(beside.slot(), 0);
    is_busy(take(&locks, key, 1).await);
    is_busy(locks.lock(key).acquire().await);
    let request = a_client().await.lock(key).permits(10).weight(7);
    let next = request.wait(seconds(30)).acquire().await.unwrap();
    let took = start.elapsed();
    assert!(took > seconds(1) && took < seconds(3) + SLACK, "{took:?}");
    assert_eq!(next.slot(), 1);
    beside.release().await.unwrap();
    next.release().await.unwrap();
    nothing_left(&mut control, key, seconds(2)).await;
}

/// Processes of which some are killed and some stand still for longer than their session.
#[test]
fn callers_of_every_weight_never_have_too_much() {
    let record = Record::new();
    let pen = record.pen();
    let begin = |weight: &str| {
        let words = ["units", "10", "2000", "20", "5", weight, "ttl=2000"];
        let mut worker = Worker::start("turns", &shared().url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let weights = ["1", "3", "10", "2"];
    let mut workers: Vec<_> = weights.into_iter().map(begin).collect();
    for place in [0, 2] {
        std::thread::sleep(millis(700));
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        workers[place] = begin(weights[place]);
        workers[place + 1].freeze();
        std::thread::sleep(millis(2500));
        workers[place + 1].thaw();
    }
    std::thread::sleep(seconds(1));
    worker::stop_all(&mut workers);
    let rules = Rules {
        ttl: seconds(2),
        longest_call: seconds(20),
    };
    let findings = check(&record.entries(), rules);
    println!("{} bodies, {:?}", findings.bodies, findings.outcomes);
    findings.assert_clean();
    assert!(findings.bodies > 60, "{}", findings.bodies);
}

/// Answers that never come, of places and of slots that were taken: none of them is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_whose_connections_are_cut_leave_every_slot_free() {
    const PERMITS: u32 = 5;
    let mut control = Control::of(shared().address(0));
    let proxies = [(); 2].map(|()| Proxy::before(shared().address(0)));
    let at = |proxy: &Proxy| url([proxy.address()].into_iter());
    let clients = [
        client(&at(&proxies[0]), seconds(20)).await,
        client(&at(&proxies[1]), seconds(20)).await,
    ];
    let inside = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..120)
        .map(|call| {
            let (locks, inside) = (clients[call % 2].clone(), Arc::clone(&inside));
            let weight = u32::from(call % 7 == 0) + 1;
            let request = locks.lock("weigh:cut").permits(PERMITS).weight(weight);
            tokio::spawn(async move {
                let lease = match request.wait(seconds(60)).acquire().await {
                    Ok(lease) => lease,
                    Err(Error::Unavailable { .. }) => return 0,
                    Err(other) => panic!("{other}"),
                };
                let weight = weight as usize;
                let before = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(before + weight <= PERMITS as usize, "{before} and {weight}");
                assert!(lease.slot() < PERMITS as usize, "{}", lease.slot());
                tokio::time::sleep(millis(5)).await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                // One that was cut off is given back in the background.
                let _ = lease.release().await;
                1
            })
        })
        .collect();
    for cut in 0..6 {
        tokio::time::sleep(millis(120)).await;
        proxies[cut % 2].cut();
    }
    let mut done = 0;
    for call in calls {
        done += call.await.unwrap();
    }
    assert!(done > 20, "{done}");
    nothing_left(&mut control, "weigh:cut", seconds(3)).await;
}
