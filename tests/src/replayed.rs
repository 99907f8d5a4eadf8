//! Replies that are kept beside marks, whichever store keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, ReplyError, distributed_lock};
use tokio::time::sleep;

use crate::wait;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs that there were.
type Runs = Arc<AtomicU32>;

#[distributed_lock(key = "kept:<id>", wait = "20s", once = once, on_done = replay, client = locks)]
async fn kept(
    locks: Client,
    id: &'static str,
    once: Duration,
    text: String,
    runs: Runs,
) -> Result<(u32, String), Error> {
    sleep(Duration::from_millis(100)).await;
    Ok((runs.fetch_add(1, Ordering::SeqCst) + 1, text))
}

/// Of the same key, and keeps nothing.
#[distributed_lock(key = "kept:<id>", once = "1h", on_done = error, client = locks)]
async fn keeps_nothing(locks: &Client, id: &'static str) -> Result<(), Error> {
    Ok(())
}

/// A reply is given to later calls of all clients of a store, and to those that wait; it is that of its own mark;
/// and one of more than `longest` bytes is not kept. Both clients would keep 1 MiB.
pub async fn are_given_back(one: &Client, other: &Client, longest: usize) {
    let runs = Runs::default();
    let call = |locks: &Client, id, once, text: &str| {
        kept(locks.clone(), id, once, text.to_owned(), Arc::clone(&runs))
    };
    let text = "two\nlines, it's \"quoted\", ä \\ and \u{0}";
    let first = call(one, "1", HOUR, text).await.expect("a run");
    assert_eq!(first, (1, text.to_owned()));
    for locks in [one, other] {
        let again = call(locks, "1", HOUR, "").await;
        assert_eq!(again.expect("its reply"), first);
    }

    let waiting = [one, other, one, other, one, other];
    let waiting = waiting.map(|locks| tokio::spawn(call(locks, "2", HOUR, "shared")));
    for call in waiting {
        let reply = call.await.expect("no panic").expect("a reply");
        assert_eq!(reply, (2, "shared".to_owned()));
    }

    // All of it but for the number and what JSON has around it.
    let largest = "x".repeat(longest - "[3,\"\"]".len());
    let whole = call(one, "3", HOUR, &largest).await.expect("a run");
    let again = call(other, "3", HOUR, "").await.expect("its reply");
    assert!(again == whole, "{} of {longest} bytes", again.1.len());
    let larger = call(one, "4", HOUR, &format!("{largest}x")).await;
    larger.expect("its value, whether or not it is kept");
    let bytes = longest + 1;
    match call(other, "4", HOUR, "").await {
        Err(Error::NoReply { cause, .. }) => assert_eq!(cause, ReplyError::TooLarge { bytes }),
        answer => panic!("{answer:?}"),
    }

    // The reply of a mark that is over is not that of the next one.
    let short = Duration::from_millis(1_200);
    let before = call(one, "5", short, "before").await.expect("a run");
    let mut next = before.clone();
    let start = std::time::Instant::now();
    while next == before {
        assert!(start.elapsed() < wait::PATIENCE, "its mark never ends");
        sleep(Duration::from_millis(50)).await;
        next = call(other, "5", short, "after").await.expect("a reply");
    }
    assert_eq!(next.1, "after");
    let start = std::time::Instant::now();
    while keeps_nothing(one, "5").await.is_err() {
        assert!(start.elapsed() < wait::PATIENCE, "its mark never ends");
        sleep(Duration::from_millis(50)).await;
    }
    match call(other, "5", HOUR, "").await {
        Err(Error::NoReply { cause, .. }) => assert_eq!(cause, ReplyError::NotKept),
        answer => panic!("{answer:?}"),
    }
}
