//! Locks in this process alone, for tests and development.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Acquired, Found, Leave, Renewal, Reply, Request, Store, Token, Want};
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
    by: Holder,
    until: Instant,
}

#[derive(Debug)]
enum Holder {
    Owner(String),
    /// The work is done, since then.
    Done(SystemTime),
}

impl Held {
    fn is_by(&self, owner: &str) -> bool {
        matches!(&self.by, Holder::Owner(holder) if holder == owner)
    }
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
        let until = after(ttl);
        let by = Holder::Owner(owner.to_owned());
        self.locks()
            .held
            .insert(name.to_owned(), Held { by, until });
    }

    /// From now on every step fails as unavailable with this reason; `None` makes it work again.
    pub fn refuse(&self, reason: Option<&str>) {
        self.locks().refusal = reason.map(str::to_owned);
    }

    /// The owner that holds a name now.
    #[must_use]
    pub fn holder(&self, name: &str) -> Option<String> {
        match &self.locks().live(name)?.by {
            Holder::Owner(owner) => Some(owner.clone()),
            Holder::Done(_) => None,
        }
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
            Some(held) if held.is_by(owner) => Found::Ours,
            Some(_) => Found::Another,
        }
    }

    /// Why `owner` cannot have a name, if it cannot.
    fn refusal(&mut self, index: usize, name: &str, owner: &str) -> Option<Acquired> {
        let held = self.live(name).filter(|held| !held.is_by(owner))?;
        Some(match &held.by {
            Holder::Owner(owner) => Acquired::Busy {
                index,
                owner: owner.clone(),
                remaining: held.until - now(),
                in_doubt: false,
            },
            Holder::Done(since) => Acquired::Done {
                index,
                since: *since,
                in_doubt: false,
            },
        })
    }

    fn acquire(&mut self, request: Request<'_>) -> Acquired {
        let sent = now();
        let owner = request.owner;
        let names = request.names.iter().enumerate();
        let mut refusals = Vec::new();
        let mut free = Vec::new();
        for (index, name) in names {
            match self.refusal(index, name, owner) {
                Some(refusal) => refusals.push(refusal),
                None => free.push(index),
            }
        }
        if request.want == Want::Any {
            let ours = |index: &&usize| self.held.contains_key(&request.names[**index]);
            free = free
                .iter()
                .find(ours)
                .or(free.first())
                .copied()
                .into_iter()
                .collect();
        }
        let granted = match request.want {
            Want::All => refusals.is_empty(),
            Want::Any => !free.is_empty(),
        };
        if !granted {
            return refusals.swap_remove(soonest(&refusals));
        }
        for index in &free {
            let held = Held {
                by: Holder::Owner(owner.to_owned()),
                until: after(request.ttl),
            };
            self.held.insert(request.names[*index].clone(), held);
        }
        Acquired::Granted {
            index: free[0],
            sent,
            in_doubt: false,
        }
    }

    fn release(&mut self, name: &str, owner: &str, leave: Leave) -> Found {
        let found = self.find(name, owner);
        if found == Found::Ours {
            let left = match leave {
                Leave::Nothing => None,
                Leave::Closed(length) => {
                    let origin = owner.split_once('@').map_or("", |(_, origin)| origin);
                    Some((Holder::Owner(format!("{:032}@{origin}", 0)), length))
                }
                Leave::Done(length) => Some((Holder::Done(SystemTime::now()), length)),
            };
            match left {
                None => self.held.remove(name),
                Some((by, length)) => {
                    let until = after(length);
                    self.held.insert(name.to_owned(), Held { by, until })
                }
            };
        }
        found
    }
}

/// Of several refusals, the one whose lease ends first.
fn soonest(refusals: &[Acquired]) -> usize {
    let ends = |refusal: &Acquired| match refusal {
        Acquired::Busy { remaining, .. } => *remaining,
        _ => Duration::MAX,
    };
    (0..refusals.len())
        .min_by_key(|index| ends(&refusals[*index]))
        .unwrap_or(0)
}

/// The calling runtime's time where there is one, and real time elsewhere.
fn now() -> Instant {
    Clock::Tokio.now()
}

/// The moment when a ttl that starts now is over; in a century for one that never is.
fn after(ttl: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
    now() + ttl.min(CENTURY)
}

impl Store for Memory {
    fn acquire<'a>(&'a self, request: Request<'a>) -> Reply<'a, Acquired> {
        self.step(move |locks| locks.acquire(request))
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], _: Duration) -> Reply<'a, Vec<Found>> {
        self.step(move |locks| {
            let renew = |lease: &Renewal<'_>| {
                let found = locks.find(lease.name, lease.owner);
                if found == Found::Ours
                    && let Some(held) = locks.live(lease.name)
                {
                    held.until = after(lease.ttl);
                }
                found
            };
            leases.iter().map(renew).collect()
        })
    }

    fn release<'a>(
        &'a self,
        names: &'a [String],
        owner: &'a str,
        leave: Leave,
    ) -> Reply<'a, Found> {
        self.step(move |locks| {
            let release = |answer, name: &String| match locks.release(name, owner, leave) {
                Found::Ours => answer,
                other => other,
            };
            names.iter().fold(Found::Ours, release)
        })
    }

    fn token<'a>(&'a self, held: &'a str, _: &'a [String], owner: &'a str) -> Reply<'a, Token> {
        self.step(move |locks| match locks.find(held, owner) {
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
