//! One worker: at every tick it runs the job, and the job appends a row to the file.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockattr::{Client, distributed_lock};

use crate::{TICK, TICKS};

/// Longer than the difference of the workers' clocks, so that a late worker finds the key held.
const JOB: Duration = Duration::from_millis(400);

/// What a worker is told on its command line.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) worker: usize,
    pub(crate) locked: bool,
    /// Milliseconds since 1970, so that all workers fire together.
    pub(crate) first_tick: u64,
    pub(crate) file: PathBuf,
    pub(crate) url: String,
}

impl Orders {
    /// From the arguments of a worker process; `None` for a process that was started by hand.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [mark, worker, locked, first_tick, file, url] = arguments else {
            return None;
        };
        (mark == "--worker").then_some(Self {
            worker: worker.parse().ok()?,
            locked: locked.parse().ok()?,
            first_tick: first_tick.parse().ok()?,
            file: file.into(),
            url: url.clone(),
        })
    }

    /// The arguments of a worker process.
    pub(crate) fn arguments(&self) -> [String; 6] {
        [
            "--worker".to_owned(),
            self.worker.to_string(),
            self.locked.to_string(),
            self.first_tick.to_string(),
            self.file.display().to_string(),
            self.url.clone(),
        ]
    }
}

/// The job as it is.
async fn report(tick: u32, worker: usize, file: &Path) -> std::io::Result<()> {
    let started = SystemTime::now();
    tokio::time::sleep(JOB).await;
    let row = format!(
        "{tick},{worker},{},{}\n",
        humantime::format_rfc3339_millis(started),
        humantime::format_rfc3339_millis(SystemTime::now()),
    );
    // One write of one line: rows of several processes do not mix.
    OpenOptions::new()
        .append(true)
        .open(file)?
        .write_all(row.as_bytes())
}

/// The job with one line above it. `None` where another worker runs it.
#[distributed_lock(key = "report:<tick>", ttl = "5s", on_busy = skip)]
async fn report_once(tick: u32, worker: usize, file: &Path) -> Result<Option<()>, Box<dyn Error>> {
    report(tick, worker, file).await?;
    Ok(Some(()))
}

/// A worker process: works all ticks and prints those at which it was skipped.
pub(crate) async fn work(orders: Orders) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(&orders.url).await?;
    client.scope(fire(&orders, |tick| println!("{tick}"))).await
}

/// All ticks of one worker. `skipped` is told the ticks at which another worker ran the job.
pub(crate) async fn fire(
    orders: &Orders,
    mut skipped: impl FnMut(u32),
) -> Result<(), Box<dyn Error>> {
    for tick in 1..=TICKS {
        sleep_until(orders.first_tick, tick).await;
        if orders.locked {
            if report_once(tick, orders.worker, &orders.file)
                .await?
                .is_none()
            {
                skipped(tick);
            }
        } else {
            report(tick, orders.worker, &orders.file).await?;
        }
    }
    Ok(())
}

/// Every process counts the ticks from the same moment.
pub(crate) async fn sleep_until(first_tick: u64, tick: u32) {
    let at = UNIX_EPOCH + Duration::from_millis(first_tick) + TICK * (tick - 1);
    if let Ok(left) = at.duration_since(SystemTime::now()) {
        tokio::time::sleep(left).await;
    }
}
