//! `shared`: many readers, or one writer.

use std::time::{Duration, Instant};

use lockattr::store::inspect::Ended;
use lockattr::{Client, Error, Lease, LossCause};
use tests::checker::{self, KILL, SHARED};
use tests::etcd::Etcd;
use tests::inspected::{end, is_held_by, show};
use tests::record::{Event, Record};
use tests::wait;
use tests::worker::{self, Worker};
use tokio::task::JoinHandle;

use crate::support::{SLACK, TTL, client, nap, nothing_left, queued, told_within};

const PATIENT: Duration = Duration::from_secs(30);

/// The first of a queue looks again after so long by itself: what is woken is sooner.
const LOOK: Duration = Duration::from_millis(750);

/// How much longer than its ttl a lease of etcd's runs, at most, after its holder has died.
const LINGERS: Duration = Duration::from_secs(2);

async fn reader(locks: &Client) -> Lease {
    let request = locks.lock("doc").shared().ttl(TTL);
    request.acquire().await.unwrap()
}

/// A call that stands in the queue when this returns.
async fn waits(cluster: &Etcd, shared: bool) -> JoinHandle<Lease> {
    let (before, locks) = (queued(cluster, "doc"), client(cluster).await);
    let request = locks.lock("doc").ttl(TTL).wait(PATIENT);
    let request = if shared { request.shared() } else { request };
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || queued(cluster, "doc") > before).await;
    call
}

fn readers(cluster: &Etcd, key: &str) -> usize {
    let prefix = format!("lock:claim:{{lock:{key}}}reader:");
    cluster.keys(&prefix).len()
}

#[track_caller]
fn is_busy<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let refused = answer.expect_err("it is busy");
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_together_and_a_writer_is_alone() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let (first, second) = (reader(&one).await, reader(&two).await);
    assert_eq!((first.slot(), second.slot()), (0, 0));
    is_busy(one.lock("doc").acquire().await);
    is_busy(two.lock("doc").permits(3).acquire().await);
    let token = first.token().await.unwrap();
    let next = second.token().await.unwrap();
    assert!(next > token);
    first.release().await.unwrap();
    is_busy(two.lock("doc").acquire().await);
    second.release().await.unwrap();
    let writer = one.lock("doc").ttl(TTL).acquire().await.unwrap();
    is_busy(two.lock("doc").shared().acquire().await);
    assert!(writer.token().await.unwrap() > next);
    writer.release().await.unwrap();
    nothing_left(&cluster).await;
}

/// Each is woken by what it waits for: nobody looks by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_served_in_the_order_of_their_arrival_and_woken() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let (first, second) = (reader(&one).await, reader(&two).await);
    let writer = waits(&cluster, false).await;
    let behind = [waits(&cluster, true).await, waits(&cluster, true).await];
    let last = waits(&cluster, false).await;
    // Whoever does not wait passes nobody.
    is_busy(client(&cluster).await.lock("doc").shared().acquire().await);
    second.release().await.unwrap();
    nap(100).await;
    assert!(!writer.is_finished());
    let released = Instant::now();
    first.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    assert!(behind.iter().all(|reader| !reader.is_finished()));
    let released = Instant::now();
    writer.release().await.unwrap();
    let mut together = Vec::new();
    for reader in behind {
        together.push(reader.await.unwrap());
    }
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    assert!(readers(&cluster, "doc") == 2 && !last.is_finished());
    let released = Instant::now();
    for reader in together {
        reader.release().await.unwrap();
    }
    last.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    nothing_left(&cluster).await;
}

