//! One server behind a proxy, and everything that can go wrong with it, with its data and on the way.

use std::thread;
use std::time::{Duration, Instant};

use super::PREFIX;
use super::topology::{Scene, Servers};
use crate::checker::{FORGETS, FORGOT};
use crate::forger::Forger;
use crate::proxy::{Proxy, Treatment, Way};
use crate::server::Server;

#[derive(Debug, Clone, Copy)]
enum Fault {
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

const FAULTS: [(Fault, &str); 21] = [
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

/// Within that time the first of those who wait looks by itself.
const WITHIN_A_LOOK: Duration = Duration::from_secs(1);

const WAIT: &str = "lock:wait:";

pub(super) struct Single {
    proxy: Proxy,
    server: Server,
}

impl Single {
    pub(super) fn start() -> Self {
        let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
        Self {
            proxy: Proxy::before(server.address()),
            server,
        }
    }

    /// Publishes what a listener to all channels can forge from the messages.
    fn forge(&self, time: Duration, scene: &mut Scene<'_>) {
        let mut forger = Forger::on(&self.server);
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::sleep(Duration::from_millis(20));
            forger.receive();
            // It sends every message to every channel, so the number of messages multiplies.
            forger.keep_last(6);
            let key = scene.random.below(scene.keys);
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
    fn forget(&self, scene: &Scene<'_>) {
        scene.write(FORGETS);
        let _: () = self.server.ask("FLUSHALL");
        scene.write(FORGOT);
    }

    fn treat(&self, way: Way, treatment: Treatment, time: Duration) {
        self.proxy.treat(way, treatment);
        thread::sleep(time);
        self.proxy.heal();
    }
}

impl Servers for Single {
    fn url(&self, _worker: usize) -> String {
        self.proxy.url()
    }

    fn faults(&self) -> Vec<&'static str> {
        FAULTS.iter().map(|(_, name)| *name).collect()
    }

    fn all(&self) -> Vec<&Server> {
        vec![&self.server]
    }

    fn make(&mut self, place: usize, scene: &mut Scene<'_>) {
        let brief = scene.random.millis(50, 700);
        let long = scene.random.millis(100, 2_500);
        match FAULTS[place].0 {
            Fault::FreezeServer => {
                self.server.freeze();
                thread::sleep(brief);
                self.server.thaw();
            }
            Fault::FreezeServerForLong => {
                self.server.freeze();
                thread::sleep(scene.ttl + long / 2);
                self.server.thaw();
            }
            Fault::Restart => self.server.restart(),
            Fault::RestartEmpty => {
                // Nobody is let in between the two, or a grant could be lost unnoticed by us.
                self.proxy.refuse();
                self.forget(scene);
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
            Fault::FlushAll => self.forget(scene),
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
                let place = scene.random.below(RIGHTS.len() as u64);
                let right = RIGHTS[usize::try_from(place).unwrap_or_default()];
                self.until_somebody_waits();
                let _: () = self.server.ask(&format!("ACL SETUSER default -{right}"));
                thread::sleep(long / 2);
                let _: () = self.server.ask(&format!("ACL SETUSER default +{right}"));
            }
            Fault::Forge => self.forge(long, scene),
            Fault::Calm => thread::sleep(brief),
        }
    }
}
