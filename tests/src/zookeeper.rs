//! Real ZooKeeper servers, alone or as an ensemble, each in a directory of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;
use crate::scratch::Scratch;
use crate::server::{Running, free_port};
use crate::wait;

mod control;

pub use control::{Control, Refused};

/// Where Debian's packages put what a server is made of.
const JARS: [&str; 6] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "netty-codec",
    "netty-handler",
];

/// How long servers may take to start, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Servers that know each other; killed when dropped, and at the latest when this process ends.
#[derive(Debug)]
pub struct Ensemble {
    // Before `scratches`: the processes end first, then their directories go.
    running: Vec<Mutex<Running>>,
    ports: Vec<u16>,
    scratches: Vec<Scratch>,
}

impl Ensemble {
    /// One server, whose sessions may be of any timeout.
    pub fn single() -> Self {
        Self::with(1, &["minSessionTimeout=1000", "maxSessionTimeout=600000"])
    }

    /// Three servers, with a tick of 400 ms.
    pub fn three() -> Self {
        Self::with(3, &["minSessionTimeout=1000", "maxSessionTimeout=600000"])
    }

    /// One server that also listens for TLS, and where: with this certificate and key, and where
    /// `verifies_clients`, to nobody but those whom the authority vouches for. All in PEM form.
    pub fn encrypted(
        authority: &str,
        certificate: &str,
        key: &str,
        verifies_clients: bool,
    ) -> (Self, SocketAddr) {
        let scratch = Scratch::new();
        let file = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            fs::write(&path, text).expect("a file in our directory");
            path.display().to_string()
        };
        let own = file("own.pem", &format!("{key}{certificate}"));
        let trusted = file("trusted.pem", authority);
        let port = free_port();
        let client_auth = if verifies_clients { "need" } else { "none" };
        let settings = [
            format!("secureClientPort={port}"),
            "secureClientPortAddress=127.0.0.1".to_owned(),
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            format!("ssl.keyStore.location={own}"),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.trustStore.location={trusted}"),
            "ssl.trustStore.type=PEM".to_owned(),
            format!("ssl.clientAuth={client_auth}"),
        ];
        let mut ensemble = Self::with(1, &settings.each_ref().map(String::as_str));
        ensemble.scratches.push(scratch);
        (ensemble, (Ipv4Addr::LOCALHOST, port).into())
    }

    /// So many servers with these settings more.
    pub fn with(count: usize, settings: &[&str]) -> Self {
        let scratches: Vec<_> = (0..count).map(|_| Scratch::new()).collect();
        let ports: Vec<_> = (0..count).map(|_| free_port()).collect();
        let others: Vec<_> = (1..=count)
            .map(|id| {
                let (peers, election) = (free_port(), free_port());
                format!("server.{id}=127.0.0.1:{peers}:{election}")
            })
            .collect();
        for (index, scratch) in scratches.iter().enumerate() {
            let mut lines = vec![
                "tickTime=400".to_owned(),
                "initLimit=25".to_owned(),
                "syncLimit=5".to_owned(),
                format!("dataDir={}", scratch.path().display()),
                format!("clientPort={}", ports[index]),
                "clientPortAddress=127.0.0.1".to_owned(),
                "admin.enableServer=false".to_owned(),
                "maxClientCnxns=0".to_owned(),
                "4lw.commands.whitelist=*".to_owned(),
            ];
            if count > 1 {
                lines.extend(others.clone());
                fs::write(scratch.path().join("myid"), (index + 1).to_string())
                    .expect("a file in our directory");
            }
            lines.extend(settings.iter().map(ToString::to_string));
            fs::write(scratch.path().join("zoo.cfg"), lines.join("\n"))
                .expect("a file in our directory");
        }
        let running = scratches.iter().map(launch).map(Mutex::new).collect();
        let ensemble = Self {
            running,
            ports,
            scratches,
        };
        ensemble.wait_until_served(&(0..count).collect::<Vec<_>>());
        ensemble
    }

    /// How many servers there are.
    pub fn count(&self) -> usize {
        self.ports.len()
    }

    /// Where a server listens.
    pub fn address(&self, server: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[server]).into()
    }

    /// The URL of all servers, and a node for the locks.
    pub fn url(&self) -> String {
        let addresses = (0..self.count()).map(|server| self.address(server));
        url(addresses)
    }

    /// Freezes a server: connections stand, nothing is answered.
    pub fn freeze(&self, server: usize) {
        process::freeze(&self.running(server).child);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self, server: usize) {
        process::thaw(&self.running(server).child);
    }

    /// Kills a server as a power cut would.
    pub fn kill(&self, server: usize) {
        self.running(server).end();
    }

    /// Starts a killed server again, with its data, and does not wait until it serves.
    pub fn begin_to_restart(&self, server: usize) {
        self.kill(server);
        *self.running(server) = launch(&self.scratches[server]);
    }

    /// The same, and waits.
    pub fn restart(&self, server: usize) {
        self.begin_to_restart(server);
        self.wait_until_served(&[server]);
    }

    /// Kills all servers, and starts them again without what they have kept.
    pub fn start_anew(&self) {
        let servers: Vec<_> = (0..self.count()).collect();
        for server in &servers {
            self.kill(*server);
            let kept = self.scratches[*server].path().join("version-2");
            fs::remove_dir_all(kept).expect("a directory of our own");
        }
        for server in &servers {
            *self.running(*server) = launch(&self.scratches[*server]);
        }
        self.wait_until_served(&servers);
    }

    /// The server that leads, if there is one.
    pub fn leader(&self) -> Option<usize> {
        (0..self.count()).find(|server| self.answer(*server, "srvr").contains("Mode: leader"))
    }

    /// A server that follows.
    pub fn follower(&self) -> usize {
        let is_follower = |server: &usize| self.answer(*server, "srvr").contains("Mode: follower");
        (0..self.count()).find(is_follower).expect("three servers")
    }

    /// How many requests a server has had, heartbeats included.
    pub fn requests(&self, server: usize) -> u64 {
        let mut answer = String::new();
        wait::block_until("the server counts its requests", || {
            answer = self.answer(server, "mntr");
            !answer.is_empty()
        });
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("zk_packets_received"));
        let number = line.map(str::trim).and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("no number of requests in {answer}"))
    }

    /// What a server answers to one of the four-letter words.
    pub fn answer(&self, server: usize, word: &str) -> String {
        let ask = || {
            let bound = Duration::from_secs(2);
            let mut stream = TcpStream::connect_timeout(&self.address(server), bound)?;
            stream.set_read_timeout(Some(bound))?;
            stream.write_all(word.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        ask().unwrap_or_default()
    }

    /// Waits until these servers serve clients.
    pub fn wait_until_served(&self, servers: &[usize]) {
        let start = Instant::now();
        for server in servers {
            while !self.answer(*server, "srvr").contains("Mode: ") {
                let ended = self.running(*server).child.try_wait();
                assert!(
                    start.elapsed() < START && ended.is_ok_and(|ended| ended.is_none()),
                    "ZooKeeper does not start: {}",
                    self.log(*server)
                );
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// What a server has written to its log.
    pub fn log(&self, server: usize) -> String {
        let log = self.scratches[server].path().join("log");
        fs::read_to_string(log).unwrap_or_default()
    }

    fn running(&self, server: usize) -> MutexGuard<'_, Running> {
        let running = self.running[server].lock();
        running.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The URL of these servers, or of proxies before them, and a node for the locks.
pub fn url(addresses: impl Iterator<Item = SocketAddr>) -> String {
    let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
    format!("zookeeper://{}/locks", addresses.join(","))
}

fn launch(scratch: &Scratch) -> Running {
    let log = File::options()
        .create(true)
        .append(true)
        .open(scratch.path().join("log"))
        .expect("a file in our directory");
    let jars = JARS.map(|jar| format!("/usr/share/java/{jar}.jar"));
    assert!(
        Path::new(&jars[0]).exists(),
        "there is no {}: apt-get install libzookeeper-java",
        jars[0]
    );
    let child = Command::new("java")
        .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args([
            // The disk is no part of what is tested.
            "-Dzookeeper.forceSync=no",
            "-Dznode.container.checkIntervalMs=1000",
        ])
        .args(["-cp", &jars.join(":")])
        .args([
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            "zoo.cfg",
        ])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("java is in the PATH");
    Running::new(child, scratch)
}
