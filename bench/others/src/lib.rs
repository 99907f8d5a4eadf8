//! Other libraries in Rust.

use bench_roles::{Words, play_locks};

mod async_redis_lock;
mod dist_lock;
mod distributed_lock_redis;
mod rslock;

/// Plays a role of one of them in this process.
pub fn play(words: &Words) {
    match words.library() {
        "rslock" => play_locks::<rslock::Rslock>(words),
        "distributed-lock-redis" => {
            play_locks::<distributed_lock_redis::DistributedLockRedis>(words);
        }
        "dist_lock" if words.role() == "attribute" => dist_lock::play_attribute(words),
        "dist_lock" => play_locks::<dist_lock::DistLock>(words),
        "async-redis-lock" => play_locks::<async_redis_lock::AsyncRedisLock>(words),
        other => panic!("no library is called {other}"),
    }
}
