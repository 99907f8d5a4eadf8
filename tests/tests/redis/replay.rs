//! `on_done = replay`: the reply of work that is done is given back to later calls, and to those that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, KeptReply, Memory, OnceFrom, ReplyError, distributed_lock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tests::monitor::Seen;
use tests::record::{Event, Record};
use tests::server::Server;
use tests::wait;
use tests::worker::Worker;

use crate::support::{CLEARED, behind_a_proxy, client, is_done, nap, pair};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: u32,
    text: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum PayError {
    Declined(u32),
    Lock(String),
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Lock(error.to_string())
    }
}

#[distributed_lock(key = "pay:<id>", once = "1h", on_done = replay, client = locks)]
async fn pay(locks: &Client, id: &str, runs: &AtomicU32) -> Result<Receipt, Error> {
    let number = runs.fetch_add(1, Ordering::SeqCst) + 1;
    let text = "two\nlines, \"quoted\", 'ä' \\ and \u{0}".to_owned();
    Ok(Receipt { number, text })
}

#[tokio::test]
async fn a_later_call_is_given_the_reply_of_the_first_whoever_asks() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let runs = AtomicU32::new(0);
    let first = pay(&locks, "1", &runs).await.unwrap();
    assert_eq!(first.number, 1);
    for locks in [&locks, &other, &other] {
        assert_eq!(pay(locks, "1", &runs).await.unwrap(), first);
    }
    assert_eq!(pay(&other, "2", &runs).await.unwrap().number, 2);
    assert_eq!(pay(&locks, "1", &runs).await.unwrap(), first);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(other.stats().done, 2);
}

