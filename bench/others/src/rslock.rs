//! rslock: `SET NX PX` and scripts, a random pause of up to 200 ms between tries.

use std::future::pending;
use std::time::Duration;

use rslock::{Lock, LockManager};

use bench_roles::{Calls, Locks, nodes};
use tokio::task::AbortHandle;

#[derive(Clone)]
pub struct Rslock {
    waiting: LockManager,
    /// The same connection, with one try.
    trying: LockManager,
    ttl: Duration,
}

impl Calls for Rslock {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let waiting = LockManager::new(nodes(url));
        let mut trying = waiting.clone();
        trying.set_retry(0, Duration::from_millis(1));
        let this = Self {
            waiting,
            trying,
            ttl,
        };
        // It connects when it is first used.
        this.pair("connected").await;
        this
    }

    async fn pair(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        self.release(held).await;
    }

    async fn lost(&self, key: &str) {
        let body = async || pending::<()>().await;
        drop(self.waiting.using(key.as_bytes(), self.ttl, body).await);
    }
}

impl Locks for Rslock {
    type Held = Lock;
    type Kept = AbortHandle;

    async fn attempt(&self, key: &str) -> Option<Lock> {
        self.trying.lock(key, self.ttl).await.ok()
    }

    async fn wait(&self, key: &str) -> Lock {
        let lock = self.waiting.acquire_no_guard(key, self.ttl).await;
        lock.expect("a turn")
    }

    async fn release(&self, held: Lock) {
        held.release().await;
    }

    async fn keep(&self, key: &str) -> AbortHandle {
        let this = self.clone();
        let key = key.to_owned();
        let (entered, entry) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let body = async || {
                let _ = entered.send(());
                pending::<()>().await;
            };
            this.waiting.using(key.as_bytes(), this.ttl, body).await
        });
        entry.await.expect("a free key");
        task.abort_handle()
    }
}
