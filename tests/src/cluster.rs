//! A real Redis Cluster, made with `redis-cli --cluster create`.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::server::{self, Server};
use crate::wait;

/// How long a node is silent before the others take it for failed, in ms.
const NODE_TIMEOUT: &str = "1000";

/// A cluster; its nodes end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    primaries: usize,
    /// Whether the nodes name each other by their TLS ports, and speak TLS among themselves.
    named_by_tls: bool,
    /// The nodes that answer nobody.
    away: Mutex<Vec<usize>>,
}

impl Cluster {
    /// Starts so many primaries, each with so many replicas.
    pub fn start(primaries: usize, replicas: usize) -> Self {
        Self::with(primaries, replicas, &[])
    }

    /// Starts three primaries without replicas, which go on without a part of the slots, and take no silent
    /// node for failed.
    pub fn patient() -> Self {
        let options = [
            "--cluster-node-timeout",
            "60000",
            "--cluster-require-full-coverage",
            "no",
        ];
        Self::with(3, 0, &options)
    }

    /// Starts a cluster whose nodes have more options, as on the command line.
    pub fn with(primaries: usize, replicas: usize, options: &[&str]) -> Self {
        let nodes: Vec<_> = (0..primaries * (1 + replicas))
            .map(|_| node(options))
            .collect();
        let replicas = replicas.to_string();
        // It waits for ever for nodes that do not find each other.
        let mut create = vec!["30", "redis-cli", "--cluster", "create"];
        let named_by_tls = options.contains(&"--tls-cluster");
        let addresses: Vec<_> = nodes
            .iter()
            .map(|node| {
                if named_by_tls {
                    format!("127.0.0.1:{}", tls_port(node))
                } else {
                    node.address().to_string()
                }
            })
            .collect();
        create.extend(addresses.iter().map(String::as_str));
        create.extend(["--cluster-replicas", &replicas, "--cluster-yes"]);
        if named_by_tls {
            create.extend(["--tls", "--insecure"]);
        }
        let output = Command::new("timeout")
            .args(&create)
            .stdin(Stdio::null())
            .output()
            .expect("redis-cli is in the PATH");
        assert!(output.status.success(), "no cluster: {output:?}");
        let cluster = Self {
            nodes,
            primaries,
            named_by_tls,
            away: Mutex::default(),
        };
        cluster.wait_until_ok();
        if replicas != "0" {
            cluster.wait_until_in_step();
        }
        cluster
    }

    /// The URL that names all nodes.
    pub fn url(&self) -> String {
        let all: Vec<_> = (0..self.nodes.len()).collect();
        self.url_of(&all)
    }

    /// The URL that names these nodes alone.
    pub fn url_of(&self, seeds: &[usize]) -> String {
        let addresses: Vec<_> = seeds
            .iter()
            .map(|seed| self.nodes[*seed].address().to_string())
            .collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// The URL that names all nodes by their TLS ports.
    #[cfg(feature = "tls")]
    pub fn tls_url(&self) -> String {
        let nodes = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", tls_port(node)));
        format!("rediss+cluster://{}", nodes.collect::<Vec<_>>().join(","))
    }

    /// The same as [`url`](Self::url) with a user and password.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let login = format!("://{user}:{password}@");
        self.url().replacen("://", &login, 1)
    }

    /// All nodes: first those that were primaries at the start.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// A primary at the start.
    pub fn primary(&self, index: usize) -> &Server {
        &self.nodes[..self.primaries][index]
    }

