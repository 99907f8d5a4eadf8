//! What worker processes do: each role is a small program around the attribute.
//!
//! A role's process is called as `ROLE URL RECORD WORDS…`, prints a line for what its test waits
//! for, and ends when its standard input does.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use lockattr::{Client, Error, distributed_lock};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::checker::{SHARED, SKIPPED};
use crate::record::{self, Event, Pen};
use crate::turn::{Scribe, TurnOptions};
use crate::wait::PATIENCE;

mod chaos;
mod events;
mod heir;

/// For how long replicas are waited for: less than the shortest ttl in use.
pub(crate) const REPLICAS_TIMEOUT: Duration = Duration::from_millis(400);

/// The word for the role `chaos` on a store that has one holder a key.
pub(crate) const WITHOUT_SLOTS: &str = "without-slots";

static PEN: OnceLock<Pen> = OnceLock::new();

/// Plays the role that the arguments name, if they name one.
pub fn play() {
    let words: Vec<String> = env::args().skip(1).collect();
    let [role, url, record, words @ ..] = &words[..] else {
        panic!("usage: worker ROLE URL RECORD WORDS…");
    };
    let orders = orders();
    PEN.get_or_init(|| Pen::open(Path::new(record)));
    let number = |at: usize| -> u64 { words[at].parse().expect("a number") };
    let millis = |at: usize| Duration::from_millis(number(at));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let client = connect(url, words).await;
        client.install().expect("the first in this process");
        match role.as_str() {
            "sync" => sync(number(0), number(1), &orders).await,
            "hold" => hold(number(0), millis(1), millis(2), millis(3)).await,
            "turns" => {
                let options = TurnOptions {
                    permits: u32::try_from(number(1)).expect("a small number"),
                    ttl: millis(2),
                    length: millis(3),
                    weight: words.get(5).and_then(|word| word.parse().ok()).unwrap_or(1),
                    shared: words.get(5).is_some_and(|word| word == SHARED),
                    ..TurnOptions::of(&words[0])
                };
                let scribe = Scribe::new(Pen::open(Path::new(record)));
                turns(&client, options, number(4), scribe, &orders).await;
            }
            "chaos" => {
                let keys = chaos::Keys {
                    count: number(1),
                    have_slots: !words.iter().any(|word| word == WITHOUT_SLOTS),
                };
                chaos::play(number(0), keys, millis(2), &orders).await;
            }
            "events" => events::play(millis(0), millis(1), &orders).await,
            "pay" => pay_often(number(0), number(1), &orders).await,
            "heir" => heir::play(&client, &orders).await,
            "parent" => heir::hand_off(&client, &orders).await,
            "flat" => flat(&client).await,
            other => panic!("no such role: {other}"),
        }
        say("stats", &client.stats());
    });
}

