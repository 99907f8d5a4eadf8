//! A real `redis-server` in a directory of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use redis::{Connection, ErrorKind, FromRedisValue, RedisError, RedisResult};

use crate::monitor::Monitor;
use crate::process;
use crate::scratch::Scratch;
use crate::version::{has_channel_rights, version};
use crate::wait;

/// How long a server may take to start, a command to answer.
const START: Duration = Duration::from_secs(10);

/// The configuration of a sentinel, in its directory.
const SENTINEL_CONF: &str = "sentinel.conf";

/// A running server; killed when dropped, and at the latest when this process ends.
#[derive(Debug)]
pub struct Server {
    // Before `scratch`: the process ends first, then its directory goes.
    running: Mutex<Running>,
    port: u16,
    options: Vec<String>,
    password: Option<String>,
    control: Mutex<Option<Control>>,
    scratch: Scratch,
}

impl Server {
    /// Starts a server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more options, as on the command line: `&["--maxmemory", "2mb"]`.
    pub fn with(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let password = password_of(&options);
        let (running, port) = start_somewhere(&scratch, &options, password.as_deref());
        Self {
            running: Mutex::new(running),
            port,
            options,
            password,
            control: Mutex::new(None),
            scratch,
        }
    }

    /// A sentinel with this configuration, which it keeps up to date itself.
    pub(crate) fn sentinel(configuration: &str, port: u16, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        fs::write(scratch.path().join(SENTINEL_CONF), configuration).expect("a file of our own");
        let mut options: Vec<String> = options.iter().map(ToString::to_string).collect();
        options.push("--sentinel".to_owned());
        let password = password_of(&options);
        let running = launch(&scratch, port, &options, password.as_deref());
        Self {
            running: Mutex::new(running.unwrap_or_else(|why| panic!("no sentinel: {why}"))),
            port,
            options,
            password,
            control: Mutex::new(None),
            scratch,
        }
    }

    /// A replica of this server, in step with it.
    #[must_use]
    pub fn replica(&self) -> Self {
        let port = self.port.to_string();
        let replica = Self::with(&["--replicaof", "127.0.0.1", &port]);
        wait::block_until("the replica is in step", || {
            replica
                .info("replication")
                .get("master_link_status")
                .map(String::as_str)
                == Some("up")
        });
        // It gets no commands before its first acknowledgement, which may take it a second.
        let port = format!("port={},state=online,", replica.port);
        wait::block_until("the replica acknowledges", || {
            let _: u64 = self.ask("PUBLISH nobody nothing");
            let mut replicas = self.info("replication").into_values();
            replicas.any(|replica| replica.contains(&port) && !replica.contains(",offset=0,"))
        });
        replica
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The URL without any name or password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The URL with a user and password, or with `""` as the user: password alone.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/", self.port)
    }

    /// The directory it works in, which is empty at the start but for the log.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The unix socket, which every server has as well.
    pub fn socket(&self) -> PathBuf {
        self.scratch.path().join("redis.sock")
    }

    /// The URL of the unix socket.
    pub fn socket_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Freezes the server: connections stand, nothing is answered.
    pub fn freeze(&self) {
        process::freeze(&self.running().child);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        process::thaw(&self.running().child);
    }

    /// Kills the server as a power cut would. Its port is closed from then on.
    pub fn kill(&self) {
        self.running().end();
    }

    /// Starts a killed server again, on the same port and directory, and waits until it has loaded
    /// what it kept: nothing, unless `--appendonly yes` or the like.
    pub fn restart(&self) {
        self.begin_to_restart();
        wait::block_until("the server has loaded", || {
            self.info("persistence").get("loading").map(String::as_str) == Some("0")
        });
    }

    /// The same without waiting for it to load.
    pub fn begin_to_restart(&self) {
        self.kill();
        let start = Instant::now();
        loop {
            match launch(
                &self.scratch,
                self.port,
                &self.options,
                self.password.as_deref(),
            ) {
                Ok(running) => {
                    *self.running() = running;
                    return;
                }
                Err(problem) => assert!(start.elapsed() < START, "no restart: {problem}"),
            }
        }
    }

