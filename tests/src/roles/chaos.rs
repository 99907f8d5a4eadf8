//! Calls of every kind on a few keys, without a pause, while things break around them.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use futures_core::Stream;
use lockattr::{Error, Lease, distributed_lock};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use super::{Call, beat, begin, outcome, say};
use crate::checker::SHARED;
use crate::checker::marks::{CLOSED, DONE};
use crate::fallback;
use crate::record::{self, Event};
use crate::seed::Random;

/// How long a success keeps a key from running again, and a key stays closed at least.
const MARK: Duration = Duration::from_millis(150);

const SLOTS: u32 = 2;

const GO: u8 = 0;
const REST: u8 = 1;
const STOP: u8 = 2;

/// What the workers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub(super) count: u64,
    /// Whether there are as many keys with several slots.
    pub(super) have_slots: bool,
}

/// What the tasks of a worker are to do, and how many of them are at it.
#[derive(Default)]
struct Orders {
    word: AtomicU8,
    at_work: AtomicUsize,
}

/// Calls of all kinds until the word to stop; none between `rest N`, which is answered by `resting N` when
/// all have ended, and `go`.
pub(super) async fn play(seed: u64, keys: Keys, ttl: Duration, told: &Receiver<String>) {
    fallback::listen();
    say("ready", &"");
    let orders = Arc::new(Orders::default());
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let orders = Arc::clone(&orders);
            let mut random = Random::new(seed ^ (task << 32));
            tokio::spawn(async move {
                loop {
                    // Before the word is read, or it might be taken for one at rest.
                    orders.at_work.fetch_add(1, Ordering::SeqCst);
                    let word = orders.word.load(Ordering::SeqCst);
                    if word == GO {
                        one_call(&mut random, keys, ttl).await;
                    }
                    orders.at_work.fetch_sub(1, Ordering::SeqCst);
                    match word {
                        STOP => return,
                        REST => sleep(Duration::from_millis(20)).await,
                        _ => {}
                    }
                }
            })
        })
        .collect();
    loop {
        // The thread that reads wakes nobody here; look now and then.
        let line = match told.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(TryRecvError::Disconnected) => return pending().await,
        };
        match line.split_once(' ') {
            Some(("rest", number)) => {
                orders.word.store(REST, Ordering::SeqCst);
                while orders.at_work.load(Ordering::SeqCst) > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
                println!("resting {number}");
            }
            _ if line == "go" => orders.word.store(GO, Ordering::SeqCst),
            _ => break,
        }
    }
    orders.word.store(STOP, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("no panic");
    }
    say("finished", &"");
}

/// One call, and what its body does.
struct Job {
    /// The keys, joined by `+`.
    label: String,
    call: Open,
    ttl: Duration,
    wait: Duration,
    length: Duration,
    random: Random,
    /// What the call around it runs on, of one that is made by a body: nothing where that is a lease.
    around: Option<&'static str>,
    /// How many slots it takes of a key that has several.
    weight: u32,
}

/// A call that ends as failed where nothing else is said.
struct Open(Call);

impl Open {
    fn end(self, result: &Result<(), Error>) -> &'static str {
        let outcome = outcome(result);
        self.0.end(outcome);
        std::mem::forget(self);
        outcome
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.end("failed");
    }
}

async fn one_call(random: &mut Random, keys: Keys, ttl: Duration) {
    let longest = u64::try_from(ttl.as_millis()).expect("a short ttl");
    let one = random.below(keys.count);
    let two = (one + 1 + random.below(keys.count - 1)) % keys.count;
    let kind = if keys.have_slots {
        random.below(12)
    } else {
        1 + random.below(11)
    };
    let label = match kind {
        0 => format!("slots:{one}"),
        7 => format!("docs:{one}"),
        1..=3 => pair_of(one, two),
        _ => format!("chaos:{one}"),
    };
    let call = begin(&label);
    let job = Job {
        call: Open(call),
        ttl,
        wait: random.millis(0, longest),
        // Most are short; some outlive their ttl twice and need their renewals.
        length: if random.below(8) == 0 {
            random.millis(0, 2 * longest)
        } else {
            random.millis(0, longest / 16)
        },
        random: Random::new(random.number()),
        label,
        around: None,
        weight: if random.below(4) == 0 { SLOTS } else { 1 },
    };
    let writes = random.below(4) == 0;
    let patience = if random.below(10) == 0 {
        random.millis(0, longest)
    } else {
        Duration::MAX
    };
    let calling = fallback::observed(async {
        match kind {
            0 => slot(one, &job).await,
            7 if writes => writing(one, &job).await,
            7 => reading(one, &job).await,
            1 => both(one, two, &job).await,
            2 | 3 => both_locally(one, two, &job).await,
            4 => locally(one, &job).await,
            5 => unguarded(one, &job).await,
            6 => marking(one, &job).await,
            8 => block_in_place(|| on_a_thread(one, &job)),
            9 => rerunning(one, &job).await,
            10 => drained(streamed(one, &job)).await,
            _ => plain(one, &job).await,
        }
    });
    if let Ok(result) = timeout(patience, calling).await
        && job.call.end(&result) == "unavailable"
    {
        // An outage is answered at once, mostly; there is no need to fill the record with it.
        sleep(Duration::from_millis(20)).await;
    }
}

