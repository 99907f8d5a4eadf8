//! Four replicas of a service, each with the same schedule of `tokio-cron-scheduler`: each tick is run by one of them.
//!
//! `cargo run -p with-cron` starts the four as processes on the server of `REDIS_URL`, or else on a private
//! `redis-server` from the PATH, or else runs them as tasks with locks in memory. After some ticks it counts.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use examples::Server;
use lockattr::distributed_lock;
use tokio::process::Command;
use tokio::time::sleep;
use tokio_cron_scheduler::{Job, JobScheduler};

type Failure = Box<dyn Error + Send + Sync>;

/// Each second. A tick is the second that it belongs to.
const SCHEDULE: &str = "* * * * * *";
const TICKS: u64 = 4;
const REPLICAS: usize = 4;

/// The tick is in the key, and the mark of its success outlives it: a replica that is late by any time finds it done.
/// One that fails leaves no mark, and where replicas come after it, the next of them tries.
#[distributed_lock(key = "report:<tick>", ttl = "10s", once = "1h", on_busy = skip)]
async fn report(tick: u64) -> Result<Option<()>, Failure> {
    sleep(Duration::from_millis(20)).await;
    Ok(Some(()))
}

/// A tick at one replica, and whether it ran it.
type Fired = (u64, bool);

/// What each replica does, until a time in seconds since 1970. The client is the installed one.
async fn replica(until: u64) -> Result<Vec<Fired>, Failure> {
    let fired = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&fired);
    let job = Job::new_async(SCHEDULE, move |_, _| {
        let log = Arc::clone(&log);
        Box::pin(async move {
            let tick = now();
            match report(tick).await {
                Ok(ran) => log
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((tick, ran.is_some())),
                Err(error) => eprintln!("{tick}: {error}"),
            }
        })
    })?;
    let mut scheduler = JobScheduler::new().await?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    sleep(Duration::from_secs(until.saturating_sub(now()))).await;
    scheduler.shutdown().await?;
    let fired = fired.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(fired)
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Server::find().await?;
    let locks = server.connect().await?;
    locks.install()?;
    if let Some(until) = env::args().nth(1) {
        for (tick, ran) in replica(until.parse()?).await? {
            println!("{tick} {ran}");
        }
        locks.shutdown().await;
        return Ok(());
    }

    println!("{REPLICAS} replicas, {TICKS} ticks, {server}");
    let until = now() + TICKS + 2;
    let fired = if let Some(url) = server.url() {
        processes(url, until).await?
    } else {
        let replica = || replica(until);
        let (a, b, c, d) = tokio::try_join!(replica(), replica(), replica(), replica())?;
        vec![a, b, c, d]
    };
    let mut ticks = BTreeMap::<u64, (Vec<usize>, usize)>::new();
    for (replica, fired) in fired.into_iter().enumerate() {
        // The last one may have been cut off.
        for (tick, ran) in fired.into_iter().filter(|(tick, _)| *tick < until - 1) {
            let (by, skipped) = ticks.entry(tick).or_default();
            if ran {
                by.push(replica + 1);
            } else {
                *skipped += 1;
            }
        }
    }
    for (tick, (by, skipped)) in ticks {
        println!("tick {tick}: run by replica {by:?}, skipped by {skipped}");
    }
    Ok(())
}

/// This program again, as many times as there are replicas.
async fn processes(url: &str, until: u64) -> Result<Vec<Vec<Fired>>, Failure> {
    let start = |_| {
        let mut program = Command::new(env::current_exe()?);
        program.arg(until.to_string()).env("REDIS_URL", url);
        program.stdout(Stdio::piped()).kill_on_drop(true).spawn()
    };
    let replicas = (0..REPLICAS).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    for replica in replicas {
        let output = replica.wait_with_output().await?;
        let lines = String::from_utf8(output.stdout)?;
        let fired = lines.lines().filter_map(|line| line.split_once(' '));
        let fired = fired.map(|(tick, ran)| Ok((tick.parse()?, ran.parse()?)));
        all.push(fired.collect::<Result<_, Failure>>()?);
    }
    Ok(all)
}
