//! `shared`: readers together and writers alone, in the order in which they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lockattr::{Client, Error, Lease, LossCause};
use tests::checker::{KILL, Rules, SHARED, check};
use tests::record::{Event, Record};
use tests::wait;
use tests::worker::{self, Worker};
use tests::zookeeper::Control;
use tokio::task::JoinHandle;

use crate::support::{
    SLACK, a_client, client, is_busy, millis, nothing_left, places, seconds, shared,
};

async fn reader(locks: &Client, key: &str) -> Lease {
    locks.lock(key).shared().acquire().await.unwrap()
}

/// A call of a client of its own that stands in the queue when this returns.
async fn waits(control: &mut Control, key: &str, shared: bool) -> JoinHandle<Lease> {
    let (before, locks) = (places(control, key), a_client().await);
    let request = locks.lock(key).wait(seconds(30));
    let request = if shared { request.shared() } else { request };
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || places(control, key) > before).await;
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_together_and_a_writer_is_alone() {
    let mut control = Control::of(shared().address(0));
    let (one, two) = (a_client().await, a_client().await);
    let (first, second) = (reader(&one, "read").await, reader(&two, "read").await);
    assert_eq!((first.slot(), second.slot()), (0, 0));
    is_busy(two.lock("read").acquire().await);
    is_busy(two.lock("read").permits(3).acquire().await);
    is_busy(two.lock_all(["read", "beside"]).acquire().await);
    let token = first.token().await.unwrap();
    let later = second.token().await.unwrap();
    assert!(later > token);
    first.release().await.unwrap();
    is_busy(one.lock("read").acquire().await);
    second.release().await.unwrap();
    let writer = one.lock("read").acquire().await.unwrap();
    assert!(writer.token().await.unwrap() > later);
    is_busy(two.lock("read").shared().acquire().await);
    writer.release().await.unwrap();
    nothing_left(&mut control, "read", seconds(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_served_in_the_order_of_their_arrival_and_woken() {
    let mut control = Control::of(shared().address(0));
    let key = "read:order";
    let locks = a_client().await;
    let first = reader(&locks, key).await;
    let writer = waits(&mut control, key, false).await;
    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(waits(&mut control, key, true).await);
    }
    let last = waits(&mut control, key, false).await;
    // Whoever does not wait passes nobody.
    is_busy(a_client().await.lock(key).shared().acquire().await);
    is_busy(locks.lock(key).shared().acquire().await);
    let released = Instant::now();
    first.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    let mut together = Vec::new();
    for reader in readers {
        together.push(reader.await.unwrap());
    }
    assert!(!last.is_finished());
    for reader in together {
        reader.release().await.unwrap();
    }
    last.await.unwrap().release().await.unwrap();
    // Six that looked by themselves would have taken most of a second each.
    assert!(released.elapsed() < seconds(2), "{:?}", released.elapsed());
    nothing_left(&mut control, key, seconds(1)).await;
}

/// Whoever does not wait has a place for a moment, and is in the way of nobody who does not wait either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_do_not_wait_refuse_no_reader() {
    let (one, two) = (a_client().await, a_client().await);
    let held = reader(&one, "read:tried").await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let locks = a_client().await;
                let mut tries = 0;
                while !stop.load(Ordering::Relaxed) {
                    is_busy(locks.lock("read:tried").acquire().await);
                    tries += 1;
                    tokio::time::sleep(millis(1)).await;
                }
                tries
            })
        })
        .collect();
    for _ in 0..200 {
        reader(&two, "read:tried").await.release().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 20);
    }
    held.release().await.unwrap();
}

fn start(record: &Record, key: &str, length: &str, tasks: &str, shares: bool) -> Worker {
    let mut words = vec![key, "1", "2000", length, tasks];
    words.extend(shares.then_some(SHARED));
    words.push("ttl=2000");
    let mut worker = Worker::start("turns", &shared().url(), record, &words);
    worker.says("ready");
    worker.tell("go");
    worker
}

