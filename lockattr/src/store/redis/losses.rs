//! Has leases looked at whose server may have forgotten them: once a connection to it was lost and made anew.
//!
//! A server that was restarted, or that has taken another's place, may know less than the one before it. Whether
//! it is another one is seen by the connection for renewals. While that stands, the server is the one that has
//! kept its leases, and the loss of another connection means nothing. Where it was lost, or was not needed yet,
//! it is made anew as soon as the server answers, and every lease of this client at that server is renewed: once
//! for each connection that is made, and not before a pause has gone by since the last time, so that connections
//! that are lost again and again cost no more. Who holds nothing does not connect.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::batcher::Batcher;
use super::fault::Fault;
use super::script::Lua;
use super::server::Server;
use super::watchdog::{Watchdog, WeakWatchdog};
use crate::runtime::jitter::jittered;
use crate::store::{Claim, HeldLeases};

/// The first pause before an attempt to connect, and the longest. Within the first, also what was granted just
/// before the loss has become a lease.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The pause after leases were renewed so.
const BETWEEN: Duration = Duration::from_millis(500);

/// How long the server may take to answer before another connection is tried.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a server keeps.
pub(super) trait Keeps: Send + Sync + 'static {
    /// Whether it keeps a lock of the claim.
    fn keeps(&self, claim: &Claim<'_>) -> bool;

    /// It does not answer.
    fn is_away(&self);
}

/// The server is the only one.
pub(super) struct KeepsAll;

impl Keeps for KeepsAll {
    fn keeps(&self, _: &Claim<'_>) -> bool {
        true
    }

    fn is_away(&self) {}
}

/// What is watched: the connections to one server.
struct Losses {
    watchdog: WeakWatchdog,
    script: Weak<Lua>,
    leases: HeldLeases,
    keeps: Arc<dyn Keeps>,
}

/// Watches the connections to a server from now on, for as long as its client lives.
pub(super) fn watch(
    server: &Server,
    watchdog: &Watchdog,
    script: &Arc<Lua>,
    leases: HeldLeases,
    keeps: Arc<dyn Keeps>,
) {
    let losses = Losses {
        watchdog: watchdog.downgrade(),
        script: Arc::downgrade(script),
        leases,
        keeps,
    };
    let to_come = server.losses_to_come();
    server.background.spawn(losses.run(to_come));
}

impl Losses {
    async fn run(self, mut to_come: watch::Receiver<u64>) {
        // The connection over which every lease is known to have been renewed, or taken since.
        let mut trusted: Weak<Batcher> = Weak::new();
        while to_come.changed().await.is_ok() {
            let mut pause = FIRST_PAUSE;
            loop {
                sleep(jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                if !self.leases.any(|claim| self.keeps.keeps(&claim)) {
                    break;
                }
                match self.connect(&trusted).await {
                    Some(Ok(None)) => break,
                    Some(Ok(Some(connection))) => {
                        trusted = connection;
                        self.leases.renew(|claim| self.keeps.keeps(&claim));
                        sleep(jittered(BETWEEN)).await;
                        break;
                    }
                    Some(Err(_)) => self.keeps.is_away(),
                    None => return,
                }
            }
        }
    }

    /// The connection for renewals, made if need be, once the server answers on it; `None` within where it is
    /// the one that is trusted. Without a client there is none.
    async fn connect(
        &self,
        trusted: &Weak<Batcher>,
    ) -> Option<Result<Option<Weak<Batcher>>, Fault>> {
        let (watchdog, script) = (self.watchdog.upgrade()?, self.script.upgrade()?);
        let connection = match watchdog.connected().await {
            Ok(batcher) => Arc::downgrade(&batcher),
            Err(fault) => return Some(Err(fault)),
        };
        if Weak::ptr_eq(&connection, trusted) {
            return Some(Ok(None));
        }
        // Of no keys: it says that the server has loaded what it keeps, and makes the script known to it.
        let nothing = |form: super::script::Form<'_>| form.call::<&str>(&[], &[]);
        let answer = script.run_by_watchdog(&watchdog, nothing, PATIENCE).await;
        match answer {
            Err(fault) if fault.is_steered() || fault.is_transient() => Some(Err(fault)),
            // What is refused without keys may be allowed with them.
            Ok(_) | Err(_) => Some(Ok(Some(connection))),
        }
    }
}
