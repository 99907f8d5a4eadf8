//! Bodies that do not end, and the moments at which they are told that their keys are gone.
//!
//! Words: the number of keys, the ttl in milliseconds.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{Words, ready, tell};
use crate::{Calls, now};

/// Longer than the ttl of the table.
const PATIENCE: Duration = Duration::from_secs(8);

pub(super) async fn play<L: Calls>(url: &str, words: &Words) {
    let keys = words.number(3);
    let ttl = Duration::from_millis(words.number(4));
    let locks = L::connect(url, ttl).await;
    let mut tasks = JoinSet::new();
    for key in 0..keys {
        let locks = locks.clone();
        tasks.spawn(async move {
            let key_name = format!("lost-{key}");
            let told = tokio::time::timeout(PATIENCE + ttl, locks.lost(&key_name)).await;
            (key, told.ok().map(|()| now()))
        });
        // So that not all renew at the same moment.
        tokio::time::sleep(ttl / 3 / keys as u32).await;
    }
    ready();
    while let Some(told) = tasks.join_next().await {
        let (key, told) = told.expect("no panic");
        if let Some(at) = told {
            tell(&key.to_string(), at.as_secs_f64());
        }
    }
}
