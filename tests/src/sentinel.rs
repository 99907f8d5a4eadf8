//! Sentinels, the primary that they watch over, and its replicas.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::server::{Server, free_port};
use crate::wait;

/// The name of the service.
pub const SERVICE: &str = "mymaster";

/// After so long without an answer a sentinel takes the primary for dead.
pub const DOWN_AFTER: Duration = Duration::from_millis(500);

/// Three sentinels, a primary and its replicas, which all know each other.
#[derive(Debug)]
pub struct Sentinels {
    /// The first one is the primary at the start.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
    /// Where each of `servers` is announced.
    announced: Vec<SocketAddr>,
    /// The TLS ports of all servers and then of all sentinels, where they have some.
    pub tls_ports: Vec<u16>,
}

/// What to start.
#[derive(Default)]
pub struct Setup<'a> {
    /// How many replicas; at least one.
    pub replicas: usize,
    /// More options of the primary and of each replica.
    pub server_options: Vec<&'a str>,
    /// More options of each sentinel.
    pub sentinel_options: Vec<&'a str>,
    /// More lines of each sentinel's configuration.
    pub sentinel_lines: &'a str,
    /// Further options of each server and each sentinel, and its TLS port.
    pub tls: Option<&'a dyn Fn() -> (Vec<String>, u16)>,
    /// For how long a sentinel waits for a failover before the next; two seconds unless set.
    pub failover_timeout: Option<Duration>,
    /// After so long without an answer a sentinel takes the primary for dead; [`DOWN_AFTER`] unless set.
    pub down_after: Option<Duration>,
}

impl Setup<'_> {
    /// Starts servers that are reached where they listen.
    pub fn start(&self) -> Sentinels {
        let (servers, tls_ports) = self.servers();
        let announced = servers.iter().map(Server::address).collect();
        let mut all = self.watched(servers, announced);
        all.tls_ports.splice(..0, tls_ports);
        all
    }

    /// The servers alone: a primary and replicas that do not follow it yet; and their TLS ports.
    pub fn servers(&self) -> (Vec<Server>, Vec<u16>) {
        let server = |_| self.with_tls(&self.server_options, Server::with);
        let started: Vec<_> = (0..=self.replicas.max(1)).map(server).collect();
        let (servers, ports): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        (servers, ports.into_iter().flatten().collect())
    }

    /// Starts one with its options, and those for TLS.
    fn with_tls(
        &self,
        options: &[&str],
        start: impl FnOnce(&[&str]) -> Server,
    ) -> (Server, Option<u16>) {
        let (of_tls, port) = self.tls.map_or((Vec::new(), None), |tls| {
            let (options, port) = tls();
            (options, Some(port))
        });
        let of_tls = of_tls.iter().map(String::as_str);
        let options: Vec<&str> = options.iter().copied().chain(of_tls).collect();
        (start(&options), port)
    }

    /// Starts sentinels that know, and tell, the servers by these addresses.
    pub fn watched(&self, servers: Vec<Server>, announced: Vec<SocketAddr>) -> Sentinels {
        let primary = announced[0];
        for (server, address) in servers.iter().zip(&announced) {
            announce(server, *address);
        }
        for replica in &servers[1..] {
            let _: () = replica.ask(&format!("REPLICAOF {} {}", primary.ip(), primary.port()));
        }
        for replica in &servers[1..] {
            wait::block_until("the replica is in step", || {
                replica
                    .info("replication")
                    .get("master_link_status")
                    .map(String::as_str)
                    == Some("up")
            });
        }
        // All know each other from the start: to find one another takes them seconds.
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let timeout = self.failover_timeout.unwrap_or(Duration::from_secs(2));
        let sentinels =
            ports.iter().map(|port| {
                let (ip, monitored) = (primary.ip(), primary.port());
                let down = self.down_after.unwrap_or(DOWN_AFTER).as_millis();
                let timeout = timeout.as_millis();
                let mut lines = vec![
                    format!("monitor {SERVICE} {ip} {monitored} 2"),
                    format!("down-after-milliseconds {SERVICE} {down}"),
                    format!("failover-timeout {SERVICE} {timeout}"),
                    format!("myid {}", id(*port)),
                ];
                lines.extend(announced[1..].iter().map(|replica| {
                    format!(
                        "known-replica {SERVICE} {} {}",
                        replica.ip(),
                        replica.port()
                    )
                }));
                let others = ports.iter().filter(|other| *other != port);
                lines.extend(others.map(|other| {
                    format!("known-sentinel {SERVICE} 127.0.0.1 {other} {}", id(*other))
                }));
                let configured = lines.iter().map(|line| format!("sentinel {line}\n"));
                let lines = configured.chain([self.sentinel_lines.to_owned()]);
                let lines: String = lines.collect();
                self.with_tls(&self.sentinel_options, |options| {
                    Server::sentinel(&lines, *port, options)
                })
            });
        let (sentinels, tls_ports): (Vec<_>, Vec<_>) = sentinels.unzip();
        let all = Sentinels {
            sentinels,
            servers,
            announced,
            tls_ports: tls_ports.into_iter().flatten().collect(),
        };
        all.wait_until_all_are_seen();
        all
    }
}

