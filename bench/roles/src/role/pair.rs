//! One task takes a free key and gives it back, again and again.
//!
//! Words: the milliseconds.

use super::{TTL, Words, ready, repeat};
use crate::Calls;

const WARM_UP: u64 = 200;

pub(super) async fn play<L: Calls>(url: &str, words: &Words) {
    let locks = L::connect(url, TTL).await;
    for _ in 0..WARM_UP {
        locks.pair("pair").await;
    }
    ready();
    repeat(words.number(3), 20, async || locks.pair("pair").await).await;
}
