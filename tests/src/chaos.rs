//! Workers on a few keys under random faults, and the check of their record.
//!
//! A run is a series of histories. Each ends with a rest: every fault is healed, every call ends, and after
//! the time of one look the keys that are left on the server are recorded for the checker.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::checker::left::LOOK;
use crate::checker::marks::{CLOSED, DONE};
use crate::checker::{FORGETS, FORGOT, Findings, KILL, Rules, check};
use crate::forger::Forger;
use crate::proxy::{Proxy, Treatment, Way};
use crate::record::{Entry, Event, Pen, Record};
use crate::seed::Random;
use crate::server::Server;
use crate::wait;
use crate::worker::Worker;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For how long faults are made.
    pub length: Duration,
    /// After how long there is a rest.
    pub history: Duration,
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
        writeln!(f, "left behind: {:?}", self.left)?;
        write!(f, "violations: {}", self.findings.violations.len())
    }
}

/// What can go wrong, and for how long.
#[derive(Debug, Clone, Copy)]
enum Fault {
    FreezeWorker,
    KillWorker,
    FreezeServer,
    FreezeServerForLong,
    Restart,
    RestartEmpty,
    Pause,
    DropClients,
    DropSubscribers,
    DelayReplies,
    SwallowReplies,
    SwallowRequests,
    SwallowSubscriptions,
    Cut,
    Away,
    FlushScripts,
    FlushAll,
    FullMemory,
    RefuseLook,
    LoseLook,
    Withdraw,
    Forge,
    Calm,
}

/// Rights that a client cannot work without, and what it is woken with.
const RIGHTS: [&str; 6] = ["get", "pexpire", "publish", "evalsha", "zadd", "del"];

