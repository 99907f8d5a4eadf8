//! Workers on a few keys while things break at random, and what the referee says of it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::proxy::{Proxy, Treatment, Way};
use crate::record::{Entry, Event, Pen, Record};
use crate::referee::{FORGETS, FORGOT, KILL, Rules, Verdict, judge};
use crate::seed::Random;
use crate::server::Server;
use crate::wait;
use crate::worker::Worker;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For how long faults are made.
    pub length: Duration,
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
            length: Duration::from_secs(15),
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
    /// What the referee says.
    pub verdict: Verdict,
    /// Locks that were left on the server when their ttl was over.
    pub left: Vec<String>,
    /// The whole record.
    pub entries: Vec<Entry>,
    /// How long it all took.
    pub took: Duration,
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} of work, {} bodies", self.took, self.verdict.bodies)?;
        writeln!(f, "outcomes: {:?}", self.verdict.outcomes)?;
        writeln!(f, "faults: {:?}", self.faults)?;
        writeln!(
            f,
            "overlaps after the store forgot: {}",
            self.verdict.excused
        )?;
        writeln!(f, "left behind: {:?}", self.left)?;
        write!(f, "violations: {}", self.verdict.violations.len())
    }
}

/// What can go wrong, and for how long.
#[derive(Debug, Clone, Copy)]
enum Fault {
    FreezeWorker,
    KillWorker,
    FreezeServer,
    Restart,
    RestartEmpty,
    Pause,
    DropClients,
    DropSubscribers,
    DelayReplies,
    SwallowReplies,
    SwallowRequests,
    Deafen,
    Cut,
    FlushScripts,
    FlushAll,
    FullMemory,
    Calm,
}

const FAULTS: [(Fault, &str); 17] = [
    (Fault::FreezeWorker, "worker frozen"),
    (Fault::KillWorker, "worker killed"),
    (Fault::FreezeServer, "server frozen"),
    (Fault::Restart, "restart"),
    (Fault::RestartEmpty, "restart without data"),
    (Fault::Pause, "CLIENT PAUSE"),
    (Fault::DropClients, "CLIENT KILL"),
    (Fault::DropSubscribers, "CLIENT KILL TYPE pubsub"),
    (Fault::DelayReplies, "replies delayed"),
    (Fault::SwallowReplies, "replies swallowed"),
    (Fault::SwallowRequests, "requests swallowed"),
    (Fault::Deafen, "subscriptions swallowed"),
    (Fault::Cut, "connections cut"),
    (Fault::FlushScripts, "SCRIPT FLUSH"),
    (Fault::FlushAll, "FLUSHALL"),
    (Fault::FullMemory, "OOM"),
    (Fault::Calm, "nothing"),
];

/// Runs a plan to its end and reads the record.
pub fn run(plan: &Plan) -> Report {
    let start = Instant::now();
    let mut stage = Stage::new(plan);
    let mut faults = BTreeMap::new();
    while start.elapsed() < plan.length {
        let place = usize::try_from(stage.random.below(FAULTS.len() as u64)).unwrap_or_default();
        let (fault, name) = FAULTS[place];
        *faults.entry(name).or_default() += 1;
        stage.make(fault);
        let rest = stage.random.millis(50, 600);
        thread::sleep(rest);
    }
    let left = stage.finish();
    let rules = Rules {
        ttl: plan.ttl,
        longest_call: Duration::from_secs(30),
    };
    let entries = stage.record.entries();
    let verdict = judge(&entries, rules);
    Report {
        entries,
        faults,
        verdict,
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
            Fault::Restart => self.server.restart(),
            Fault::RestartEmpty => {
                // Nobody is let in between the two, or a grant could be lost unnoticed by us.
                self.proxy.refuse();
                self.forget();
                self.server.restart();
                self.proxy.heal();
            }
            Fault::Pause => {
                let _: () = self
                    .server
                    .ask(&format!("CLIENT PAUSE {} ALL", brief.as_millis()));
                thread::sleep(brief);
            }
            Fault::DropClients => drop(self.server.drop_clients()),
            Fault::DropSubscribers => self.server.ask("CLIENT KILL TYPE pubsub"),
            Fault::DelayReplies => self.treat(Way::Replies, Treatment::Delay(brief), long),
            Fault::SwallowReplies => self.treat(Way::Replies, Treatment::Swallow, brief),
            Fault::SwallowRequests => self.treat(Way::Requests, Treatment::Swallow, brief),
            Fault::Deafen => {
                self.proxy.deafen();
                thread::sleep(long);
                self.proxy.heal();
            }
            Fault::Cut => self.proxy.cut(),
            Fault::FlushScripts => self.server.ask("SCRIPT FLUSH"),
            Fault::FlushAll => self.forget(),
            Fault::FullMemory => {
                let _: () = self.server.ask("CONFIG SET maxmemory 1");
                thread::sleep(brief);
                let _: () = self.server.ask("CONFIG SET maxmemory 0");
            }
            Fault::Calm => thread::sleep(brief),
        }
    }

    /// Others may be granted a lock before we hear that it was forgotten: both times count.
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

    /// Lets every worker end its calls, and says which locks are left after that.
    fn finish(&mut self) -> Vec<String> {
        for worker in &mut self.workers {
            worker.tell("stop");
        }
        for worker in &mut self.workers {
            worker.says("finished");
            assert!(worker.finish().success());
        }
        // What killed workers held is freed by its ttl.
        let mut left = Vec::new();
        wait::block_until("the last ttl is over", || {
            left = self.server.keys();
            left.retain(|key| !key.starts_with("lock:token:"));
            left.is_empty()
        });
        left
    }
}
