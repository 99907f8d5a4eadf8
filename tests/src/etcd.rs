//! A real etcd cluster, each member a process in a directory of its own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::network::Network;
use crate::process;
use crate::scratch::Scratch;
use crate::server::{Running, free_port};
use crate::wait;

mod gateway;

pub use gateway::{Key, Refused};

/// A cluster; its members end when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    // Before `scratch`: the processes end first, then their directories go.
    members: Vec<Member>,
    options: Vec<String>,
    /// The scheme that clients use.
    scheme: &'static str,
    /// What the harness itself logs in by.
    login: Mutex<Option<(String, String)>>,
    /// Where each member is a machine of its own.
    network: Option<Network>,
    scratch: Scratch,
}

#[derive(Debug)]
struct Member {
    process: Mutex<Option<Running>>,
    host: Ipv4Addr,
    client: u16,
    /// Where the harness asks, without TLS.
    admin: u16,
    peer: u16,
}

impl Etcd {
    /// Starts so many members.
    pub fn start(members: usize) -> Self {
        Self::with(members, &[])
    }

    /// Starts members with more options, as on the command line.
    pub fn with(members: usize, options: &[&str]) -> Self {
        Self::started(members, options, "http", None)
    }

    /// Starts members that take clients by TLS alone.
    #[cfg(feature = "tls")]
    pub fn with_tls(members: usize, options: &[&str]) -> Self {
        Self::started(members, options, "https", None)
    }

    /// Starts members on machines that can be cut off from each other; nothing where this process may not make
    /// any.
    pub fn on_machines(members: usize) -> Option<Self> {
        let network = Network::of(members)?;
        Some(Self::started(members, &[], "http", Some(network)))
    }

    fn started(
        members: usize,
        options: &[&str],
        scheme: &'static str,
        network: Option<Network>,
    ) -> Self {
        let host = |index| match &network {
            Some(network) => network.address(index),
            None => Ipv4Addr::LOCALHOST,
        };
        let member = |index| Member {
            process: Mutex::default(),
            host: host(index),
            client: free_port(),
            admin: free_port(),
            peer: free_port(),
        };
        let cluster = Self {
            members: (0..members).map(member).collect(),
            options: options.iter().map(ToString::to_string).collect(),
            scheme,
            login: Mutex::default(),
            network,
            scratch: Scratch::new(),
        };
        for index in 0..members {
            cluster.launch(index);
        }
        cluster.wait_until_serving();
        cluster
    }

