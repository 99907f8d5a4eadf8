//! What a child process does, and how it talks with the program that started it.
//!
//! A role connects, says `ready`, waits for a line that begins with `go`, does its work, says what it
//! found in lines of a name and numbers, says `done`, and ends when its input closes. Scripts in
//! `peers/` speak the same.

use std::env;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::{Calls, Locks};

mod calls;
mod hold;
mod lost;
mod pair;
mod ping;
mod probe;
mod queue;
mod refused;
mod throughput;

/// A run that hangs ends after this long, and is told as failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// The ttl of every lease that no table says otherwise about.
const TTL: Duration = Duration::from_secs(30);

/// The words after `--role`: the role, a library's id, the server's URL, and what the role takes.
pub struct Words(pub Vec<String>);

impl Words {
    #[must_use]
    pub fn role(&self) -> &str {
        self.text(0)
    }

    #[must_use]
    pub fn library(&self) -> &str {
        self.text(1)
    }

    #[must_use]
    pub fn url(&self) -> &str {
        self.text(2)
    }

    fn text(&self, at: usize) -> &str {
        &self.0[at]
    }

    fn number(&self, at: usize) -> u64 {
        self.text(at).parse().expect("a number")
    }
}

/// Plays a role of a library that hands out what it holds.
pub fn play_locks<L: Locks>(words: &Words) {
    let url = words.url();
    run(async {
        match words.role() {
            "queue" => queue::play::<L>(url, words).await,
            "storm" => refused::storm::<L>(url, words).await,
            "own" => refused::own::<L>(url, words).await,
            "hold" => hold::play::<L>(url, words).await,
            "probe" => probe::play::<L>(url).await,
            _ => call::<L>(words).await,
        }
    });
}

/// Plays a role of a library that guards calls.
pub fn play_calls<L: Calls>(words: &Words) {
    run(call::<L>(words));
}

/// Asks for bare round trips.
pub fn play_ping(words: &Words) {
    run(ping::play(words.url(), words));
}

async fn call<L: Calls>(words: &Words) {
    let url = words.url();
    match words.role() {
        "pair" => pair::play::<L>(url, words).await,
        "throughput" => throughput::play::<L>(url, words).await,
        "calls" => calls::play::<L>(url, words).await,
        "lost" => lost::play::<L>(url, words).await,
        other => panic!("no role is called {other}"),
    }
}

/// How many workers the runtime has; without it, the role runs on one thread.
pub const WORKERS: &str = "LOCKATTR_BENCH_WORKERS";

/// Runs a role.
pub fn run(role: impl Future<Output = ()>) {
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        exit(1);
    });
    let workers = env::var(WORKERS)
        .ok()
        .and_then(|number| number.parse().ok());
    let mut builder = match workers {
        Some(workers) => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(workers);
            builder
        }
        None => Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build();
    runtime.expect("a runtime").block_on(role);
    say("done");
    read_line();
}

/// Tells that everything is connected and warm, and waits for the start.
pub fn ready() -> String {
    say("ready");
    read_line()
}

fn say(line: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{line}").expect("somebody who reads");
    out.flush().expect("somebody who reads");
}

/// Does something again and again for so many milliseconds, in batches between looks at the clock;
/// tells how often and how long each took.
async fn repeat(milliseconds: u64, batch: u64, mut once: impl AsyncFnMut()) {
    let length = Duration::from_millis(milliseconds);
    let start = Instant::now();
    let mut times = 0;
    while start.elapsed() < length {
        for _ in 0..batch {
            once().await;
        }
        times += batch;
    }
    tell("time", start.elapsed().as_secs_f64() / times as f64);
    tell("times", times as f64);
}

/// A finding.
pub fn tell(name: &str, value: f64) {
    say(&format!("{name} {value}"));
}

/// A line of the input, empty at its end.
fn read_line() -> String {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).expect("an input");
    line.trim().to_owned()
}

/// This process's memory, in bytes.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a proc file system");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    let kilobytes: f64 = kilobytes.and_then(|text| text.parse().ok()).expect("kB");
    kilobytes * 1024.0
}
