//! A long row of short calls by 64 tasks, each on a key that was not seen before.
//!
//! Words: the number of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use super::{TTL, Words, memory, ready, tell};
use crate::Calls;

const TASKS: usize = 64;

pub(super) async fn play<L: Calls>(url: &str, words: &Words) {
    let calls = words.number(3);
    let locks = L::connect(url, TTL).await;
    // What is allocated once is there after a few thousand.
    let next = Arc::new(AtomicU64::new(0));
    run(&locks, &next, calls / 100).await;
    ready();
    let start = Instant::now();
    tell("before", memory());
    run(&locks, &next, calls / 2).await;
    let first_half = start.elapsed();
    tell("middle", memory());
    run(&locks, &next, calls).await;
    tell("after", memory());
    let time = start.elapsed();
    tell("time", time.as_secs_f64());
    // A hundredth was done before.
    let drift = (time - first_half).as_secs_f64() / 50.0 / (first_half.as_secs_f64() / 49.0);
    tell("drift", drift);
}

/// Calls until so many were made since the start.
async fn run<L: Calls>(locks: &L, next: &Arc<AtomicU64>, until: u64) {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (locks, next) = (locks.clone(), Arc::clone(next));
        tasks.spawn(async move {
            while next.load(Ordering::Relaxed) < until {
                let call = next.fetch_add(1, Ordering::Relaxed);
                locks.pair(&format!("call-{call}")).await;
            }
        });
    }
    tasks.join_all().await;
}