    /// What `redis-cli` would do with a command, its words separated by white space.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        match self.try_ask(command) {
            Ok(answer) => answer,
            Err(problem) => panic!("{command}: {problem}"),
        }
    }

    /// The same where an error is what the test is about.
    ///
    /// # Errors
    /// Whatever the server or the connection says.
    pub fn try_ask<T: FromRedisValue>(&self, command: &str) -> RedisResult<T> {
        let words: Vec<&str> = command.split_whitespace().collect();
        self.words(&words)
    }

    /// The same for words that hold white space.
    ///
    /// # Errors
    /// Whatever the server or the connection says.
    pub fn words<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        let mut control = self.control.lock().expect("no panic while asking");
        // An earlier server or a test may have closed the connection: then a new one is opened.
        for attempt in 0.. {
            if control.is_none() {
                *control = Some(Control(connect(self.port, self.password.as_deref())?));
            }
            let Some(Control(connection)) = control.as_mut() else {
                continue;
            };
            match command.query(connection) {
                Err(problem) if attempt == 0 && broken(&problem) => *control = None,
                answer => return answer,
            }
        }
        unreachable!("the loop returns at its second turn")
    }

    /// The value of a string key.
    pub fn get(&self, key: &str) -> Option<String> {
        self.words(&["GET", key]).expect("a string or nothing")
    }

    /// The owner under a lock, without what is stored beside it; of several, the one that ends first.
    pub fn owner(&self, lock: &str) -> Option<String> {
        let value: Option<String> = match self.words(&["GET", lock]) {
            Ok(value) => value,
            Err(_) => self.holders(lock).into_iter().next(),
        };
        value?.split(' ').next().map(str::to_owned)
    }

    /// The owners that hold a lock together, in the order in which they end.
    pub fn holders(&self, lock: &str) -> Vec<String> {
        let (seconds, micros): (u64, u64) = self.ask("TIME");
        let now = (seconds * 1000 + micros / 1000).to_string();
        let holders = self.words(&["ZRANGEBYSCORE", lock, &now, "inf"]);
        holders.unwrap_or_default()
    }

    /// Milliseconds until a key expires; negative as Redis has it (-1 never, -2 no key).
    pub fn pttl(&self, key: &str) -> i64 {
        self.words(&["PTTL", key]).expect("a number")
    }

    /// How many keys there are in database 0.
    pub fn size(&self) -> u64 {
        self.ask("DBSIZE")
    }

    /// All keys of database 0, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask("KEYS *");
        keys.sort();
        keys
    }

    /// One section of `INFO`.
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let text: String = self.ask(&format!("INFO {section}"));
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }

    /// How often each command ran since the server started, in scripts as well; see [`Commands::since`].
    pub fn commands(&self) -> Commands {
        let calls = self
            .info("commandstats")
            .into_iter()
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("cmdstat_")?.to_owned();
                let calls = value
                    .strip_prefix("calls=")?
                    .split(',')
                    .next()?
                    .parse()
                    .ok()?;
                Some((name, calls))
            });
        Commands(calls.collect())
    }

    /// Makes a user, or changes its rights. What is said of channels is left out where users have no
    /// rights to them.
    pub fn set_user(&self, name: &str, rights: &str) {
        let is_known = |right: &&str| {
            has_channel_rights() || !(right.starts_with('&') || right.ends_with("channels"))
        };
        let rights: Vec<&str> = rights.split(' ').filter(is_known).collect();
        let _: () = self.ask(&format!("ACL SETUSER {name} {}", rights.join(" ")));
    }

    /// Carries out no command of anybody for this long.
    pub fn pause(&self, length: Duration) {
        let _: () = self.ask(&format!("CLIENT PAUSE {}", length.as_millis()));
    }

    /// Watches every command from now on.
    pub fn monitor(&self) -> Monitor {
        // The connection that the harness asks on says who it is when it is opened: not in between.
        let _: () = self.ask("PING");
        Monitor::open(self.address(), self.password.as_deref())
    }

    /// Ends every client's connection but the one that says so.
    pub fn drop_clients(&self) -> u64 {
        self.ask("CLIENT KILL TYPE normal")
    }

    /// How many clients other than this harness are connected.
    pub fn clients(&self) -> usize {
        let own: i64 = self.ask("CLIENT ID");
        let list: String = self.ask("CLIENT LIST");
        let own = format!("id={own} ");
        list.lines()
            .filter(|line| !line.starts_with(&own) && !line.contains("cmd=monitor"))
            .count()
    }

    /// How many connections are subscribed to channels.
    pub fn subscribers(&self) -> usize {
        let list: String = self.ask("CLIENT LIST TYPE pubsub");
        list.lines().count()
    }

    /// Refuses every write at once from now on, for want of replicas.
    pub fn refuse_writes(&self) {
        let _: () = self.ask("CONFIG SET min-replicas-to-write 1");
    }

    /// Accepts writes again.
    pub fn accept_writes(&self) {
        let _: () = self.ask("CONFIG SET min-replicas-to-write 0");
    }

    /// The length of a lock's wait queue, under the default prefix.
    pub fn waiters(&self, lock: &str) -> u64 {
        self.ask(&format!("ZCARD lock:wait:{{{lock}}}"))
    }

    /// The server's log, for a test that failed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // A test that panicked while it held this still has to end its server.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process, and a second one that ends it should ours be killed or never drop the server.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    guard: Child,
}