    /// The URL that names all members.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        format!("{}://{}", self.url_scheme(), addresses.join(","))
    }

    /// The URL that names other addresses.
    pub fn url_of(&self, addresses: &[SocketAddr]) -> String {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        format!("{}://{}", self.url_scheme(), addresses.join(","))
    }

    /// The URL with a user and password.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url()
            .replacen("://", &format!("://{user}:{password}@"), 1)
    }

    fn url_scheme(&self) -> &'static str {
        if self.scheme == "https" {
            "etcds"
        } else {
            "etcd"
        }
    }

    /// Where members take clients.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let members = self.members.iter();
        members.map(|member| member.at(member.client)).collect()
    }

    /// The machines of the members.
    ///
    /// # Panics
    ///
    /// Where all are on this one.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("started on machines")
    }

    /// The member that leads, in the view of another that is not this one.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait::block_until("somebody leads", || {
            leader = (0..self.members.len()).find(|index| self.leads(*index));
            leader.is_some()
        });
        leader.expect("it was waited for")
    }

    fn leads(&self, index: usize) -> bool {
        if !self.runs(index) {
            return false;
        }
        let status = self.ask_member(index, "/v3/maintenance/status", "{}");
        status.is_ok_and(|status| {
            gateway::text(&status, "leader") == gateway::text(&status, "member_id")
        })
    }

    /// Freezes a member: connections stand, nothing is answered.
    pub fn freeze(&self, index: usize) {
        if let Some(running) = &*self.members[index].process() {
            process::freeze(&running.child);
        }
    }

    /// Lets a frozen member go on.
    pub fn thaw(&self, index: usize) {
        if let Some(running) = &*self.members[index].process() {
            process::thaw(&running.child);
        }
    }

    /// Kills a member as a power cut would.
    pub fn kill(&self, index: usize) {
        // It ends where it is dropped.
        drop(self.members[index].process().take());
    }

    /// Starts a member that was killed, with its data.
    pub fn restart(&self, index: usize) {
        self.kill(index);
        self.launch(index);
    }

    /// Waits until a majority serves.
    pub fn wait_until_serving(&self) {
        wait::block_until("the cluster serves", || {
            (0..self.members.len())
                .all(|index| !self.runs(index) || self.range_at(index, "serving?", None).is_ok())
        });
    }

    /// Whether a member runs, frozen members included.
    fn runs(&self, index: usize) -> bool {
        self.members[index].process().is_some()
    }

    fn launch(&self, index: usize) {
        let member = &self.members[index];
        let plain = |address: SocketAddr| format!("http://{address}");
        let (admin, peer) = (member.at(member.admin), member.at(member.peer));
        let (admin, peer) = (plain(admin), plain(peer));
        let client = format!("{}://{}", self.scheme, member.at(member.client));
        let all = self.members.iter().enumerate();
        let all: Vec<_> = all
            .map(|(other, member)| format!("m{other}={}", plain(member.at(member.peer))))
            .collect();
        let directory = self.scratch.path().join(format!("m{index}"));
        let log = self.scratch.path().join(format!("m{index}.log"));
        let log = File::options().append(true).create(true).open(log);
        let output = log.expect("a file in our directory");
        let mut command = match &self.network {
            Some(network) => network.command(index, "etcd"),
            None => Command::new("etcd"),
        };
        let child = command
            .args([
                "--name",
                &format!("m{index}"),
                "--logger",
                "zap",
                "--unsafe-no-fsync",
            ])
            .arg("--data-dir")
            .arg(directory)
            .args(["--listen-client-urls", &format!("{client},{admin}")])
            .args(["--advertise-client-urls", &client])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &all.join(",")])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|problem| panic!("is etcd in the PATH? {problem}"));
        *member.process() = Some(Running::new(child, &self.scratch));
    }

    /// What the members have logged, for a test that fails.
    pub fn log(&self) -> String {
        let logs = (0..self.members.len()).map(|index| {
            let path = self.scratch.path().join(format!("m{index}.log"));
            fs::read_to_string(path).unwrap_or_default()
        });
        logs.collect()
    }

    /// All keys that begin so, in the order in which they were created.
    pub fn keys(&self, prefix: &str) -> Vec<Key> {
        let mut end = prefix.as_bytes().to_vec();
        match end.last_mut() {
            Some(last) => *last += 1,
            None => end.push(0),
        }
        let start = if prefix.is_empty() { "\0" } else { prefix };
        let mut keys = self.try_some(|index| self.range_at(index, start, Some(&end)));
        keys.sort_by_key(|key| key.created);
        keys
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<Key> {
        let mut found = self.try_some(|index| self.range_at(index, key, None));
        found.pop()
    }

    /// Puts a key without a lease.
    pub fn put(&self, key: &str, value: &str) {
        let body = format!(
            r#"{{"key":"{}","value":"{}"}}"#,
            gateway::encoded(key.as_bytes()),
            gateway::encoded(value.as_bytes())
        );
        self.ask("/v3/kv/put", &body);
    }

    /// Deletes a key, as somebody would by hand.
    pub fn delete(&self, key: &str) {
        let body = format!(r#"{{"key":"{}"}}"#, gateway::encoded(key.as_bytes()));
        self.ask("/v3/kv/deleterange", &body);
    }

    /// The revision that the store is at.
    pub fn revision(&self) -> u64 {
        let answer = self.ask("/v3/kv/range", r#"{"key":"cg=="}"#);
        gateway::number(&answer["header"], "revision")
    }

    /// Compacts the history up to now.
    pub fn compact(&self) {
        let revision = self.revision();
        let body = format!(r#"{{"revision":"{revision}"}}"#);
        // One that was compacted already is refused.
        let _ = self.try_ask("/v3/kv/compaction", &body);
    }

    /// Ends a lease under whoever has it.
    pub fn revoke(&self, lease: u64) {
        self.ask("/v3/lease/revoke", &format!(r#"{{"ID":"{lease}"}}"#));
    }

    /// All leases.
    pub fn leases(&self) -> usize {
        let answer = self.ask("/v3/lease/leases", "{}");
        answer["leases"].as_array().map_or(0, Vec::len)
    }

    /// How many messages of a method all members have received from clients.
    pub fn received(&self, method: &str) -> u64 {
        let is_it = |line: &&str| {
            line.starts_with("grpc_server_msg_received_total")
                && line.contains(&format!("grpc_method=\"{method}\""))
        };
        let of_member = |member: &Member| -> u64 {
            let text = gateway::get(member.at(member.admin), "/metrics").unwrap_or_default();
            let counts = text.lines().filter(is_it);
            counts
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                // Large ones are written with an exponent.
                .filter_map(|count| format!("{count:.0}").parse::<u64>().ok())
                .sum()
        };
        self.members.iter().map(of_member).sum()
    }

    /// Asks anything of whichever member answers.
    pub fn ask(&self, path: &str, body: &str) -> serde_json::Value {
        self.try_some(|index| self.ask_member(index, path, body))
    }

    /// The same of something that may be refused.
    ///
    /// # Errors
    /// What the member says.
    pub fn try_ask(&self, path: &str, body: &str) -> Result<serde_json::Value, Refused> {
        let index = self
            .members
            .iter()
            .position(|member| member.process().is_some());
        self.ask_member(index.expect("one runs"), path, body)
    }

    /// The harness asks as this user from now on.
    pub fn log_in(&self, user: &str, password: &str) {
        *self.login() = Some((user.to_owned(), password.to_owned()));
    }

    fn try_some<T>(&self, ask: impl Fn(usize) -> Result<T, Refused>) -> T {
        let start = Instant::now();
        loop {
            let mut problem = None;
            for index in (0..self.members.len()).filter(|index| self.runs(*index)) {
                match ask(index) {
                    Ok(answer) => return answer,
                    Err(refused) => problem = Some(refused),
                }
            }
            assert!(
                start.elapsed() < Duration::from_secs(15),
                "no member answers: {problem:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn range_at(&self, index: usize, key: &str, end: Option<&[u8]>) -> Result<Vec<Key>, Refused> {
        let key = gateway::encoded(key.as_bytes());
        let end = end.map(|end| format!(r#","range_end":"{}""#, gateway::encoded(end)));
        let body = format!(r#"{{"key":"{key}"{}}}"#, end.unwrap_or_default());
        let answer = self.ask_member(index, "/v3/kv/range", &body)?;
        Ok(gateway::keys(&answer))
    }

    fn ask_member(
        &self,
        index: usize,
        path: &str,
        body: &str,
    ) -> Result<serde_json::Value, Refused> {
        let member = &self.members[index];
        let admin = member.at(member.admin);
        let login = self.login().clone();
        let token = login.and_then(|(name, password)| {
            let body = format!(r#"{{"name":"{name}","password":"{password}"}}"#);
            let answer = gateway::post(admin, "/v3/auth/authenticate", &body, None).ok()?;
            Some(gateway::text(&answer, "token"))
        });
        gateway::post(admin, path, body, token.as_deref())
    }

    fn login(&self) -> MutexGuard<'_, Option<(String, String)>> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    fn at(&self, port: u16) -> SocketAddr {
        (self.host, port).into()
    }

    fn process(&self) -> MutexGuard<'_, Option<Running>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
