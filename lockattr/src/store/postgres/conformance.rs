//! The promises of the trait, on a real server.

use std::env;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Postgres, PostgresConfig, Timeouts};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance;
use crate::store::redis::Access;

/// A server at a socket in a directory of its own; both go with it.
struct OwnServer {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl OwnServer {
    async fn start() -> Self {
        let directory = env::temp_dir().join(format!("lockattr-{}", Origin::here().new_id()));
        fs::create_dir(&directory).expect("a directory");
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("our directory");
        // The server does not run as root.
        let nobody = 65534;
        let is_root = chown(&directory, Some(nobody), Some(nobody)).is_ok();
        let command = |program: &str| {
            let program = program_path(program);
            let mut command = if is_root {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg(program);
                command
            } else {
                Command::new(program)
            };
            command.current_dir(&directory);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        let data = directory.join("data");
        let made = command("initdb")
            .args([
                "--no-sync",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "-U",
                "postgres",
                "-D",
            ])
            .arg(&data)
            .status();
        assert!(
            made.expect("initdb runs").success(),
            "a data directory is made"
        );
        // The port is a part of the socket's name, and nothing listens on it.
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound port").port();
        let process = command("postgres")
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"])
            .arg(format!("unix_socket_directories={}", directory.display()))
            .args(["-p", &port.to_string()])
            .spawn()
            .expect("postgres runs");
        let server = Self {
            process,
            directory,
            port,
        };
        // It listens before it lets anybody in.
        let lets_in = async {
            while !server.lets_in() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let lets_in = timeout(Duration::from_secs(20), lets_in).await;
        lets_in.expect("the server lets clients in");
        server
    }

    fn lets_in(&self) -> bool {
        let status = Command::new(program_path("pg_isready"))
            .arg("-q")
            .arg("-h")
            .arg(&self.directory)
            .args(["-p", &self.port.to_string()])
            .status();
        status.expect("pg_isready runs").success()
    }

    fn store(&self, background: &Background) -> Postgres {
        let path = self.directory.display().to_string().replace('/', "%2F");
        let config = PostgresConfig {
            url: &format!("postgres://postgres@{path}:{}/postgres", self.port),
            id: Origin::here().new_id().to_string(),
            name: None,
            access: &Access::default(),
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                reply: Duration::from_secs(2),
            },
        };
        Postgres::new(&config, background).expect("a URL")
    }
}

/// Debian has them beside other versions, outside of the PATH.
fn program_path(program: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<_> = versions
        .map(|version| version.path().join("bin").join(program))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| Path::new(program).to_owned())
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
async fn postgres_keeps_the_promises_of_a_store() {
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
