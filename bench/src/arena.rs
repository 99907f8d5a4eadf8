//! A server to measure on, and how often it was asked.

use std::process::{Command, Stdio};

use tests::monitor::Monitor;
use tests::server::Server;

/// A server on some core.
pub struct Arena {
    pub server: Server,
}

/// How many commands came from clients, and how many scripts called.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub sent: f64,
    pub by_scripts: f64,
}

impl Asked {
    /// The same for each of a number of things.
    pub fn per(self, things: f64) -> Self {
        Self {
            sent: self.sent / things,
            by_scripts: self.by_scripts / things,
        }
    }
}

impl Arena {
    pub fn on(core: &str) -> Self {
        let arena = Self::anywhere();
        pin(&arena.server, core);
        arena
    }

    pub fn anywhere() -> Self {
        Self {
            server: Server::with(&["--maxclients", "4000"]),
        }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Forgets everything that runs before this one have left.
    pub fn clear(&self) {
        self.server.ask::<()>("FLUSHALL");
    }

    /// Starts to count.
    pub fn count(&self) -> Count {
        let mut monitor = self.server.monitor();
        monitor.seen();
        Count(monitor)
    }
}

/// Has a server run on one core.
pub fn pin(server: &Server, core: &str) {
    let process = server.info("server")["process_id"].clone();
    let pinned = Command::new("taskset")
        .args(["-acp", core, &process])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.is_ok_and(|status| status.success()), "taskset works");
}

/// A count that runs. The server is slower meanwhile, so no time is taken then.
pub struct Count(Monitor);

impl Count {
    /// What was asked since the last call.
    pub fn asked(&mut self) -> Asked {
        let seen = self.0.seen();
        let by_scripts = seen.iter().filter(|command| command.by_script).count();
        Asked {
            sent: (seen.len() - by_scripts) as f64,
            by_scripts: by_scripts as f64,
        }
    }
}
