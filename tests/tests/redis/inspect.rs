//! What the locks of a server look like from outside, and how they are ended there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, Lease, distributed_lock};
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;

mod cluster;
mod doctor;
mod ending;
mod list;
mod quorum;
mod sentinel;
mod show;

/// A caller that waits for a key for a minute, once so many stand in its queue.
async fn waiter(
    client: &Client,
    key: &str,
    queued: u64,
    count: impl Fn() -> u64,
) -> JoinHandle<Result<Lease, Error>> {
    let request = client.lock(key).wait(Duration::from_secs(60));
    let waiter = tokio::spawn(request.acquire());
    wait::until("it is queued", || count() == queued).await;
    waiter
}

/// Leaves the mark that `done` is done.
#[distributed_lock(key = "done", once = "60s", on_done = error, client = locks)]
async fn once(locks: &Client) -> Result<(), Error> {
    Ok(())
}

/// An owner that holds nothing else.
fn owner() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
    format!("019ad5b1f9c07c3f9d0a{drawn:012x}@host:7")
}

/// Writes so many keys that begin so, with an owner under each, a part at a time.
fn fill(server: &Server, count: usize, begin: &str) {
    let script = "for i = ARGV[1], ARGV[2] do \
                  redis.call('SET', ARGV[3] .. i, ARGV[4], 'PX', 600000) end";
    for first in (1..=count).step_by(10_000) {
        let last = (first + 9_999).min(count);
        let (first, last) = (first.to_string(), last.to_string());
        let words = ["EVAL", script, "0", &first, &last, begin, &owner()];
        server.words::<()>(&words).unwrap();
    }
}