/// Has a server tell others that it is at this address; forgotten when it is restarted.
pub fn announce(server: &Server, address: SocketAddr) {
    let (ip, port) = (address.ip(), address.port());
    let _: () = server.ask(&format!("CONFIG SET replica-announce-ip {ip}"));
    let _: () = server.ask(&format!("CONFIG SET replica-announce-port {port}"));
}

/// The id of a sentinel.
fn id(port: u16) -> String {
    format!("{port:0>40}")
}

impl Sentinels {
    /// A primary and one replica.
    pub fn start() -> Self {
        Setup::default().start()
    }

    /// The URL with all sentinels.
    pub fn url(&self) -> String {
        self.url_of([0, 1, 2])
    }

    /// The URL with these sentinels, in this order.
    pub fn url_of(&self, order: impl IntoIterator<Item = usize>) -> String {
        let addresses = order
            .into_iter()
            .map(|index| self.sentinels[index].address());
        url(addresses)
    }

    /// Which of the servers this sentinel takes for the primary.
    pub fn named_by(&self, sentinel: &Server) -> Option<usize> {
        let named: Option<(String, u16)> =
            sentinel.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {SERVICE}"));
        let (host, port) = named?;
        let address = format!("{host}:{port}").parse().ok()?;
        self.announced
            .iter()
            .position(|announced| *announced == address)
    }

    /// Has the last sentinel make another server the primary, and waits until all sentinels that
    /// `answer` say so. The old primary lives on as a replica of the new one.
    pub fn fail_over(&self, answering: &[usize]) -> usize {
        let last = answering.last().expect("a sentinel that answers");
        let before = self.named_by(&self.sentinels[*last]);
        wait::block_until("a failover is to be had", || {
            let begun =
                self.sentinels[*last].try_ask::<()>(&format!("SENTINEL FAILOVER {SERVICE}"));
            begun.is_ok() || self.named_by(&self.sentinels[*last]) != before
        });
        self.moved_from(before.expect("a primary"), answering)
    }

    /// Waits until all sentinels that `answer` name another primary than that one.
    pub fn moved_from(&self, before: usize, answering: &[usize]) -> usize {
        let named = || {
            let mut named = answering
                .iter()
                .map(|index| self.named_by(&self.sentinels[*index]));
            let first = named.next().flatten()?;
            let all_agree = named.all(|other| other == Some(first));
            (all_agree && first != before).then_some(first)
        };
        wait::block_until("the sentinels name another primary", || named().is_some());
        named().expect("it was named")
    }

    /// When this server said first that it is the primary, as it is asked all the time.
    pub fn promoted(&self, candidates: &[usize]) -> (usize, Instant) {
        let start = Instant::now();
        loop {
            for index in candidates {
                let role: redis::Value = self.servers[*index].ask("ROLE");
                if let redis::Value::Array(role) = role
                    && role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))
                {
                    return (*index, Instant::now());
                }
            }
            assert!(start.elapsed() < wait::PATIENCE, "none was promoted");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until each sentinel sees a primary, all its replicas and all sentinels.
    pub fn wait_until_all_are_seen(&self) {
        wait::block_until("the sentinels see all", || {
            let mut sentinels = self.sentinels.iter();
            sentinels.all(|sentinel| self.sees_all(sentinel))
        });
    }

    /// Whether a sentinel sees a primary, all its replicas and all sentinels, and could fail over.
    fn sees_all(&self, sentinel: &Server) -> bool {
        let quorum = sentinel.try_ask::<String>(&format!("SENTINEL CKQUORUM {SERVICE}"));
        let is_up = |flags: &str| !flags.contains("down") && !flags.contains("disconnected");
        let replicas: Vec<std::collections::BTreeMap<String, String>> =
            sentinel.ask(&format!("SENTINEL REPLICAS {SERVICE}"));
        let in_step = replicas.iter().filter(|replica| {
            replica.get("master-link-status").map(String::as_str) == Some("ok")
                && replica.get("flags").is_some_and(|flags| is_up(flags))
        });
        quorum.is_ok_and(|quorum| quorum.starts_with("OK 3"))
            && in_step.count() == self.servers.len() - 1
    }
}

/// The URL with sentinels at these addresses.
pub fn url(addresses: impl IntoIterator<Item = SocketAddr>) -> String {
    let addresses: Vec<String> = addresses
        .into_iter()
        .map(|address| address.to_string())
        .collect();
    format!("redis+sentinel://{}/{SERVICE}", addresses.join(","))
}
