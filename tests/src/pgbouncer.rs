//! A real PgBouncer before a PostgreSQL server.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use tokio_postgres::NoTls;

use crate::postgres::{self, Postgres, open_to_all};
use crate::process;
use crate::scratch::Scratch;
use crate::wait;

/// A pooler with few sessions, which everybody shares; ended when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    port: u16,
    scratch: Scratch,
}

impl PgBouncer {
    /// Starts one in a mode: `session`, `transaction` or `statement`, with so many sessions at most.
    pub fn before(server: &Postgres, mode: &str, sessions: u32) -> Self {
        let scratch = Scratch::new();
        open_to_all(scratch.path());
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound port").port();
        drop(listener);
        let configuration = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\nadmin_users = admin\n\
             pool_mode = {mode}\ndefault_pool_size = {sessions}\n",
            server.address().port(),
        );
        // Whoever asks for a connection is the superuser, for `auth_type = any` names one.
        let configuration = configuration.replace(
            &format!("port={}", server.address().port()),
            &format!("port={} user=postgres", server.address().port()),
        );
        fs::write(scratch.path().join("pgbouncer.ini"), configuration).expect("a file of ours");
        let log = File::create(scratch.path().join("log")).expect("a file of ours");
        let process = process::unprivileged(Path::new("/usr/sbin/pgbouncer"), scratch.path())
            .arg("pgbouncer.ini")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("pgbouncer runs; apt-get install pgbouncer");
        let bouncer = Self {
            process,
            port,
            scratch,
        };
        wait::block_until("the pooler listens", || {
            TcpStream::connect(bouncer.address()).is_ok()
        });
        bouncer
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of the superuser.
    pub fn url(&self) -> String {
        postgres::url(self.address())
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Gives an order to its console: `PAUSE`, `RESUME`, `RECONNECT`, `KILL postgres`.
    pub async fn order(&self, order: &str) {
        let url = format!("postgres://admin@{}/pgbouncer", self.address());
        let (client, connection) = tokio_postgres::connect(&url, NoTls)
            .await
            .expect("the console");
        tokio::spawn(connection);
        client
            .simple_query(order)
            .await
            .unwrap_or_else(|problem| panic!("{order}: {problem}"));
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        process::end(&mut self.process);
    }
}
