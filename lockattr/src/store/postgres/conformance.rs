//! The promises of the trait, on a real server.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Postgres, PostgresConfig, Timeouts};
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::conformance::servers::{self, Programs, Servers, free_ports, quiet};
use crate::store::redis::Access;

/// A server at a socket.
struct OwnServer {
    port: u16,
    programs: Programs,
}

impl Servers for OwnServer {
    type Store = Postgres;

    async fn start() -> Self {
        let mut programs = Programs::new();
        let directory = programs.directory().to_owned();
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
        };
        let data = directory.join("data");
        let made = quiet(&mut command("initdb"))
            .args(["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C"])
            .args(["-U", "postgres", "-D"])
            .arg(&data)
            .status();
        assert!(
            made.expect("initdb runs").success(),
            "a data directory is made"
        );
        // The port is a part of the socket's name, and nothing listens on it.
        let [port] = free_ports();
        let mut server = command("postgres");
        server
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"])
            .arg(format!("unix_socket_directories={}", directory.display()))
            .args(["-p", &port.to_string()]);
        programs.start(&mut server, "postgresql");
        let server = Self { port, programs };
        // It listens before it lets anybody in.
        servers::until("the server lets clients in", async || server.lets_in()).await;
        server
    }

    fn store(&self, background: &Background) -> Postgres {
        let path = self.programs.directory().display().to_string();
        let path = path.replace('/', "%2F");
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

impl OwnServer {
    fn lets_in(&self) -> bool {
        let status = Command::new(program_path("pg_isready"))
            .arg("-q")
            .arg("-h")
            .arg(self.programs.directory())
            .args(["-p", &self.port.to_string()])
            .status();
        status.expect("pg_isready runs").success()
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

#[tokio::test]
async fn postgres_keeps_the_promises_of_a_store() {
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
