//! Workers on a few keys under random faults, and the check of their record.
//!
//! A run is a series of histories. Each ends with a calm and a rest: every fault is healed, every call ends, and after
//! the time of one look the keys that are left on the server are recorded for the checker.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::checker::left::LOOK;
use crate::checker::marks::{CLOSED, DONE};
use crate::checker::progress::{self, CALM, CALMED};
use crate::checker::{Findings, KILL, Rules, check_lingering};
use crate::record::{Entry, Event, Pen, Record};
use crate::seed::Random;
use crate::wait;
use crate::worker::{self, Worker};

mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "postgres")]
mod postgres;
mod quorum;
mod replicas;
mod sentinel;
mod single;
mod topology;

pub use topology::Topology;
use topology::{Scene, Servers};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For how long faults are made.
    pub length: Duration,
    /// After how long there is a rest.
    pub history: Duration,
    /// Which servers they work on.
    pub topology: Topology,
    /// How many processes work.
    pub workers: usize,
    /// How many keys they share.
    pub keys: u64,
    /// The ttl of every lease.
    pub ttl: Duration,
    /// The program that plays the role of a worker; the one beside the tests where there is none.
    pub program: Option<PathBuf>,
}

impl Plan {
    /// A run that fits into a test suite.
    pub fn short() -> Self {
        Self {
            length: Duration::from_secs(11),
            history: Duration::from_secs(15),
            topology: Topology::Single,
            workers: 3,
            keys: 3,
            ttl: Duration::from_secs(1),
            program: None,
        }
    }
}

/// What was done and found.
#[derive(Debug)]
pub struct Report {
    /// How often each fault was made.
    pub faults: BTreeMap<&'static str, usize>,
    /// The result of the check.
    pub findings: Findings,
    /// How many histories there were.
    pub histories: usize,
    /// What was left on the server at the end.
    pub left: Vec<String>,
    /// The whole record.
    pub entries: Vec<Entry>,
    /// How long it all took.
    pub took: Duration,
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?} of work, {} histories, {} bodies",
            self.took, self.histories, self.findings.bodies
        )?;
        writeln!(
            f,
            "fallbacks: {:?}, within others: {}",
            self.findings.fallbacks, self.findings.within
        )?;
        writeln!(f, "outcomes: {:?}", self.findings.outcomes)?;
        writeln!(f, "faults: {:?}", self.faults)?;
        writeln!(
            f,
            "overlaps after the store forgot: {}",
            self.findings.excused
        )?;
        let windows = &self.findings.windows;
        if windows.lengths().next().is_some() {
            writeln!(
                f,
                "promotions: {}, at most {:?} after the fault",
                windows.lengths().count(),
                windows.lengths().max().unwrap_or_default(),
            )?;
            writeln!(
                f,
                "overlaps in their windows: {}, at most for {:?}, and until {:?} after the promotion",
                windows.overlaps.len(),
                windows.overlaps.iter().max().copied().unwrap_or_default(),
                windows.latest,
            )?;
        }
        writeln!(f, "left behind: {:?}", self.left)?;
        write!(f, "violations: {}", self.findings.violations.len())
    }
}

/// Runs a plan to its end and reads the record.
pub fn run(plan: &Plan) -> Report {
    let start = Instant::now();
    let mut stage = Stage::new(plan);
    let mut faults = BTreeMap::new();
    let mut histories = 1;
    while start.elapsed() < plan.length {
        if start.elapsed() >= plan.history * histories {
            stage.rest(histories);
            stage.go_on();
            histories += 1;
        }
        let name = stage.break_something();
        *faults.entry(name).or_default() += 1;
        stage.write(MENDED, "-");
        let rest = stage.random.millis(50, 600);
        thread::sleep(rest);
        stage.write_marks();
    }
    stage.rest(histories);
    let left = stage.finish();
    let rules = Rules {
        ttl: longest_ttl(plan),
        longest_call: Duration::from_secs(30),
    };
    let entries = stage.record.entries();
    let findings = check_lingering(&entries, rules, stage.servers.lingers());
    Report {
        entries,
        faults,
        findings,
        histories: usize::try_from(histories).unwrap_or_default(),
        left,
        took: start.elapsed(),
    }
}

