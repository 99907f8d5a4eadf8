//! async-redis-lock: a script to take, 100 ms between tries, a renewing task for each lease.

use std::time::Duration;

use async_redis_lock::{Error, Lock, Locker, Options};

use bench_roles::{Calls, Locks};

#[derive(Clone)]
pub struct AsyncRedisLock {
    locker: Locker,
    ttl: Duration,
}

impl AsyncRedisLock {
    fn options(&self) -> Options {
        Options::new().ttl(self.ttl).extend(self.ttl / 3)
    }
}

impl Calls for AsyncRedisLock {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let locker = Locker::from_redis_url(url).await.expect("a server");
        Self { locker, ttl }
    }

    async fn pair(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        self.release(held).await;
    }

    async fn lost(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        while !held.is_lost() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Locks for AsyncRedisLock {
    type Held = Lock;
    type Kept = Lock;

    async fn attempt(&self, key: &str) -> Option<Lock> {
        let options = self.options().timeout(Some(Duration::ZERO));
        match self.locker.acquire_with_options(&options, key).await {
            Ok(lock) => Some(lock),
            Err(Error::Timeout) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn wait(&self, key: &str) -> Lock {
        let options = self.options().timeout(None);
        let lock = self.locker.acquire_with_options(&options, key).await;
        lock.expect("a turn")
    }

    async fn release(&self, held: Lock) {
        drop(held.release().await);
    }

    async fn keep(&self, key: &str) -> Self::Kept {
        self.attempt(key).await.expect("a free key")
    }
}
