//! The four workers: processes where there is a server, tasks where there is none.

use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use examples::Server;
use indicatif::ProgressBar;
use tokio::process::Command;

use crate::job::{self, Orders};
use crate::{TICKS, WORKERS, table};

/// How long all workers together may take to start and connect.
const HEAD_START: Duration = Duration::from_millis(800);

pub(crate) struct Crew<'a> {
    server: &'a Server,
}

/// Who was skipped at which tick.
pub(crate) type Skips = Vec<(u32, usize)>;

impl<'a> Crew<'a> {
    pub(crate) fn new(server: &'a Server) -> Self {
        Self { server }
    }

    /// Ten ticks of all workers.
    pub(crate) async fn fire(
        &self,
        locked: bool,
        file: &Path,
        bar: &ProgressBar,
    ) -> Result<Skips, Box<dyn Error>> {
        std::fs::write(file, table::HEADER)?;
        let first_tick = SystemTime::now().duration_since(UNIX_EPOCH)? + HEAD_START;
        let orders: Vec<Orders> = (1..=WORKERS)
            .map(|worker| Orders {
                worker,
                locked,
                first_tick: u64::try_from(first_tick.as_millis()).unwrap_or(u64::MAX),
                file: file.to_owned(),
                url: self.server.url().unwrap_or_default().to_owned(),
            })
            .collect();
        let progress = async {
            for tick in 1..=TICKS {
                job::sleep_until(orders[0].first_tick, tick).await;
                bar.inc(1);
            }
        };
        let work = async {
            if self.server.url().is_some() {
                processes(&orders).await
            } else {
                Box::pin(tasks(&orders, self.server)).await
            }
        };
        let ((), skips) = tokio::join!(progress, work);
        skips
    }
}

/// One process a worker: this program again, with orders.
async fn processes(orders: &[Orders]) -> Result<Skips, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mut workers = Vec::new();
    for orders in orders {
        let process = Command::new(&program)
            .args(orders.arguments())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        workers.push((orders.worker, process));
    }
    let mut skips = Skips::new();
    for (worker, process) in workers {
        let output = process.wait_with_output().await?;
        if !output.status.success() {
            return Err(format!("worker {worker} failed: {}", output.status).into());
        }
        let ticks = String::from_utf8(output.stdout)?;
        for tick in ticks.lines() {
            skips.push((tick.parse()?, worker));
        }
    }
    Ok(skips)
}

/// One task a worker, on locks in memory.
async fn tasks(orders: &[Orders], server: &Server) -> Result<Skips, Box<dyn Error>> {
    let client = server.connect().await?;
    let skips = Mutex::new(Skips::new());
    let work = |orders: &Orders| {
        let skips = &skips;
        let worker = orders.worker;
        let orders = orders.clone();
        let client = client.clone();
        async move {
            let skipped = |tick| {
                if let Ok(mut skips) = skips.lock() {
                    skips.push((tick, worker));
                }
            };
            client.scope(job::fire(&orders, skipped)).await
        }
    };
    let [a, b, c, d] = orders else {
        return Err("there are four workers".into());
    };
    tokio::try_join!(work(a), work(b), work(c), work(d))?;
    Ok(skips.into_inner()?)
}