struct Stage<'a> {
    plan: &'a Plan,
    random: Random,
    record: Record,
    pen: Pen,
    // Dropped before what they talk to.
    workers: Vec<Worker>,
    servers: Box<dyn Servers>,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan) -> Self {
        let random = Random::announced("chaos");
        let record = Record::new();
        let pen = record.pen();
        let mut stage = Self {
            plan,
            random,
            record,
            pen,
            workers: Vec::new(),
            servers: plan.topology.start(),
        };
        for place in 0..plan.workers {
            let worker = stage.worker(place);
            stage.workers.push(worker);
        }
        stage
    }

    /// A new worker, at work; only called while nothing is broken.
    fn worker(&mut self, place: usize) -> Worker {
        let (seed, keys) = (self.random.number().to_string(), self.plan.keys.to_string());
        let ttl = self.plan.ttl.as_millis().to_string();
        let (url, more) = (self.servers.url(place), self.servers.words());
        let words = [seed.as_str(), &keys, &ttl].into_iter();
        let words: Vec<&str> = words.chain(more.iter().map(String::as_str)).collect();
        let worker = match &self.plan.program {
            Some(program) => Worker::start_program(program, "chaos", &url, &self.record, &words),
            None => Worker::start("chaos", &url, &self.record, &words),
        };
        worker.says("ready");
        worker
    }

    /// Breaks something and mends it again; says what.
    fn break_something(&mut self) -> &'static str {
        self.look();
        let faults = self.servers.faults();
        let place = self
            .random
            .below((WORKER_FAULTS.len() + faults.len()) as u64);
        let place = usize::try_from(place).unwrap_or_default();
        if let Some(name) = WORKER_FAULTS.get(place) {
            self.write(name, "-");
            if *name == FROZEN {
                self.freeze_worker();
            } else {
                self.kill_worker();
            }
            return name;
        }
        let fault = place - WORKER_FAULTS.len();
        self.write(faults[fault], "-");
        self.servers
            .make(fault, &mut scene(self.plan, &mut self.random, &self.pen));
        faults[fault]
    }

    fn look(&mut self) {
        let scene = scene(self.plan, &mut self.random, &self.pen);
        self.servers.look(&scene);
    }

    fn freeze_worker(&mut self) {
        let long = self.random.millis(100, 2_500);
        let place = self.some_worker();
        let worker = &self.workers[place];
        worker.freeze();
        thread::sleep(long);
        worker.thaw();
    }

    fn kill_worker(&mut self) {
        let place = self.some_worker();
        self.workers[place].kill();
        self.write(KILL, &self.workers[place].id().to_string());
        self.workers[place] = self.worker(place);
    }

    fn some_worker(&mut self) -> usize {
        usize::try_from(self.random.below(self.workers.len() as u64)).unwrap_or_default()
    }

    fn write(&self, fault: &str, about: &str) {
        self.pen.write(0, Event::Fault, about, fault);
    }

    /// Lets the calls go on undisturbed for a while, has every worker end its calls, and writes down what is left of them.
    fn rest(&mut self, number: u32) {
        self.write(CALM, "-");
        let begun = Instant::now();
        // In the second half of it nothing lingers any more.
        let length = progress::LENGTH + 2 * self.servers.lingers();
        while begun.elapsed() < length {
            thread::sleep(Duration::from_millis(250));
            self.write_holders();
        }
        self.write(CALMED, "-");
        for worker in &mut self.workers {
            worker.tell(&format!("rest {number}"));
        }
        for worker in &self.workers {
            worker.says(&format!("resting {number}"));
        }
        thread::sleep(LOOK);
        self.look();
        self.write_marks();
        if !self.write_left() {
            return;
        }
        // Whoever was killed leaves it for a ttl; one that waited, for as long as those who wait with it.
        thread::sleep(2 * self.plan.ttl + self.servers.lingers());
        self.write_left();
    }

    fn go_on(&mut self) {
        for worker in &mut self.workers {
            worker.tell("go");
        }
    }

    /// Writes down who holds what, for whoever has to find out why nobody else gets it.
    fn write_holders(&self) {
        for (key, value) in self.locks() {
            self.pen
                .write(0, Event::Fault, &key, &format!("held by {value}"));
        }
    }

    /// Writes down which keys bear which mark.
    fn write_marks(&self) {
        for (key, value) in self.locks() {
            if let Some(mark) = mark(&value) {
                self.pen.write(0, Event::Mark, &key, mark);
            }
        }
    }

    /// Writes down what is held, and who is queued; says whether that is anything.
    fn write_left(&self) -> bool {
        let mut is_anything = false;
        let mut write = |key: &str, what: &str, text: &str| {
            // A value or an entry of a queue begins with its owner.
            let owner = text.split(' ').next().unwrap_or_default();
            let process = owner.rsplit(':').next().unwrap_or_default();
            self.pen
                .write(0, Event::Left, key, &format!("{what} {process}"));
            is_anything = true;
        };
        for (key, value) in self.locks() {
            if mark(&value).is_none() {
                write(&key, "held", &value);
            }
        }
        for (key, owner) in self.servers.queued() {
            write(&key, "queued", &owner);
        }
        is_anything
    }

    /// The locks and slots on the server, by the key that calls know them by, and what is in them.
    fn locks(&self) -> Vec<(String, String)> {
        let named = self
            .servers
            .locks()
            .into_iter()
            .filter_map(|(name, value)| {
                let lock = match name.strip_prefix(SLOT) {
                    Some(slot) => slot.trim_start_matches('{').split('}').next(),
                    None => Some(&*name),
                };
                let key = lock?.strip_prefix(PREFIX)?;
                // The place of one that waits by `on_busy = rerun` is of its key.
                let key = key.split('%').next()?;
                let is_workers = KEYS.iter().any(|kind| key.starts_with(kind));
                is_workers.then(|| (key.to_owned(), value))
            });
        named.collect()
    }

    /// Lets every worker go, and says what is left when all marks and ttls are over.
    fn finish(&mut self) -> Vec<String> {
        worker::stop_all(&mut self.workers);
        let mut left = Vec::new();
        wait::block_until("the last ttl is over", || {
            left = self.servers.left();
            left.retain(|key| !key.starts_with("lock:token:"));
            left.is_empty()
        });
        left
    }
}

/// The note of the end of a fault, for whoever reads the record.
const MENDED: &str = "mended";

const PREFIX: &str = "lock:";
const SLOT: &str = "lock:slot:";

/// What the keys of the workers begin with.
const KEYS: [&str; 3] = ["chaos:", "slots:", "docs:"];

const FROZEN: &str = "worker frozen";

/// What can happen to a worker, whatever the servers are.
const WORKER_FAULTS: [&str; 2] = [FROZEN, "worker killed"];

/// What a lease may be extended to.
fn longest_ttl(plan: &Plan) -> Duration {
    2 * plan.ttl
}

fn scene<'a>(plan: &Plan, random: &'a mut Random, pen: &'a Pen) -> Scene<'a> {
    Scene {
        random,
        pen,
        ttl: plan.ttl,
        longest_ttl: longest_ttl(plan),
        keys: plan.keys,
    }
}

/// Which mark a value is, if it is no owner.
fn mark(value: &str) -> Option<&'static str> {
    if value.starts_with("done@") {
        Some(DONE)
    } else if value.starts_with(&"0".repeat(32)) {
        Some(CLOSED)
    } else {
        None
    }
}
