//! Independent servers of which a majority grants a lock: every loss that they survive, and outages.
//!
//! Each half of the workers has proxies of its own before the servers, so that one half can be cut off.

use std::fs;
use std::thread;
use std::time::Duration;

use super::topology::{Scene, Servers};
use crate::proxy::{Proxy, Treatment, Way};
use crate::roles::WITHOUT_SLOTS;
use crate::server::Server;

const FROZEN: &str = "minority frozen";
const KILLED: &str = "minority killed, back with its data";
const RESTARTED: &str = "one restarted with its data";
const EMPTY: &str = "one started anew without its data, after a ttl";
const MAJORITY_FROZEN: &str = "majority frozen";
const MAJORITY_KILLED: &str = "majority killed, back with its data";
const PARTED: &str = "half of the workers cut off from a minority";
const PARTED_TWICE: &str = "each half of the workers cut off from another minority";
const PARTED_FROM_MOST: &str = "half of the workers cut off from a majority";
const DELAYED: &str = "replies of one delayed";
const REQUESTS_DELAYED: &str = "requests to one delayed";
const SWALLOWED: &str = "replies of all swallowed";
const REQUESTS_SWALLOWED: &str = "requests to a majority swallowed";
const CUT: &str = "connections to all cut";
const FULL: &str = "minority out of memory";

pub(super) struct Nodes {
    halves: [Vec<Proxy>; 2],
    servers: Vec<Server>,
}

impl Nodes {
    pub(super) fn start(count: usize) -> Self {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let servers: Vec<_> = (0..count).map(|_| Server::with(&options)).collect();
        let half = || -> Vec<_> {
            let addresses = servers.iter().map(Server::address);
            addresses.map(Proxy::before).collect()
        };
        Self {
            halves: [half(), half()],
            servers,
        }
    }

    /// So many servers as may be away.
    fn minority(&self) -> usize {
        (self.servers.len() - 1) / 2
    }

    fn heal(&self) {
        for proxy in self.halves.iter().flatten() {
            proxy.heal();
        }
    }

    fn while_frozen(&self, nodes: &[usize], time: Duration) {
        for node in nodes {
            self.servers[*node].freeze();
        }
        thread::sleep(time);
        for node in nodes {
            self.servers[*node].thaw();
        }
    }

    fn while_killed(&self, nodes: &[usize], time: Duration) {
        for node in nodes {
            self.servers[*node].kill();
        }
        thread::sleep(time);
        for node in nodes {
            self.servers[*node].restart();
        }
    }

    /// Takes as long as the longest ttl: a vote that it forgets at once might be of a bare majority.
    fn start_anew(&self, node: usize, longest_ttl: Duration) {
        let server = &self.servers[node];
        server.kill();
        // What is appended to is a directory from Redis 7 on, and a file before.
        for kept in ["appendonlydir", "appendonly.aof"] {
            let kept = server.directory().join(kept);
            drop(fs::remove_dir_all(&kept));
            drop(fs::remove_file(&kept));
        }
        thread::sleep(longest_ttl);
        server.restart();
    }

    /// Cuts a half of the workers off: connections are closed, or nothing passes.
    fn cut_off(&self, half: usize, nodes: &[usize], is_silent: bool) {
        for node in nodes {
            let proxy = &self.halves[half][*node];
            if is_silent {
                proxy.swallow_all();
            } else {
                proxy.refuse();
            }
        }
    }

    fn treat(&self, nodes: &[usize], way: Way, treatment: Treatment, time: Duration) {
        for half in &self.halves {
            for node in nodes {
                half[*node].treat(way, treatment);
            }
        }
        thread::sleep(time);
        self.heal();
    }
}

impl Servers for Nodes {
    fn url(&self, worker: usize) -> String {
        let addresses = self.halves[worker % 2].iter();
        let addresses = addresses.map(|proxy| proxy.address().to_string());
        format!("redis+quorum://{}", addresses.collect::<Vec<_>>().join(","))
    }

    fn words(&self) -> Vec<String> {
        vec![WITHOUT_SLOTS.to_owned()]
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            FROZEN,
            KILLED,
            RESTARTED,
            EMPTY,
            MAJORITY_FROZEN,
            MAJORITY_KILLED,
            PARTED,
            PARTED_TWICE,
            PARTED_FROM_MOST,
            DELAYED,
            REQUESTS_DELAYED,
            SWALLOWED,
            REQUESTS_SWALLOWED,
            CUT,
            FULL,
        ]
    }

    fn make(&mut self, fault: usize, scene: &mut Scene<'_>) {
        let brief = scene.random.millis(50, 700);
        let long = scene.random.millis(100, 2_500);
        let count = self.servers.len();
        // Each in turn from one of them on, in either direction.
        let first = scene.one_of(count);
        let step = if scene.random.below(2) == 0 {
            1
        } else {
            count - 1
        };
        let nodes: Vec<usize> = (0..count)
            .map(|turn| (first + turn * step) % count)
            .collect();
        let minority = &nodes[..self.minority()];
        let majority = &nodes[..=self.minority()];
        let half = scene.one_of(2);
        let is_silent = scene.random.below(2) == 0;
        match self.faults()[fault] {
            FROZEN => self.while_frozen(minority, long),
            KILLED => self.while_killed(minority, long),
            RESTARTED => self.while_killed(&nodes[..1], Duration::ZERO),
            EMPTY => self.start_anew(first, scene.longest_ttl),
            MAJORITY_FROZEN => self.while_frozen(majority, long),
            MAJORITY_KILLED => self.while_killed(majority, long),
            PARTED => {
                self.cut_off(half, minority, is_silent);
                thread::sleep(long);
            }
            PARTED_TWICE => {
                self.cut_off(0, minority, is_silent);
                self.cut_off(1, &nodes[count - self.minority()..], is_silent);
                thread::sleep(long);
            }
            PARTED_FROM_MOST => {
                self.cut_off(half, majority, is_silent);
                thread::sleep(long);
            }
            DELAYED => self.treat(&nodes[..1], Way::Replies, Treatment::Delay(brief), long),
            REQUESTS_DELAYED => {
                self.treat(&nodes[..1], Way::Requests, Treatment::Delay(brief), long);
            }
            SWALLOWED => self.treat(&nodes, Way::Replies, Treatment::Swallow, brief),
            REQUESTS_SWALLOWED => self.treat(majority, Way::Requests, Treatment::Swallow, brief),
            CUT => self.halves.iter().flatten().for_each(Proxy::cut),
            _ => {
                for node in minority {
                    let _: () = self.servers[*node].ask("CONFIG SET maxmemory 1");
                }
                thread::sleep(long);
                for node in minority {
                    let _: () = self.servers[*node].ask("CONFIG SET maxmemory 0");
                }
            }
        }
        self.heal();
    }

    fn all(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }
}
