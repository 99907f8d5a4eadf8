//! The promises of the trait, on a real server.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Access, Redis, RedisConfig, location};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::quorum::Quorum;
use crate::store::{Store, conformance};

/// A `redis-server` at a socket in a directory of its own; both go with it.
struct OwnServer {
    process: Child,
    directory: PathBuf,
}

impl OwnServer {
    async fn start() -> Self {
        let directory = env::temp_dir().join(format!("lockattr-{}", Origin::here().new_id()));
        fs::create_dir(&directory).expect("a directory");
        let process = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--unixsocket",
                "socket",
                "--dir",
            ])
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is in the PATH; apt-get install redis-server");
        let server = Self { process, directory };
        let listens = async {
            while !server.directory.join("socket").exists() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let listens = timeout(Duration::from_secs(10), listens).await;
        listens.expect("the server listens");
        server
    }

    fn store(&self, background: &Background) -> Redis {
        let url = format!("unix://{}", self.directory.join("socket").display());
        let settings = RedisConfig {
            prefix: "lock:".to_owned(),
            id: Origin::here().new_id().to_string(),
            location: location(&url, &Access::default()).expect("a URL"),
            name: None,
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(2),
            replicas: None,
            delayed_restart: None,
        };
        Redis::new(&settings, background)
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
async fn redis_keeps_the_promises_of_a_store() {
    let background = Background::start().expect("a thread");
    let server = OwnServer::start().await;
    conformance::check(async || server.store(&background)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_may_be_asked_everything() {
    let background = Background::start().expect("a thread");
    let server = OwnServer::start().await;
    let store = Arc::new(server.store(&background));
    conformance::check(async || Arc::clone(&store)).await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_outage() {
    let background = Background::start().expect("a thread");
    let server = OwnServer::start().await;
    let store = server.store(&background);
    drop(server);
    conformance::outage(&store).await;
}

#[tokio::test]
async fn a_quorum_of_servers_keeps_the_promises_of_a_store() {
    let background = Background::start().expect("a thread");
    let servers = [
        OwnServer::start().await,
        OwnServer::start().await,
        OwnServer::start().await,
    ];
    let node = |server: &OwnServer| Arc::new(server.store(&background)) as Arc<dyn Store>;
    let quorum = || Quorum::new(servers.iter().map(node).collect(), &background);
    conformance::check(async || quorum()).await;
}