impl Running {
    pub(crate) fn new(child: Child, scratch: &Scratch) -> Self {
        // Its standard input closes with our process, whatever ends that.
        let guard = Command::new("sh")
            .args([
                "-c",
                "trap '' HUP INT TERM; read _; kill -9 $0; rm -rf \"$1\"",
            ])
            .arg(child.id().to_string())
            .arg(scratch.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        Self { child, guard }
    }

    pub(crate) fn end(&mut self) {
        // The guard first: it must not see the id of a process that has gone.
        process::end(&mut self.guard);
        process::end(&mut self.child);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// How often each command ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commands(BTreeMap<String, u64>);

impl Commands {
    /// What was called between an earlier count and this one, without the harness's own `INFO`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = self.0.iter().filter_map(|(name, calls)| {
            let calls = calls - earlier.of(name);
            (calls > 0 && name != "info").then(|| (name.clone(), calls))
        });
        Self(difference.collect())
    }

    /// The count of one command, in lower case.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// A connection that can stand in a `Debug` structure.
struct Control(Connection);

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

fn password_of(options: &[String]) -> Option<String> {
    let at = options
        .iter()
        .position(|option| option == "--requirepass")?;
    Some(options[at + 1].clone())
}

fn broken(problem: &RedisError) -> bool {
    problem.is_io_error() || problem.is_connection_dropped()
}

fn connect(port: u16, password: Option<&str>) -> RedisResult<Connection> {
    let url = match password {
        Some(password) => format!("redis://:{password}@127.0.0.1:{port}/"),
        None => format!("redis://127.0.0.1:{port}/"),
    };
    let connection = redis::Client::open(url)?.get_connection_with_timeout(START)?;
    connection.set_read_timeout(Some(START))?;
    connection.set_write_timeout(Some(START))?;
    Ok(connection)
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn start_somewhere(
    scratch: &Scratch,
    options: &[String],
    password: Option<&str>,
) -> (Running, u16) {
    let mut problem = String::new();
    for _ in 0..20 {
        let port = free_port();
        match launch(scratch, port, options, password) {
            Ok(running) => return (running, port),
            // Somebody was faster; take another one.
            Err(text) => problem = text,
        }
    }
    panic!("redis-server does not start: {problem}");
}

/// A port on which nobody listens, below those that the system gives to outgoing connections, so
/// that a killed server finds it free again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    // Processes start at different places, so that they seldom try the same port.
    let offset = u64::from(std::process::id()) * 7_919 % u64::from(COUNT);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = (offset + u64::from(step)) % u64::from(COUNT);
        let port = FIRST + u16::try_from(place).expect("below the count");
        if TcpListener::bind(loopback(port)).is_ok() {
            return port;
        }
    }
}

fn launch(
    scratch: &Scratch,
    port: u16,
    options: &[String],
    password: Option<&str>,
) -> Result<Running, String> {
    let log = scratch.path().join("log");
    let output = File::create(&log).expect("a file in our directory");
    let is_sentinel = options.iter().any(|option| option == "--sentinel");
    let mut child = Command::new("redis-server")
        // Where there is one, it comes before all options.
        .args(is_sentinel.then_some(SENTINEL_CONF))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .args(["--unixsocket", "redis.sock"])
        .args(["--repl-diskless-sync-delay", "0"])
        .args(debug_commands())
        .args(options)
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|problem| format!("is redis-server in the PATH? {problem}"))?;
    let start = Instant::now();
    loop {
        if is_ours(port, password, child.id()) {
            return Ok(Running::new(child, scratch));
        }
        let ended = child.try_wait().is_ok_and(|status| status.is_some());
        if ended || start.elapsed() > START {
            process::end(&mut child);
            return Err(fs::read_to_string(&log).unwrap_or_default());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Allows `DEBUG`, which older servers always do.
fn debug_commands() -> &'static [&'static str] {
    if version() < (7, 0) {
        &[]
    } else {
        &["--enable-debug-command", "yes"]
    }
}

/// Whether the server that answers at `port` is the process we started. One that is still loading
/// its data counts: tests about that start it so.
fn is_ours(port: u16, password: Option<&str>, process: u32) -> bool {
    let Ok(mut connection) = connect(port, password) else {
        return false;
    };
    let answer: RedisResult<String> = redis::cmd("INFO").arg("server").query(&mut connection);
    match answer {
        Ok(text) => text.contains(&format!("process_id:{process}\r\n")),
        Err(problem) => problem.kind() == ErrorKind::Server(redis::ServerErrorKind::BusyLoading),
    }
}
