//! The promises of the trait, on a real server.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{Access, Redis, RedisConfig, location};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance::servers::{self, Programs, Servers};
use crate::store::quorum::Quorum;
use crate::store::{Store, conformance};

/// A `redis-server` at a socket.
struct OwnServer(Programs);

impl Servers for OwnServer {
    type Store = Redis;

    async fn start() -> Self {
        let mut programs = Programs::new();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", ""])
            .args(["--unixsocket", "socket", "--dir"])
            .arg(programs.directory());
        programs.start(&mut command, "redis-server");
        let server = Self(programs);
        let socket = server.0.directory().join("socket");
        servers::until("the server listens", async || socket.exists()).await;
        server
    }

    fn store(&self, background: &Background) -> Redis {
        let url = format!("unix://{}", self.0.directory().join("socket").display());
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

#[tokio::test]
async fn redis_keeps_the_promises_of_a_store() {
    servers::stores_keep_their_promises::<OwnServer>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_may_be_asked_everything() {
    servers::one_store_may_be_asked_everything::<OwnServer>().await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_outage() {
    servers::servers_that_are_gone_are_an_outage::<OwnServer>().await;
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