const FAULTS: [(Fault, &str); 23] = [
    (Fault::FreezeWorker, "worker frozen"),
    (Fault::KillWorker, "worker killed"),
    (Fault::FreezeServer, "server frozen"),
    (
        Fault::FreezeServerForLong,
        "server frozen for longer than a ttl",
    ),
    (Fault::Restart, "restart"),
    (Fault::RestartEmpty, "restart without data"),
    (Fault::Pause, "CLIENT PAUSE"),
    (Fault::DropClients, "CLIENT KILL"),
    (Fault::DropSubscribers, "CLIENT KILL TYPE pubsub"),
    (Fault::DelayReplies, "replies delayed"),
    (Fault::SwallowReplies, "replies swallowed"),
    (Fault::SwallowRequests, "requests swallowed"),
    (Fault::SwallowSubscriptions, "subscriptions swallowed"),
    (Fault::Cut, "connections cut"),
    (Fault::Away, "network away"),
    (Fault::FlushScripts, "SCRIPT FLUSH"),
    (Fault::FlushAll, "FLUSHALL"),
    (Fault::FullMemory, "OOM"),
    (Fault::RefuseLook, "looks of waiters refused"),
    (Fault::LoseLook, "looks of waiters unanswered"),
    (Fault::Withdraw, "a right withdrawn"),
    (Fault::Forge, "messages forged"),
    (Fault::Calm, "nothing"),
];

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
        let place = usize::try_from(stage.random.below(FAULTS.len() as u64)).unwrap_or_default();
        let (fault, name) = FAULTS[place];
        *faults.entry(name).or_default() += 1;
        stage.write(name, "-");
        stage.make(fault);
        stage.write(MENDED, "-");
        let rest = stage.random.millis(50, 600);
        thread::sleep(rest);
        stage.write_marks();
    }
    stage.rest(histories);
    let left = stage.finish();
    let rules = Rules {
        // What a lease may be extended to.
        ttl: 2 * plan.ttl,
        longest_call: Duration::from_secs(30),
    };
    let entries = stage.record.entries();
    let findings = check(&entries, rules);
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
    proxy: Proxy,
    server: Server,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan) -> Self {
        let random = Random::announced("chaos");
        let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let proxy = Proxy::before(server.address());
        let record = Record::new();
        let pen = record.pen();
        let mut stage = Self {
            plan,
            random,
            record,
            pen,
            workers: Vec::new(),
            proxy,
            server,
        };
        for _ in 0..plan.workers {
            let worker = stage.worker();
            stage.workers.push(worker);
        }
        stage
    }

    /// A new worker, at work; only called while nothing is broken.
    fn worker(&mut self) -> Worker {
        let (seed, keys) = (self.random.number().to_string(), self.plan.keys.to_string());
        let ttl = self.plan.ttl.as_millis().to_string();
        let (url, words) = (self.proxy.url(), [seed.as_str(), &keys, &ttl]);
        let worker = match &self.plan.program {
            Some(program) => Worker::start_program(program, "chaos", &url, &self.record, &words),
            None => Worker::start("chaos", &url, &self.record, &words),
        };
        worker.says("ready");
        worker
    }

    /// Breaks something and, where it does not pass by itself, mends it again.
    fn make(&mut self, fault: Fault) {
        let brief = self.random.millis(50, 700);
        let long = self.random.millis(100, 2_500);
        match fault {
            Fault::FreezeWorker => {
                let place = self.some_worker();
                let worker = &self.workers[place];
                worker.freeze();
                thread::sleep(long);
                worker.thaw();
            }
            Fault::KillWorker => {
                let place = self.some_worker();
                self.workers[place].kill();
                self.write(KILL, &self.workers[place].id().to_string());
                self.workers[place] = self.worker();
            }
            Fault::FreezeServer => {
                self.server.freeze();
                thread::sleep(brief);
                self.server.thaw();
            }
            Fault::FreezeServerForLong => {
                self.server.freeze();
                thread::sleep(self.plan.ttl + long / 2);
                self.server.thaw();
            }
            Fault::Restart => self.server.restart(),
            Fault::RestartEmpty => {
                // Nobody is let in between the two, or a grant could be lost unnoticed by us.
                self.proxy.refuse();
                self.forget();
                self.server.restart();
                self.proxy.heal();
            }
            Fault::Pause => {
                self.server.pause(brief);
                thread::sleep(brief);
            }
            Fault::DropClients => drop(self.server.drop_clients()),
            Fault::DropSubscribers => self.server.ask("CLIENT KILL TYPE pubsub"),
            Fault::DelayReplies => self.treat(Way::Replies, Treatment::Delay(brief), long),
            Fault::SwallowReplies => self.treat(Way::Replies, Treatment::Swallow, brief),
            Fault::SwallowRequests => self.treat(Way::Requests, Treatment::Swallow, brief),
            Fault::SwallowSubscriptions => {
                self.proxy.swallow_subscriptions();
                thread::sleep(long);
                self.proxy.heal();
            }
            Fault::Cut => self.proxy.cut(),
            Fault::Away => {
                self.proxy.refuse();
                thread::sleep(long);
                self.proxy.heal();
            }
            Fault::FlushScripts => self.server.ask("SCRIPT FLUSH"),
            Fault::FlushAll => self.forget(),
            Fault::FullMemory => {
                let _: () = self.server.ask("CONFIG SET maxmemory 1");
                thread::sleep(brief);
                let _: () = self.server.ask("CONFIG SET maxmemory 0");
            }
            Fault::RefuseLook => {
                self.until_somebody_waits();
                self.server.refuse_writes();
                thread::sleep(WITHIN_A_LOOK + brief);
                self.server.accept_writes();
            }
            Fault::LoseLook => {
                self.until_somebody_waits();
                self.treat(Way::Replies, Treatment::Swallow, WITHIN_A_LOOK + brief);
            }
            Fault::Withdraw => {
                let place = self.random.below(RIGHTS.len() as u64);
                let right = RIGHTS[usize::try_from(place).unwrap_or_default()];
                self.until_somebody_waits();
                let _: () = self.server.ask(&format!("ACL SETUSER default -{right}"));
                thread::sleep(long / 2);
                let _: () = self.server.ask(&format!("ACL SETUSER default +{right}"));
            }
            Fault::Forge => self.forge(long),
            Fault::Calm => thread::sleep(brief),
        }
    }

    /// Publishes what a listener to all channels can forge from the messages.
    fn forge(&mut self, time: Duration) {
        let mut forger = Forger::on(&self.server);
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::sleep(Duration::from_millis(20));
            forger.receive();
            // It sends every message to every channel, so the number of messages multiplies.
            forger.keep_last(6);
            let key = self.random.below(self.plan.keys);
            forger.forge_grants(&format!("{PREFIX}chaos:{key}"));
            forger.flood();
            forger.discard_own();
        }
    }

    /// Some faults concern waiters: waits a moment for one to be queued.
    fn until_somebody_waits(&self) {
        let begun = Instant::now();
        let waits = || self.server.keys().iter().any(|key| key.starts_with(WAIT));
        while begun.elapsed() < Duration::from_millis(500) && !waits() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Others may be granted a lock before the fault is recorded as made: both times count.
    fn forget(&self) {
        self.write(FORGETS, "-");
        let _: () = self.server.ask("FLUSHALL");
        self.write(FORGOT, "-");
    }

    fn treat(&self, way: Way, treatment: Treatment, time: Duration) {
        self.proxy.treat(way, treatment);
        thread::sleep(time);
        self.proxy.heal();
    }

    fn some_worker(&mut self) -> usize {
        usize::try_from(self.random.below(self.workers.len() as u64)).unwrap_or_default()
    }

    fn write(&self, fault: &str, about: &str) {
        self.pen.write(0, Event::Fault, about, fault);
    }

    /// Has every worker end its calls, and writes down what is left of them.
    fn rest(&mut self, number: u32) {
        for worker in &mut self.workers {
            worker.tell(&format!("rest {number}"));
        }
        for worker in &self.workers {
            worker.says(&format!("resting {number}"));
        }
        thread::sleep(LOOK);
        self.write_marks();
        if !self.write_left() {
            return;
        }
        // Whoever was killed leaves it for a ttl; one that waited, for as long as those who wait with it.
        thread::sleep(2 * self.plan.ttl);
        self.write_left();
    }

    fn go_on(&mut self) {
        for worker in &mut self.workers {
            worker.tell("go");
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
        let mut write = |key: &str, what: &str, owner: &str| {
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
        for queue in self.server.keys() {
            let Some(lock) = queue.strip_prefix(WAIT) else {
                continue;
            };
            let key = lock.trim_matches(['{', '}']);
            let key = key.strip_prefix(PREFIX).unwrap_or(key);
            let entries: Vec<String> = self
                .server
                .words(&["ZRANGE", &queue, "0", "-1"])
                .expect("a queue or nothing");
            for entry in entries {
                write(key, "queued", entry.split(' ').next().unwrap_or_default());
            }
        }
        is_anything
    }

    /// The locks and slots on the server, by the key that calls know them by, and what is in them.
    fn locks(&self) -> Vec<(String, String)> {
        let mut locks = Vec::new();
        for name in self.server.keys() {
            let lock = match name.strip_prefix(SLOT) {
                Some(slot) => slot.trim_start_matches('{').split('}').next(),
                None => Some(&*name),
            };
            let Some(key) = lock.and_then(|lock| lock.strip_prefix(PREFIX)) else {
                continue;
            };
            if KEYS.iter().any(|kind| key.starts_with(kind))
                && let Some(value) = self.server.get(&name)
            {
                locks.push((key.to_owned(), value));
            }
        }
        locks
    }

    /// Lets every worker go, and says what is left when all marks and ttls are over.
    fn finish(&mut self) -> Vec<String> {
        for worker in &mut self.workers {
            worker.tell("stop");
        }
        for worker in &mut self.workers {
            worker.says("finished");
            assert!(worker.finish().success());
        }
        let mut left = Vec::new();
        wait::block_until("the last ttl is over", || {
            left = self.server.keys();
            left.retain(|key| !key.starts_with("lock:token:"));
            left.is_empty()
        });
        left
    }
}

/// The note of the end of a fault, for whoever reads the record.
const MENDED: &str = "mended";

const PREFIX: &str = "lock:";
const WAIT: &str = "lock:wait:";
const SLOT: &str = "lock:slot:";

/// What the keys of the workers begin with.
const KEYS: [&str; 2] = ["chaos:", "slots:"];

/// Within that time the first of those who wait looks by itself.
const WITHIN_A_LOOK: Duration = Duration::from_secs(1);

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
