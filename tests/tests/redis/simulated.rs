//! The same protocol in simulated time: many short histories over the store in memory, with faults
//! at every point of a call, read by the same checker. Calls are of every kind: on one key, on both, on
//! slots, as readers, within others, on fallbacks, with marks and extensions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use lockattr::{Client, Error, Lease, Memory, distributed_lock};
use tests::checker::marks::{CLOSED, DONE};
use tests::checker::{FORGETS, FORGOT, Findings, Rules, SHARED, SKIPPED, check};
use tests::fallback;
use tests::record::{Entry, Event};
use tests::seed::Random;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(3);
const MARK: Duration = Duration::from_secs(1);
const BOTH: &str = "a+b";
const SLOTS: u32 = 2;

/// The history of one run. Everything happens on one thread, so each line has a time of its own.
#[derive(Debug)]
struct History {
    start: Instant,
    lines: Cell<u32>,
    entries: RefCell<Vec<Entry>>,
}

impl History {
    fn tell(&self, process: u32, call: u64, event: Event, key: &str, note: &str) {
        // Many things happen at one moment of simulated time; a nanosecond each keeps their order.
        let order = Duration::from_nanos(u64::from(self.lines.get()));
        self.lines.set(self.lines.get() + 1);
        self.entries.borrow_mut().push(Entry {
            at: self.start.elapsed() + order,
            process,
            call,
            event,
            key: key.to_owned(),
            note: note.to_owned(),
        });
    }

    fn fault(&self, note: &str) {
        self.tell(0, 0, Event::Fault, "-", note);
    }
}

/// One call, of a client that stands for a process. It has failed where nothing else is said.
struct Call<'a> {
    locks: &'a Client,
    history: &'a History,
    process: u32,
    number: u64,
    key: String,
    wait: Duration,
    steps: u64,
    /// How many slots it takes of a key that has several.
    weight: u32,
    random: Random,
    /// What the call around it runs on, of one that is made by a body.
    around: Option<&'static str>,
    ended: Cell<bool>,
}

impl<'a> Call<'a> {
    fn tell(&self, event: Event, note: &str) {
        self.history
            .tell(self.process, self.number, event, &self.key, note);
    }

    /// A call that its body makes.
    fn within(&self, number: u64, key: &str, random: &mut Random) -> Call<'a> {
        let inner = Call {
            number: self.number * 10 + number,
            key: key.to_owned(),
            wait: random.millis(0, 2_000),
            steps: random.below(3),
            random: Random::new(random.number()),
            around: Some(fallback::told().unwrap_or_default()),
            ended: Cell::new(false),
            ..*self
        };
        inner.tell(Event::Call, "-");
        inner.tell(Event::Within, &self.number.to_string());
        inner
    }

    fn end(&self, outcome: &str) {
        self.ended.set(true);
        self.tell(Event::Outcome, outcome);
    }

    fn enter(&self, lease: &Lease) {
        // What a call joins it has as the call around it does.
        let around = self.around.filter(|around| *around == fallback::LOCAL);
        if let Some(fallback) = fallback::told().or(around) {
            self.tell(Event::Fallback, fallback);
        }
        self.tell(Event::Enter, "");
        self.tell(Event::Slot, &lease.slot().to_string());
    }

    async fn beat(&self) {
        for _ in 0..self.steps {
            sleep(Duration::from_millis(130)).await;
            self.tell(Event::Beat, "");
        }
    }

    async fn work(&self, lease: &Lease) -> Result<(), Error> {
        self.enter(lease);
        let mut random = self.random.clone();
        if self.around.is_none()
            && let Ok(token) = lease.token().await
        {
            self.tell(Event::Token, &token.to_string());
        }
        self.beat().await;
        if random.below(3) == 0 {
            let ttl = if random.below(2) == 0 {
                TTL / 2
            } else {
                TTL * 2
            };
            match lease.extend(ttl).await {
                Ok(()) | Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
                Err(error) => return Err(error),
            }
            self.beat().await;
        }
        self.tell(Event::Leave, "");
        Ok(())
    }

    /// Calls functions that want the same keys, some of them side by side.
    async fn work_with_calls(&self, lease: &Lease) -> Result<(), Error> {
        self.enter(lease);
        let mut random = self.random.clone();
        let first = self.within(1, "a", &mut random);
        let second = match random.below(3) {
            0 => self.within(2, "a", &mut random),
            1 => self.within(2, "b", &mut random),
            _ => self.within(2, BOTH, &mut random),
        };
        let inner = async |call: Call<'_>| {
            let result = fallback::observed(async {
                match &*call.key {
                    "a" => marking(&call).await,
                    "b" => closing(&call).await,
                    _ => both_within(&call).await,
                }
            });
            call.end(outcome(&result.await));
        };
        tokio::join!(inner(first), inner(second));
        self.beat().await;
        self.tell(Event::Leave, "");
        Ok(())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.ended.get() {
            self.end("failed");
        }
    }
}

