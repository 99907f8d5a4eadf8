//! This library by its attribute.

use std::future::pending;
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};

use bench_roles::Calls;

#[derive(Clone)]
pub struct Attribute(Client);

impl Calls for Attribute {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let client = Client::builder().ttl(ttl).connect(url).await;
        Self(client.expect("a server"))
    }

    async fn pair(&self, key: &str) {
        short(&self.0, key).await.expect("a free key");
    }

    async fn lost(&self, key: &str) {
        drop(endless(&self.0, key).await);
    }
}

#[distributed_lock(key = "<key>", client = locks)]
async fn short(locks: &Client, key: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<key>", client = locks)]
async fn endless(locks: &Client, key: &str) -> Result<(), Error> {
    pending().await
}
