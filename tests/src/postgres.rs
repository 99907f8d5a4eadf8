//! A real PostgreSQL server in a directory of its own.

use std::fs::{self, File, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::process::Signal;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::process;
use crate::scratch::Scratch;
use crate::wait;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(20);

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct Postgres {
    // Before `scratch`: the processes end first, then their directory goes.
    running: Mutex<Running>,
    port: u16,
    options: Vec<String>,
    scratch: Scratch,
}

/// The first process of a server, which starts one for each session.
#[derive(Debug)]
struct Running(Child);

impl Postgres {
    /// Starts a server with a database `postgres`, whose superuser `postgres` needs no password.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `&["log_statement=all"]`.
    pub fn with(settings: &[&str]) -> Self {
        Self::with_files(settings, &[])
    }

    /// The same with some files in its data directory: a certificate, or `pg_hba.conf`.
    pub fn with_files(settings: &[&str], files: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        open_to_all(scratch.path());
        let data = scratch.path().join("data");
        copy(&template(), &data);
        for (name, content) in files {
            let path = data.join(name);
            fs::write(&path, content).expect("a file of ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file of ours");
            process::give_away(&path);
        }
        Self::on(scratch, settings)
    }

    /// A standby of this server, in step with it.
    #[must_use]
    pub fn standby(&self) -> Self {
        let scratch = Scratch::new();
        open_to_all(scratch.path());
        let copied = process::unprivileged(&program("pg_basebackup"), scratch.path())
            .args([
                "--checkpoint=fast",
                "--write-recovery-conf",
                "-U",
                "postgres",
                "-h",
                "127.0.0.1",
            ])
            .args(["-p", &self.port.to_string(), "-D", "data"])
            .output()
            .expect("pg_basebackup runs");
        assert!(
            copied.status.success(),
            "{}",
            String::from_utf8_lossy(&copied.stderr)
        );
        let settings: Vec<_> = self.options.iter().map(String::as_str).collect();
        let standby = Self::on(scratch, &settings);
        wait::block_until("the standby is in step", || {
            self.ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "0"
        });
        standby
    }

    fn on(scratch: Scratch, settings: &[&str]) -> Self {
        let options: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let begun = Instant::now();
        loop {
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
            let port = listener.local_addr().expect("a bound port").port();
            drop(listener);
            match launch(&scratch, port, &options) {
                Ok(running) => {
                    return Self {
                        running: Mutex::new(running),
                        port,
                        options,
                        scratch,
                    };
                }
                // Somebody else may have taken the port.
                Err(problem) => assert!(begun.elapsed() < START, "no server: {problem}"),
            }
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of its superuser.
    pub fn url(&self) -> String {
        url(self.address())
    }

    /// The URL of another role.
    pub fn url_as(&self, role: &str) -> String {
        format!("postgres://{role}@{}/postgres", self.address())
    }

    /// The first value that some statements answer, as text; empty where there is none.
    pub fn ask(&self, statements: &str) -> String {
        self.rows(statements)
            .into_iter()
            .flatten()
            .next()
            .unwrap_or_default()
    }

    /// All rows that some statements answer.
    pub fn rows(&self, statements: &str) -> Vec<Vec<String>> {
        self.try_rows(statements)
            .unwrap_or_else(|problem| panic!("{statements}: {problem}"))
    }

    /// The same where that may fail.
    ///
    /// # Errors
    /// What the server says.
    pub fn try_rows(&self, statements: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
        let url = format!("{}?application_name=test", self.url());
        let work = async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            let connection = tokio::spawn(connection);
            let answers = client.simple_query(statements).await;
            drop(client);
            drop(connection.await);
            let rows = answers?.into_iter().filter_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => Some(
                    (0..row.len())
                        .map(|column| row.get(column).unwrap_or_default().to_owned())
                        .collect(),
                ),
                _ => None,
            });
            Ok(rows.collect())
        };
        // On a thread of its own: tests call from within a runtime as well.
        thread::scope(|scope| {
            let working = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("a runtime").block_on(work)
            });
            working.join().expect("no panic")
        })
    }

    /// The names of all locks and marks that stand now, in order.
    pub fn locks(&self) -> Vec<String> {
        let rows = self.rows(
            "SELECT l.name FROM lockattr.locks l WHERE l.until > clock_timestamp() \
             AND (l.owner <> '*' OR EXISTS (\
               SELECT FROM lockattr.holders h WHERE h.lock = l.name AND h.until > clock_timestamp())) \
             ORDER BY name",
        );
        rows.into_iter().flatten().collect()
    }

    /// The owners of those who hold a lock beside one another now, by slot.
    pub fn holders(&self, lock: &str) -> Vec<String> {
        let statement = format!(
            "SELECT owner FROM lockattr.holders WHERE until > clock_timestamp() AND lock = '{lock}' \
             ORDER BY slot, since"
        );
        self.rows(&statement).into_iter().flatten().collect()
    }

    /// The owner of a lock that stands now.
    pub fn owner(&self, lock: &str) -> Option<String> {
        let statement = format!(
            "SELECT owner FROM lockattr.locks WHERE until > clock_timestamp() AND name = '{lock}'"
        );
        self.rows(&statement).into_iter().flatten().next()
    }

    /// How many wait.
    pub fn waiters(&self) -> usize {
        let count = self.ask("SELECT count(*) FROM lockattr.waiters");
        count.parse().expect("a number")
    }

    /// How many sessions clients of the library have.
    pub fn sessions(&self) -> usize {
        let count =
            self.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockattr'");
        count.parse().expect("a number")
    }

    /// Ends sessions of clients of the library, by a condition on `pg_stat_activity`.
    pub fn end_sessions(&self, condition: &str) -> usize {
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = 'lockattr' AND {condition}"
        );
        self.ask(&statement).parse().expect("a number")
    }

    /// Sets the server's clock forward or back, as far as locks are concerned: whatever was written is as
    /// much earlier or later.
    pub fn set_clock(&self, forward: &str) {
        self.rows(&format!(
            "UPDATE lockattr.locks SET since = since - interval '{forward}', \
               until = until - interval '{forward}'; \
             UPDATE lockattr.holders SET since = since - interval '{forward}', \
               until = until - interval '{forward}'; \
             UPDATE lockattr.waiters SET seen = seen - interval '{forward}'"
        ));
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// The errors in the log, apart from those of the test itself.
    pub fn logged_errors(&self) -> Vec<String> {
        let log = self.log();
        let is_error = |line: &&str| {
            ["ERROR:", "FATAL:", "PANIC:"]
                .iter()
                .any(|word| line.contains(word))
        };
        let is_ours = |line: &&str| line.contains("app=lockattr");
        log.lines()
            .filter(is_error)
            .filter(is_ours)
            .map(str::to_owned)
            .collect()
    }

    /// How many messages of clients of the library were logged that contain this; with
    /// `log_statement=all`.
    pub fn statements(&self, containing: &str) -> usize {
        let log = self.log();
        let statements = log.lines().filter(|line| line.contains("app=lockattr"));
        statements
            .filter(|line| line.contains("statement: ") && line.contains(containing))
            .count()
    }

    /// Freezes all of the server's processes: connections stand, nothing is answered.
    pub fn freeze(&self) {
        let running = self.running();
        process::freeze(&running.0);
        for child in process::children(running.0.id()) {
            process::stop_other(child);
        }
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        let running = self.running();
        for child in process::children(running.0.id()) {
            process::signal_other(child, Signal::CONT);
        }
        process::thaw(&running.0);
    }

    /// Ends the server as a crash would.
    pub fn kill(&self) {
        self.running().crash();
    }

    /// Shuts the server down in an orderly way that waits for no session.
    pub fn stop(&self) {
        self.running().end(Signal::INT);
    }

    /// Starts a server that was ended, at the same port.
    pub fn restart(&self) {
        let begun = Instant::now();
        let started = loop {
            match launch(&self.scratch, self.port, &self.options) {
                // A process that was killed with its server has not gone yet.
                Err(problem)
                    if problem.contains("pre-existing shared memory block")
                        && begun.elapsed() < wait::PATIENCE => {}
                started => break started,
            }
        };
        *self.running() = started.unwrap_or_else(|problem| panic!("no server: {problem}"));
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        assert_eq!(self.ask("SELECT pg_promote(true, 20)"), "t");
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn crash(&mut self) {
        let children = process::children(self.0.id());
        process::end(&mut self.0);
        for child in children {
            process::signal_other(child, Signal::KILL);
        }
    }

    fn end(&mut self, signal: Signal) {
        let children = process::children(self.0.id());
        for child in &children {
            process::signal_other(*child, Signal::CONT);
        }
        process::signal_other(self.0.id(), Signal::CONT);
        process::signal_other(self.0.id(), signal);
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if begun.elapsed() > Duration::from_secs(5) {
                self.crash();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // At once, but for the memory that it shares with nobody else.
        self.end(Signal::QUIT);
    }
}

/// The URL of the superuser at an address.
pub fn url(address: SocketAddr) -> String {
    format!("postgres://postgres@{address}/postgres")
}

/// A program of the newest version; Debian has them beside other versions, outside of the PATH.
pub(crate) fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<_> = versions
        .map(|version| version.path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| Path::new(name).to_owned())
}

/// The directory of a server that has never run: making one takes seconds. It is kept beside the tests.
fn template() -> PathBuf {
    static MADE: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut path = env::current_exe().expect("a program has a path");
    path.pop();
    path.push("postgres-template");
    if path.exists() {
        return path;
    }
    let scratch = Scratch::new();
    open_to_all(scratch.path());
    let made = process::unprivileged(&program("initdb"), scratch.path())
        .args([
            "--no-sync",
            "--wal-segsize=1",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-U",
            "postgres",
            "-D",
            "data",
        ])
        .output()
        .expect("initdb runs; apt-get install postgresql");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let hba = scratch.path().join("data/pg_hba.conf");
    fs::write(
        hba,
        "local all all trust\nhost all all all trust\nhost replication all all trust\n",
    )
    .expect("a file of ours");
    // Other programs may make one at the same time.
    let own = path.with_extension(std::process::id().to_string());
    copy(&scratch.path().join("data"), &own);
    if fs::rename(&own, &path).is_err() {
        drop(fs::remove_dir_all(&own));
    }
    path
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(
        copied.expect("cp runs").success(),
        "{} is copied",
        from.display()
    );
}

/// A directory whose owner is about to change.
pub(crate) fn open_to_all(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a directory of ours");
}

fn launch(scratch: &Scratch, port: u16, settings: &[String]) -> Result<Running, String> {
    let log_path = scratch.path().join("log");
    let log = File::options().create(true).append(true).open(&log_path);
    let log = log.expect("a file in our directory");
    let mut command = process::unprivileged(&program("postgres"), scratch.path());
    command.args(["-D", "data", "-p", &port.to_string()]);
    for setting in [
        "listen_addresses=127.0.0.1",
        "fsync=off",
        "shared_buffers=16MB",
        "max_connections=300",
        "log_line_prefix=%m [%p] app=%a ",
    ] {
        command.args(["-c", setting]);
    }
    command.arg("-c").arg(format!(
        "unix_socket_directories={}",
        scratch.path().display()
    ));
    for setting in settings {
        command.args(["-c", setting]);
    }
    let child = command.stdout(Stdio::null()).stderr(log).spawn();
    let mut running = Running(child.expect("postgres runs; apt-get install postgresql"));
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = running.0.try_wait() {
            let log = fs::read_to_string(&log_path).unwrap_or_default();
            return Err(format!("it has ended with {status}: {log}"));
        }
        if is_ready(port) {
            return Ok(running);
        }
        assert!(begun.elapsed() < START, "the server does not answer");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the server takes connections.
fn is_ready(port: u16) -> bool {
    let asked = Command::new(program("pg_isready"))
        .args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()])
        .status();
    asked.is_ok_and(|status| status.success())
}
