//! Readers and writers: who is beside whom, who waits for whom, and what any of them costs when it dies.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause, Status};
use tests::checker::{self, KILL, SHARED};
use tests::record::{Event, Record};
use tests::server::{Commands, Server};
use tests::wait;
use tests::worker::{self, Worker};
use tokio::task::JoinHandle;

use super::{KEY, LOCK, Nodes, is_busy, take};
use crate::support::{LOOK, SLACK, nap};

const PATIENT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

async fn read(locks: &Client) -> Lease {
    let reader = locks.lock(KEY).shared().acquire().await;
    reader.expect("a key for readers")
}

/// A call that stands in the queue of the first node when this returns.
async fn waits(nodes: &Nodes, shared: bool) -> JoinHandle<Lease> {
    let waiters = || {
        nodes
            .servers
            .iter()
            .map(|server| server.waiters(LOCK))
            .max()
    };
    let (before, locks) = (waiters(), nodes.client().await);
    let request = locks.lock(KEY).wait(PATIENT);
    let request = if shared { request.shared() } else { request };
    let call = tokio::spawn(async move { request.acquire().await.expect("its turn") });
    wait::until("it is queued", || waiters() > before).await;
    call
}

#[tokio::test]
async fn readers_are_together_and_a_writer_is_alone() {
    for count in [3, 4] {
        let nodes = Nodes::start(count);
        let (one, other) = (nodes.client().await, nodes.client().await);
        let (first, second) = (read(&one).await, read(&other).await);
        assert_eq!((first.slot(), second.slot()), (0, 0));
        assert!(is_busy(&other.lock(KEY).acquire().await));
        let token = first.token().await.unwrap();
        let later = second.token().await.unwrap();
        assert!(later > token);
        let told = one.status(KEY).await.unwrap();
        let Status::Held { holders, .. } = &told else {
            panic!("{told:?}")
        };
        assert_eq!(holders.len(), 2, "{told:?}");
        first.release().await.unwrap();
        assert!(is_busy(&one.lock(KEY).acquire().await));
        second.release().await.unwrap();
        let writer = take(&one).await;
        assert!(is_busy(&other.lock(KEY).shared().acquire().await));
        assert!(writer.token().await.unwrap() > later);
        writer.release().await.unwrap();
        nodes.nothing_left().await;
    }
}

#[tokio::test]
async fn all_are_served_in_the_order_of_their_arrival() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let first = read(&locks).await;
    let writer = waits(&nodes, false).await;
    let readers = [waits(&nodes, true).await, waits(&nodes, true).await];
    let last = waits(&nodes, false).await;
    // Whoever does not wait passes nobody.
    let late = nodes.client().await;
    for _ in 0..3 {
        assert!(is_busy(&late.lock(KEY).shared().acquire().await));
    }
    let released = Instant::now();
    first.release().await.unwrap();
    let writer = writer.await.unwrap();
    nap(50).await;
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
    // Woken, and not by their own looks.
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_minority_that_is_away_is_not_noticed() {
    for away in [0, 2] {
        let nodes = Nodes::start(3);
        let (one, other) = (nodes.client().await, nodes.client().await);
        let first = one.lock(KEY).shared().ttl(SECOND).acquire().await.unwrap();
        nodes.servers[away].freeze();
        let begun = Instant::now();
        let second = read(&other).await;
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        assert!(is_busy(&other.lock(KEY).acquire().await));
        let elsewhere = nodes.client().await;
        let request = elsewhere.lock(KEY).wait(PATIENT);
        let writer = tokio::spawn(async move { request.acquire().await });
        let queued = || {
            let mut open = nodes.servers.iter().enumerate();
            open.any(|(index, server)| index != away && server.waiters(LOCK) > 0)
        };
        wait::until("it is queued", queued).await;
        // One behind it waits, whichever node it takes for the first.
        let late = nodes.client().await;
        assert!(is_busy(&late.lock(KEY).shared().acquire().await));
        nap(1_500).await;
        assert!(first.remaining() > Duration::ZERO);
        let released = Instant::now();
        first.release().await.unwrap();
        second.release().await.unwrap();
        let writer = writer.await.unwrap().unwrap();
        assert!(
            released.elapsed() < LOOK + SLACK,
            "{:?}",
            released.elapsed()
        );
        nodes.servers[away].thaw();
        writer.release().await.unwrap();
        nodes.nothing_left().await;
    }
}