#[tokio::test]
async fn the_mark_is_readable_and_a_call_is_two_commands() {
    #[distributed_lock(key = "n:<id>", once = "1h", on_done = replay, on_busy = skip, client = locks)]
    async fn number(locks: &Client, id: u32) -> Option<(u32, String)> {
        Some((id, "seven".into()))
    }
    let (server, locks) = pair().await;
    // The scripts, and the connection, are there from then on.
    assert_eq!(number(&locks, 6).await.unwrap().0, 6);
    let mut monitor = server.monitor();
    let begun = Instant::now();
    number(&locks, 7).await.unwrap();
    number(&locks, 7).await.unwrap();
    let sent = monitor.seen().into_iter().filter(Seen::is_step);
    let sent: Vec<_> = sent.map(|seen| seen.words).collect();
    let names: Vec<_> = sent.iter().map(|words| words[0].as_str()).collect();
    assert_eq!(names, ["SET", "EVALSHA", "SET", "EVALSHA"], "{sent:?}");
    let (last, rest) = sent[1][6..].split_last().unwrap();
    assert_eq!(rest, ["1", "", "", "", "done"]);
    let (length, reply) = last.split_once(' ').unwrap();
    assert_eq!(reply, r#"json [7,"seven"]"#);
    let passed = begun.elapsed().as_millis();
    let length: u128 = length.parse().unwrap();
    assert!(
        (3_600_000 - passed..=3_600_000).contains(&length),
        "{length}"
    );
    let mark = server.get("lock:n:7").unwrap();
    let (done, reply) = mark.split_once(' ').unwrap();
    assert_eq!(reply, r#"json [7,"seven"]"#);
    assert!(done.strip_prefix("done@").unwrap().parse::<u64>().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_callers_in_four_processes_are_one_run_and_fifty_equal_replies() {
    let server = Server::start();
    let record = Record::new();
    let start = |calls: &str| Worker::start("pay", &server.url(), &record, &["7", calls]);
    let mut workers = ["13", "13", "12", "12"].map(start);
    for worker in &workers {
        worker.says("ready");
    }
    for worker in &mut workers {
        worker.tell("go");
    }
    let mut receipts = Vec::new();
    for worker in &workers {
        worker.says("stats");
        let told = worker.lines().into_iter();
        receipts
            .extend(told.filter(|line| line.starts_with("receipt") || line.starts_with("error")));
    }
    assert_eq!(record.count(Event::Enter), 1);
    assert_eq!(receipts.len(), 50);
    assert!(receipts[0].starts_with("receipt"), "{receipts:?}");
    receipts.dedup();
    assert_eq!(receipts.len(), 1, "{receipts:?}");
}

#[tokio::test]
async fn callers_of_one_client_that_wait_share_one_run() {
    #[distributed_lock(key = "slow:<id>", wait = "20s", once = "1h", on_done = replay, client = locks)]
    async fn slow(locks: Client, id: u32, runs: Arc<AtomicU32>) -> Result<u32, Error> {
        nap(200).await;
        Ok(runs.fetch_add(1, Ordering::SeqCst) + 1)
    }
    let memory = Client::builder().store(Memory::new()).unwrap();
    let (_server, redis) = pair().await;
    for locks in [&memory, &redis] {
        let runs = Arc::default();
        let call = |_| tokio::spawn(slow(locks.clone(), 1, Arc::clone(&runs)));
        let calls: Vec<_> = (0..20).map(call).collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 1);
        }
    }
}

#[tokio::test]
async fn some_values_and_nothing_of_a_failure_are_kept() {
    #[distributed_lock(key = "o:<id>", once = "1h", on_done = replay, on_busy = skip, client = locks)]
    async fn option(locks: &Client, id: u32, value: Option<u32>) -> Option<u32> {
        value
    }
    #[distributed_lock(key = "u:<id>", once = "1h", on_done = replay, on_busy = skip, client = locks)]
    async fn unit(locks: &Client, id: u32, runs: &AtomicU32) {
        runs.fetch_add(1, Ordering::SeqCst);
    }
    #[distributed_lock(key = "r:<id>", once = "1h", on_done = replay, client = locks)]
    async fn result(
        locks: &Client,
        id: u32,
        value: Result<u32, PayError>,
    ) -> Result<u32, PayError> {
        value
    }
    let (server, redis) = pair().await;
    let memory = Client::builder().store(Memory::new()).unwrap();
    for locks in [&redis, &memory] {
        assert_eq!(option(locks, 1, None).await, None);
        assert_eq!(option(locks, 1, Some(1)).await, Some(1));
        assert_eq!(option(locks, 1, Some(2)).await, Some(1));
        assert_eq!(option(locks, 1, None).await, Some(1));
        let runs = AtomicU32::new(0);
        unit(locks, 1, &runs).await;
        unit(locks, 1, &runs).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        let declined = || Err(PayError::Declined(3));
        assert_eq!(result(locks, 1, declined()).await, declined());
        assert_eq!(result(locks, 1, Ok(4)).await, Ok(4));
        assert_eq!(result(locks, 1, declined()).await, Ok(4));
    }
    assert!(server.get("lock:u:1").unwrap().ends_with(" json null"));
}

#[tokio::test]
async fn errors_are_kept_where_that_is_asked_for() {
    #[distributed_lock(key = "e:<id>", once = "1h", on_done = replay(errors), client = locks)]
    async fn charge(
        locks: &Client,
        id: u32,
        value: Result<u32, PayError>,
    ) -> Result<u32, PayError> {
        value
    }
    #[distributed_lock(key = "e:<id>", once = "1h", on_done = replay, client = locks)]
    async fn successes(locks: &Client, id: u32) -> Result<u32, PayError> {
        unreachable!("its work is done")
    }
    let (server, redis) = pair().await;
    let memory = Client::builder().store(Memory::new()).unwrap();
    for locks in [&redis, &memory] {
        let declined = || Err(PayError::Declined(3));
        assert_eq!(charge(locks, 1, declined()).await, declined());
        assert_eq!(charge(locks, 1, Ok(4)).await, declined());
        assert_eq!(charge(locks, 2, Ok(4)).await, Ok(4));
        assert_eq!(charge(locks, 2, declined()).await, Ok(4));
        assert_eq!(successes(locks, 2).await, Ok(4));
        let Err(PayError::Lock(told)) = successes(locks, 1).await else {
            panic!("an error was read as a success");
        };
        assert!(told.contains("write `replay(errors)`"), "{told}");
    }
    let kept = server.get("lock:e:1").unwrap();
    assert!(kept.ends_with(r#" error {"Declined":3}"#), "{kept}");
}

#[tokio::test]
async fn a_lease_that_was_lost_keeps_no_reply() {
    #[distributed_lock(key = "k", ttl = "600ms", once = "1h", on_done = replay(errors), client = locks)]
    async fn slow(locks: &Client, value: Result<u32, PayError>) -> Result<u32, PayError> {
        std::thread::sleep(Duration::from_millis(300));
        value
    }
    for (value, expected) in [
        (Ok(1), "was lost"),
        (Err(PayError::Declined(2)), "Declined"),
    ] {
        let (server, locks) = pair().await;
        let thief = std::thread::spawn(move || {
            wait::block_until("held", || server.get("lock:k").is_some());
            let _: String = server.ask("SET lock:k other PX 60000");
            server
        });
        let outcome = format!("{:?}", slow(&locks, value).await);
        assert!(outcome.contains(expected), "{outcome}");
        let server = thief.join().unwrap();
        assert_eq!(server.get("lock:k").as_deref(), Some("other"));
    }
}

#[tokio::test]
async fn a_call_within_another_is_given_the_reply_of_one_before_it() {
    #[distributed_lock(key = "in:<id>", once = "1h", on_done = replay, client = locks)]
    async fn inner(locks: &Client, id: u32, runs: &AtomicU32) -> Result<u32, Error> {
        Ok(runs.fetch_add(1, Ordering::SeqCst) + 1)
    }
    #[distributed_lock(key = ["in:<id>", "beside:<id>"], client = locks)]
    async fn outer(locks: &Client, id: u32, runs: &AtomicU32) -> Result<(u32, u32), Error> {
        Ok((inner(locks, id, runs).await?, inner(locks, id, runs).await?))
    }
    let (server, locks) = pair().await;
    let runs = AtomicU32::new(0);
    assert_eq!(outer(&locks, 1, &runs).await.unwrap(), (1, 1));
    assert_eq!(inner(&locks, 1, &runs).await.unwrap(), 1);
    assert_eq!(server.keys(), ["lock:in:1"]);
}

#[tokio::test]
async fn a_request_by_hand_leaves_a_reply_and_reads_one() {
    let (_server, locks) = pair().await;
    let runs = AtomicU32::new(0);
    let request = || locks.lock("pay:7").once(Duration::from_secs(60));
    let lease = request().acquire().await.unwrap();
    let receipt = Receipt {
        number: 9,
        text: "by hand".into(),
    };
    lease.mark_done_with(&receipt).unwrap();
    lease.release().await.unwrap();
    assert_eq!(pay(&locks, "7", &runs).await.unwrap(), receipt);
    let reply = match request().acquire().await {
        Err(Error::Done { reply, .. }) => reply.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reply.read(), Ok(receipt));
    assert!(matches!(
        reply.read::<u32>(),
        Err(ReplyError::DoesNotFit { .. })
    ));
    assert_eq!(KeptReply::new(reply.as_str()), reply);
}

#[tokio::test]
async fn once_counts_from_the_beginning_where_that_is_asked_for() {
    #[distributed_lock(key = "b:<id>", once = once, once_from = begin, on_done = replay, client = locks)]
    async fn from_begin(
        locks: &Client,
        id: u32,
        once: Duration,
        length: u64,
    ) -> Result<u32, Error> {
        nap(length).await;
        Ok(id)
    }
    #[distributed_lock(key = "e:<id>", once = "20s", once_from = end, client = locks)]
    async fn from_end(locks: &Client, id: u32) -> Result<(), Error> {
        nap(1_000).await;
        Ok(())
    }
    let (server, locks) = pair().await;
    from_begin(&locks, 1, Duration::from_secs(20), 1_000)
        .await
        .unwrap();
    let left = server.pttl("lock:b:1");
    assert!((17_500..=19_000).contains(&left), "{left}");
    from_end(&locks, 1).await.unwrap();
    let left = server.pttl("lock:e:1");
    assert!((18_500..=20_000).contains(&left) && left > 19_000, "{left}");
    // Work that has taken longer leaves its mark for a second, or for all of `once` where that is less.
    from_begin(&locks, 2, Duration::from_millis(1_500), 2_000)
        .await
        .unwrap();
    let left = server.pttl("lock:b:2");
    assert!((1..=1_000).contains(&left), "{left}");
    from_begin(&locks, 3, Duration::from_millis(400), 500)
        .await
        .unwrap();
    assert!(server.pttl("lock:b:3") <= 400);
    let lease = locks
        .lock("by hand")
        .once(Duration::from_secs(20))
        .once_from(OnceFrom::Begin)
        .acquire()
        .await
        .unwrap();
    nap(1_000).await;
    lease.mark_done();
    lease.release().await.unwrap();
    let left = server.pttl("lock:by hand");
    assert!((17_500..=19_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_reply_whose_store_is_away_at_the_end_of_the_run_is_kept_when_it_is_back() {
    #[distributed_lock(key = "away", once = "1h", on_done = replay, client = locks)]
    async fn away(locks: &Client, work: impl Fn()) -> Result<u32, Error> {
        work();
        Ok(7)
    }
    let (server, proxy, locks) = behind_a_proxy().await;
    away(&locks, || proxy.refuse()).await.unwrap();
    assert!(!is_done(&server, "lock:away"));
    proxy.heal();
    wait::within("the mark is left", CLEARED, || {
        is_done(&server, "lock:away")
    })
    .await;
    let other = client(&server).await;
    let reply = away(&other, || panic!("its work is done")).await;
    assert_eq!(reply.unwrap(), 7);
}

#[tokio::test]
async fn on_a_lock_of_its_process_a_reply_is_kept_there() {
    #[distributed_lock(key = "l", once = "1h", on_done = replay, on_unavailable = local, client = locks)]
    async fn local(locks: &Client, value: u32) -> Result<u32, Error> {
        Ok(value)
    }
    let memory = Memory::new();
    let on = || Client::builder().store(memory.clone()).unwrap();
    let (locks, other) = (on(), on());
    memory.refuse(Some("out of order"));
    assert_eq!(local(&locks, 1).await.unwrap(), 1);
    assert_eq!(local(&locks, 2).await.unwrap(), 1);
    memory.refuse(None);
    assert_eq!(local(&locks, 3).await.unwrap(), 1);
    // Others have not heard of it.
    assert_eq!(local(&other, 4).await.unwrap(), 4);
}

#[tokio::test]
async fn other_arguments_and_any_type_go_with_it() {
    #[distributed_lock(
        key = "g:<id>",
        ttl = "5s",
        wait = "5s",
        min_hold = "4s",
        once = "1s",
        once_from = begin,
        on_done = replay(errors),
        on_lost = continue,
        bind = lease,
        redact = true,
        client = locks
    )]
    #[expect(unused_variables, reason = "it is bound")]
    async fn unbound<T: Serialize + DeserializeOwned>(
        locks: &Client,
        id: u32,
        value: T,
    ) -> Result<T, PayError> {
        Ok(value)
    }
    let (server, locks) = pair().await;
    let first = unbound(&locks, 1, vec![1, 2]).await;
    assert_eq!(first, Ok(vec![1, 2]));
    // What is not known to be `Send` is given back in the background.
    wait::until("it is given back", || is_done(&server, "lock:g:1")).await;
    // Its key stays closed for longer than it is done.
    let left = server.pttl("lock:g:1");
    assert!((1_001..=4_000).contains(&left), "{left}");
    assert_eq!(unbound(&locks, 1, Vec::new()).await, Ok(vec![1, 2]));
}
