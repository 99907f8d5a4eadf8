//! A primary with three replicas, of which two acknowledge each grant: replicas that freeze, and failovers to
//! one that has acknowledged every grant that counts.

use std::thread;

use super::topology::{Scene, Servers};
use crate::proxy::{Proxy, Treatment, Way};
use crate::roles::REPLICAS_TIMEOUT;
use crate::server::Server;
use crate::wait;

/// How many have to acknowledge a grant.
const COUNT: usize = 2;

const FROZEN: &str = "one replica frozen";
const FROZEN_BEYOND: &str = "too many replicas frozen";
const KILLED: &str = "primary killed";
const KILLED_WITH_FROZEN: &str = "primary killed while a replica was frozen";
const KILLED_UNACKNOWLEDGED: &str =
    "primary killed while too many replicas were cut off, and one of these promoted";
const PRIMARY_FROZEN: &str = "primary frozen";
const DELAYED: &str = "replies delayed";
const SWALLOWED: &str = "replies swallowed";
const CUT: &str = "connections cut";

pub(super) struct Replicated {
    /// What the workers connect to.
    proxy: Proxy,
    servers: Vec<Server>,
    /// What each server follows the primary through.
    links: Vec<Proxy>,
    primary: usize,
}

impl Replicated {
    pub(super) fn start() -> Self {
        let servers: Vec<_> = (0..2 + COUNT).map(|_| Server::start()).collect();
        let before_primary = || Proxy::before(servers[0].address());
        let replicated = Self {
            proxy: before_primary(),
            links: servers.iter().map(|_| before_primary()).collect(),
            servers,
            primary: 0,
        };
        replicated.follow();
        replicated.wait_until_in_step();
        replicated
    }

    /// Has all others follow the primary.
    fn follow(&self) {
        self.have_follow(&self.replicas());
    }

    fn have_follow(&self, replicas: &[usize]) {
        let primary = self.servers[self.primary].address();
        for replica in replicas {
            let link = &self.links[*replica];
            link.heal();
            link.retarget(primary);
            link.cut();
            let port = link.address().port();
            let _: () = self.servers[*replica].ask(&format!("REPLICAOF 127.0.0.1 {port}"));
        }
    }

    fn replicas(&self) -> Vec<usize> {
        let all = 0..self.servers.len();
        all.filter(|index| *index != self.primary).collect()
    }

    /// So many replicas, the first of which is by chance.
    fn some_replicas(&self, count: usize, scene: &mut Scene<'_>) -> Vec<usize> {
        let replicas = self.replicas();
        let first = scene.one_of(replicas.len());
        let turns = (first..first + count).map(|turn| replicas[turn % replicas.len()]);
        turns.collect()
    }

    fn freeze(&self, replicas: &[usize]) {
        for replica in replicas {
            self.servers[*replica].freeze();
        }
    }

    fn thaw(&self, replicas: &[usize]) {
        for replica in replicas {
            self.servers[*replica].thaw();
        }
    }

    /// Kills the primary, and has the one of these replicas that has got most take its place. One that
    /// has acknowledged it is among them for each grant that counts.
    fn fail_over(&mut self, candidates: &[usize], scene: &mut Scene<'_>) {
        let old = self.primary;
        self.servers[old].kill();
        wait::block_until("all has come in", || {
            candidates
                .iter()
                .all(|replica| self.about(*replica, "master_link_status") == "down")
        });
        let got = |replica: &&usize| -> u64 {
            let offset = self.about(**replica, "slave_repl_offset");
            offset.parse().expect("a number")
        };
        self.primary = *candidates.iter().max_by_key(got).expect("one of them");
        let _: () = self.servers[self.primary].ask("REPLICAOF NO ONE");
        // They acknowledge soon, so that the next holder is not long in coming.
        let mut others = candidates.to_vec();
        others.retain(|replica| *replica != self.primary);
        self.have_follow(&others);
        self.proxy.retarget(self.servers[self.primary].address());
        self.proxy.cut();
        thread::sleep(scene.random.millis(0, 1_000));
        self.servers[old].restart();
    }

    fn about(&self, server: usize, what: &str) -> String {
        let mut info = self.servers[server].info("replication");
        info.remove(what).unwrap_or_default()
    }

    /// A replica that has just come back may acknowledge nothing for a second, though its link is up.
    fn wait_until_in_step(&self) {
        let primary = &self.servers[self.primary];
        let replicas = self.replicas().len();
        wait::block_until("the replicas acknowledge", || {
            let _: () = primary.ask("SET acknowledged 1 PX 1");
            primary.ask::<usize>(&format!("WAIT {replicas} 100")) == replicas
        });
    }
}

impl Servers for Replicated {
    fn url(&self, _worker: usize) -> String {
        self.proxy.url()
    }

    fn words(&self) -> Vec<String> {
        vec![format!("replicas={COUNT}")]
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            FROZEN,
            FROZEN_BEYOND,
            KILLED,
            KILLED_WITH_FROZEN,
            KILLED_UNACKNOWLEDGED,
            PRIMARY_FROZEN,
            DELAYED,
            SWALLOWED,
            CUT,
        ]
    }

    fn make(&mut self, fault: usize, scene: &mut Scene<'_>) {
        let brief = scene.random.millis(50, 700);
        let long = scene.random.millis(100, 2_500);
        match self.faults()[fault] {
            FROZEN | FROZEN_BEYOND => {
                let is_beyond = self.faults()[fault] == FROZEN_BEYOND;
                let frozen = self.some_replicas(if is_beyond { COUNT } else { 1 }, scene);
                self.freeze(&frozen);
                thread::sleep(long);
                self.thaw(&frozen);
            }
            KILLED => {
                self.fail_over(&self.replicas(), scene);
                self.follow();
            }
            KILLED_WITH_FROZEN => {
                let replicas = self.some_replicas(1 + COUNT, scene);
                let (frozen, others) = replicas.split_at(1);
                self.freeze(frozen);
                thread::sleep(brief);
                self.fail_over(others, scene);
                self.thaw(frozen);
                self.follow();
            }
            KILLED_UNACKNOWLEDGED => {
                let cut_off = self.some_replicas(COUNT, scene);
                for replica in &cut_off {
                    self.links[*replica].swallow_all();
                }
                // Whoever took a grant for acknowledged when the time for it is over would be at work.
                thread::sleep(REPLICAS_TIMEOUT + brief);
                self.fail_over(&cut_off, scene);
                self.follow();
            }
            PRIMARY_FROZEN => {
                self.servers[self.primary].freeze();
                thread::sleep(long);
                self.servers[self.primary].thaw();
            }
            DELAYED | SWALLOWED => {
                let treatment = if self.faults()[fault] == DELAYED {
                    Treatment::Delay(brief)
                } else {
                    Treatment::Swallow
                };
                self.proxy.treat(Way::Replies, treatment);
                thread::sleep(brief);
                self.proxy.heal();
            }
            _ => self.proxy.cut(),
        }
        self.wait_until_in_step();
    }

    fn all(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }
}
