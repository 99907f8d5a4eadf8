//! `shared`: many readers, or one writer.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause, Memory, distributed_lock};
use tests::checker::{self, KILL, SHARED};
use tests::record::{Event, Record};
use tests::server::Server;
use tests::wait;
use tests::worker::{self, Worker};
use tokio::task::JoinHandle;

use crate::support::{LOOK, SLACK, client, nap, nothing_left, pair};

const PATIENT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
const DOC: &str = "lock:doc:7";

#[distributed_lock(key = "doc:<id>", shared, client = locks)]
async fn read<T: Send>(locks: &Client, id: u64, body: impl Future<Output = T>) -> Result<T, Error> {
    Ok(body.await)
}

#[distributed_lock(key = "doc:<id>", client = locks)]
async fn write<T: Send>(
    locks: &Client,
    id: u64,
    body: impl Future<Output = T>,
) -> Result<T, Error> {
    Ok(body.await)
}

async fn reader(locks: &Client) -> Lease {
    locks.lock("doc:7").shared().acquire().await.unwrap()
}

/// A call that stands in the server's queue when this returns.
async fn waits(server: &Server, shared: bool) -> JoinHandle<Lease> {
    let (before, locks) = (server.waiters(DOC), client(server).await);
    let request = locks.lock("doc:7").wait(PATIENT);
    let request = if shared { request.shared() } else { request };
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || server.waiters(DOC) > before).await;
    call
}

#[track_caller]
fn is_busy<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let refused = answer.expect_err("it is busy");
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
}

