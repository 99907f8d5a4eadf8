//! The same protocol in simulated time: many short histories over the store in memory, with faults
//! at every point of a call, read by the same checker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use lockattr::{Client, Error, Memory, distributed_lock};
use tests::checker::{FORGETS, FORGOT, Findings, Rules, check};
use tests::record::{Entry, Event};
use tests::seed::Random;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(3);
const KEYS: u64 = 2;

/// The history of one run. Everything happens on one thread, so each line has a time of its own.
#[derive(Debug)]
struct History {
    start: Instant,
    lines: Cell<u32>,
    entries: RefCell<Vec<Entry>>,
}

impl History {
    fn tell(&self, call: u64, event: Event, key: u64, note: &str) {
        // Many things happen at one moment of simulated time; a nanosecond each keeps their order.
        let order = Duration::from_nanos(u64::from(self.lines.get()));
        self.lines.set(self.lines.get() + 1);
        self.entries.borrow_mut().push(Entry {
            at: self.start.elapsed() + order,
            process: 1,
            call,
            event,
            key: format!("sim:{key}"),
            note: note.to_owned(),
        });
    }
}

#[distributed_lock(key = "sim:<key>", ttl = TTL, wait = wait, bind = lease, client = locks)]
async fn work(
    locks: &Client,
    key: u64,
    wait: Duration,
    steps: u64,
    call: u64,
    history: &History,
) -> Result<(), Error> {
    history.tell(call, Event::Enter, key, "");
    if let Ok(token) = lease.token().await {
        history.tell(call, Event::Token, key, &token.to_string());
    }
    for _ in 0..steps {
        sleep(Duration::from_millis(130)).await;
        history.tell(call, Event::Beat, key, "");
    }
    history.tell(call, Event::Leave, key, "");
    Ok(())
}

fn outcome(result: &Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Error::Busy { .. }) => "busy",
        Err(Error::Unavailable { .. }) => "unavailable",
        Err(Error::Lost { .. }) => "lost",
        Err(_) => "undocumented",
    }
}

/// One caller: several calls, some of them dropped half way.
async fn caller(locks: Client, number: u64, mut random: Random, history: Rc<History>) {
    for round in 0..4 {
        let call = number * 100 + round;
        sleep(random.millis(0, 4_000)).await;
        let key = random.below(KEYS);
        let (wait, steps) = (random.millis(0, 5_000), random.below(60));
        history.tell(call, Event::Call, key, "");
        let working = work(&locks, key, wait, steps, call, &history);
        let patience = if random.below(3) == 0 {
            random.millis(0, 6_000)
        } else {
            TTL * 100
        };
        let ended = match timeout(patience, working).await {
            Ok(result) => outcome(&result),
            Err(_) => "failed",
        };
        history.tell(call, Event::Outcome, key, ended);
    }
}

/// Breaks something now and then.
async fn breaker(memory: Memory, mut random: Random, history: Rc<History>) {
    for _ in 0..12 {
        sleep(random.millis(0, 4_000)).await;
        let key = random.below(KEYS);
        let name = format!("lock:sim:{key}");
        match random.below(4) {
            0 => {
                history.tell(0, Event::Fault, key, FORGETS);
                memory.expire(&name);
                history.tell(0, Event::Fault, key, FORGOT);
            }
            1 => {
                history.tell(0, Event::Fault, key, FORGETS);
                memory.take(&name, "ffffffffffffffffffffffffffffffff@other:1", TTL);
                history.tell(0, Event::Fault, key, FORGOT);
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
            let locks = clients[usize::from(number > 3)].clone();
            let random = Random::new(random.number());
            tasks.push(tokio::task::spawn_local(caller(
                locks,
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
        for key in 0..KEYS {
            assert_eq!(
                memory.holder(&format!("lock:sim:{key}")),
                None,
                "seed {seed}"
            );
        }
        history.entries.take()
    }));
    // A body goes on for one ttl at most once the store has forgotten it, and a call is over when
    // its wait and its work are.
    check(
        &entries,
        Rules {
            ttl: TTL,
            longest_call: Duration::from_secs(20),
        },
    )
}

#[test]
fn five_hundred_simulated_histories_break_no_rule() {
    let mut random = Random::announced("histories");
    let (mut bodies, mut excused) = (0, 0);
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
    }
    println!(
        "500 histories, {bodies} bodies, {excused} overlaps after the store forgot, in {:?}",
        start.elapsed()
    );
    assert!(bodies > 1_000);
}
