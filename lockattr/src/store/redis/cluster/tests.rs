//! The promises of the trait, on a real cluster.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Cluster, ClusterConfig};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance::servers::{Programs, Servers, free_ports};
use crate::store::conformance::{self, servers};
use crate::store::redis::RedisConfig;
use crate::store::redis::access::Access;
use crate::store::redis::addresses::AddressMap;
use crate::store::redis::server::Location;
use crate::store::redis::target::target;

/// Three servers that are a cluster.
struct OwnCluster {
    ports: [u16; 3],
    _programs: Programs,
}

impl Servers for OwnCluster {
    type Store = Cluster;

    async fn start() -> Self {
        let mut programs = Programs::new();
        let [a, b, c, buses @ ..] = free_ports::<6>();
        let ports = [a, b, c];
        for (port, bus) in ports.iter().zip(buses) {
            let own = programs.directory().join(port.to_string());
            fs::create_dir(&own).expect("a directory");
            let mut command = Command::new("redis-server");
            command
                .args(["--port", &port.to_string()])
                .args(["--cluster-port", &bus.to_string()])
                .args(["--cluster-enabled", "yes", "--save", "", "--dir"])
                .arg(own);
            programs.start(&mut command, "redis-server");
        }
        let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
        servers::until("the cluster is made", async || {
            let create = Command::new("redis-cli")
                .args(["--cluster", "create", "--cluster-yes"])
                .args(&addresses)
                .stdin(Stdio::null())
                .output();
            create.expect("redis-cli is in the PATH").status.success()
        })
        .await;
        Self {
            ports,
            _programs: programs,
        }
    }

    fn store(&self, background: &Background) -> Cluster {
        self.store_behind(background, None)
    }
}

impl OwnCluster {
    /// What `redis-cli` says to a command on one node.
    fn ask(&self, node: usize, command: &str) -> String {
        let asked = Command::new("redis-cli")
            .args(["-p", &self.ports[node].to_string()])
            .args(command.split(' '))
            .output();
        let output = asked.expect("redis-cli is in the PATH");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn store_behind(&self, background: &Background, addresses: Option<AddressMap>) -> Cluster {
        let url = format!("redis://127.0.0.1:{}/", self.ports[0]);
        let seed = target(&url, &Access::default()).expect("a URL");
        let node = RedisConfig {
            prefix: "lock:".to_owned(),
            id: Origin::here().new_id().to_string(),
            location: Location::At(seed.clone()),
            name: None,
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(2),
            replicas: None,
            delayed_restart: None,
        };
        let config = ClusterConfig {
            seeds: vec![seed],
            node,
            addresses,
        };
        Cluster::new(config, background)
    }
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_a_store() {
    servers::stores_keep_their_promises::<OwnCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_of_a_cluster_may_be_asked_everything() {
    servers::one_store_may_be_asked_everything::<OwnCluster>().await;
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_an_outage() {
    servers::servers_that_are_gone_are_an_outage::<OwnCluster>().await;
}

#[tokio::test]
async fn nodes_whose_announced_addresses_cannot_be_reached_are_mapped() {
    let background = Background::start().expect("a thread");
    let cluster = OwnCluster::start().await;
    let announced = ["1", "2", "3"];
    for (node, port) in announced.iter().enumerate() {
        cluster.ask(node, &format!("config set cluster-announce-port {port}"));
    }
    let knows = |node| {
        let slots = cluster.ask(node, "cluster slots");
        let ports = slots.lines().filter(|line| announced.contains(line));
        ports.count() == 3
    };
    servers::until("the nodes hear of each other's ports", async || {
        (0..3).all(knows)
    })
    .await;
    let ports = cluster.ports;
    let mapped = AddressMap::new(move |host, port| {
        let node = usize::from(port).checked_sub(1)?;
        Some((host.to_owned(), *ports.get(node)?))
    });
    let store = cluster.store_behind(&background, Some(mapped));
    for _ in 0..5 {
        conformance::grants(&store).await;
        conformance::wakeups(&store).await;
    }
    conformance::outage(&cluster.store(&background)).await;
}