    /// A key of the default prefix that this primary keeps at the start; another one for each `number`.
    pub fn key_at(&self, primary: usize, number: usize) -> String {
        let ranges = own_slots(&self.nodes[primary]);
        let is_there = |key: &String| {
            let slot = self.slot(&format!("lock:{key}"));
            ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&slot))
        };
        let mut keys = (0..).map(|count| format!("key-{count}")).filter(is_there);
        keys.nth(number).expect("there is no end of keys")
    }

    /// The hash slot of a lock.
    pub fn slot(&self, lock: &str) -> u64 {
        self.awake().1.ask(&format!("CLUSTER KEYSLOT {lock}"))
    }

    /// The node that keeps a lock now, in its own view: the index, and the node.
    pub fn keeper(&self, lock: &str) -> (usize, &Server) {
        let slot = self.slot(lock);
        let mut found = None;
        wait::block_until("somebody keeps the slot", || {
            found = self.all_awake().into_iter().find(|(_, node)| {
                own_slots(node)
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&slot))
            });
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// The only replica of a primary.
    pub fn replica_of(&self, primary: usize) -> usize {
        let id = id(&self.nodes[primary]);
        let is_its = |node: &Server| {
            let own: String = node.ask("CLUSTER NODES");
            own.lines()
                .any(|line| line.contains("myself,slave") && line.contains(&format!("slave {id} ")))
        };
        let mut nodes = self.all_awake().into_iter();
        let replica = nodes.find(|(_, node)| is_its(node));
        replica.expect("it has a replica").0
    }

    /// Freezes a node: connections stand, nothing is answered.
    pub fn freeze(&self, index: usize) {
        self.away(|away| away.push(index));
        self.nodes[index].freeze();
    }

    /// Lets a frozen node go on.
    pub fn thaw(&self, index: usize) {
        self.nodes[index].thaw();
        self.away(|away| away.retain(|one| *one != index));
    }

    /// Kills a node as a power cut would.
    pub fn kill(&self, index: usize) {
        self.away(|away| away.push(index));
        self.nodes[index].kill();
    }

    /// Waits until every node that answers sees the cluster work.
    pub fn wait_until_ok(&self) {
        wait::block_until("the cluster works", || {
            self.all_awake().iter().all(|(_, node)| {
                node.ask::<String>("CLUSTER INFO")
                    .contains("cluster_state:ok")
            })
        });
    }

    /// Waits until all replicas have what their primaries have.
    pub fn wait_until_in_step(&self) {
        wait::block_until("the replicas are in step", || {
            self.nodes.iter().all(|node| {
                let info = node.info("replication");
                info.get("role").map(String::as_str) == Some("master")
                    || info.get("master_link_status").map(String::as_str) == Some("up")
            })
        });
    }

    /// The nodes that keep slots now.
    pub fn keepers(&self) -> Vec<usize> {
        let keeps = |(index, node)| (!own_slots(node).is_empty()).then_some(index);
        self.all_awake().into_iter().filter_map(keeps).collect()
    }

    /// Waits until a replica of this node has taken its place.
    pub fn wait_until_promoted(&self, replica: usize) {
        wait::block_until("the replica is promoted", || {
            let own: String = self.nodes[replica].ask("CLUSTER NODES");
            own.lines().any(|line| line.contains("myself,master"))
                && !own_slots(&self.nodes[replica]).is_empty()
        });
    }

    /// Begins to move the hash slot of a lock.
    pub fn begin_to_move(&self, lock: &str, to: usize) -> Move<'_> {
        let (from, source) = self.keeper(lock);
        let (slot, target) = (self.slot(lock), &self.nodes[to]);
        let _: () = target.ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(source)));
        let _: () = source.ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(target)));
        Move {
            cluster: self,
            slot,
            from,
            to,
        }
    }

    /// All locks, slots and wait queues on all nodes that answer, but not the counters of tokens.
    pub fn left(&self) -> Vec<String> {
        let mut left: Vec<_> = self
            .all_awake()
            .into_iter()
            .filter(|(_, node)| !own_slots(node).is_empty())
            .flat_map(|(_, node)| node.keys())
            .filter(|key| !key.starts_with("lock:token:"))
            .collect();
        left.sort();
        left
    }

    fn awake(&self) -> (usize, &Server) {
        self.all_awake().into_iter().next().expect("one answers")
    }

    fn all_awake(&self) -> Vec<(usize, &Server)> {
        let away = self.away(|away| away.clone());
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(index, _)| !away.contains(index)).collect()
    }

    fn away<T>(&self, with: impl FnOnce(&mut Vec<usize>) -> T) -> T {
        with(&mut self.away.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A hash slot on its way from one node to another.
#[derive(Debug)]
pub struct Move<'a> {
    cluster: &'a Cluster,
    slot: u64,
    from: usize,
    to: usize,
}

impl Move<'_> {
    /// Moves one key, if it is there.
    pub fn key(&self, key: &str) {
        let Cluster { nodes, .. } = self.cluster;
        let port = if self.cluster.named_by_tls {
            tls_port(&nodes[self.to])
        } else {
            nodes[self.to].address().port().to_string()
        };
        let answer: String = nodes[self.from]
            .words(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
            .expect("the key moves");
        assert!(["OK", "NOKEY"].contains(&answer.as_str()), "{answer}");
    }

    /// Moves what is left, and ends the move.
    pub fn end(self) {
        let Cluster { nodes, .. } = self.cluster;
        let (from, to) = (&nodes[self.from], &nodes[self.to]);
        loop {
            let keys: Vec<String> = from.ask(&format!("CLUSTER GETKEYSINSLOT {} 100", self.slot));
            if keys.is_empty() {
                break;
            }
            for key in &keys {
                self.key(key);
            }
        }
        let done = format!("CLUSTER SETSLOT {} NODE {}", self.slot, id(to));
        let _: () = to.ask(&done);
        // Something may have been written since the last look.
        while let Err(problem) = from.try_ask::<()>(&done) {
            assert!(problem.to_string().contains("still"), "{problem}");
            let keys: Vec<String> = from.ask(&format!("CLUSTER GETKEYSINSLOT {} 100", self.slot));
            for key in &keys {
                self.key(key);
            }
        }
    }
}

fn node(options: &[&str]) -> Server {
    // By default the port of the bus is ten thousand above, where another server may be.
    let bus = server::free_port().to_string();
    let mut all = vec!["--cluster-enabled", "yes", "--cluster-port", &bus];
    let tls = server::free_port().to_string();
    if options.contains(&"--tls-cert-file") {
        all.extend(["--tls-port", &tls]);
    }
    if !options.contains(&"--cluster-node-timeout") {
        all.extend(["--cluster-node-timeout", NODE_TIMEOUT]);
    }
    all.extend(options);
    Server::with(&all)
}

fn tls_port(node: &Server) -> String {
    let (_, port): (String, String) = node.ask("CONFIG GET tls-port");
    port
}

fn id(node: &Server) -> String {
    node.ask("CLUSTER MYID")
}

/// The hash slots that a node keeps in its own view.
fn own_slots(node: &Server) -> Vec<(u64, u64)> {
    let own: String = node.ask("CLUSTER NODES");
    let mine = own.lines().find(|line| line.contains("myself,master"));
    let words = mine.map(|line| line.split_whitespace().skip(8));
    let ranges = words.into_iter().flatten().filter_map(|word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    ranges.collect()
}
