//! Tries for a key that is held.

use std::mem;

use tokio::task::JoinSet;

use super::{TTL, Words, ready, repeat};
use crate::Locks;

/// By another process: a number of tasks at once, again and again; what is told is of each storm.
///
/// Words: the key, the milliseconds, the number of tasks.
pub(super) async fn storm<L: Locks>(url: &str, words: &Words) {
    let (key, tasks) = (words.text(3), words.number(5));
    let locks = L::connect(url, TTL).await;
    run(&locks, key, tasks).await;
    ready();
    repeat(words.number(4), 1, async || run(&locks, key, tasks).await).await;
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
/// Words: the key, the milliseconds.
pub(super) async fn own<L: Locks>(url: &str, words: &Words) {
    let key = words.text(3);
    let locks = L::connect(url, TTL).await;
    let held = locks.attempt(key).await.expect("a free key");
    let refused = async || assert!(locks.attempt(key).await.is_none(), "it is held");
    refused().await;
    ready();
    repeat(words.number(4), 50, refused).await;
    // A release is no try, and would be counted: the process ends here.
    mem::forget(held);
}
