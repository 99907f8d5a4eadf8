//! This library without its attribute.

use std::time::Duration;

use lockattr::{Client, Error, Lease};

use bench_roles::{Calls, Locks};

/// Longer than any benchmark.
const PATIENCE: Duration = Duration::from_secs(3_600);

#[derive(Clone)]
pub struct ByHand(Client);

impl Calls for ByHand {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let client = Client::builder().ttl(ttl).connect(url).await;
        Self(client.expect("a server"))
    }

    async fn pair(&self, key: &str) {
        let lease = self.0.lock(key).acquire().await.expect("a free key");
        self.release(lease).await;
    }

    async fn lost(&self, key: &str) {
        let lease = self.0.lock(key).acquire().await.expect("a free key");
        lease.lost().await;
    }
}

impl Locks for ByHand {
    type Held = Lease;
    type Kept = Lease;

    async fn attempt(&self, key: &str) -> Option<Lease> {
        match self.0.lock(key).acquire().await {
            Ok(lease) => Some(lease),
            Err(Error::Busy { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn wait(&self, key: &str) -> Lease {
        let request = self.0.lock(key).wait(PATIENCE);
        request.acquire().await.expect("a turn")
    }

    async fn release(&self, lease: Lease) {
        // A lease that something else took is a finding of the table, not of its adapter.
        drop(lease.release().await);
    }

    async fn keep(&self, key: &str) -> Lease {
        self.attempt(key).await.expect("a free key")
    }
}