#[distributed_lock(key = "<call.key>", ttl = TTL, wait = call.wait, bind = lease, client = call.locks)]
async fn plain(call: &Call<'_>) -> Result<(), Error> {
    call.work(lease).await
}

#[distributed_lock(
    key = "<call.key>",
    ttl = TTL,
    wait = call.wait,
    on_unavailable = local,
    bind = lease,
    client = call.locks
)]
async fn locally(call: &Call<'_>) -> Result<(), Error> {
    call.work(lease).await
}

#[distributed_lock(
    key = "slots",
    ttl = TTL,
    wait = call.wait,
    permits = SLOTS,
    weight = call.weight,
    bind = lease,
    client = call.locks
)]
async fn slot(call: &Call<'_>) -> Result<(), Error> {
    call.tell(Event::Beside, &format!("{}/{SLOTS}", call.weight));
    call.work(lease).await
}

#[distributed_lock(
    key = "<call.key>",
    ttl = TTL,
    wait = call.wait,
    shared,
    on_unavailable = local,
    bind = lease,
    client = call.locks
)]
async fn reading(call: &Call<'_>) -> Result<(), Error> {
    call.tell(Event::Beside, SHARED);
    call.work(lease).await
}

#[distributed_lock(key = ["a", "b"], ttl = TTL, wait = call.wait, bind = lease, client = call.locks)]
async fn both(call: &Call<'_>) -> Result<(), Error> {
    call.work_with_calls(lease).await
}

#[distributed_lock(key = ["b", "a"], ttl = TTL, wait = call.wait, bind = lease, client = call.locks)]
async fn both_within(call: &Call<'_>) -> Result<(), Error> {
    call.work(lease).await
}

#[distributed_lock(
    key = ["b", "a"],
    ttl = TTL,
    wait = call.wait,
    on_unavailable = local,
    bind = lease,
    client = call.locks
)]
async fn both_locally(call: &Call<'_>) -> Result<(), Error> {
    call.work_with_calls(lease).await
}

async fn marking(call: &Call<'_>) -> Result<(), Error> {
    call.tell(Event::Leaves, &format!("{DONE} {}", MARK.as_millis()));
    once(call).await
}

#[distributed_lock(
    key = "<call.key>",
    ttl = TTL,
    wait = call.wait,
    once = MARK,
    on_done = error,
    bind = lease,
    client = call.locks
)]
async fn once(call: &Call<'_>) -> Result<(), Error> {
    call.work(lease).await
}

async fn closing(call: &Call<'_>) -> Result<(), Error> {
    call.tell(Event::Leaves, &format!("{CLOSED} {}", MARK.as_millis()));
    min_hold(call).await
}

#[distributed_lock(
    key = "<call.key>",
    ttl = TTL,
    wait = call.wait,
    min_hold = MARK,
    bind = lease,
    client = call.locks
)]
async fn min_hold(call: &Call<'_>) -> Result<(), Error> {
    call.work(lease).await
}

fn one_of(random: &mut Random) -> &'static str {
    if random.below(2) == 0 { "a" } else { "b" }
}

fn outcome(result: &Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Error::Busy { .. }) => "busy",
        Err(Error::Unavailable { .. }) => "unavailable",
        Err(Error::Lost { .. }) => "lost",
        Err(Error::Done { .. }) => SKIPPED,
        Err(_) => "undocumented",
    }
}

