//! Has the server tell of held keys that somebody else changes: who deletes or overwrites one by hand, flushes
//! the server, or lets it evict or expire.
//!
//! Keys are tracked by the connection for renewals, which speaks RESP3 from then on (`HELLO 3`, `CLIENT TRACKING ON
//! OPTIN NOLOOP`): behind each renewal they are read once more there, with the word that the server is to remember
//! that (`CLIENT CACHING YES`). A renewal itself makes the server forget it, since it is a change, and
//! is told to everybody else. Keys that the renewal's script reads are not tracked by that: before Redis 7.2 each
//! read there counts for all keys of the call. Leases that are renewed more than once a second are not tracked,
//! nor is any before its first renewal: short calls cost nothing. Nor are keys that
//! others hold beside the lease, which change each time that one of them comes or goes.
//!
//! What is told is not believed: the lease is renewed at once, which says what has become of it. A message that
//! is wrong costs a renewal, and no lease is renewed so more often than each tenth of a second. Where the server does not
//! know the commands, or its user may not call them, nothing is told, and the next renewal finds it out.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::batcher::Batcher;
use super::losses::Keeps;
use super::renew::RenewedKey;
use super::reply::text;
use super::stored::is_of;
use super::watchdog::Watchdog;
use super::wire::Told;
use crate::runtime::background::Background;
use crate::runtime::together::{Boxed, all};
use crate::store::{Claim, HeldLeases};

mod refusal;

use refusal::Refusal;

/// Leases of a shorter ttl are renewed often enough to find out by themselves.
const SHORTEST: Duration = Duration::from_secs(3);

/// The pause after leases were looked at, and the longest where they are there all the same: a server that has no
/// room for all that is tracked tells of keys again and again that nobody has changed.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// So many changed keys are remembered; where there are more, every lease is looked at.
const MOST: usize = 10_000;

/// How long a read may take; it is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The tracked keys of one server.
#[derive(Default)]
pub(super) struct Tracking {
    refusal: Mutex<Refusal>,
    /// The connection on which it is switched on.
    on: Mutex<Weak<Batcher>>,
    changed: Mutex<ChangedKeys>,
    told: Arc<Notify>,
}

/// What was changed since leases were looked at last.
enum ChangedKeys {
    /// Their locks.
    These(HashSet<String>),
    All,
}

impl Default for ChangedKeys {
    fn default() -> Self {
        Self::These(HashSet::new())
    }
}

impl ChangedKeys {
    /// Whether one of the claim's locks was changed.
    fn has(&self, claim: &Claim<'_>, keeps: &dyn Keeps) -> bool {
        match self {
            Self::These(locks) => claim.locks.iter().any(|lock| locks.contains(lock)),
            Self::All => keeps.keeps(claim),
        }
    }
}

/// A key that was renewed.
pub(super) struct TrackedKey {
    name: String,
    owner: String,
}

impl TrackedKey {
    /// A key that is worth it: what others hold beside the owner changes with each of them.
    pub(super) fn of(key: &RenewedKey<'_>) -> Option<Self> {
        (key.alone && key.ttl >= SHORTEST).then(|| Self {
            name: key.name.to_owned(),
            owner: key.owner.to_owned(),
        })
    }
}

impl Tracking {
    /// Whether the server may do it, as far as is known.
    fn is_possible(&self) -> bool {
        self.refusal().is_over(Instant::now())
    }

    /// Takes in what a connection is told beside its answers.
    pub(super) fn receiver(tracking: &Weak<Self>) -> Told {
        let tracking = Weak::clone(tracking);
        Box::new(move |kind, data| {
            if *kind == PushKind::Invalidate
                && let Some(tracking) = tracking.upgrade()
            {
                tracking.receive(data);
            }
        })
    }

    fn receive(&self, data: &[Value]) {
        match data.first() {
            Some(Value::Array(keys)) => self.changed(keys.iter().filter_map(text)),
            // The server was flushed.
            _ => *self.changes() = ChangedKeys::All,
        }
        self.told.notify_one();
    }

    fn changed(&self, keys: impl Iterator<Item = String>) {
        let mut changes = self.changes();
        if let ChangedKeys::These(known) = &mut *changes {
            known.extend(keys);
            if known.len() > MOST {
                *changes = ChangedKeys::All;
            }
        }
        drop(changes);
        self.told.notify_one();
    }

