//! Locks in this process alone, for tests and development.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Acquired, Found, Renewal, Reply, Store, Token, Try};
use crate::clock::Clock;
use crate::error::StoreError;

/// Locks in this process alone: what the URL `memory:` makes, and what tests can lean on.
///
/// Clones are handles to the same locks, so that several clients can contend, and a test can play
/// the faults of a real store. It lives in the time of the calling tokio runtime: under
/// `#[tokio::test(start_paused = true)]` ttls, waits and renewals pass in virtual time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
/// use lockattr::{Client, Error, Memory};
///
/// let memory = Memory::new();
/// let client = Client::builder().store(memory.clone())?;
///
/// let lease = client.lock("sync:42").acquire().await?;
/// memory.expire("lock:sync:42");
/// assert!(matches!(lease.release().await, Err(Error::Lost { .. })));
///
/// memory.refuse(Some("out of order"));
/// assert!(matches!(client.lock("sync:42").acquire().await, Err(Error::Unavailable { .. })));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Locks>>);

#[derive(Debug, Default)]
struct Locks {
    held: HashMap<String, Held>,
    last_token: u64,
    refusal: Option<String>,
}

#[derive(Debug)]
struct Held {
    owner: String,
    until: Instant,
}

impl Memory {
    /// A place with no locks in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes a lock under its holder, as a `DEL` by hand, an expiry or an eviction would.
    /// `name` is the whole lock key, prefix included.
    pub fn expire(&self, name: &str) {
        self.locks().held.remove(name);
    }

    /// Puts a lock of another owner under a name, for `ttl` from now, whoever holds it.
    pub fn take(&self, name: &str, owner: &str, ttl: Duration) {
        let until = now() + ttl;
        let owner = owner.to_owned();
        self.locks()
            .held
            .insert(name.to_owned(), Held { owner, until });
    }

    /// From now on every step fails as unavailable with this reason; `None` makes it work again.
    pub fn refuse(&self, reason: Option<&str>) {
        self.locks().refusal = reason.map(str::to_owned);
    }

    /// The owner that holds a name now.
    #[must_use]
    pub fn holder(&self, name: &str) -> Option<String> {
        self.locks().live(name).map(|held| held.owner.clone())
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        // Every change is one map operation, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step, unless the store was told to refuse.
    fn step<'a, T>(&'a self, step: impl FnOnce(&mut Locks) -> T + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            let mut locks = self.locks();
            match &locks.refusal {
                Some(reason) => Err(StoreError::refused(reason.clone())),
                None => Ok(step(&mut locks)),
            }
        })
    }
}

impl Locks {
    fn live(&mut self, name: &str) -> Option<&mut Held> {
        if self.held.get(name)?.until <= now() {
            self.held.remove(name);
            return None;
        }
        self.held.get_mut(name)
    }

    fn find(&mut self, name: &str, owner: &str) -> Found {
        match self.live(name) {
            None => Found::Nothing,
            Some(held) if held.owner == owner => Found::Ours,
            Some(_) => Found::Another,
        }
    }
}

/// The calling runtime's time where there is one, and real time elsewhere.
fn now() -> Instant {
    Clock::Tokio.now()
}

impl Store for Memory {
    fn acquire<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
        _: Try,
    ) -> Reply<'a, Acquired> {
        self.step(move |locks| {
            let sent = now();
            match locks.live(name) {
                Some(held) if held.owner != owner => Acquired::Busy {
                    owner: held.owner.clone(),
                    remaining: held.until - sent,
                    in_doubt: false,
                },
                _ => {
                    let held = Held {
                        owner: owner.to_owned(),
                        until: sent + ttl,
                    };
                    locks.held.insert(name.to_owned(), held);
                    Acquired::Granted {
                        sent,
                        in_doubt: false,
                    }
                }
            }
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], _: Duration) -> Reply<'a, Vec<Found>> {
        self.step(move |locks| {
            let renew = |lease: &Renewal<'_>| {
                let found = locks.find(lease.name, lease.owner);
                if found == Found::Ours
                    && let Some(held) = locks.live(lease.name)
                {
                    held.until = now() + lease.ttl;
                }
                found
            };
            leases.iter().map(renew).collect()
        })
    }

    fn release<'a>(&'a self, name: &'a str, owner: &'a str) -> Reply<'a, Found> {
        self.step(move |locks| {
            let found = locks.find(name, owner);
            if found == Found::Ours {
                locks.held.remove(name);
            }
            found
        })
    }

    fn token<'a>(&'a self, name: &'a str, owner: &'a str) -> Reply<'a, Token> {
        self.step(move |locks| match locks.find(name, owner) {
            Found::Ours => {
                locks.last_token = micros_since_epoch().max(locks.last_token + 1);
                Token::Drawn(locks.last_token)
            }
            found => Token::NotHeld(found),
        })
    }

    fn in_callers_time(&self) -> bool {
        true
    }
}

fn micros_since_epoch() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}
