//! A pool of API keys: the provider takes one request at a time for each key, and two replicas share three of them.
//!
//! `cargo run --bin api-keys` uses the server of `REDIS_URL`, or else a private `redis-server` from the PATH, or else
//! locks in memory.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use examples::Server;
use lockattr::{Client, distributed_lock};
use tokio::time::sleep;

type Failure = Box<dyn Error + Send + Sync>;

const API_KEYS: [&str; 3] = ["alpha", "beta", "gamma"];
const REQUESTS: usize = 12;

/// Each holder has a slot of its own, and so a key that nobody else uses meanwhile, on any machine. Those who wait are
/// given slots in the order in which they came; the slot of one that crashed is free again after its ttl.
#[distributed_lock(key = "geocoder", permits = 3, ttl = "5s", wait = "30s", bind = lease, client = locks)]
async fn geocode(locks: &Client, provider: &Provider, house: usize) -> Result<String, Failure> {
    let slot = lease.slot();
    provider.ask(slot).await?;
    Ok(format!("house {house} by key {}", API_KEYS[slot]))
}

/// Stands for the service behind the keys.
#[derive(Default)]
struct Provider {
    is_used: [AtomicBool; API_KEYS.len()],
}

impl Provider {
    async fn ask(&self, key: usize) -> Result<(), Failure> {
        if self.is_used[key].swap(true, Ordering::SeqCst) {
            return Err(format!("429 Too Many Requests for key {}", API_KEYS[key]).into());
        }
        sleep(Duration::from_millis(50)).await;
        self.is_used[key].store(false, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Server::find().await?;
    println!("{REQUESTS} requests, {} keys, {server}", API_KEYS.len());
    let replicas = [server.connect().await?, server.connect().await?];
    let provider: &Provider = Box::leak(Box::default());
    let requests: Vec<_> = (0..REQUESTS)
        .map(|house| {
            let locks = replicas[house % replicas.len()].clone();
            tokio::spawn(async move { geocode(&locks, provider, house).await })
        })
        .collect();
    for request in requests {
        println!("{}", request.await??);
    }
    Ok(())
}
