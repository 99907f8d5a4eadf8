//! The promises of the trait, on a real server.

use std::process::Command;
use std::time::Duration;

use super::{Etcd, Settings, location};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance::servers::{self, Programs, Servers, free_ports};
use crate::store::{Claim, Store};

/// A server of one member.
struct OwnServer {
    port: u16,
    _programs: Programs,
}

impl Servers for OwnServer {
    type Store = Etcd;

    async fn start() -> Self {
        let mut programs = Programs::new();
        let ports = free_ports::<2>();
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command
            .args(["--name", "one", "--unsafe-no-fsync", "--logger", "zap"])
            .arg("--data-dir")
            .arg(programs.directory())
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")]);
        programs.start(&mut command, "etcd-server");
        let server = Self {
            port: ports[0],
            _programs: programs,
        };
        let background = Background::start().expect("a thread");
        let store = server.store(&background);
        let origin = Origin::here();
        let locks = ["lock:started".to_owned()];
        servers::until("the server serves", async || {
            let owner = origin.owner(origin.new_id());
            let claim = Claim::new(&locks, &owner, Duration::from_secs(1));
            store.check(claim).await.is_ok()
        })
        .await;
        server
    }

    fn store(&self, background: &Background) -> Etcd {
        let url = format!("etcd://127.0.0.1:{}", self.port);
        let settings = Settings {
            prefix: "lock:".to_owned(),
            location: location(&url).expect("a URL"),
            name: None,
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(2),
            #[cfg(feature = "tls")]
            certificates: crate::store::redis::Certificates::default(),
        };
        Etcd::new(settings, background).expect("a store")
    }
}

#[tokio::test]
async fn etcd_keeps_the_promises_of_a_store() {
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