#[distributed_lock(key = "chaos:<key>", ttl = job.ttl, wait = job.wait, bind = lease)]
async fn plain(key: u64, job: &Job) -> Result<(), Error> {
    job.work(lease).await
}

/// A stream whose only item is that its work is done.
#[distributed_lock(key = "chaos:<key>", ttl = job.ttl, wait = job.wait)]
fn streamed(key: u64, job: &Job) -> Pin<Box<dyn Stream<Item = Result<(), Error>> + Send + '_>> {
    let work = async {
        let lease = lockattr::current().expect("it is polled under its lease");
        job.work(&lease).await
    };
    Box::pin(Working(Some(Box::pin(work))))
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

struct Working<'a>(Option<Work<'a>>);

impl Stream for Working<'_> {
    type Item = Result<(), Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(work) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let item = ready!(work.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(Some(item))
    }
}

/// What the last item of a stream says.
async fn drained(
    mut stream: Pin<Box<dyn Stream<Item = Result<(), Error>> + Send + '_>>,
) -> Result<(), Error> {
    let mut last = Ok(());
    while let Some(item) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
        last = item;
    }
    last
}

#[distributed_lock(key = "chaos:<key>", ttl = job.ttl, wait = job.wait, bind = lease, blocking)]
fn on_a_thread(key: u64, job: &Job) -> Result<(), Error> {
    job.work_on_a_thread(lease)
}

#[distributed_lock(
    key = "chaos:<key>",
    ttl = job.ttl,
    wait = job.wait,
    on_unavailable = local,
    bind = lease
)]
async fn locally(key: u64, job: &Job) -> Result<(), Error> {
    job.work(lease).await
}

#[distributed_lock(
    key = "chaos:<key>",
    ttl = job.ttl,
    wait = job.wait,
    on_unavailable = run,
    bind = lease
)]
async fn unguarded(key: u64, job: &Job) -> Result<(), Error> {
    job.work(lease).await
}

/// One that is skipped has found its key busy.
async fn rerunning(key: u64, job: &Job) -> Result<(), Error> {
    let skipped = || Error::Busy {
        key: job.label.clone(),
        holder: String::new(),
        remaining: Duration::ZERO,
        since: None,
    };
    rerun(key, job).await?.ok_or_else(skipped)
}

#[distributed_lock(
    key = "chaos:<key>",
    ttl = job.ttl,
    wait = job.wait,
    on_busy = rerun,
    bind = lease
)]
async fn rerun(key: u64, job: &Job) -> Result<Option<()>, Error> {
    job.work(lease).await.map(Some)
}

#[distributed_lock(
    key = "slots:<key>",
    ttl = job.ttl,
    wait = job.wait,
    permits = SLOTS,
    weight = job.weight,
    on_unavailable = local,
    bind = lease
)]
async fn slot(key: u64, job: &Job) -> Result<(), Error> {
    job.tell(Event::Beside, &format!("{}/{SLOTS}", job.weight));
    job.work(lease).await
}

#[distributed_lock(
    key = "docs:<key>",
    ttl = job.ttl,
    wait = job.wait,
    shared,
    on_unavailable = local,
    bind = lease
)]
async fn reading(key: u64, job: &Job) -> Result<(), Error> {
    job.tell(Event::Beside, SHARED);
    job.work(lease).await
}

#[distributed_lock(
    key = "docs:<key>",
    ttl = job.ttl,
    wait = job.wait,
    on_unavailable = local,
    bind = lease
)]
async fn writing(key: u64, job: &Job) -> Result<(), Error> {
    job.work(lease).await
}

fn pair_of(one: u64, two: u64) -> String {
    format!("chaos:{one}+chaos:{two}")
}

#[distributed_lock(key = ["chaos:<one>", "chaos:<two>"], ttl = job.ttl, wait = job.wait, bind = lease)]
async fn both(one: u64, two: u64, job: &Job) -> Result<(), Error> {
    job.work_with_calls(lease, one, two).await
}

#[distributed_lock(
    key = ["chaos:<one>", "chaos:<two>"],
    ttl = job.ttl,
    wait = job.wait,
    on_unavailable = local,
    bind = lease
)]
async fn both_locally(one: u64, two: u64, job: &Job) -> Result<(), Error> {
    job.work_with_calls(lease, one, two).await
}

/// Each key bears one kind of mark, so that one under a key that was not named is seen.
async fn marking(key: u64, job: &Job) -> Result<(), Error> {
    let millis = MARK.as_millis();
    if key.is_multiple_of(2) {
        job.tell(Event::Leaves, &format!("{DONE} {millis}"));
        let (process, call) = once(key, job).await?;
        if (process, call) == job.reply() {
            return Ok(());
        }
        job.tell(Event::Replied, &format!("{process} {call}"));
        // As it is recorded: its body did not run.
        Err(Error::Done {
            key: job.label.clone(),
            since: SystemTime::now(),
            reply: None,
        })
    } else {
        job.tell(Event::Leaves, &format!("{CLOSED} {millis}"));
        closing(key, job).await
    }
}

