//! `lockattr bench`: how long a lock takes on this store, from this machine.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use lockattr::{Client, Error};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cli::Global;
use crate::exit::{self, Answer, Exit};
use crate::output::Output;

/// Long enough for a store that is slow, and short where this process is killed.
const TTL: Duration = Duration::from_secs(10);

/// How many calls for a held key are measured: each is about a round trip.
const REFUSALS: usize = 200;

/// The most of them, in seconds.
const MAX_SECONDS: u64 = 3600;

fn after_help() -> String {
    let codes = [Exit::OK, Exit::USAGE, Exit::UNAVAILABLE, Exit::INTERNAL];
    format!(
        "\
Keys start with `bench:` and something random, behind the prefix. Nothing of them is left.

Examples:
  lockattr bench
  lockattr bench --tasks 100 --seconds 10 --url redis+cluster://n1,n2,n3
  lockattr bench --tasks 50 --keys 1       50 callers that wait for one key

{}",
        exit::listed(&codes, &[])
    )
}

/// Measure how long it takes to take and give back a lock
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct BenchArgs {
    /// For how long to measure
    #[arg(long, value_name = "NUMBER", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    seconds: u64,

    /// How many callers at a time, on one thread
    #[arg(long, value_name = "NUMBER", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: u32,

    /// How many keys they share; fewer than callers, and they wait for each other [default: a key a caller]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keys: Option<u32>,
}

/// How long each step took, in microseconds.
#[derive(Default)]
struct Taken {
    acquire: Vec<u64>,
    release: Vec<u64>,
}

pub(crate) async fn bench(args: &BenchArgs, global: &Global, output: Output) -> Answer {
    let client = global.client()?;
    let run = format!("bench:{:x}", random());
    // Connections are made, and scripts loaded, before it counts.
    let first = client.lock(format!("{run}:first")).ttl(TTL);
    first.acquire().await?.release().await?;
    let refused = refusals(&client, global, &run).await?;
    let (taken, elapsed) = pairs(args, &client, &run).await?;
    client.shutdown().await;

    let count = taken.acquire.len();
    let rate = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / elapsed.as_secs_f64();
    let steps = [
        ("acquire", percentiles(taken.acquire)),
        ("release", percentiles(taken.release)),
        ("refused", percentiles(refused)),
    ];
    let (seconds, tasks) = (elapsed.as_secs_f64(), args.tasks);
    if output.json {
        let mut object = json!({
            "seconds": seconds,
            "tasks": tasks,
            "keys": args.keys.unwrap_or(tasks),
            "pairs": count,
            "pairs_per_second": rate.round(),
        });
        for (step, percentiles) in steps {
            let named = percentiles.map(|(name, micros)| (format!("{name}_us"), micros.into()));
            object[step] = Value::Object(named.into_iter().collect());
        }
        Output::object(&object)?;
        return Ok(Exit::OK);
    }
    let mut text = format!(
        "{count} locks taken and given back in {seconds:.1} s, {tasks} at a time: {rate:.0} a second\n\n{:10}",
        "µs"
    );
    for (name, _) in steps[0].1 {
        let _ = write!(text, "{name:>10}");
    }
    for (step, percentiles) in steps {
        let _ = write!(text, "\n{step:10}");
        for (_, micros) in percentiles {
            let _ = write!(text, "{micros:>10}");
        }
    }
    text += "\n\nrefused: a call for a key that another client holds, about one round trip\n";
    Output::text(text.as_bytes())?;
    Ok(Exit::OK)
}

/// Callers that take and give back, each until the time is over.
async fn pairs(args: &BenchArgs, client: &Client, run: &str) -> Result<(Taken, Duration), Error> {
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds);
    let mut tasks: JoinSet<Result<Taken, Error>> = JoinSet::new();
    for task in 0..args.tasks {
        let client = client.clone();
        let key = format!("{run}:{}", task % args.keys.unwrap_or(args.tasks));
        tasks.spawn(async move {
            let mut taken = Taken::default();
            while Instant::now() < end {
                let asked = Instant::now();
                // Who waits longer than what is measured would wait for ever.
                let wait = Duration::from_secs(MAX_SECONDS);
                let lease = client.lock(&key).ttl(TTL).wait(wait).acquire().await?;
                taken.acquire.push(micros(asked));
                let asked = Instant::now();
                lease.release().await?;
                taken.release.push(micros(asked));
            }
            Ok(taken)
        });
    }
    let mut all = Taken::default();
    while let Some(done) = tasks.join_next().await {
        let taken = done.expect("no task panics or is aborted")?;
        all.acquire.extend(taken.acquire);
        all.release.extend(taken.release);
    }
    Ok((all, start.elapsed()))
}

/// How long a client is refused a key that another one holds. The first would not ask the store.
async fn refusals(holder: &Client, global: &Global, run: &str) -> Result<Vec<u64>, Error> {
    let key = format!("{run}:held");
    let lease = holder.lock(&key).ttl(TTL).acquire().await?;
    let other = global.client()?;
    let mut taken = Vec::with_capacity(REFUSALS);
    for call in 0..=REFUSALS {
        let asked = Instant::now();
        match other.lock(&key).ttl(TTL).acquire().await {
            // The first call connects.
            Err(Error::Busy { .. }) if call == 0 => {}
            Err(Error::Busy { .. }) => taken.push(micros(asked)),
            // A store of this process alone, or none at all.
            Ok(lease) => lease.release().await?,
            Err(error) => return Err(error),
        }
    }
    other.shutdown().await;
    lease.release().await?;
    Ok(taken)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn percentiles(mut micros: Vec<u64>) -> [(&'static str, u64); 5] {
    micros.sort_unstable();
    let last = micros.len().saturating_sub(1);
    let at = |thousandths: usize| micros.get(last * thousandths / 1000).copied().unwrap_or(0);
    [
        ("p50", at(500)),
        ("p90", at(900)),
        ("p99", at(990)),
        ("p999", at(999)),
        ("max", at(1000)),
    ]
}

/// Differs from one run to the next, on all machines.
fn random() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    RandomState::new().hash_one(now.unwrap_or_default())
}
