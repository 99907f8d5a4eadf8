//! One task takes a free key and gives it back, again and again.
//!
//! Words: the number of pairs.

use std::time::Instant;

use super::{TTL, Words, ready, tell};
use crate::subject::Calls;

const WARM_UP: u64 = 200;

pub(super) async fn play<L: Calls>(url: &str, words: &Words) {
    let pairs = words.number(3);
    let locks = L::connect(url, TTL).await;
    for _ in 0..WARM_UP {
        locks.pair("pair").await;
    }
    ready();
    let start = Instant::now();
    for _ in 0..pairs {
        locks.pair("pair").await;
    }
    tell("time", start.elapsed().as_secs_f64() / pairs as f64);
}
