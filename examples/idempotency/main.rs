//! Four processes are asked to charge for the same order at the same time, as a client's retries and a queue that
//! delivers twice would have it: the card is charged once, and all have the same receipt.
//!
//! `cargo run --example idempotency` uses the server of `REDIS_URL`, or else a private `redis-server` from the PATH, or
//! else runs four tasks on locks in memory.

use std::env;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use examples::Server;
use lockattr::{Client, distributed_lock};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

const PROCESSES: usize = 4;

/// What the bank says, and what every caller is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: u64,
    number: String,
}

/// Charges for an order: once a day, whoever asks, and however often.
#[distributed_lock(key = "charge:<order>", once = "24h", on_done = replay, wait = "10s")]
async fn charge(order: u64, ledger: &Path) -> Result<Receipt, Box<dyn Error>> {
    // The bank takes its time, and keeps a ledger.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let number = format!("{order}-{}", std::process::id());
    let mut ledger = OpenOptions::new().create(true).append(true).open(ledger)?;
    writeln!(ledger, "order {order}, receipt {number}")?;
    Ok(Receipt { order, number })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [mark, order, ledger, url] = &arguments[..]
        && mark == "--charge"
    {
        let client = Client::connect(url).await?;
        let receipt = client
            .scope(charge(order.parse()?, ledger.as_ref()))
            .await?;
        println!("{}", receipt.number);
        return Ok(());
    }

    let folder = env::temp_dir().join(format!("lockattr-idempotency-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let server = Server::find().await?;
    println!("{server}");
    // Of the server that REDIS_URL names, another order each time.
    let order = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let ledger = folder.join("ledger.txt");
    let receipts = match server.url() {
        Some(url) => processes(order, &ledger, url).await?,
        None => tasks(&server.connect().await?, order, &ledger).await?,
    };
    println!("charges  {}", fs::read_to_string(&ledger)?.lines().count());
    for receipt in receipts {
        println!("receipt  {receipt}");
    }
    drop(server);
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// This program again, four times at once.
async fn processes(order: u64, ledger: &Path, url: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let program = env::current_exe()?;
    let start = |_| {
        Command::new(&program)
            .args(["--charge", &order.to_string()])
            .arg(ledger)
            .arg(url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    };
    let started = (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut receipts = Vec::new();
    for process in started {
        let output = process.wait_with_output().await?;
        if !output.status.success() {
            return Err(format!("a process failed: {}", output.status).into());
        }
        receipts.push(String::from_utf8(output.stdout)?.trim().to_owned());
    }
    Ok(receipts)
}

/// The same on locks in memory, where there is no server that processes could share.
async fn tasks(client: &Client, order: u64, ledger: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let call = || {
        let ledger = PathBuf::from(ledger);
        client.scope(async move { charge(order, &ledger).await })
    };
    let (a, b, c, d) = tokio::try_join!(call(), call(), call(), call())?;
    Ok([a, b, c, d].map(|receipt| receipt.number).into())
}