#[distributed_lock(
    key = "chaos:<key>",
    ttl = job.ttl,
    wait = job.wait,
    once = MARK,
    on_done = replay,
    bind = lease
)]
async fn once(key: u64, job: &Job) -> Result<(u32, u64), Error> {
    job.work(lease).await?;
    Ok(job.reply())
}

#[distributed_lock(
    key = "chaos:<key>",
    ttl = job.ttl,
    wait = job.wait,
    min_hold = MARK,
    bind = lease
)]
async fn closing(key: u64, job: &Job) -> Result<(), Error> {
    job.work(lease).await
}

impl Job {
    /// What is kept of its work: which call it was.
    fn reply(&self) -> (u32, u64) {
        (std::process::id(), self.call.0.0)
    }

    fn tell(&self, event: Event, note: &str) {
        self.call.0.tell_at(record::now(), event, &self.label, note);
    }

    /// Writes down that the body begins, and what it runs on.
    fn enter(&self, lease: &Lease) -> Option<&'static str> {
        let at = record::now();
        // What a call joins it has as the call around it does.
        let around = self.around.filter(|around| *around == fallback::LOCAL);
        let fallback = fallback::told().or(around);
        if let Some(fallback) = fallback {
            self.tell(Event::Fallback, fallback);
        }
        self.call
            .0
            .tell_at(at, Event::Enter, &self.label, lease.owner());
        self.tell(Event::Slot, &lease.slot().to_string());
        fallback
    }

    async fn work(&self, lease: &Lease) -> Result<(), Error> {
        self.enter(lease);
        let mut random = self.random.clone();
        // A call within another has the token of that.
        if self.around.is_none()
            && random.below(2) == 0
            && let Ok(token) = lease.token().await
        {
            self.tell(Event::Token, &token.to_string());
        }
        beat(&self.label, self.length / 2, self.call.0).await;
        if random.below(4) == 0 {
            self.extend(lease, &mut random).await?;
        }
        beat(&self.label, self.length / 2, self.call.0).await;
        self.tell(Event::Leave, "");
        Ok(())
    }

    /// Nothing stops it but its own looks at the lease.
    fn work_on_a_thread(&self, lease: &Lease) -> Result<(), Error> {
        self.enter(lease);
        if self.random.clone().below(2) == 0
            && let Ok(token) = lease.token_blocking()
        {
            self.tell(Event::Token, &token.to_string());
        }
        let start = Instant::now();
        while start.elapsed() < self.length {
            thread::sleep(Duration::from_millis(10));
            lease.check()?;
            self.tell(Event::Beat, "");
        }
        lease.check()?;
        self.tell(Event::Leave, "");
        Ok(())
    }

    /// To more or less than the ttl; it may fail, and some are given up half way.
    async fn extend(&self, lease: &Lease, random: &mut Random) -> Result<(), Error> {
        let ttl = match random.below(2) {
            0 => self.ttl / 2,
            _ => self.ttl * 2,
        };
        let patience = match random.below(2) {
            0 => random.millis(0, 5),
            _ => self.ttl,
        };
        match timeout(patience, lease.extend(ttl)).await {
            Ok(Err(error)) if !matches!(error, Error::Lost { .. } | Error::Unavailable { .. }) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Calls functions that want the same keys, some of them side by side.
    async fn work_with_calls(&self, lease: &Lease, one: u64, two: u64) -> Result<(), Error> {
        let fallback = self.enter(lease);
        let mut random = self.random.clone();
        for _ in 0..random.below(3) {
            let first = self.call_within(one, two, fallback, Random::new(random.number()));
            let second = self.call_within(two, one, fallback, Random::new(random.number()));
            if random.below(3) == 0 {
                first.await;
            } else {
                tokio::join!(first, second);
            }
            self.tell(Event::Beat, "");
        }
        beat(&self.label, self.length, self.call.0).await;
        self.tell(Event::Leave, "");
        Ok(())
    }

    async fn call_within(
        &self,
        one: u64,
        two: u64,
        around: Option<&'static str>,
        mut random: Random,
    ) {
        let kind = random.below(4);
        let label = match kind {
            0 => pair_of(two, one),
            _ => format!("chaos:{one}"),
        };
        let call = begin(&label);
        let job = Self {
            label,
            call: Open(call),
            ttl: self.ttl,
            wait: random.millis(0, 200),
            length: random.millis(0, 40),
            random: Random::new(random.number()),
            around: Some(around.unwrap_or_default()),
            weight: 1,
        };
        job.tell(Event::Within, &self.call.0.0.to_string());
        let calling = fallback::observed(async {
            match kind {
                0 => reversed(two, one, &job).await,
                1 => plain(one, &job).await,
                _ => marking(one, &job).await,
            }
        });
        let result = calling.await;
        job.call.end(&result);
    }
}

#[distributed_lock(key = ["chaos:<one>", "chaos:<two>"], ttl = job.ttl, wait = job.wait, bind = lease)]
async fn reversed(one: u64, two: u64, job: &Job) -> Result<(), Error> {
    job.work(lease).await
}