/// Readers that come one after the other, so that there is always one, do not keep a writer out; and a heavy one has
/// its turn, and readers theirs. Processes are killed and stand still meanwhile.
#[test]
fn neither_starves_under_a_stream_of_the_others() {
    let cluster = Etcd::start(1);
    let record = Record::new();
    let pen = record.pen();
    let start = |tasks: &str, shared: bool| {
        let mut words = vec!["doc", "1", "1000", "20", tasks];
        words.extend(shared.then_some(SHARED));
        let mut worker = Worker::start("turns", &cluster.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let kinds = [("6", true), ("6", true), ("2", false)];
    let mut workers: Vec<_> = kinds
        .iter()
        .map(|(tasks, shared)| start(tasks, *shared))
        .collect();
    std::thread::sleep(Duration::from_millis(700));
    for place in [0, 2] {
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        let (tasks, shared) = kinds[place];
        workers[place] = start(tasks, shared);
        workers[1].freeze();
        std::thread::sleep(Duration::from_millis(1_250));
        workers[1].thaw();
    }
    std::thread::sleep(Duration::from_millis(1_500));
    worker::stop_all(&mut workers);
    let rules = checker::Rules {
        ttl: Duration::from_secs(1),
        longest_call: Duration::from_secs(15),
    };
    let entries = record.entries();
    let findings = checker::check_lingering(&entries, rules, LINGERS);
    let of = |event: Event| entries.iter().filter(move |entry| entry.event == event);
    let reads = of(Event::Beside).count();
    let writes = of(Event::Enter).count() - reads;
    println!("{reads} reads, {writes} writes");
    findings.assert_clean();
    assert!(reads >= 20 && writes >= 8, "{reads} and {writes}");
}

/// A reader costs its own ttl when it dies, however its neighbours renew theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_dies_costs_its_ttl() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let record = Record::new();
    let words = ["doc", "1", "2000", "60000", "1", SHARED];
    let mut dies = Worker::start("turns", &cluster.url(), &record, &words);
    dies.says("ready");
    dies.tell("go");
    wait::until("it reads", || readers(&cluster, "turns:doc") == 1).await;
    let request = || locks.lock("turns:doc").ttl(TTL);
    let neighbour = request().shared().acquire().await.unwrap();
    let call = tokio::spawn(request().wait(PATIENT).acquire());
    wait::until("it is queued", || queued(&cluster, "turns:doc") == 1).await;
    dies.kill();
    let killed = Instant::now();
    neighbour.release().await.unwrap();
    let writer = call.await.unwrap().unwrap();
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(2) + LINGERS + SLACK, "{took:?}");
    writer.release().await.unwrap();
    nothing_left(&cluster).await;
}

/// A reader is told of its own loss at its next renewal, and its neighbours have lost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_lease_ends_has_lost_its_own_part() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let (lost, kept) = (reader(&one).await, reader(&two).await);
    let key = format!("lock:claim:{{lock:doc}}reader:{}", lost.owner());
    cluster.revoke(cluster.get(&key).expect("it reads").lease);
    assert_eq!(told_within(TTL / 3, &lost).await, LossCause::Deleted);
    is_busy(one.lock("doc").acquire().await);
    nap(1_100).await;
    assert!(kept.remaining() > Duration::ZERO);
    // The same where somebody ends what is shown of one.
    let ends = reader(&one).await;
    let shown = show(&two, "doc").await.listed;
    assert!(shown.shared && shown.entries.len() == 2, "{shown:?}");
    let entry = shown.entries.iter().find(|entry| is_held_by(entry, &ends));
    let entry = entry.expect("it is shown");
    assert_eq!(end(&two, "doc", entry).await, Ended::Ended);
    assert_eq!(end(&two, "doc", entry).await, Ended::Gone);
    assert_eq!(told_within(TTL / 3, &ends).await, LossCause::Deleted);
    kept.release().await.unwrap();
    let writer = one.lock("doc").ttl(TTL).acquire().await.unwrap();
    assert_eq!(end(&two, "doc", entry).await, Ended::Changed);
    writer.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_stays_closed_by_a_reader_is_closed_to_writers_alone() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let hold = Duration::from_secs(2);
    let start = Instant::now();
    let closes = locks.lock("doc").shared().ttl(TTL).min_hold(hold);
    closes.acquire().await.unwrap().release().await.unwrap();
    is_busy(locks.lock("doc").acquire().await);
    reader(&locks).await.release().await.unwrap();
    let writer = locks.lock("doc").ttl(TTL).wait(PATIENT).acquire().await;
    let took = start.elapsed();
    assert!(
        took > hold * 3 / 4 && took < hold + LINGERS + SLACK,
        "{took:?}"
    );
    writer.unwrap().release().await.unwrap();
    nothing_left(&cluster).await;
}
