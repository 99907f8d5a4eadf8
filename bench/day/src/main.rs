//! A client that lives for a day: what it holds all the time, and calls in between. Its memory and the time of its
//! calls are told for each hour. Words: the server's URL, and how many hours.
//!
//! `day/run` has the clocks of it and of its server run faster.

use std::fs;
use std::time::{Duration, Instant};

use lockattr::Client;

/// Long, as time passes two hundred times as fast while replies do not come sooner.
const TTL: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(200);

const HELD: usize = 100;
const CALLS_A_MINUTE: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<(), lockattr::Error> {
    let mut words = std::env::args().skip(1);
    let url = words.next().expect("the server's URL");
    let hours: u32 = words
        .next()
        .and_then(|hours| hours.parse().ok())
        .unwrap_or(24);
    let client = Client::builder()
        .connect_timeout(TIMEOUT)
        .reply_timeout(TIMEOUT)
        .connect(&url)
        .await?;
    let mut held = Vec::new();
    for lease in 0..HELD {
        held.push(
            client
                .lock(&format!("held:{lease}"))
                .ttl(TTL)
                .acquire()
                .await?,
        );
    }
    let begin = Instant::now();
    let mut calls = 0_u64;
    for hour in 1..=hours {
        let mut times = Vec::new();
        while begin.elapsed() < HOUR * hour {
            for _ in 0..CALLS_A_MINUTE {
                calls += 1;
                let called = Instant::now();
                let lease = client
                    .lock(&format!("call:{calls}"))
                    .ttl(TTL)
                    .acquire()
                    .await?;
                lease.release().await?;
                times.push(called.elapsed());
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        let stats = client.stats();
        println!(
            "hour {hour}: {calls} calls, median {median:?}, {} KiB resident, {} renewed, {} lost",
            resident(),
            stats.renewed,
            stats.lost
        );
    }
    for lease in held {
        lease.release().await?;
    }
    Ok(())
}

/// What of the process is in memory, in KiB.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number of pages") * 4
}
