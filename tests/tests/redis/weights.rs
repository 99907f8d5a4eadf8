//! `weight`: several permits of a key at a time, all or none, in the order of arrival.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, distributed_lock};
use tests::checker::{self, KILL};
use tests::dropping;
use tests::proxy::Proxy;
use tests::record::{Event, Record};
use tests::server::Server;
use tests::wait;
use tests::worker::{self, Worker};
use tokio::task::JoinHandle;

use crate::support::{LOOK, SLACK, client, nap, nothing_left, pair};

const PATIENT: Duration = Duration::from_secs(30);

#[distributed_lock(key = "units", permits = permits, weight = weight, bind = lease, client = locks)]
async fn of_units(locks: &Client, permits: u32, weight: u32) -> Result<usize, Error> {
    Ok(lease.slot())
}

async fn take(locks: &Client, weight: u32) -> Result<Lease, Error> {
    locks
        .lock("units")
        .permits(10)
        .weight(weight)
        .acquire()
        .await
}

/// A call that stands in the server's queue when this returns.
async fn waits(server: &Server, weight: u32) -> JoinHandle<Lease> {
    let (before, locks) = (server.waiters("lock:units"), client(server).await);
    let request = locks.lock("units").permits(10).weight(weight).wait(PATIENT);
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || server.waiters("lock:units") > before).await;
    call
}

#[tokio::test]
async fn holders_have_no_more_than_there_is_and_what_cannot_be_is_told() {
    let (server, locks) = pair().await;
    let [four, six] = [
        take(&locks, 4).await.unwrap(),
        take(&locks, 6).await.unwrap(),
    ];
    assert!(matches!(take(&locks, 1).await, Err(Error::Busy { .. })));
    // Whoever counts more has a part of that; a plain call has none.
    let eleventh = locks.lock("units").permits(11).acquire().await.unwrap();
    assert_eq!(eleventh.slot(), 2);
    assert!(matches!(
        locks.lock("units").acquire().await,
        Err(Error::Busy { .. })
    ));
    assert!(matches!(
        locks.lock("units").shared().acquire().await,
        Err(Error::Busy { .. })
    ));
    drop((four, six, eleventh));
    nothing_left(&server).await;
    assert_eq!(of_units(&locks, 10, 10).await.unwrap(), 0);
    for (permits, weight, words) in [
        (
            10,
            11,
            "at most the key's permits, of which there are 10, not 11",
        ),
        (10, 0, "at least 1"),
        (1, 2, "of which there are 1, not 2"),
        (1_000_001, 1, "at most 1000000 permits"),
    ] {
        let error = of_units(&locks, permits, weight).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("units"), "{text}");
    }
    nothing_left(&server).await;
}

/// The heavy one is not passed by, and those behind it are served in their turn.
#[tokio::test]
async fn the_heavy_are_served_in_the_order_of_their_arrival() {
    let (server, locks) = pair().await;
    let [one, two] = [
        take(&locks, 5).await.unwrap(),
        take(&locks, 4).await.unwrap(),
    ];
    let heavy = waits(&server, 8).await;
    let light = waits(&server, 1).await;
    let also_light = waits(&server, 2).await;
    // One permit is free, and nobody has it: not who waits behind, nor who comes.
    assert!(matches!(
        take(&client(&server).await, 1).await,
        Err(Error::Busy { .. })
    ));
    one.release().await.unwrap();
    nap(100).await;
    assert!(!heavy.is_finished() && !light.is_finished());
    let released = Instant::now();
    two.release().await.unwrap();
    let heavy = heavy.await.unwrap();
    let light = light.await.unwrap();
    assert!(released.elapsed() < LOOK / 2, "{:?}", released.elapsed());
    assert!(!also_light.is_finished());
    heavy.release().await.unwrap();
    drop((light, also_light.await.unwrap()));
    nothing_left(&server).await;
}

