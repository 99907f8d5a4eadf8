//! One large job in shards, with a key for each: workers take what is free, and what one of them cannot do is done by
//! another. When all have ended, each shard was done once.
//!
//! `cargo run --bin shards` uses the server of `REDIS_URL`, or else a private `redis-server` from the PATH, or else
//! locks in memory.

use std::error::Error;
use std::time::Duration;

use examples::Server;
use lockattr::{Client, distributed_lock};
use tokio::time::sleep;

type Failure = Box<dyn Error + Send + Sync>;

const SHARDS: u32 = 12;
const WORKERS: u32 = 3;

struct Worker {
    number: u32,
    locks: Client,
}

impl Worker {
    /// Whether the shard is done, now or before: a mark says so for an hour. One that fails leaves no mark, and the shard of a
    /// worker that crashed is free again after the ttl.
    #[distributed_lock(
        key = "reindex:<run>:<shard>",
        ttl = "5s",
        once = "1h",
        on_busy = return Ok(false),
        on_done = return Ok(true),
        client = self.locks
    )]
    async fn reindex(&self, run: u32, shard: u32) -> Result<bool, Failure> {
        sleep(Duration::from_millis(40)).await;
        if self.number == 1 && shard % WORKERS == 2 {
            return Err("its disk is full".into());
        }
        println!("shard {shard} is done by worker {}", self.number);
        Ok(true)
    }

    /// Goes round until all are done, each worker from another shard on, so that they rarely meet.
    async fn work(self, run: u32) {
        let first = self.number * SHARDS / WORKERS;
        let mut open: Vec<u32> = (0..SHARDS).map(|shard| (first + shard) % SHARDS).collect();
        while !open.is_empty() {
            let mut left = Vec::new();
            for shard in open {
                let is_done = self.reindex(run, shard).await.unwrap_or_else(|error| {
                    println!("shard {shard} failed at worker {}: {error}", self.number);
                    false
                });
                if !is_done {
                    left.push(shard);
                }
            }
            open = left;
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Server::find().await?;
    println!("{SHARDS} shards, {WORKERS} workers, {server}");
    // In your program: what the job is about, such as a day or a version. Marks of another run mean nothing to this one.
    let run = std::process::id();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let locks = server.connect().await?;
        workers.push(tokio::spawn(Worker { number, locks }.work(run)));
    }
    for worker in workers {
        worker.await?;
    }
    Ok(())
}
