//! Locked functions under load, and their metrics at `http://127.0.0.1:9464/metrics`.
//!
//! `cargo run -p observability [ADDRESS]` keeps the locks on the server of `REDIS_URL`, or in memory.

mod exporter;
mod jobs;

use std::env;
use std::error::Error;

use lockattr::{Client, Memory};
use tokio::signal::unix::{SignalKind, signal};

use jobs::Replicas;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // From here on an interrupt is waited for, and ends nothing half way.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let address = env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:9464").parse()?;
    // Before the first locked call: what is counted earlier is not exported.
    exporter::install(address)?;
    println!("http://{address}/metrics");

    let mut clients = Vec::new();
    let memory = Memory::new();
    for _ in 0..4 {
        clients.push(match env::var("REDIS_URL") {
            Ok(url) => Client::connect(url).await?,
            Err(_) => Client::builder().store(memory.clone())?,
        });
    }
    let replicas = Replicas::start(&clients);
    interrupts.recv().await;
    drop(replicas);
    for client in clients {
        client.shutdown().await;
    }
    Ok(())
}