/// One caller: several calls, some of them dropped half way.
async fn caller(
    locks: Client,
    process: u32,
    number: u64,
    mut random: Random,
    history: Rc<History>,
) {
    for round in 0..4 {
        sleep(random.millis(0, 4_000)).await;
        let kind = random.below(10);
        let key = match kind {
            0 => "slots".to_owned(),
            1 | 2 => BOTH.to_owned(),
            3 => "a".to_owned(),
            _ => one_of(&mut random).to_owned(),
        };
        let call = Call {
            locks: &locks,
            history: &history,
            process,
            number: number * 100 + round,
            key,
            wait: random.millis(0, 5_000),
            steps: random.below(30),
            weight: 1 + u32::from(random.below(3) == 0),
            random: Random::new(random.number()),
            around: None,
            ended: Cell::new(false),
        };
        call.tell(Event::Call, "-");
        let patience = if random.below(3) == 0 {
            random.millis(0, 6_000)
        } else {
            TTL * 100
        };
        let calling = fallback::observed(async {
            match kind {
                0 => slot(&call).await,
                1 => both(&call).await,
                2 => both_locally(&call).await,
                3 => marking(&call).await,
                4 | 5 => locally(&call).await,
                6 | 7 => reading(&call).await,
                _ => plain(&call).await,
            }
        });
        if let Ok(result) = timeout(patience, calling).await {
            call.end(outcome(&result));
        }
    }
}

/// Breaks something now and then.
async fn breaker(memory: Memory, mut random: Random, history: Rc<History>) {
    for _ in 0..12 {
        sleep(random.millis(0, 4_000)).await;
        let name = format!("lock:{}", one_of(&mut random));
        match random.below(4) {
            0 => {
                history.fault(FORGETS);
                memory.expire(&name);
                history.fault(FORGOT);
            }
            1 => {
                history.fault(FORGETS);
                memory.take(&name, "ffffffffffffffffffffffffffffffff@other:1", TTL);
                history.fault(FORGOT);
            }
            2 => {
                memory.refuse(Some("out of order"));
                sleep(random.millis(0, 4_000)).await;
                memory.refuse(None);
            }
            _ => {}
        }
    }
    memory.refuse(None);
}

fn history(seed: u64) -> Findings {
    let mut random = Random::new(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let entries = runtime.block_on(LocalSet::new().run_until(async {
        let memory = Memory::new();
        let history = Rc::new(History {
            start: Instant::now(),
            lines: Cell::new(0),
            entries: RefCell::new(Vec::new()),
        });
        // Two clients: their callers meet in the store only.
        let clients = [(); 2].map(|()| Client::builder().store(memory.clone()).unwrap());
        let mut tasks = Vec::new();
        for number in 1..=6_u64 {
            let process = if number > 3 { 2 } else { 1 };
            let locks = clients[usize::from(number > 3)].clone();
            let random = Random::new(random.number());
            tasks.push(tokio::task::spawn_local(caller(
                locks,
                process,
                number,
                random,
                Rc::clone(&history),
            )));
        }
        let random = Random::new(random.number());
        tasks.push(tokio::task::spawn_local(breaker(
            memory.clone(),
            random,
            Rc::clone(&history),
        )));
        for task in tasks {
            task.await.unwrap();
        }
        // All is given back: at once, or by the ttl where it could not be asked.
        sleep(2 * TTL).await;
        let locks = ["a", "b", "slots"].map(|key| format!("lock:{key}"));
        for name in locks {
            assert_eq!(memory.holder(&name), None, "seed {seed}: {name}");
        }
        history.entries.take()
    }));
    // A body goes on for one ttl at most once the store has forgotten it, and a call is over when
    // its wait and its work are.
    check(
        &entries,
        Rules {
            // What a lease may be extended to.
            ttl: 2 * TTL,
            longest_call: Duration::from_secs(20),
        },
    )
}

#[test]
fn five_hundred_simulated_histories_break_no_rule() {
    let mut random = Random::announced("histories");
    let _listens = tracing::subscriber::set_default(fallback::Listener);
    let (mut bodies, mut excused, mut within) = (0, 0, 0);
    let mut fallbacks = BTreeMap::<String, usize>::new();
    let start = std::time::Instant::now();
    for _ in 0..500 {
        let seed = random.number();
        let findings = history(seed);
        assert!(
            findings.violations.is_empty(),
            "seed {seed}: {:#?}",
            findings.violations
        );
        bodies += findings.bodies;
        excused += findings.excused;
        within += findings.within;
        for (fallback, count) in findings.fallbacks {
            *fallbacks.entry(fallback).or_default() += count;
        }
    }
    println!(
        "500 histories, {bodies} bodies, {within} of them within others, {fallbacks:?}, {excused} overlaps \
         after the store forgot, in {:?}",
        start.elapsed()
    );
    assert!(bodies > 1_000);
    assert!(
        within > 100 && fallbacks.contains_key(fallback::LOCAL),
        "{fallbacks:?}"
    );
}