#[tokio::test]
async fn readers_are_together_and_a_writer_is_alone() {
    let (server, redis) = pair().await;
    let memory = Memory::new();
    let local = || Client::builder().store(memory.clone()).unwrap();
    for (one, two) in [(redis, client(&server).await), (local(), local())] {
        let inner = read(&one, 7, async {
            let beside = read(&two, 7, async { 2 }).await.unwrap();
            is_busy(write(&two, 7, async {}).await);
            beside
        });
        assert_eq!(inner.await.unwrap(), 2);
        let alone = write(&one, 7, async {
            is_busy(read(&two, 7, async {}).await);
            is_busy(write(&two, 7, async {}).await);
        });
        alone.await.unwrap();
        let first = reader(&one).await;
        let second = reader(&one).await;
        assert_eq!((first.slot(), second.slot()), (0, 0));
        let token = first.token().await.unwrap();
        assert!(second.token().await.unwrap() > token);
        drop((first, second));
        nap(50).await;
        let writer = two.lock("doc:7").acquire().await.unwrap();
        assert!(writer.token().await.unwrap() > token + 1);
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn all_are_served_in_the_order_of_their_arrival() {
    let (server, locks) = pair().await;
    let first = reader(&locks).await;
    let writer = waits(&server, false).await;
    let readers = [waits(&server, true).await, waits(&server, true).await];
    let last = waits(&server, false).await;
    // Whoever does not wait passes nobody.
    is_busy(client(&server).await.lock("doc:7").shared().acquire().await);
    is_busy(locks.lock("doc:7").shared().acquire().await);
    let released = Instant::now();
    first.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert_eq!(server.owner(DOC).as_deref(), Some(writer.owner()));
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    let mut together = Vec::new();
    for reader in readers {
        together.push(reader.await.unwrap());
    }
    assert_eq!(server.holders(DOC).len(), 2);
    assert!(!last.is_finished());
    for reader in together {
        reader.release().await.unwrap();
    }
    last.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    nothing_left(&server).await;
}

/// A reader costs its own ttl when it dies, however its neighbours renew theirs.
#[tokio::test]
async fn a_reader_that_dies_costs_its_ttl_and_a_writer_that_dies_nothing() {
    let (server, locks) = pair().await;
    let record = Record::new();
    let start = |length: &str, shared: bool| {
        let mut words = vec!["doc", "1", "2000", length, "1"];
        words.extend(shared.then_some(SHARED));
        let mut worker = Worker::start("turns", &server.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let lock = "lock:turns:doc";
    let mut dies = start("60000", true);
    wait::until("it reads", || server.holders(lock).len() == 1).await;
    let neighbour = locks.lock("turns:doc").shared();
    let neighbour = neighbour.ttl(20 * SECOND).acquire().await.unwrap();
    let subscribed = server.subscribers();
    let mut in_the_queue = start("10", false);
    wait::until("it is queued", || server.waiters(lock) == 1).await;

    // A writer dies in the queue: whoever comes next passes it.
    in_the_queue.kill();
    wait::until("the server sees it go", || {
        server.subscribers() == subscribed
    })
    .await;
    let begun = Instant::now();
    let beside = client(&server).await.lock("turns:doc").shared();
    let beside = beside.wait(PATIENT).acquire().await.unwrap();
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    drop(beside);

    dies.kill();
    let killed = Instant::now();
    let request = locks.lock("turns:doc").wait(PATIENT);
    let call = tokio::spawn(async move { request.acquire().await });
    wait::until("it is queued", || server.waiters(lock) == 1).await;
    neighbour.release().await.unwrap();
    let writer = call.await.unwrap().unwrap();
    let took = killed.elapsed();
    assert!(took < 2 * SECOND + LOOK + SLACK, "{took:?}");
    writer.release().await.unwrap();
    nothing_left(&server).await;
}

/// A stream of readers does not keep a writer out, and a stream of writers no reader. Some are killed, and some
/// stand still for longer than their ttl.
#[test]
fn neither_starves_under_a_stream_of_the_others() {
    const TTL: Duration = Duration::from_secs(1);
    let server = Server::start();
    let record = Record::new();
    let pen = record.pen();
    let start = |tasks: &str, shared: bool| {
        let mut words = vec!["doc", "1", "1000", "20", tasks];
        words.extend(shared.then_some(SHARED));
        let mut worker = Worker::start("turns", &server.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let kinds = [
        ("8", true),
        ("8", true),
        ("8", true),
        ("2", false),
        ("1", false),
    ];
    let mut workers: Vec<_> = kinds
        .iter()
        .map(|(tasks, shared)| start(tasks, *shared))
        .collect();
    for place in [0, 3, 1] {
        std::thread::sleep(Duration::from_millis(500));
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        let (tasks, shared) = kinds[place];
        workers[place] = start(tasks, shared);
        workers[place + 1].freeze();
        std::thread::sleep(TTL + TTL / 4);
        workers[place + 1].thaw();
    }
    std::thread::sleep(Duration::from_secs(1));
    worker::stop_all(&mut workers);
    let rules = checker::Rules {
        ttl: TTL,
        longest_call: Duration::from_secs(10),
    };
    let entries = record.entries();
    let findings = checker::check(&entries, rules);
    let enters = entries
        .iter()
        .filter(|entry| entry.event == Event::Enter)
        .count();
    let reads = entries.iter().filter(|entry| entry.note == SHARED).count();
    println!("{reads} reads, {} writes", enters - reads);
    findings.assert_clean();
    assert!(reads >= 100 && enters - reads >= 20, "{reads} of {enters}");
    wait::block_until("the last ttl is over", || server.size() == 0);
}

/// A reader that stands still is told that it has lost the key, and the writer has it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_not_renewed_has_lost_the_key() {
    let (server, locks) = pair().await;
    let asleep = locks.lock("doc:7").shared().ttl(SECOND / 2).renew(false);
    let asleep = asleep.acquire().await.unwrap();
    let awake = locks
        .lock("doc:7")
        .shared()
        .ttl(SECOND)
        .acquire()
        .await
        .unwrap();
    nap(700).await;
    // Its neighbour has kept the key, and not its place.
    let drawn = asleep.token().await;
    assert!(
        matches!(
            drawn,
            Err(Error::Lost {
                cause: LossCause::Expired,
                ..
            })
        ),
        "{drawn:?}"
    );
    let end = asleep.release().await.unwrap_err();
    assert!(matches!(end, Error::Lost { .. }), "{end:?}");
    let deleted = locks
        .lock("doc:8")
        .shared()
        .ttl(SECOND)
        .acquire()
        .await
        .unwrap();
    let _: usize = server.ask("DEL lock:doc:8");
    let writer = locks.lock("doc:8").acquire().await.unwrap();
    wait::within("its renewal finds it out", SECOND + SLACK, || {
        deleted.remaining().is_zero()
    })
    .await;
    let end = deleted.release().await.unwrap_err();
    assert!(
        matches!(
            end,
            Error::Lost {
                cause: LossCause::Taken,
                ..
            }
        ),
        "{end:?}"
    );
    drop((awake, writer));
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_key_that_stays_closed_by_a_reader_is_closed_to_writers_alone() {
    let (server, locks) = pair().await;
    let start = Instant::now();
    for _ in 0..2 {
        let closes = locks.lock("doc:7").shared().min_hold(SECOND);
        closes.acquire().await.unwrap().release().await.unwrap();
    }
    is_busy(locks.lock("doc:7").acquire().await);
    drop(reader(&locks).await);
    let writer = locks.lock("doc:7").wait(PATIENT).acquire().await.unwrap();
    let closed = start.elapsed();
    assert!(
        closed > SECOND / 2 && closed < SECOND + LOOK + SLACK,
        "{closed:?}"
    );
    drop(writer);
    nothing_left(&server).await;
}

/// Whoever holds the key alone has all that a reader needs; a reader cannot become a writer.
#[tokio::test]
async fn calls_within_join_what_serves_them_and_are_told_what_cannot() {
    let (server, locks) = pair().await;
    let outer = write(&locks, 7, async {
        read(&locks, 7, async { read(&locks, 7, async { 3 }).await }).await
    });
    assert_eq!(Box::pin(outer).await.unwrap().unwrap().unwrap(), 3);
    let outer = read(&locks, 7, async {
        assert_eq!(read(&locks, 7, async { 4 }).await.unwrap(), 4);
        write(&locks, 7, async {}).await
    });
    let error = outer.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("doc:7") && text.contains("`shared`"),
        "{text}"
    );
    // Another key is another matter.
    let outer = read(&locks, 7, async { write(&locks, 8, async { 5 }).await });
    assert_eq!(outer.await.unwrap().unwrap(), 5);
    nothing_left(&server).await;
}

#[tokio::test]
async fn what_readers_cannot_be_is_refused_by_name() {
    let (_server, locks) = pair().await;
    let reader = || locks.lock("doc:7").shared();
    let both = locks.lock_all(["doc:7", "doc:8"]).shared();
    for (request, words) in [
        (reader().permits(3), "`shared` and `permits`"),
        (reader().weight(2), "weight"),
        (reader().once(SECOND), "`once`"),
        (locks.lock("doc:7").permits(3).once(SECOND), "`once`"),
        (both, "several keys"),
    ] {
        let error = request.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Renewals need no memory that the server has not.
#[tokio::test]
async fn readers_keep_their_key_on_a_server_without_memory() {
    let (server, locks) = pair().await;
    let held = locks
        .lock("doc:7")
        .shared()
        .ttl(SECOND)
        .acquire()
        .await
        .unwrap();
    let _: () = server.ask("CONFIG SET maxmemory 1");
    let refused = locks.lock("doc:7").shared().acquire().await.unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
    nap(2_000).await;
    assert!(held.remaining() > Duration::ZERO);
    assert_eq!(locks.stats().renewal_failed, 0);
    held.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

/// A restart that keeps the data keeps readers, until when they hold the key included.
#[tokio::test]
async fn readers_survive_a_restart_of_the_server() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = client(&server).await;
    let first = locks
        .lock("doc:7")
        .shared()
        .ttl(20 * SECOND)
        .acquire()
        .await
        .unwrap();
    let second = locks
        .lock("doc:7")
        .shared()
        .ttl(20 * SECOND)
        .acquire()
        .await
        .unwrap();
    server.restart();
    let other = client(&server).await;
    is_busy(other.lock("doc:7").acquire().await);
    drop(other.lock("doc:7").shared().acquire().await.unwrap());
    first.release().await.unwrap();
    second.release().await.unwrap();
    other
        .lock("doc:7")
        .wait(PATIENT)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
