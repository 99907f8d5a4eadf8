//! A primary and two replicas that sentinels watch over, with failovers of every kind.
//!
//! Sentinels and replicas reach each server through a proxy, where it is announced; the workers reach it
//! where it is. So a primary can be cut off from all but its clients.

use std::thread;
use std::time::{Duration, Instant};

use super::topology::{Scene, Servers};
use crate::checker::windows::{LOSES, PROMOTED};
use crate::proxy::Proxy;
use crate::record::{self, Event};
use crate::sentinel::{SERVICE, Sentinels, Setup, announce};
use crate::server::Server;
use crate::wait;

const ORDERED: &str = "failover ordered";
const KILLED: &str = "primary killed";
const KILLED_BRIEFLY: &str = "primary killed and back at once";
const ISOLATED: &str = "primary isolated";
const FROZEN: &str = "primary frozen until a failover";
const REPLICA: &str = "replica restarted";
const SENTINEL: &str = "sentinel frozen";

pub(super) struct Watched {
    all: Sentinels,
    proxies: Vec<Proxy>,
    primary: usize,
    /// When that was last seen to be right.
    seen: Duration,
}

/// After so long the primary is taken for dead: long enough for a machine with other work.
const DOWN_AFTER: Duration = Duration::from_millis(1_500);

impl Watched {
    pub(super) fn start() -> Self {
        let setup = Setup {
            replicas: 2,
            down_after: Some(DOWN_AFTER),
            ..Setup::default()
        };
        let (servers, _) = setup.servers();
        let before = |server: &Server| Proxy::before(server.address());
        let proxies: Vec<_> = servers.iter().map(before).collect();
        let announced = proxies.iter().map(Proxy::address).collect();
        let all = setup.watched(servers, announced);
        for sentinel in &all.sentinels {
            // Otherwise it is ten seconds before a sentinel sees that a server is back. Older ones know none.
            let quick = "SENTINEL DEBUG INFO-PERIOD 500 PUBLISH-PERIOD 500";
            drop(sentinel.try_ask::<()>(quick));
        }
        Self {
            all,
            proxies,
            primary: 0,
            seen: record::now(),
        }
    }

    fn server(&self) -> &Server {
        &self.all.servers[self.primary]
    }

    fn others(&self) -> Vec<usize> {
        let all = 0..self.all.servers.len();
        all.filter(|index| *index != self.primary).collect()
    }

    /// Makes a server a replica of the primary, as sentinels do in the end.
    fn follow(&self, index: usize) {
        announce(&self.all.servers[index], self.proxies[index].address());
        let primary = self.proxies[self.primary].address();
        let follow = format!("REPLICAOF {} {}", primary.ip(), primary.port());
        let _: () = self.all.servers[index].ask(&follow);
    }

    /// Writes down the fault, which began at `begun`, and the promotion that follows from it.
    fn promoted(&mut self, begun: Duration, scene: &Scene<'_>) -> Instant {
        scene.pen.write_at(begun, 0, Event::Fault, "-", LOSES);
        let (primary, promoted) = self.all.promoted(&self.others());
        scene.write(PROMOTED);
        self.primary = primary;
        self.seen = record::now();
        promoted
    }

    fn order(&self) -> Duration {
        let sentinel = &self.all.sentinels[0];
        let mut begun = record::now();
        wait::block_until("a failover is to be had", || {
            begun = record::now();
            let order = format!("SENTINEL FAILOVER {SERVICE}");
            sentinel.try_ask::<()>(&order).is_ok()
        });
        begun
    }

    fn fail_over(&mut self, fault: &str, scene: &mut Scene<'_>) {
        let old = self.primary;
        let begun = match fault {
            ORDERED => self.order(),
            _ => record::now(),
        };
        match fault {
            ORDERED => {}
            ISOLATED => self.proxies[old].swallow_all(),
            FROZEN => self.server().freeze(),
            _ => self.server().kill(),
        }
        let promoted = self.promoted(begun, scene);
        let away = scene.random.millis(0, 6_000);
        match fault {
            ORDERED => {}
            ISOLATED => {
                thread::sleep(away / 2);
                drop_half_of_the_clients(&self.all.servers[old]);
                thread::sleep(away / 2);
                self.proxies[old].heal();
                self.proxies[old].cut();
            }
            FROZEN => {
                thread::sleep(away);
                self.all.servers[old].thaw();
            }
            KILLED_BRIEFLY => self.all.servers[old].restart(),
            _ => {
                thread::sleep(away);
                self.all.servers[old].restart();
            }
        }
        self.follow(old);
        scene.wait_out(promoted);
    }
}

/// Has every second connection opened anew, which leads to the new primary: whoever has not left the old one
/// by then is not alone any more.
fn drop_half_of_the_clients(server: &Server) {
    let list: String = server.ask("CLIENT LIST TYPE normal");
    let own: u64 = server.ask("CLIENT ID");
    let ids = list
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("id="));
    let others = ids.filter(|id| *id != own.to_string());
    for id in others.step_by(2) {
        // It may have gone by itself.
        drop(server.try_ask::<u64>(&format!("CLIENT KILL ID {id}")));
    }
}

impl Servers for Watched {
    fn url(&self, _worker: usize) -> String {
        self.all.url()
    }

    fn words(&self) -> Vec<String> {
        let ways = self.proxies.iter().zip(&self.all.servers);
        let ways = ways.map(|(proxy, server)| format!("{}>{}", proxy.address(), server.address()));
        vec![format!("addresses={}", ways.collect::<Vec<_>>().join(","))]
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            ORDERED,
            KILLED,
            KILLED_BRIEFLY,
            ISOLATED,
            FROZEN,
            REPLICA,
            SENTINEL,
        ]
    }

    fn make(&mut self, fault: usize, scene: &mut Scene<'_>) {
        match self.faults()[fault] {
            REPLICA => {
                let others = self.others();
                let replica = others[scene.one_of(others.len())];
                self.all.servers[replica].restart();
                self.follow(replica);
            }
            SENTINEL => {
                let sentinel = &self.all.sentinels[scene.one_of(3)];
                sentinel.freeze();
                thread::sleep(scene.random.millis(100, 2_500));
                sentinel.thaw();
            }
            failover => self.fail_over(failover, scene),
        }
        self.all.wait_until_all_are_seen();
        self.look(scene);
    }

    fn look(&mut self, scene: &Scene<'_>) {
        let named = self.all.named_by(&self.all.sentinels[0]);
        if let Some(named) = named.filter(|named| *named != self.primary) {
            scene.lost_since(self.seen);
            self.primary = named;
        }
        self.seen = record::now();
    }

    fn all(&self) -> Vec<&Server> {
        self.all.servers.iter().collect()
    }
}
