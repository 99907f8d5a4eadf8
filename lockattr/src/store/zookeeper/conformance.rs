//! The promises of the trait, on a real server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::{ZooKeeper, ZooKeeperConfig, ensemble};
use crate::runtime::background::Background;
use crate::store::conformance::servers::{self, Programs, Servers, free_ports};
use crate::store::redis::Certificates;

/// A server on a port of its own.
struct OwnServer {
    port: u16,
    _programs: Programs,
}

impl Servers for OwnServer {
    type Store = ZooKeeper;

    async fn start() -> Self {
        const JARS: [&str; 4] = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop"];
        let mut programs = Programs::new();
        let [port] = free_ports();
        let settings = format!(
            "dataDir={0}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\ntickTime=500\nmaxSessionTimeout=200000\n4lw.commands.whitelist=ruok\n",
            programs.directory().join("data").display()
        );
        let file = programs.directory().join("zoo.cfg");
        fs::write(&file, settings).expect("a file of our own");
        let jars = JARS
            .map(|jar| format!("/usr/share/java/{jar}.jar"))
            .join(":");
        let mut command = Command::new("java");
        command
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"])
            .args(["-cp", &jars])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(file);
        programs.start(&mut command, "default-jre-headless libzookeeper-java");
        let server = Self {
            port,
            _programs: programs,
        };
        servers::until("the server answers", async || server.answers()).await;
        server
    }

    fn store(&self, background: &Background) -> ZooKeeper {
        let url = format!("zookeeper://127.0.0.1:{}/locks/here", self.port);
        let ensemble = ensemble(&url, &Certificates::default()).expect("a URL of this store");
        let config = ZooKeeperConfig {
            ensemble: ensemble.expect("a URL"),
            ttl: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(1),
            reply_timeout: Duration::from_secs(1),
        };
        ZooKeeper::new(config, background)
    }
}

impl OwnServer {
    fn answers(&self) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            // One that is just starting may take the connection and never answer.
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"ruok")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        ask().is_ok_and(|answer| answer == "imok")
    }
}

#[tokio::test]
async fn zookeeper_keeps_the_promises_of_a_store() {
    servers::stores_keep_their_promises::<OwnServer>().await;
}

#[tokio::test]
async fn an_outage_is_told_in_time() {
    servers::servers_that_are_gone_are_an_outage::<OwnServer>().await;
}
