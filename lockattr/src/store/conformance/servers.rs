//! Real servers for the stores of this crate, and what each store has to keep on its own.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::{Store, conformance};

/// Programs with a directory of their own; all go with it.
pub(crate) struct Programs {
    programs: Vec<Child>,
    directory: PathBuf,
}

impl Programs {
    /// None yet, and a directory for them.
    pub(crate) fn new() -> Self {
        let directory = env::temp_dir().join(format!("lockattr-{}", Origin::here().new_id()));
        fs::create_dir(&directory).expect("a directory");
        Self {
            programs: Vec::new(),
            directory,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts one, which is in the Debian packages of that name.
    pub(crate) fn start(&mut self, command: &mut Command, packages: &str) {
        let started = quiet(command).spawn();
        let program = started
            .unwrap_or_else(|error| panic!("{command:?}: {error}; apt-get install {packages}"));
        self.programs.push(program);
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // They are in the way of nobody if this fails.
            let _ = program.kill();
            let _ = program.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A command that neither reads nor prints.
pub(crate) fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Ports that nobody has, all drawn at once, so that they differ.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

/// Waits until a server is ready.
pub(crate) async fn until(what: &str, mut is_ready: impl AsyncFnMut() -> bool) {
    let ready = async {
        while !is_ready().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let ready = timeout(Duration::from_secs(30), ready).await;
    ready.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// Servers of one kind of store.
pub(crate) trait Servers: Sized {
    type Store: Store;

    async fn start() -> Self;

    fn store(&self, background: &Background) -> Self::Store;
}

pub(crate) async fn stores_keep_their_promises<S: Servers>() {
    let background = Background::start().expect("a thread");
    let servers = S::start().await;
    conformance::check(async || servers.store(&background)).await;
}

pub(crate) async fn one_store_may_be_asked_everything<S: Servers>() {
    let background = Background::start().expect("a thread");
    let servers = S::start().await;
    let store = Arc::new(servers.store(&background));
    conformance::check(async || Arc::clone(&store)).await;
}

pub(crate) async fn servers_that_are_gone_are_an_outage<S: Servers>() {
    let background = Background::start().expect("a thread");
    let servers = S::start().await;
    let store = servers.store(&background);
    drop(servers);
    conformance::outage(&store).await;
}
