//! The connection for renewals.
//!
//! It is driven on the background runtime and carries nothing else, so that no caller and no blocked
//! runtime delays a renewal. Which leases are renewed when is left to the caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;

use super::batcher::Batcher;
use super::connection::{Connection, WeakConnection};
use super::connections::{Answer, classify, silent};
use super::fault::Fault;
use super::server::Server;
use super::tracking::Tracking;
use crate::runtime::background::{Background, Elapsed};

/// The connection for renewals alone.
#[derive(Clone)]
pub(super) struct Watchdog {
    connection: Connection,
    /// Whether what is renewed is on its way to this node of a cluster.
    asking: bool,
}

/// The same for who does not keep it open.
pub(super) struct WeakWatchdog(WeakConnection);

impl WeakWatchdog {
    pub(super) fn upgrade(&self) -> Option<Watchdog> {
        Some(Watchdog {
            connection: self.0.upgrade()?,
            asking: false,
        })
    }
}

impl Watchdog {
    pub(super) fn new(server: &Arc<Server>, tracking: &Arc<Tracking>) -> Self {
        let runtime = server.background.runtime().clone();
        Self {
            connection: Connection::tracking(server, runtime, tracking),
            asking: false,
        }
    }

    /// The same connection, for keys that are on their way to this node of a cluster.
    pub(super) fn asking(&self) -> Self {
        Self {
            asking: true,
            ..self.clone()
        }
    }

    pub(super) fn downgrade(&self) -> WeakWatchdog {
        WeakWatchdog(self.connection.downgrade())
    }

    /// The connection, if it is up.
    pub(super) fn up(&self) -> Option<Arc<Batcher>> {
        self.connection.up()
    }

    pub(super) fn background(&self) -> &Background {
        &self.connection.server().background
    }

    /// The connection, made if need be. The connect timeout bounds that.
    pub(super) async fn connected(&self) -> Result<Arc<Batcher>, Fault> {
        self.connection.connected().await
    }

    /// Sends one command.
    ///
    /// The connect timeout bounds the connecting. `patience` is how long the connection may be silent:
    /// while other replies come in, this one is on its way.
    pub(super) async fn ask(&self, command: Cmd, patience: Duration) -> Answer {
        let batcher = self.connected().await?;
        let sent = Instant::now();
        let mut sending = batcher.send(command, self.asking);
        let mut seen = sending.batcher.replies();
        let answer = loop {
            let until = Instant::now() + patience;
            let answer = self
                .connection
                .server()
                .background
                .until(until, &mut sending)
                .await;
            let now = sending.batcher.replies();
            if answer.is_ok() || now == seen {
                break answer;
            }
            seen = now;
        };
        let answer = answer.unwrap_or_else(|Elapsed| Err(silent(patience)));
        classify(&self.connection, &sending.batcher, sent, answer)
    }

    /// Drops the connection after a protocol error.
    pub(super) fn discard_any(&self) {
        self.connection.discard_any();
    }
}
