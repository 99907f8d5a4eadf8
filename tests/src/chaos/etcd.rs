//! An etcd cluster of three: members and majorities that stand still, die or are cut off from half of the workers.
//!
//! Each half of the workers has proxies of its own before the members.

use std::thread;
use std::time::Duration;

use super::PREFIX;
use super::topology::{Scene, Servers};
use crate::etcd::Etcd;
use crate::proxy::{Proxy, Treatment, Way};
use crate::server::Server;

const MEMBERS: usize = 3;

const FROZEN: &str = "member frozen";
const LEADER_FROZEN: &str = "leader frozen";
const KILLED: &str = "member killed";
const LEADER_KILLED: &str = "leader killed";
const MAJORITY_FROZEN: &str = "majority frozen";
const MAJORITY_KILLED: &str = "majority killed";
const PARTED: &str = "half of the workers cut off from a member";
const PARTED_FROM_ALL: &str = "half of the workers cut off";
const DELAYED: &str = "replies delayed";
const SWALLOWED: &str = "replies swallowed";
const REQUESTS_SWALLOWED: &str = "requests swallowed";
const CUT: &str = "connections cut";
const COMPACTED: &str = "compacted";

pub(super) struct Members {
    halves: [Vec<Proxy>; 2],
    cluster: Etcd,
}

impl Members {
    pub(super) fn start() -> Self {
        let cluster = Etcd::start(MEMBERS);
        let half = || cluster.addresses().into_iter().map(Proxy::before).collect();
        Self {
            halves: [half(), half()],
            cluster,
        }
    }

    fn heal(&self) {
        for proxy in self.halves.iter().flatten() {
            proxy.heal();
        }
    }

    fn while_frozen(&self, members: &[usize], time: Duration) {
        for member in members {
            self.cluster.freeze(*member);
        }
        thread::sleep(time);
        for member in members {
            self.cluster.thaw(*member);
        }
    }

    fn while_killed(&self, members: &[usize], time: Duration) {
        for member in members {
            self.cluster.kill(*member);
        }
        thread::sleep(time);
        for member in members {
            self.cluster.restart(*member);
        }
    }

    fn treat(&self, way: Way, treatment: Treatment, time: Duration) {
        for proxy in self.halves.iter().flatten() {
            proxy.treat(way, treatment);
        }
        thread::sleep(time);
        self.heal();
    }

    fn cut_off(&self, half: usize, members: &[usize], is_silent: bool, time: Duration) {
        for member in members {
            let proxy = &self.halves[half][*member];
            if is_silent {
                proxy.swallow_all();
            } else {
                proxy.refuse();
            }
        }
        thread::sleep(time);
        self.heal();
    }
}

impl Servers for Members {
    fn url(&self, worker: usize) -> String {
        let addresses: Vec<_> = self.halves[worker % 2].iter().map(Proxy::address).collect();
        self.cluster.url_of(&addresses)
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            FROZEN,
            LEADER_FROZEN,
            KILLED,
            LEADER_KILLED,
            MAJORITY_FROZEN,
            MAJORITY_KILLED,
            PARTED,
            PARTED_FROM_ALL,
            DELAYED,
            SWALLOWED,
            REQUESTS_SWALLOWED,
            CUT,
            COMPACTED,
        ]
    }

    fn make(&mut self, fault: usize, scene: &mut Scene<'_>) {
        let brief = scene.random.millis(50, 700);
        let long = scene.random.millis(100, 4_000);
        let one = scene.one_of(MEMBERS);
        let two = [one, (one + 1) % MEMBERS];
        let half = scene.one_of(2);
        let is_silent = scene.random.below(2) == 0;
        match self.faults()[fault] {
            FROZEN => self.while_frozen(&[one], long),
            LEADER_FROZEN => self.while_frozen(&[self.cluster.leader()], long),
            KILLED => self.while_killed(&[one], long),
            LEADER_KILLED => self.while_killed(&[self.cluster.leader()], long),
            MAJORITY_FROZEN => self.while_frozen(&two, long),
            MAJORITY_KILLED => self.while_killed(&two, long),
            PARTED => self.cut_off(half, &[one], is_silent, long),
            PARTED_FROM_ALL => self.cut_off(half, &[0, 1, 2], is_silent, long),
            DELAYED => self.treat(Way::Replies, Treatment::Delay(brief), long),
            SWALLOWED => self.treat(Way::Replies, Treatment::Swallow, brief),
            REQUESTS_SWALLOWED => self.treat(Way::Requests, Treatment::Swallow, brief),
            CUT => self.halves.iter().flatten().for_each(Proxy::cut),
            _ => self.cluster.compact(),
        }
        self.cluster.wait_until_serving();
    }

    fn all(&self) -> Vec<&Server> {
        Vec::new()
    }

    fn locks(&self) -> Vec<(String, String)> {
        let keys = self.cluster.keys(PREFIX).into_iter();
        let locks = keys.filter_map(|key| {
            let owner = key.value.split(' ').next().unwrap_or_default().to_owned();
            match beside(&key.name) {
                // Who holds it together with others has a key beside it.
                Some((lock, claim)) => {
                    (!claim.starts_with(WAITER)).then(|| (format!("{PREFIX}{lock}"), owner))
                }
                None => Some((key.name, owner)),
            }
        });
        locks.collect()
    }

    fn queued(&self) -> Vec<(String, String)> {
        let keys = self.cluster.keys(CLAIM).into_iter();
        let places = keys.filter_map(|key| {
            let (lock, claim) = beside(&key.name)?;
            let owner = claim.strip_prefix(WAITER)?;
            Some((lock.to_owned(), owner.to_owned()))
        });
        places.collect()
    }

    fn left(&self) -> Vec<String> {
        let keys = self.cluster.keys(PREFIX).into_iter();
        keys.map(|key| key.name).collect()
    }

    /// A lease is a second longer than its ttl, ends up to a second late, and runs anew, for a second more, whenever the
    /// leader changes, as three faults in a row may have it.
    fn lingers(&self) -> Duration {
        Duration::from_secs(12)
    }
}

const CLAIM: &str = "lock:claim:{lock:";
const WAITER: &str = "waiter:";

/// The lock that a key stands beside, as calls know it, and which claim the key is of.
fn beside(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(CLAIM)?.split_once('}')
}