    /// Has the server remember keys that were renewed a moment ago on this connection. What was changed in between
    /// is seen by what is read.
    pub(super) fn track(self: &Arc<Self>, watchdog: &Watchdog, keys: Vec<TrackedKey>) {
        if keys.is_empty() || !self.is_possible() {
            return;
        }
        let Some(connection) = watchdog.up() else {
            return;
        };
        let (tracking, background) = (Arc::clone(self), watchdog.background());
        background.spawn(async move {
            let reading = tracking.read(&connection, &keys);
            if let Ok(Some(changed)) = timeout(PATIENCE, reading).await {
                tracking.changed(changed.into_iter());
            }
        });
    }

    /// Reads keys so that the server remembers it. The answer is those of them that were changed before that.
    async fn read(&self, connection: &Arc<Batcher>, keys: &[TrackedKey]) -> Option<Vec<String>> {
        let now = Arc::downgrade(connection);
        let before = mem::replace(&mut *self.on(), Weak::clone(&now));
        let is_on = Weak::ptr_eq(&before, &now);
        let mut switched = SwitchedOn {
            tracking: self,
            connection: &now,
            is_confirmed: false,
        };
        let mut commands = Vec::with_capacity(4);
        if !is_on {
            commands.push(words(&["HELLO", "3"]));
            commands.push(words(&["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"]));
        }
        commands.push(words(&["CLIENT", "CACHING", "YES"]));
        let mut read = redis::cmd("MGET");
        for key in keys {
            read.arg(&key.name);
        }
        commands.push(read);
        let sending = connection.send_all(commands).into_iter();
        let sending = sending.map(|one| Box::pin(one) as Boxed<'_, _>).collect();
        let mut answers = all(sending).await.into_iter().rev();
        let values = answers.next();
        switched.is_confirmed = true;
        for answer in answers {
            match answer {
                Ok(Value::ServerError(error)) => {
                    switched.is_confirmed = false;
                    if !is_on {
                        self.refusal().refused(&error);
                    }
                }
                Ok(_) => {}
                Err(_) => {
                    switched.is_confirmed = false;
                    if !is_on {
                        self.refusal().closed(Instant::now());
                    }
                    return None;
                }
            }
        }
        self.refusal().done();
        let Some(Ok(Value::Array(values))) = values else {
            return None;
        };
        let found = keys.iter().zip(&values);
        let changed = found.filter(|(key, value)| !key.is_under(value));
        Some(changed.map(|(key, _)| key.name.clone()).collect())
    }

    fn refusal(&self) -> MutexGuard<'_, Refusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on(&self) -> MutexGuard<'_, Weak<Batcher>> {
        self.on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, ChangedKeys> {
        // No panic happens under this lock.
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on which it counts as switched on. It does no more where that was refused or given up.
struct SwitchedOn<'a> {
    tracking: &'a Tracking,
    connection: &'a Weak<Batcher>,
    is_confirmed: bool,
}

impl Drop for SwitchedOn<'_> {
    fn drop(&mut self) {
        let mut on = self.tracking.on();
        if !self.is_confirmed && Weak::ptr_eq(&on, self.connection) {
            *on = Weak::new();
        }
    }
}

fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

impl TrackedKey {
    /// Whether a value says that the key is its owner's.
    fn is_under(&self, value: &Value) -> bool {
        matches!(value, Value::BulkString(value) if is_of(value, &self.owner))
    }
}

/// Wakes the task, which ends.
impl Drop for Tracking {
    fn drop(&mut self) {
        self.told.notify_one();
    }
}

/// Has leases looked at from now on whose keys were changed.
pub(super) fn watch(
    tracking: &Arc<Tracking>,
    background: &Background,
    leases: HeldLeases,
    keeps: Arc<dyn Keeps>,
) {
    let (told, tracking) = (Arc::clone(&tracking.told), Arc::downgrade(tracking));
    background.spawn(async move {
        let mut pause = PAUSE;
        loop {
            if timeout(2 * pause, told.notified()).await.is_err() {
                pause = PAUSE;
                told.notified().await;
            }
            let Some(tracking) = tracking.upgrade() else {
                return;
            };
            let changed = mem::take(&mut *tracking.changes());
            drop(tracking);
            let is_changed = |claim: Claim<'_>| changed.has(&claim, &*keeps);
            // What was given back by its holder was changed as well, and is not held any more.
            leases.renew(is_changed);
            sleep(pause).await;
            pause = if leases.any(is_changed) {
                (2 * pause).min(LONGEST_PAUSE)
            } else {
                PAUSE
            };
        }
    });
}

#[cfg(test)]
mod tests;
