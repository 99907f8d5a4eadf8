//! The promises of the trait, on a real server.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{ZooKeeper, ZooKeeperConfig, ensemble};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance;
use crate::store::redis::Certificates;

/// A server on a port of its own, with a directory that goes with it.
struct OwnServer {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl OwnServer {
    async fn start() -> Self {
        const JARS: [&str; 4] = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop"];
        let directory = env::temp_dir().join(format!("lockattr-{}", Origin::here().new_id()));
        fs::create_dir(&directory).expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.expect("a free port").port();
        let settings = format!(
            "dataDir={0}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\ntickTime=500\nmaxSessionTimeout=200000\n4lw.commands.whitelist=ruok\n",
            directory.join("data").display()
        );
        let file = directory.join("zoo.cfg");
        fs::write(&file, settings).expect("a file of our own");
        let jars = JARS
            .map(|jar| format!("/usr/share/java/{jar}.jar"))
            .join(":");
        let process = Command::new("java")
            .args([
                "-Xmx64m",
                "-XX:+UseSerialGC",
                "-Dzookeeper.forceSync=no",
                "-cp",
                &jars,
            ])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java is in the PATH; apt-get install default-jre-headless libzookeeper-java");
        let server = Self {
            process,
            directory,
            port,
        };
        let answers = async {
            while !server.answers() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let answers = timeout(Duration::from_secs(30), answers).await;
        answers.expect("the server answers; its jars are those of the package libzookeeper-java");
        server
    }

    fn answers(&self) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.write_all(b"ruok")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        ask().is_ok_and(|answer| answer == "imok")
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

impl Drop for OwnServer {
    fn drop(&mut self) {
        // They are in the way of nobody if this fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test]
async fn zookeeper_keeps_the_promises_of_a_store() {
    let background = Background::start().expect("a thread");
    let server = OwnServer::start().await;
    conformance::check(async || server.store(&background)).await;
}

#[tokio::test]
async fn an_outage_is_told_in_time() {
    let background = Background::start().expect("a thread");
    let store = {
        let server = OwnServer::start().await;
        server.store(&background)
    };
    conformance::outage(&store).await;
}
