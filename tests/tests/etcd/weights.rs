//! `permits` and `weight`: several permits of a key at a time, all or none, in the order of arrival.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause, Status};
use tests::checker::{self, KILL};
use tests::dropping;
use tests::etcd::Etcd;
use tests::proxy::Proxy;
use tests::record::{Event, Record};
use tests::wait;
use tests::worker::{self, Worker};
use tokio::task::JoinHandle;

use crate::support::{SLACK, TTL, client, client_at, nap, nothing_left, queued, told_within};

const PATIENT: Duration = Duration::from_secs(30);

/// The first of a queue looks again after so long by itself: what is woken is sooner.
const LOOK: Duration = Duration::from_millis(750);

async fn take(locks: &Client, permits: u32, weight: u32) -> Result<Lease, Error> {
    let request = locks.lock("units").permits(permits).weight(weight);
    request.ttl(TTL).acquire().await
}

/// A call that stands in the queue when this returns.
async fn waits(cluster: &Etcd, weight: u32) -> JoinHandle<Lease> {
    let (before, locks) = (queued(cluster, "units"), client(cluster).await);
    let request = locks.lock("units").permits(10).weight(weight);
    let request = request.ttl(TTL).wait(PATIENT);
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || queued(cluster, "units") > before).await;
    call
}

#[track_caller]
fn is_busy<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let refused = answer.expect_err("it is busy");
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
}

