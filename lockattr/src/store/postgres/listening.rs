//! The stream of wake-ups: the channel of the client, listened to on the second connection for as long as
//! somebody waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::Fault;
use super::connection::Connection;
use super::live::Live;
use super::sql;
use super::wakeups::WakeUpRegistry;
use crate::runtime::background::Background;
use crate::runtime::jitter::jittered;

/// After so long without a word the server is asked whether it is there: silence without a reset is told
/// by nothing else.
const PING: Duration = Duration::from_secs(2);

/// The channel is listened to for so long after the last one has waited.
const LINGERS: Duration = Duration::from_secs(10);

/// Pauses between two tries to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often it is looked whether anybody waits.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Listening {
    pub(super) connection: Connection,
    registry: Arc<WakeUpRegistry>,
    patience: Duration,
    is_running: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

impl Listening {
    pub(super) fn new(
        connection: Connection,
        registry: &Arc<WakeUpRegistry>,
        patience: Duration,
    ) -> Self {
        Self {
            connection,
            registry: Arc::clone(registry),
            patience,
            is_running: AtomicBool::new(false),
            task: Mutex::default(),
        }
    }

    /// Listens from now on, for as long as somebody waits.
    pub(super) fn begin(self: &Arc<Self>, background: &Background) {
        if !self.is_running.swap(true, Ordering::SeqCst) {
            let task = background.spawn(run(Arc::downgrade(self)));
            self.set_task(Some(task.abort_handle()));
        }
    }

    /// The client has ended.
    pub(super) fn end(&self) {
        if let Some(task) = self.set_task(None) {
            task.abort();
        }
    }

    fn set_task(&self, task: Option<AbortHandle>) -> Option<AbortHandle> {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, task)
    }

    /// Listens over the connection that is there, or is made.
    async fn subscribe(&self) -> Option<Arc<Live>> {
        let live = self.connection.live().await.ok()?;
        let listens = self.listen().await;
        // It may have been another one.
        (listens.is_ok() && !live.is_over()).then(|| {
            self.registry.subscribed();
            live
        })
    }

    pub(super) async fn listen(&self) -> Result<(), Fault> {
        let channel = &self.registry.channel;
        // Others find by this lock whether the session is still there.
        let listen = format!(
            "SELECT pg_catalog.pg_advisory_lock_shared(1819239276, pg_catalog.hashtext({}));\
             LISTEN \"{channel}\"",
            sql::text(channel)
        );
        self.connection
            .ask(&listen, self.patience, None)
            .await
            .map(|_| ())
    }

    /// Watches over a connection until it ends, or nobody has waited for a while. Answers whether it has
    /// ended.
    async fn watch(&self, live: &Live, waited: &mut Instant) -> bool {
        loop {
            let ended = tokio::time::timeout(LOOK, live.ended()).await;
            if ended.is_ok() || live.is_over() {
                return true;
            }
            if !self.registry.nobody_waits() {
                *waited = Instant::now();
            } else if waited.elapsed() > LINGERS {
                return false;
            }
            if live.heard().elapsed() > PING
                // Whoever asks over it finds it silent.
                && self.connection.ask("", self.patience, None).await.is_err()
            {
                return true;
            }
        }
    }
}

/// The task that listens. It ends with the client, or some time after the last one has waited.
async fn run(listening: Weak<Listening>) {
    let mut pause = FIRST_PAUSE;
    let mut waited = Instant::now();
    while let Some(this) = listening.upgrade() {
        if let Some(live) = this.subscribe().await {
            pause = FIRST_PAUSE;
            let has_ended = this.watch(&live, &mut waited).await;
            if !has_ended {
                let _ = this.connection.ask("UNLISTEN *", this.patience, None).await;
            }
        }
        if !this.registry.nobody_waits() {
            waited = Instant::now();
        } else if waited.elapsed() > LINGERS {
            this.is_running.store(false, Ordering::SeqCst);
            // Somebody who has come in between has found it running.
            if this.registry.nobody_waits() || this.is_running.swap(true, Ordering::SeqCst) {
                return;
            }
            waited = Instant::now();
        }
        drop(this);
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