/// The vote comes back: a node that has forgotten one reader, and another that has forgotten the next.
#[tokio::test]
async fn nodes_that_forget_readers_one_after_the_other_let_no_writer_in() {
    let nodes = Nodes::start(3);
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let ttl = 2 * SECOND;
    let request = || locks.lock(KEY).shared().ttl(ttl);
    let readers = [
        request().acquire().await.unwrap(),
        request().acquire().await.unwrap(),
    ];
    for server in &nodes.servers {
        let _: i64 = server.ask(&format!("DEL {LOCK}"));
        assert!(is_busy(&others.lock(KEY).acquire().await));
        let voted = || server.holders(LOCK).len() == 2;
        wait::within("the node votes for both again", 2 * ttl, voted).await;
        // A vote counts from the next renewal.
        nap(1_000).await;
    }
    for reader in readers {
        assert!(reader.remaining() > Duration::ZERO);
        reader.release().await.unwrap();
    }
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_reader_that_most_nodes_have_forgotten_is_lost() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let request = || locks.lock(KEY).shared().ttl(2 * SECOND);
    let reader = request().acquire().await.unwrap();
    wait::until("all nodes vote", || {
        nodes
            .servers
            .iter()
            .all(|server| server.holders(LOCK).len() == 1)
    })
    .await;
    for server in &nodes.servers[1..] {
        let _: i64 = server.ask(&format!("DEL {LOCK}"));
    }
    let lost = tokio::time::timeout(2 * SECOND, reader.lost()).await;
    let lost = lost.expect("within a renewal");
    let gone = matches!(
        lost,
        Error::Lost {
            cause: LossCause::Deleted,
            ..
        }
    );
    assert!(gone, "{lost:?}");
    reader.release().await.expect_err("it is lost");
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_key_that_stays_closed_by_a_reader_is_closed_to_writers_alone() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let start = Instant::now();
    let request = locks.lock(KEY).shared().min_hold(SECOND);
    request.acquire().await.unwrap().release().await.unwrap();
    assert!(is_busy(&locks.lock(KEY).acquire().await));
    drop(read(&locks).await);
    let writer = locks.lock(KEY).wait(PATIENT).acquire().await.unwrap();
    let closed = start.elapsed();
    assert!(
        closed > SECOND / 2 && closed < SECOND + LOOK + SLACK,
        "{closed:?}"
    );
    writer.release().await.unwrap();
    nodes.nothing_left().await;
}