/// Connects, in the way that some of the words tell: `replicas=2`, `addresses=FROM>TO,FROM>TO`, `ttl=2000`.
async fn connect(url: &str, words: &[String]) -> Client {
    let mut builder = Client::builder();
    for word in words {
        builder = match word.split_once('=') {
            Some(("replicas", count)) => {
                builder.replicas(count.parse().expect("a number"), REPLICAS_TIMEOUT)
            }
            Some(("ttl", ms)) => builder.ttl(Duration::from_millis(ms.parse().expect("a number"))),
            Some(("addresses", ways)) => {
                let ways: Vec<(SocketAddr, SocketAddr)> = ways
                    .split(',')
                    .filter_map(|way| way.split_once('>'))
                    .map(|(from, to)| (address(from), address(to)))
                    .collect();
                builder.addresses(move |host, port| {
                    let announced = address(&format!("{host}:{port}"));
                    let (_, to) = ways.iter().find(|(from, _)| *from == announced)?;
                    Some((to.ip().to_string(), to.port()))
                })
            }
            _ => builder,
        };
    }
    let start = Instant::now();
    loop {
        // Replicas of a busy machine may lag where the run begins.
        match builder.clone().connect(url).await {
            Err(Error::Unavailable { .. }) if start.elapsed() < PATIENCE / 2 => {
                sleep(Duration::from_millis(50)).await;
            }
            client => return client.expect("the server answers"),
        }
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Every user in every round, all users of a round at once.
async fn sync(users: u64, rounds: u64, orders: &Receiver<String>) {
    say("ready", &"");
    orders.recv().expect("the word to go");
    for _ in 0..rounds {
        let tasks: Vec<_> = (0..users)
            .map(|user| {
                tokio::spawn(async move {
                    let call = begin(&format!("sync:{user}"));
                    let ran = sync_user(user, call).await;
                    call.end(if ran.is_some() { "done" } else { "busy" });
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    }
}

#[distributed_lock(key = "sync:<user_id>", ttl = "30s", on_busy = skip)]
async fn sync_user(user_id: u64, call: Call) -> Option<()> {
    let key = format!("sync:{user_id}");
    call.tell(Event::Enter, &key);
    sleep(Duration::from_millis(5)).await;
    call.tell(Event::Leave, &key);
    Some(())
}

/// Calls that all want the same payment, at the same time; says what each was answered.
async fn pay_often(id: u64, calls: u64, orders: &Receiver<String>) {
    say("ready", &"");
    orders.recv().expect("the word to go");
    let tasks: Vec<_> = (0..calls)
        .map(|_| {
            tokio::spawn(async move {
                let call = begin(&format!("pay:{id}"));
                pay(id, call).await
            })
        })
        .collect();
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(receipt) => say("receipt", &receipt),
            Err(error) => say("error", &error.to_string()),
        }
    }
}

#[distributed_lock(key = "pay:<id>", wait = "20s", once = "1h", on_done = replay)]
async fn pay(id: u64, call: Call) -> Result<(String, u64), Error> {
    call.tell(Event::Enter, &format!("pay:{id}"));
    sleep(Duration::from_millis(300)).await;
    Ok((format!("paid {id} in process"), std::process::id().into()))
}

/// One call that waits for a key, and holds it for a time.
async fn hold(user_id: u64, ttl: Duration, length: Duration, wait: Duration) {
    let call = begin(&format!("sync:{user_id}"));
    let result = held(user_id, ttl, length, wait, call).await;
    call.end(outcome(&result));
    say("outcome", &result);
}

#[distributed_lock(key = "sync:<user_id>", ttl = ttl, wait = wait, on_busy = error)]
async fn held(
    user_id: u64,
    ttl: Duration,
    length: Duration,
    wait: Duration,
    call: Call,
) -> Result<(), Error> {
    let key = format!("sync:{user_id}");
    call.tell(Event::Enter, &key);
    say("entered", &key);
    beat(&key, length, call).await;
    call.tell(Event::Leave, &key);
    Ok(())
}

/// Says by how many kilobytes this process grows while it locks keys that it never sees again.
async fn flat(redis: &Client) {
    let memory = Client::connect("memory:").await.expect("always there");
    let work = async |from: u64| {
        for key in from..from + 2_000 {
            touch(redis, key).await.expect("a free key");
        }
        for key in from..from + 40_000 {
            touch(&memory, key).await.expect("a free key");
        }
    };
    work(0).await;
    let before = resident();
    work(1_000_000).await;
    work(2_000_000).await;
    say("grown", &resident().saturating_sub(before));
}

#[distributed_lock(key = "flat:<key>", client = locks)]
async fn touch(locks: &Client, key: u64) -> Result<(), Error> {
    Ok(())
}

/// Kilobytes that this process really uses.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("it is running");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Tasks that come back at once, from the word to go until the word to stop.
async fn turns(
    locks: &Client,
    options: TurnOptions,
    tasks: u64,
    scribe: Scribe,
    orders: &Receiver<String>,
) {
    static STOP: AtomicBool = AtomicBool::new(false);
    say("ready", &"");
    orders.recv().expect("the word to go");
    let shared = Arc::new((options, scribe));
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (locks, shared) = (locks.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                let (options, scribe) = &*shared;
                while !STOP.load(Ordering::Relaxed) {
                    if scribe
                        .turn(&locks, options, &task.to_string())
                        .await
                        .is_err()
                    {
                        // An outage is answered at once; the record need not be filled with it.
                        sleep(Duration::from_millis(20)).await;
                    }
                }
            })
        })
        .collect();
    until_told(orders, &STOP, tasks).await;
}

/// Lets the tasks go on until the word to stop.
async fn until_told(orders: &Receiver<String>, stop: &AtomicBool, tasks: Vec<JoinHandle<()>>) {
    // The reading thread of `orders` wakes nobody here; look now and then.
    while orders.try_recv().is_err() {
        sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
    say("finished", &"");
}

/// Works for a time, writing down every poll.
async fn beat(key: &str, length: Duration, call: Call) {
    let start = Instant::now();
    while start.elapsed() < length {
        sleep(Duration::from_millis(10)).await;
        call.tell(Event::Beat, key);
    }
}

/// The number of a call in this process.
#[derive(Debug, Clone, Copy)]
struct Call(u64);

fn begin(key: &str) -> Call {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let call = Call(NEXT.fetch_add(1, Ordering::Relaxed));
    call.tell(Event::Call, key);
    call
}

impl Call {
    /// Takes the time first: a process may be frozen between that and the writing.
    fn tell(self, event: Event, key: &str) {
        self.tell_at(record::now(), event, key, "");
    }

    fn tell_at(self, at: Duration, event: Event, key: &str, note: &str) {
        let pen = PEN.get().expect("set before any role begins");
        pen.write_at(at, self.0, event, key, note);
    }

    fn end(self, outcome: &str) {
        self.tell_at(record::now(), Event::Outcome, "-", outcome);
    }
}

/// The word that the checker knows for a result.
pub(crate) fn outcome(result: &Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Error::Busy { .. }) => "busy",
        Err(Error::Unavailable { .. }) => "unavailable",
        Err(Error::Lost { .. }) => "lost",
        Err(Error::Done { .. }) => SKIPPED,
        Err(_) => "undocumented",
    }
}

fn say(what: &str, value: &impl Debug) {
    println!("{what} {value:?}");
}

/// The lines of standard input; its end is the process's.
fn orders() -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            drop(sender.send(line));
        }
        exit(3);
    });
    receiver
}