/// A reader costs its own session when it dies, and so does a writer in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_dies_costs_its_session() {
    let mut control = Control::of(shared().address(0));
    let (record, locks) = (Record::new(), a_client().await);
    let key = "turns:dies";
    let mut dies = start(&record, "dies", "60000", "1", true);
    wait::until("it reads", || places(&mut control, key) == 1).await;
    let neighbour = reader(&locks, key).await;
    let mut in_the_queue = start(&record, "dies", "10", "1", false);
    wait::until("it is queued", || places(&mut control, key) == 3).await;
    in_the_queue.kill();
    let killed = Instant::now();
    let beside = a_client().await.lock(key).shared().wait(seconds(20));
    beside.acquire().await.unwrap().release().await.unwrap();
    let took = killed.elapsed();
    assert!(took < seconds(2) + SLACK, "{took:?}");

    dies.kill();
    let killed = Instant::now();
    let writer = waits(&mut control, key, false).await;
    neighbour.release().await.unwrap();
    let writer = writer.await.unwrap();
    let took = killed.elapsed();
    assert!(took < seconds(2) + SLACK, "{took:?}");
    writer.release().await.unwrap();
}

/// A stream of readers does not keep a writer out, and a stream of writers no reader. Some are killed, and some
/// stand still for longer than their session.
#[test]
fn neither_starves_under_a_stream_of_the_others() {
    let record = Record::new();
    let pen = record.pen();
    let kinds = [("6", true), ("6", true), ("2", false), ("1", false)];
    let begin = |(tasks, shares)| start(&record, "stream", "20", tasks, shares);
    let mut workers: Vec<_> = kinds.into_iter().map(begin).collect();
    for place in [0, 2] {
        std::thread::sleep(millis(700));
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        workers[place] = begin(kinds[place]);
        workers[place + 1].freeze();
        std::thread::sleep(millis(2500));
        workers[place + 1].thaw();
    }
    std::thread::sleep(seconds(1));
    worker::stop_all(&mut workers);
    let entries = record.entries();
    let findings = check(
        &entries,
        Rules {
            ttl: seconds(2),
            longest_call: seconds(20),
        },
    );
    let count = |is_it: &dyn Fn(&tests::record::Entry) -> bool| {
        entries.iter().filter(|entry| is_it(entry)).count()
    };
    let enters = count(&|entry| entry.event == Event::Enter);
    let reads = count(&|entry| entry.note == SHARED);
    println!("{reads} reads, {} writes", enters - reads);
    findings.assert_clean();
    assert!(reads >= 60 && enters - reads >= 15, "{reads} of {enters}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_node_is_deleted_is_told_and_its_neighbour_is_not() {
    let mut control = Control::of(shared().address(0));
    let (one, two) = (a_client().await, a_client().await);
    let (lost, kept) = (
        reader(&one, "read:lost").await,
        reader(&two, "read:lost").await,
    );
    // Its node is watched by then.
    tokio::time::sleep(millis(600)).await;
    let node = crate::support::nodes(&mut control, "read:lost");
    let node = node.iter().find(|name| name.starts_with(lost.owner()));
    let node = format!("/locks/lock:read:lost/{}", node.unwrap());
    control.delete(&node).unwrap();
    let told = lost.lost().await;
    let is_gone = matches!(
        told,
        Error::Lost {
            cause: LossCause::Deleted,
            ..
        }
    );
    assert!(is_gone, "{told:?}");
    assert!(kept.token().await.is_ok());
    kept.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_stays_closed_by_readers_is_closed_to_writers_alone() {
    let mut control = Control::of(shared().address(0));
    let locks = client(&shared().url(), seconds(20)).await;
    let start = Instant::now();
    for _ in 0..2 {
        let closes = locks.lock("read:closed").shared().min_hold(seconds(1));
        closes.acquire().await.unwrap().release().await.unwrap();
    }
    is_busy(locks.lock("read:closed").acquire().await);
    is_busy(locks.lock("read:closed").permits(3).acquire().await);
    drop(reader(&locks, "read:closed").await);
    let writer = locks.lock("read:closed").wait(seconds(20)).acquire();
    let writer = writer.await.unwrap();
    let closed = start.elapsed();
    assert!(
        closed > millis(500) && closed < seconds(2) + SLACK,
        "{closed:?}"
    );
    writer.release().await.unwrap();
    nothing_left(&mut control, "read:closed", seconds(2)).await;
}
