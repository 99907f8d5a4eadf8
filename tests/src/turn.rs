//! Turns on a key that many want: one call each, written down for the checker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, distributed_lock};
use tokio::time::sleep;

use crate::checker::SHARED;
use crate::record::{self, Event, Pen};
use crate::roles::outcome;

/// The lock options and the body of a turn.
#[derive(Debug, Clone)]
pub struct TurnOptions {
    /// The key is `turns:` and this.
    pub key: String,
    /// How many holders it has at a time.
    pub permits: u32,
    /// How many of the permits a call takes.
    pub weight: u32,
    /// Whether it takes the key beside others that do so.
    pub shared: bool,
    /// The lease's length.
    pub ttl: Duration,
    /// For how long a call waits.
    pub wait: Duration,
    /// How long a body works.
    pub length: Duration,
    /// Whether a body draws its token.
    pub fenced: bool,
}

impl TurnOptions {
    /// One holder, 30 s, a patient caller, and a body that is over at once.
    pub fn of(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            permits: 1,
            weight: 1,
            shared: false,
            ttl: Duration::from_secs(30),
            wait: Duration::from_secs(60),
            length: Duration::ZERO,
            fenced: false,
        }
    }
}

/// Writes down the turns of one process.
#[derive(Debug)]
pub struct Scribe {
    pen: Pen,
    next: AtomicU64,
}

impl Scribe {
    /// Writes with this pen, the only one of its process.
    pub fn new(pen: Pen) -> Self {
        Self {
            pen,
            next: AtomicU64::new(1),
        }
    }

    /// Takes a turn for `caller`.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn turn(
        &self,
        locks: &Client,
        options: &TurnOptions,
        caller: &str,
    ) -> Result<(), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let key = format!("turns:{}", options.key);
        self.pen.write(number, Event::Call, &key, caller);
        let result = if options.shared {
            reading(locks, options, self, number).await
        } else {
            turn(locks, options, self, number).await
        };
        self.pen
            .write(number, Event::Outcome, "-", outcome(&result));
        result
    }

    /// Says that the test hurt something.
    pub fn fault(&self, about: &str, note: &str) {
        self.pen.write(0, Event::Fault, about, note);
    }
}

#[distributed_lock(
    key = "turns:<options.key>",
    ttl = options.ttl,
    wait = options.wait,
    permits = options.permits,
    weight = options.weight,
    bind = lease,
    client = locks
)]
async fn turn(
    locks: &Client,
    options: &TurnOptions,
    scribe: &Scribe,
    number: u64,
) -> Result<(), Error> {
    work(lease, options, scribe, number).await
}

#[distributed_lock(
    key = "turns:<options.key>",
    ttl = options.ttl,
    wait = options.wait,
    shared,
    bind = lease,
    client = locks
)]
async fn reading(
    locks: &Client,
    options: &TurnOptions,
    scribe: &Scribe,
    number: u64,
) -> Result<(), Error> {
    work(lease, options, scribe, number).await
}

async fn work(
    lease: &Lease,
    options: &TurnOptions,
    scribe: &Scribe,
    number: u64,
) -> Result<(), Error> {
    let at = record::now();
    let key = format!("turns:{}", options.key);
    let pen = &scribe.pen;
    pen.write_at(at, number, Event::Enter, &key, lease.owner());
    if options.shared {
        pen.write(number, Event::Beside, &key, SHARED);
    } else if options.permits > 1 {
        let beside = format!("{}/{}", options.weight, options.permits);
        pen.write(number, Event::Beside, &key, &beside);
    }
    pen.write(number, Event::Slot, &key, &lease.slot().to_string());
    if options.fenced
        && let Ok(token) = lease.token().await
    {
        pen.write(number, Event::Token, &key, &token.to_string());
    }
    let start = Instant::now();
    while start.elapsed() < options.length {
        sleep(options.length.min(Duration::from_millis(10))).await;
        pen.write(number, Event::Beat, &key, "");
    }
    pen.write(number, Event::Leave, &key, "");
    Ok(())
}
