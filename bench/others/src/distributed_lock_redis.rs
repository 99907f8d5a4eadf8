//! distributed-lock-redis: on the client `fred`, a renewing task for each lease.

use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

use bench_roles::{Calls, Locks, poll};

#[derive(Clone)]
pub struct DistributedLockRedis(Arc<RedisLockProvider>);

impl Calls for DistributedLockRedis {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let builder = RedisLockProvider::builder().url(url).expiry(ttl);
        let builder = builder.extension_cadence(ttl / 3);
        let provider = builder.min_validity(ttl * 9 / 10).build().await;
        Self(Arc::new(provider.expect("a server")))
    }

    async fn pair(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        self.release(held).await;
    }

    async fn lost(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        let mut lost = held.lost_token().clone();
        while !*lost.borrow_and_update() {
            lost.changed().await.expect("a task that tells");
        }
    }
}

impl Locks for DistributedLockRedis {
    type Held = RedisLockHandle;
    type Kept = RedisLockHandle;

    async fn attempt(&self, key: &str) -> Option<RedisLockHandle> {
        let lock = self.0.create_lock(key);
        lock.try_acquire().await.expect("a reply")
    }

    async fn wait(&self, key: &str) -> RedisLockHandle {
        poll(self, key).await
    }

    async fn release(&self, held: RedisLockHandle) {
        drop(held.release().await);
    }

    async fn keep(&self, key: &str) -> Self::Kept {
        self.attempt(key).await.expect("a free key")
    }
}
