//! The promises of the trait, on a real server.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::{Etcd, Settings, location};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::{Claim, Store, conformance};

/// A server of one member, in a directory of its own; both go with it.
struct OwnServer {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl OwnServer {
    async fn start() -> Self {
        let id = Origin::here().new_id();
        let directory = env::temp_dir().join(format!("lockattr-{id}"));
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let ports = ports.map(|listener| listener.local_addr().expect("an address").port());
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let process = Command::new("etcd")
            .args([
                "--name",
                "one",
                "--unsafe-no-fsync",
                "--logger",
                "zap",
                "--data-dir",
            ])
            .arg(&directory)
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is in the PATH; apt-get install etcd-server");
        let server = Self {
            process,
            directory,
            port: ports[0],
        };
        let background = Background::start().expect("a thread");
        let store = server.store(&background);
        let origin = Origin::here();
        let locks = ["lock:started".to_owned()];
        for _ in 0..100 {
            let owner = origin.owner(origin.new_id());
            if store
                .check(Claim::new(&locks, &owner, Duration::from_secs(1)))
                .await
                .is_ok()
            {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the server does not serve");
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

impl Drop for OwnServer {
    fn drop(&mut self) {
        // They are in the way of nobody if this fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test]
async fn etcd_keeps_the_promises_of_a_store() {
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