/// What each node is asked for: once a step, and of a call that is refused the first one alone, and all for who holds it.
#[tokio::test]
async fn each_form_asks_each_node_once_a_step() {
    let nodes = Nodes::start(3);
    let (locks, elsewhere) = (nodes.client().await, nodes.client().await);
    let lock = |locks: &Client, is_shared| {
        let request = locks.lock(KEY).ttl(60 * SECOND);
        if is_shared { request.shared() } else { request }
    };
    // The scripts are known.
    for is_shared in [true, false] {
        for locks in [&locks, &elsewhere] {
            let lease = lock(locks, is_shared).acquire().await.unwrap();
            let lease = elsewhere.take_up(lease.hand_off().unwrap()).await.unwrap();
            nap(50).await;
            lease.release().await.unwrap();
            nodes.nothing_left().await;
        }
    }
    let asked = async |before: &[Commands]| {
        // A third node answers when the call is over.
        nap(50).await;
        let each = nodes.servers.iter().zip(before);
        let each = each.map(|(server, before)| {
            let since = server.commands().since(before);
            // A script may set what it takes over.
            match since.of("evalsha") {
                0 => since.of("set"),
                sent => sent,
            }
        });
        each.collect::<Vec<_>>()
    };
    let before = || -> Vec<_> { nodes.servers.iter().map(Server::commands).collect() };
    for is_shared in [false, true] {
        let start = before();
        let lease = lock(&locks, is_shared).acquire().await.unwrap();
        assert_eq!(asked(&start).await, [1; 3], "taken, shared {is_shared}");
        let start = before();
        assert!(is_busy(&lock(&elsewhere, !is_shared).acquire().await));
        let refused = asked(&start).await;
        // The script after a `SET`; or the first node, and then all for who holds it.
        let most = if is_shared { 3 } else { 4 };
        let is_few = refused.iter().sum::<u64>() <= most;
        assert!(is_few, "refused, shared {is_shared}: {refused:?}");
        let start = before();
        let lease = elsewhere.take_up(lease.hand_off().unwrap()).await.unwrap();
        assert_eq!(asked(&start).await, [1; 3], "taken up, shared {is_shared}");
        let start = before();
        lease.release().await.unwrap();
        assert_eq!(
            asked(&start).await,
            [1; 3],
            "given back, shared {is_shared}"
        );
        nodes.nothing_left().await;
    }
}

#[tokio::test]
async fn calls_that_are_dropped_leave_no_reader() {
    let nodes = Nodes::start(3);
    let locks = nodes.behind_proxies().await;
    for polls in 0..16 {
        let mut call = Box::pin(locks.lock(KEY).shared().acquire());
        let lease = crate::support::polled(call.as_mut(), polls).await;
        drop((call, lease));
        nodes.nothing_left().await;
    }
}

/// A stream of readers does not keep a writer out, and a stream of writers no reader. Some are killed, some stand
/// still for longer than their ttl, and a server goes away and comes back.
#[test]
fn neither_starves_under_a_stream_of_the_others() {
    let nodes = Nodes::start(3);
    let record = Record::new();
    let pen = record.pen();
    let start = |tasks: &str, shared: bool| {
        let mut words = vec!["doc", "1", "1000", "20", tasks];
        words.extend(shared.then_some(SHARED));
        let mut worker = Worker::start("turns", &nodes.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let kinds = [("8", true), ("8", true), ("2", false), ("1", false)];
    let mut workers: Vec<_> = kinds
        .iter()
        .map(|(tasks, shared)| start(tasks, *shared))
        .collect();
    for place in [0, 2, 1] {
        std::thread::sleep(SECOND / 2);
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        let (tasks, shared) = kinds[place];
        workers[place] = start(tasks, shared);
        workers[place + 1].freeze();
        nodes.servers[place].freeze();
        std::thread::sleep(SECOND + SECOND / 4);
        nodes.servers[place].thaw();
        workers[place + 1].thaw();
    }
    std::thread::sleep(SECOND);
    worker::stop_all(&mut workers);
    let rules = checker::Rules {
        ttl: SECOND,
        longest_call: Duration::from_secs(10),
    };
    let entries = record.entries();
    let findings = checker::check(&entries, rules);
    let enters = entries.iter().filter(|entry| entry.event == Event::Enter);
    let enters = enters.count();
    let reads = entries.iter().filter(|entry| entry.note == SHARED).count();
    println!("{reads} reads, {} writes", enters - reads);
    findings.assert_clean();
    assert!(reads >= 60 && enters - reads >= 15, "{reads} of {enters}");
    wait::block_until("the last ttl is over", || {
        let keys = nodes.servers.iter().flat_map(Server::keys);
        keys.filter(|key| !key.starts_with("lock:token:")).count() == 0
    });
}
