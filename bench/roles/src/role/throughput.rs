//! Many tasks of one client, each with a key of its own.
//!
//! Words: the number of tasks, the milliseconds.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{TTL, Words, ready, tell};
use crate::Calls;

const WARM_UP: Duration = Duration::from_millis(100);

pub(super) async fn play<L: Calls>(url: &str, words: &Words) {
    let tasks = words.number(3);
    let length = Duration::from_millis(words.number(4));
    let locks = L::connect(url, TTL).await;
    run(&locks, tasks, WARM_UP).await;
    ready();
    let start = Instant::now();
    let cpu = crate::clock::cpu();
    let pairs = run(&locks, tasks, length).await;
    tell(
        "cpu",
        (crate::clock::cpu() - cpu).as_secs_f64() / pairs as f64,
    );
    tell("rate", pairs as f64 / start.elapsed().as_secs_f64());
}

async fn run<L: Calls>(locks: &L, tasks: u64, length: Duration) -> u64 {
    let end = Instant::now() + length;
    let mut set = JoinSet::new();
    for task in 0..tasks {
        let locks = locks.clone();
        set.spawn(async move {
            let key = format!("throughput-{task}");
            let mut pairs = 0;
            while Instant::now() < end {
                locks.pair(&key).await;
                pairs += 1;
            }
            pairs
        });
    }
    set.join_all().await.into_iter().sum()
}
