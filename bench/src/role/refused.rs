//! Tries for a key that is held.

use std::time::Instant;

use tokio::task::JoinSet;

use super::{TTL, Words, hear, ready, say, tell};
use crate::subject::Locks;

/// By another process: a number of tasks at once, again and again.
///
/// Words: the key, the number of tasks, the number of storms.
pub(super) async fn storm<L: Locks>(url: &str, words: &Words) {
    let key = words.text(3).to_owned();
    let (tasks, storms) = (words.number(4), words.number(5));
    let locks = L::connect(url, TTL).await;
    run(&locks, &key, tasks).await;
    ready();
    let start = Instant::now();
    for _ in 0..storms {
        run(&locks, &key, tasks).await;
    }
    let tries = tasks * storms;
    tell("time", start.elapsed().as_secs_f64() / tries as f64);
}

async fn run<L: Locks>(locks: &L, key: &str, tasks: u64) {
    let mut set = JoinSet::new();
    for _ in 0..tasks {
        let (locks, key) = (locks.clone(), key.to_owned());
        set.spawn(async move { locks.attempt(&key).await.is_none() });
    }
    let refused = set.join_all().await;
    assert!(refused.into_iter().all(|refused| refused), "it is held");
}

/// By this process, one after another.
///
/// Words: the key, the number of tries.
pub(super) async fn own<L: Locks>(url: &str, words: &Words) {
    let (key, tries) = (words.text(3), words.number(4));
    let locks = L::connect(url, TTL).await;
    let held = locks.attempt(key).await.expect("a free key");
    assert!(locks.attempt(key).await.is_none());
    ready();
    let start = Instant::now();
    for _ in 0..tries {
        assert!(locks.attempt(key).await.is_none());
    }
    tell("time", start.elapsed().as_secs_f64() / tries as f64);
    // The release is no try, so it comes when the commands were counted.
    say("done");
    hear();
    drop(held);
}
