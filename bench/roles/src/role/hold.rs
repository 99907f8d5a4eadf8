//! Many leases at once, held and renewed.
//!
//! Words: the number of leases.

use tokio::runtime::Handle;

use super::{TTL, Words, memory, tell};
use crate::Locks;

pub(super) async fn play<L: Locks>(url: &str, words: &Words) {
    let leases = words.number(3);
    let locks = L::connect(url, TTL).await;
    for _ in 0..100 {
        locks.pair("warm-up").await;
    }
    let mut kept = Vec::with_capacity(leases as usize);
    let tasks = Handle::current().metrics().num_alive_tasks();
    let before = memory();
    let mut names = 0;
    // One after another: what many that are on their way need is not what a lease needs.
    for lease in 0..leases {
        let key = format!("hold-{lease}");
        names += key.len();
        kept.push(locks.keep(&key).await);
    }
    let grown = memory() - before - names as f64;
    let more = Handle::current().metrics().num_alive_tasks() - tasks;
    // The runtime has to go on while commands are counted.
    let input = tokio::task::spawn_blocking(super::ready);
    input.await.expect("an input");
    tell("bytes", grown / leases as f64);
    tell("tasks", more as f64);
    drop(kept);
}
