//! A cluster of three primaries with a replica each: slots that move under load, and primaries that fail.

use std::thread;
use std::time::{Duration, Instant};

use super::topology::{Scene, Servers};
use crate::cluster::Cluster;
use crate::record;
use crate::server::Server;

const MOVED: &str = "slot moved";
const MOVED_SLOWLY: &str = "slot moved slowly";
const KILLED: &str = "primary killed";
const FROZEN: &str = "primary frozen until a failover";
const FROZEN_BRIEFLY: &str = "primary frozen";
const REPLICA: &str = "replica frozen";

pub(super) struct Sharded {
    cluster: Cluster,
    /// The primaries, when they were last seen to be right.
    keepers: (Vec<usize>, Duration),
}

/// How long a node is silent before the others take it for failed: long enough for a machine with other work.
const NODE_TIMEOUT: &str = "2000";

impl Sharded {
    pub(super) fn start() -> Self {
        let cluster = Cluster::with(3, 1, &["--cluster-node-timeout", NODE_TIMEOUT]);
        Self {
            keepers: (cluster.keepers(), record::now()),
            cluster,
        }
    }

    /// Moves the slot of a lock that the workers use, with its keys one by one.
    fn move_slot(&self, pause: Duration, scene: &mut Scene<'_>) {
        let lock = scene.lock();
        let (from, _) = self.cluster.keeper(&lock);
        let mut others = self.cluster.keepers();
        others.retain(|other| *other != from);
        let to = others[scene.one_of(others.len())];
        let moving = self.cluster.begin_to_move(&lock, to);
        thread::sleep(pause);
        moving.key(&lock);
        thread::sleep(pause);
        moving.end();
        self.cluster.wait_until_ok();
    }

    fn fail_over(&mut self, is_killed: bool, scene: &mut Scene<'_>) {
        let (index, primary) = self.cluster.keeper(&scene.lock());
        let replica = self.cluster.replica_of(index);
        let away = scene.random.millis(0, 6_000);
        scene.lose_until_promoted(|| {
            if is_killed {
                self.cluster.kill(index);
            } else {
                self.cluster.freeze(index);
            }
            self.cluster.wait_until_promoted(replica);
        });
        let promoted = Instant::now();
        self.keepers = (self.cluster.keepers(), record::now());
        thread::sleep(away);
        if is_killed {
            primary.restart();
        }
        self.cluster.thaw(index);
        self.cluster.wait_until_ok();
        self.cluster.wait_until_in_step();
        scene.wait_out(promoted);
    }
}

impl Servers for Sharded {
    fn url(&self, _worker: usize) -> String {
        self.cluster.url()
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![MOVED, MOVED_SLOWLY, KILLED, FROZEN, FROZEN_BRIEFLY, REPLICA]
    }

    fn make(&mut self, fault: usize, scene: &mut Scene<'_>) {
        let brief = scene.random.millis(50, 500);
        match self.faults()[fault] {
            MOVED => self.move_slot(Duration::ZERO, scene),
            MOVED_SLOWLY => self.move_slot(brief, scene),
            KILLED => self.fail_over(true, scene),
            FROZEN => self.fail_over(false, scene),
            briefly => {
                let (mut index, _) = self.cluster.keeper(&scene.lock());
                if briefly == REPLICA {
                    index = self.cluster.replica_of(index);
                }
                self.cluster.freeze(index);
                thread::sleep(brief);
                self.cluster.thaw(index);
            }
        }
        self.look(scene);
    }

    fn look(&mut self, scene: &Scene<'_>) {
        let keepers = self.cluster.keepers();
        if keepers != self.keepers.0 {
            scene.lost_since(self.keepers.1);
        }
        self.keepers = (keepers, record::now());
    }

    fn all(&self) -> Vec<&Server> {
        self.cluster.nodes().iter().collect()
    }
}