/// A waiter that goes away, or dies, lets those pass who waited behind it.
#[tokio::test]
async fn a_heavy_one_that_is_gone_stands_in_nobodys_way() {
    let (server, locks) = pair().await;
    let held = take(&locks, 5).await.unwrap();
    let gone = waits(&server, 8).await;
    let light = waits(&server, 1).await;
    let start = Instant::now();
    gone.abort();
    let light = light.await.unwrap();
    assert!(
        start.elapsed() < LOOK / 2 + SLACK / 2,
        "{:?}",
        start.elapsed()
    );
    light.release().await.unwrap();

    let record = Record::new();
    let words = ["units", "10", "30000", "30", "1", "8"];
    let other = locks
        .lock("turns:units")
        .permits(10)
        .weight(5)
        .acquire()
        .await
        .unwrap();
    let mut dead = Worker::start("turns", &server.url(), &record, &words);
    dead.says("ready");
    dead.tell("go");
    wait::until("it is queued", || server.waiters("lock:turns:units") == 1).await;
    dead.kill();
    wait::until("the server sees it go", || server.subscribers() == 0).await;
    let start = Instant::now();
    let beside = locks
        .lock("turns:units")
        .permits(10)
        .acquire()
        .await
        .unwrap();
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    assert_eq!(server.waiters("lock:turns:units"), 0);
    drop((held, other, beside));
}

/// What stays closed keeps its permits and its slot.
#[tokio::test]
async fn a_minimum_hold_keeps_the_weight_and_the_slot() {
    let (server, locks) = pair().await;
    let first = take(&locks, 1).await.unwrap();
    let closes = locks.lock("units").permits(10).weight(7);
    let closes = closes.min_hold(2 * LOOK).acquire().await.unwrap();
    assert_eq!(closes.slot(), 1);
    let start = Instant::now();
    closes.release().await.unwrap();
    first.release().await.unwrap();
    let beside = take(&locks, 3).await.unwrap();
    assert_eq!(beside.slot(), 0);
    let busy = take(&locks, 1).await.unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy:?}");
    let request = client(&server).await.lock("units").permits(10).weight(7);
    let next = request.wait(PATIENT).acquire().await.unwrap();
    assert!(start.elapsed() > LOOK * 3 / 2, "{:?}", start.elapsed());
    assert!(start.elapsed() < 3 * LOOK + SLACK, "{:?}", start.elapsed());
    assert_eq!(next.slot(), 1);
    drop((beside, next));
    nothing_left(&server).await;
}

/// Releases of an application that count differently, and calls with every weight, from processes of which some
/// are killed and some stand still.
#[test]
fn fifty_callers_of_every_weight_never_have_too_much() {
    const TTL: Duration = Duration::from_secs(1);
    let server = Server::start();
    let record = Record::new();
    let pen = record.pen();
    let contender = |weight: &str| {
        let words = ["units", "10", "1000", "20", "10", weight];
        let mut worker = Worker::start("turns", &server.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let weights = ["1", "2", "3", "7", "10"];
    let mut workers: Vec<_> = weights.iter().map(|weight| contender(weight)).collect();
    for place in [0, 3, 2, 4] {
        std::thread::sleep(Duration::from_millis(400));
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        workers[place] = contender(weights[place]);
        let still = &workers[(place + 1) % 5];
        still.freeze();
        std::thread::sleep(TTL / 2);
        still.thaw();
    }
    std::thread::sleep(Duration::from_secs(1));
    worker::stop_all(&mut workers);
    let rules = checker::Rules {
        ttl: TTL,
        longest_call: Duration::from_secs(20),
    };
    let entries = record.entries();
    let findings = checker::check(&entries, rules);
    findings.assert_clean();
    // Each weight has its turns.
    for weight in weights {
        let of_weight = format!("{weight}/10");
        let turns = entries
            .iter()
            .filter(|entry| entry.note == of_weight)
            .count();
        println!("{turns} turns of weight {weight}");
        assert!(turns >= 8, "{turns} turns of weight {weight}");
    }
    wait::block_until("the last ttl is over", || server.size() == 0);
}

/// Calls of every form that are dropped at any moment, on a network that loses answers, leave nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_leave_nothing() {
    let server = Server::start();
    let mut clients = Vec::new();
    let proxies = [(); 2].map(|()| Proxy::before(server.address()));
    for proxy in &proxies {
        clients.push(Client::connect(proxy.url()).await.unwrap());
    }
    let granted = dropping::of_every_form(&clients, &proxies, 240, 120).await;
    println!("{granted} of 240 were served");
    assert!(granted > 40, "{granted}");
    wait::within("nothing is left", 3 * LOOK + SLACK, || server.size() == 0).await;
}
