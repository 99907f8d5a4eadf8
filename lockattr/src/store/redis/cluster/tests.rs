//! The promises of the trait, on a real cluster.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Cluster, ClusterConfig};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance;
use crate::store::redis::RedisConfig;
use crate::store::redis::access::Access;
use crate::store::redis::addresses::AddressMap;
use crate::store::redis::server::Location;
use crate::store::redis::target::target;

/// Three servers that are a cluster, in a directory of their own; all go with it.
struct OwnCluster {
    nodes: Vec<Child>,
    ports: Vec<u16>,
    directory: PathBuf,
}

impl OwnCluster {
    async fn start() -> Self {
        let directory = env::temp_dir().join(format!("lockattr-{}", Origin::here().new_id()));
        // All at once, so that they differ.
        let listeners: Vec<_> = (0..6)
            .map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a port"))
            .collect();
        let ports: Vec<_> = listeners
            .iter()
            .map(|listener| listener.local_addr().expect("an address").port())
            .collect();
        drop(listeners);
        let (ports, buses) = ports.split_at(3);
        let nodes = ports.iter().zip(buses).map(|(port, bus)| {
            let own = directory.join(port.to_string());
            fs::create_dir_all(&own).expect("a directory");
            Command::new("redis-server")
                .args([
                    "--port",
                    &port.to_string(),
                    "--cluster-port",
                    &bus.to_string(),
                ])
                .args(["--cluster-enabled", "yes", "--save", "", "--dir"])
                .arg(own)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-server is in the PATH; apt-get install redis-server")
        });
        let cluster = Self {
            nodes: nodes.collect(),
            ports: ports.to_vec(),
            directory,
        };
        let addresses = ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let addresses: Vec<_> = addresses.collect();
        let created = async {
            loop {
                let create = Command::new("redis-cli")
                    .args(["--cluster", "create", "--cluster-yes"])
                    .args(&addresses)
                    .stdin(Stdio::null())
                    .output()
                    .expect("redis-cli is in the PATH");
                if create.status.success() {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let created = timeout(Duration::from_secs(20), created).await;
        created.expect("the cluster is made");
        cluster
    }

    /// What `redis-cli` says to a command on one node.
    fn ask(&self, node: usize, command: &str) -> String {
        let asked = Command::new("redis-cli")
            .args(["-p", &self.ports[node].to_string()])
            .args(command.split(' '))
            .output();
        let output = asked.expect("redis-cli is in the PATH");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn store(&self, background: &Background) -> Cluster {
        self.store_behind(background, None)
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

impl Drop for OwnCluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // They are in the way of nobody if this fails.
            let _ = node.kill();
            let _ = node.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_a_store() {
    let background = Background::start().expect("a thread");
    let cluster = OwnCluster::start().await;
    conformance::check(async || cluster.store(&background)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_of_a_cluster_may_be_asked_everything() {
    let background = Background::start().expect("a thread");
    let cluster = OwnCluster::start().await;
    let store = Arc::new(cluster.store(&background));
    conformance::check(async || Arc::clone(&store)).await;
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_an_outage() {
    let background = Background::start().expect("a thread");
    let cluster = OwnCluster::start().await;
    let store = cluster.store(&background);
    drop(cluster);
    conformance::outage(&store).await;
}

#[tokio::test]
async fn nodes_whose_announced_addresses_cannot_be_reached_are_mapped() {
    let background = Background::start().expect("a thread");
    let cluster = OwnCluster::start().await;
    let announced = ["1", "2", "3"];
    for (node, port) in announced.iter().enumerate() {
        cluster.ask(node, &format!("config set cluster-announce-port {port}"));
    }
    let are_known = async {
        let knows = |node| {
            let slots = cluster.ask(node, "cluster slots");
            let ports = slots.lines().filter(|line| announced.contains(line));
            ports.count() == 3
        };
        while !(0..3).all(knows) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let are_known = timeout(Duration::from_secs(20), are_known).await;
    are_known.expect("the nodes hear of each other's ports");
    let ports = cluster.ports.clone();
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