/// Releases of an application that count differently exclude each other by their own numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_are_added_up_and_each_call_goes_by_its_own_number() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let four = take(&one, 10, 4).await.unwrap();
    let six = take(&two, 10, 6).await.unwrap();
    assert_eq!((four.slot(), six.slot()), (0, 1));
    is_busy(take(&one, 10, 1).await);
    is_busy(take(&two, 5, 1).await);
    let eleventh = take(&two, 11, 1).await.unwrap();
    assert_eq!(eleventh.slot(), 2);
    let status = one.status("units").await.unwrap();
    let Status::Held {
        holders, permits, ..
    } = status
    else {
        panic!("{status:?}");
    };
    let told: Vec<_> = holders
        .iter()
        .map(|holder| (holder.slot, holder.weight))
        .collect();
    assert_eq!((told, permits), (vec![(0, 4), (1, 6), (2, 1)], 11));
    four.release().await.unwrap();
    is_busy(take(&one, 10, 4).await);
    let lowest = take(&one, 10, 3).await.unwrap();
    assert_eq!(lowest.slot(), 0);
    let mut tokens = Vec::new();
    for lease in [&six, &eleventh, &lowest, &six] {
        tokens.push(lease.token().await.unwrap());
    }
    // Of a lease it stays the same.
    assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2] && tokens[3] == tokens[0]);
    for lease in [six, eleventh, lowest] {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// The heavy one is not passed by, and those behind it are served in their turn, and woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heavy_are_served_in_the_order_of_their_arrival() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let one = take(&locks, 10, 5).await.unwrap();
    let two = take(&locks, 10, 4).await.unwrap();
    let heavy = waits(&cluster, 8).await;
    let light = waits(&cluster, 1).await;
    let also_light = waits(&cluster, 2).await;
    // One permit is free, and nobody has it: not who waits behind, nor who comes.
    is_busy(take(&client(&cluster).await, 10, 1).await);
    one.release().await.unwrap();
    nap(100).await;
    assert!(!heavy.is_finished() && !light.is_finished());
    let released = Instant::now();
    two.release().await.unwrap();
    let heavy = heavy.await.unwrap();
    let light = light.await.unwrap();
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    assert!(!also_light.is_finished());
    // One that goes away stands in nobody's way.
    let gone = waits(&cluster, 10).await;
    let behind = waits(&cluster, 1).await;
    heavy.release().await.unwrap();
    let also_light = also_light.await.unwrap();
    let start = Instant::now();
    gone.abort();
    let behind = behind.await.unwrap();
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    for lease in [light, also_light, behind] {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// What stays closed keeps its permits and its slot; what is lost is one's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minimum_hold_keeps_the_weight_and_the_slot() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let first = take(&locks, 10, 1).await.unwrap();
    let hold = Duration::from_secs(2);
    let closes = locks.lock("units").permits(10).weight(7).ttl(TTL);
    let closes = closes.min_hold(hold).acquire().await.unwrap();
    assert_eq!(closes.slot(), 1);
    let start = Instant::now();
    closes.release().await.unwrap();
    first.release().await.unwrap();
    let beside = take(&locks, 10, 3).await.unwrap();
    assert_eq!(beside.slot(), 0);
    is_busy(take(&locks, 10, 1).await);
    let next = waits(&cluster, 7).await.await.unwrap();
    let took = start.elapsed();
    assert!(
        took > hold * 3 / 4 && took < hold + Duration::from_secs(2) + SLACK,
        "{took:?}"
    );
    assert_eq!(next.slot(), 1);
    let key = format!("lock:claim:{{lock:units}}permit:{}", next.owner());
    cluster.delete(&key);
    assert_eq!(told_within(TTL / 3, &next).await, LossCause::Deleted);
    let again = take(&locks, 10, 7).await.unwrap();
    assert!(beside.remaining() > Duration::ZERO);
    for lease in [beside, again] {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// Who comes between another's look and its write costs that one a look more, and not the permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_come_at_once_have_their_permit() {
    let cluster = Etcd::start(1);
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(client(&cluster).await);
    }
    let before = cluster.received("Txn");
    let calls: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(number, locks)| {
            let request = locks.lock("units").permits(100).ttl(TTL);
            let waits = number % 2 == 0;
            let request = if waits {
                request.wait(PATIENT)
            } else {
                request
            };
            (waits, tokio::spawn(request.acquire()))
        })
        .collect();
    let mut slots = Vec::new();
    let mut leases = Vec::new();
    for (waits, call) in calls {
        match call.await.unwrap() {
            Ok(lease) => {
                slots.push(lease.slot());
                leases.push(lease);
            }
            // One that waits comes before one that does not.
            Err(Error::Busy { .. }) if !waits => {}
            told => panic!("{told:?}"),
        }
    }
    let all = cluster.received("Txn") - before;
    slots.sort_unstable();
    println!("{} of 12 have a permit, for {all} requests", leases.len());
    assert_eq!(slots, (0..leases.len()).collect::<Vec<_>>());
    assert!(leases.len() >= 6 && all <= 12 * 12, "{all}");
    for lease in leases {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// A million permits cost what ten do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_permits_cost_no_more_than_few() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let mut last = Duration::ZERO;
    for permits in [10, 1_000_000] {
        let neighbour = take(&locks, permits, permits / 2).await.unwrap();
        let start = Instant::now();
        for _ in 0..50 {
            let lease = take(&locks, permits, permits / 2).await.unwrap();
            lease.release().await.unwrap();
        }
        println!("{permits} permits: {:?} for fifty", start.elapsed());
        assert!(last.is_zero() || start.elapsed() < 4 * last + SLACK);
        last = start.elapsed();
        neighbour.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

/// Calls with every weight, from processes of which some are killed and some stand still.
#[test]
fn fifty_callers_of_every_weight_never_have_too_much() {
    let cluster = Etcd::start(1);
    let record = Record::new();
    let pen = record.pen();
    let contender = |weight: &str| {
        let words = ["units", "10", "1000", "20", "10", weight];
        let mut worker = Worker::start("turns", &cluster.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let weights = ["1", "2", "3", "7", "10"];
    let mut workers: Vec<_> = weights.iter().map(|weight| contender(weight)).collect();
    for place in [0, 3] {
        std::thread::sleep(Duration::from_millis(500));
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        workers[place] = contender(weights[place]);
        let still = &workers[(place + 1) % 5];
        still.freeze();
        std::thread::sleep(Duration::from_millis(500));
        still.thaw();
    }
    std::thread::sleep(Duration::from_secs(4));
    worker::stop_all(&mut workers);
    let rules = checker::Rules {
        ttl: Duration::from_secs(1),
        longest_call: Duration::from_secs(20),
    };
    let entries = record.entries();
    checker::check_lingering(&entries, rules, Duration::from_secs(2)).assert_clean();
    // Each weight has its turns.
    for weight in weights {
        let of_weight = format!("{weight}/10");
        let turns = entries.iter().filter(|entry| entry.note == of_weight);
        let turns = turns.count();
        println!("{turns} turns of weight {weight}");
        assert!(turns >= 4, "{turns} turns of weight {weight}");
    }
}

/// Calls of every form that are dropped at any moment, on a network that loses answers, leave nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_leave_nothing() {
    let cluster = Etcd::start(1);
    let address = cluster.addresses()[0];
    let proxies = [(); 2].map(|()| Proxy::before(address));
    let mut clients = Vec::new();
    for proxy in &proxies {
        clients.push(client_at(&cluster.url_of(&[proxy.address()])).await);
    }
    let granted = dropping::of_every_form(&clients, &proxies, 120, 400).await;
    println!("{granted} of 120 were served");
    assert!(granted >= 3, "{granted}");
    wait::within("nothing is left", 4 * SLACK, || {
        cluster.keys("lock:").is_empty()
    })
    .await;
}
