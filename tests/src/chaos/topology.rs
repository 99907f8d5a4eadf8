//! Which servers a run is about.

use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::Sharded;
#[cfg(feature = "etcd")]
use super::etcd::Members;
#[cfg(feature = "postgres")]
use super::postgres::Database;
use super::quorum::Nodes;
use super::replicas::Replicated;
use super::sentinel::Watched;
use super::single::Single;
use crate::checker::windows::{self, LOSES, PROMOTED};
use crate::record::{Event, Pen};
use crate::seed::Random;
use crate::server::Server;

/// The servers that the workers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single,
    /// A primary and two replicas that sentinels watch over.
    Sentinel,
    /// A cluster of three primaries with a replica each.
    Cluster,
    /// So many independent servers.
    Quorum(usize),
    /// A primary with three replicas, of which two have to acknowledge a grant.
    Replicas,
    /// An etcd cluster of three.
    #[cfg(feature = "etcd")]
    Etcd,
    /// One PostgreSQL server.
    #[cfg(feature = "postgres")]
    Postgres,
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "single" => Self::Single,
            "sentinel" => Self::Sentinel,
            "cluster" => Self::Cluster,
            "quorum" => Self::Quorum(3),
            "quorum5" => Self::Quorum(5),
            "replicas" => Self::Replicas,
            #[cfg(feature = "etcd")]
            "etcd" => Self::Etcd,
            #[cfg(feature = "postgres")]
            "postgres" => Self::Postgres,
            _ => {
                return Err(format!(
                    "there is no topology {word:?}: single, sentinel, cluster, quorum, quorum5, replicas or, with \
                     their features, etcd and postgres"
                ));
            }
        })
    }
}

impl Topology {
    pub(super) fn start(self) -> Box<dyn Servers> {
        match self {
            Self::Single => Box::new(Single::start()),
            Self::Sentinel => Box::new(Watched::start()),
            Self::Cluster => Box::new(Sharded::start()),
            Self::Quorum(count) => Box::new(Nodes::start(count)),
            Self::Replicas => Box::new(Replicated::start()),
            #[cfg(feature = "etcd")]
            Self::Etcd => Box::new(Members::start()),
            #[cfg(feature = "postgres")]
            Self::Postgres => Box::new(Database::start()),
        }
    }
}

/// Started servers, which know their faults.
pub(super) trait Servers {
    /// What this worker connects to.
    fn url(&self, worker: usize) -> String;

    /// How a worker connects beside its URL, as its role takes it.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    /// The names of the faults.
    fn faults(&self) -> Vec<&'static str>;

    /// Breaks something and mends it again.
    fn make(&mut self, fault: usize, scene: &mut Scene<'_>);

    /// Writes down what nobody asked for since the last look: failovers of servers that were slow alone.
    fn look(&mut self, _scene: &Scene<'_>) {}

    /// All Redis servers that keep locks.
    fn all(&self) -> Vec<&Server>;

    /// What stands under locks, slots and whatever else is a plain value, by its name.
    fn locks(&self) -> Vec<(String, String)> {
        let of_server = |server: &Server| {
            let named = server.keys().into_iter();
            let values = |name: String| {
                let values = values_of(server, &name).into_iter();
                values.map(move |value| (name.clone(), value))
            };
            named.flat_map(values).collect::<Vec<_>>()
        };
        self.all().into_iter().flat_map(of_server).collect()
    }

    /// Who waits, as the key that calls know and the owner.
    fn queued(&self) -> Vec<(String, String)> {
        let mut queued = Vec::new();
        for server in self.all() {
            for queue in server.keys() {
                let Some(lock) = queue.strip_prefix(WAIT) else {
                    continue;
                };
                let key = lock.trim_matches(['{', '}']);
                let key = key.strip_prefix(super::PREFIX).unwrap_or(key);
                for entry in entries_of(server, &queue) {
                    let owner = entry.split(' ').next().unwrap_or_default();
                    queued.push((key.to_owned(), owner.to_owned()));
                }
            }
        }
        queued
    }

    /// The names of everything that is there.
    fn left(&self) -> Vec<String> {
        self.all().into_iter().flat_map(Server::keys).collect()
    }

    /// How much longer than was asked the store keeps marks, and what a killed process held.
    fn lingers(&self) -> Duration {
        Duration::ZERO
    }
}

const WAIT: &str = "lock:wait:";

/// What is in a queue; nothing where a node of a cluster keeps its slot no more.
fn entries_of(server: &Server, queue: &str) -> Vec<String> {
    let entries = server.words(&["ZRANGE", queue, "0", "-1"]);
    entries.unwrap_or_default()
}

/// What is in a lock: the value of one that is held alone, or the owners of those who hold it together. Nothing
/// where a node of a cluster keeps its slot no more.
fn values_of(server: &Server, name: &str) -> Vec<String> {
    let value: Option<Option<String>> = server.words(&["GET", name]).ok();
    match value {
        Some(value) => value.into_iter().collect(),
        None if name.starts_with(WAIT) => Vec::new(),
        None => server.holders(name),
    }
}

/// What a fault has to do with.
pub(super) struct Scene<'a> {
    pub(super) random: &'a mut Random,
    pub(super) pen: &'a Pen,
    /// The ttl of the leases before they are extended.
    pub(super) ttl: Duration,
    /// What a lease may be extended to.
    pub(super) longest_ttl: Duration,
    pub(super) keys: u64,
}

impl Scene<'_> {
    pub(super) fn write(&self, fault: &str) {
        self.pen.write(0, Event::Fault, "-", fault);
    }

    /// A fault in which grants may be lost, until a replica is promoted.
    pub(super) fn lose_until_promoted(&self, fault: impl FnOnce()) {
        self.write(LOSES);
        fault();
        self.write(PROMOTED);
    }

    /// Writes down a failover that nobody asked for, at some time since `begun`, and waits it out.
    pub(super) fn lost_since(&self, begun: Duration) {
        self.pen.write_at(begun, 0, Event::Fault, "-", LOSES);
        self.write(PROMOTED);
        self.wait_out(Instant::now());
    }

    /// Waits until the window of a promotion is over, so that no other fault lengthens it.
    pub(super) fn wait_out(&self, promoted: Instant) {
        let over = promoted + windows::after_promotion(self.longest_ttl);
        thread::sleep(over.saturating_duration_since(Instant::now()));
    }

    pub(super) fn one_of(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap_or_default()
    }

    /// A key of the workers.
    pub(super) fn lock(&mut self) -> String {
        format!("{}chaos:{}", super::PREFIX, self.random.below(self.keys))
    }
}
