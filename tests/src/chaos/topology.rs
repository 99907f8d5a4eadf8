//! Which servers a run is about.

use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::Sharded;
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
            _ => {
                return Err(format!(
                    "there is no topology {word:?}: single, sentinel, cluster, quorum, quorum5 or replicas"
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

    /// All servers that keep locks.
    fn all(&self) -> Vec<&Server>;
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
