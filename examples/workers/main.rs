//! Four worker processes fire the same job at every tick of a clock: first as it is, then with
//! `#[distributed_lock]` above it.
//!
//! `cargo run --example workers` uses the server of `REDIS_URL`, or else a private `redis-server`
//! from the PATH, or else runs four tasks on locks in memory.

mod crew;
mod job;
mod table;

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use examples::Server;
use indicatif::{ProgressBar, ProgressStyle};

use crew::Crew;
use table::Shift;

const WORKERS: usize = 4;
const TICKS: u32 = 10;
const TICK: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(orders) = job::Orders::parse(&arguments) {
        return job::work(orders).await;
    }

    let folder = env::temp_dir().join(format!("lockattr-workers-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let server = Server::find().await?;
    let crew = if server.url().is_some() {
        "processes"
    } else {
        "tasks"
    };
    println!("four worker {crew}, {server}");

    let bar = ProgressBar::new(u64::from(2 * TICKS)).with_style(ProgressStyle::with_template(
        "{msg:18} [{bar:40}] tick {pos}/{len}",
    )?);
    let crew = Crew::new(&server);
    let without = shift(&crew, false, folder.join("without-lock.csv"), &bar).await?;
    let with = shift(&crew, true, folder.join("with-lock.csv"), &bar).await?;
    bar.finish_and_clear();

    print!("{}", table::draw(&without, &with));
    Ok(())
}

/// Ten ticks, with the lock or without.
async fn shift(
    crew: &Crew<'_>,
    locked: bool,
    file: PathBuf,
    bar: &ProgressBar,
) -> Result<Shift, Box<dyn Error>> {
    bar.set_message(if locked {
        "with the lock"
    } else {
        "without a lock"
    });
    let skipped = crew.fire(locked, &file, bar).await?;
    Shift::read(file, skipped)
}
