//! Locks in this process alone, for tests and development.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{
    Acquired, Ear, Found, Leave, Release, Renewal, Reply, Request, Store, Token, Want, Woken,
};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::waker;

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
    /// Who waits, in order of arrival.
    waiting: Vec<Waiting>,
    /// Who hears, by owner.
    ears: HashMap<String, Hears>,
    /// To be woken once the locks are let go.
    to_wake: Vec<Waker>,
}

#[derive(Debug)]
struct Waiting {
    names: Vec<String>,
    want: Want,
    owner: String,
    ttl: Duration,
}

#[derive(Debug, Default)]
struct Hears {
    news: Option<Woken>,
    waker: Option<Waker>,
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
        self.change(|locks| {
            locks.held.remove(name);
            locks.settle();
        });
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
        self.change(|locks| {
            locks.refusal = reason.map(str::to_owned);
            locks.tell_all(|_| true);
        });
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
        // No change can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change, and then those are woken whom it concerns.
    fn change<T>(&self, change: impl FnOnce(&mut Locks) -> T) -> T {
        let mut locks = self.locks();
        let result = change(&mut locks);
        let to_wake = mem::take(&mut locks.to_wake);
        drop(locks);
        to_wake.into_iter().for_each(Waker::wake);
        result
    }

    /// One step, unless the store was told to refuse.
    fn step<'a, T>(&'a self, step: impl FnOnce(&mut Locks) -> T + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            self.change(|locks| match &locks.refusal {
                Some(reason) => Err(StoreError::refused(reason.clone())),
                None => Ok(step(locks)),
            })
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
                place: None,
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
        let Request {
            names,
            want,
            owner,
            ttl,
            ..
        } = request;
        // Those who wait come before those who come.
        self.settle();
        let refusal = match self.grant(names, want, owner, ttl) {
            Ok(index) => {
                self.waiting.retain(|waiting| waiting.owner != owner);
                return Acquired::Granted {
                    index,
                    sent: now(),
                    in_doubt: false,
                };
            }
            Err(refusal) => refusal,
        };
        let queues = matches!(refusal, Acquired::Busy { .. })
            && !request.wait.is_zero()
            && self.ears.contains_key(owner);
        if !queues {
            self.waiting.retain(|waiting| waiting.owner != owner);
            return refusal;
        }
        let is_it = |waiting: &Waiting| waiting.owner == owner;
        let stands = self.waiting.iter().position(is_it);
        let place = stands.unwrap_or_else(|| {
            self.waiting.push(Waiting {
                names: names.to_vec(),
                want,
                owner: owner.to_owned(),
                ttl,
            });
            self.waiting.len() - 1
        });
        match refusal {
            Acquired::Busy {
                index,
                owner,
                remaining,
                in_doubt,
                ..
            } => Acquired::Busy {
                index,
                owner,
                remaining,
                place: u64::try_from(place).ok(),
                in_doubt,
            },
            other => other,
        }
    }

    /// Grants all of the names or one, and says which; or why not.
    fn grant(
        &mut self,
        names: &[String],
        want: Want,
        owner: &str,
        ttl: Duration,
    ) -> Result<usize, Acquired> {
        let refusals: Vec<_> = (names.iter().enumerate())
            .map(|(index, name)| self.refusal(index, name, owner))
            .collect();
        let granted = match want {
            Want::All if refusals.iter().all(Option::is_none) => Some(0),
            Want::All => None,
            // Of several slots, the one that is the owner's already comes first.
            Want::Any => (0..names.len())
                .find(|index| self.find(&names[*index], owner) == Found::Ours)
                .or_else(|| refusals.iter().position(Option::is_none)),
        };
        let Some(index) = granted else {
            let mut refusals: Vec<_> = refusals.into_iter().flatten().collect();
            return Err(refusals.swap_remove(soonest(&refusals)));
        };
        let names = match want {
            Want::All => names,
            Want::Any => &names[index..=index],
        };
        for name in names {
            let by = Holder::Owner(owner.to_owned());
            let until = after(ttl);
            self.held.insert(name.clone(), Held { by, until });
        }
        Ok(index)
    }

    /// Gives what is free to those who wait for it, in the order in which they came.
    fn settle(&mut self) {
        for waiting in mem::take(&mut self.waiting) {
            let Waiting {
                names,
                want,
                owner,
                ttl,
            } = &waiting;
            if self.ears.contains_key(owner)
                && let Ok(index) = self.grant(names, *want, owner, *ttl)
            {
                let since = now();
                self.tell(owner, Woken::Granted { index, since });
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    fn tell(&mut self, owner: &str, news: Woken) {
        if let Some(ear) = self.ears.get_mut(owner) {
            ear.news = Some(news);
            self.to_wake.extend(ear.waker.take());
        }
    }

    /// Those who wait for such names had better look again.
    fn tell_all(&mut self, of: impl Fn(&[String]) -> bool) {
        let told = self.waiting.iter().filter(|waiting| of(&waiting.names));
        let owners: Vec<_> = told.map(|waiting| waiting.owner.clone()).collect();
        for owner in owners {
            self.tell(&owner, Woken::Look);
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

    fn release<'a>(&'a self, release: Release<'a>) -> Reply<'a, Found> {
        self.step(move |locks| {
            let Release {
                names,
                owner,
                leave,
                ..
            } = release;
            let one = |answer, name: &String| match locks.release(name, owner, leave) {
                Found::Ours => answer,
                other => other,
            };
            let answer = names.iter().fold(Found::Ours, one);
            locks.waiting.retain(|waiting| waiting.owner != owner);
            match leave {
                Leave::Nothing => locks.settle(),
                Leave::Closed(_) => {}
                // Nobody has to wait any longer.
                Leave::Done(_) => {
                    locks.tell_all(|waits| waits.iter().any(|name| names.contains(name)));
                }
            }
            answer
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

    fn ear<'a>(&'a self, owner: &'a str) -> Box<dyn Ear + 'a> {
        let hears = Hears::default();
        let before = self.locks().ears.insert(owner.to_owned(), hears);
        // Not under the lock: its waker may be the last handle of a task.
        drop(before);
        let memory = self;
        Box::new(Heard { memory, owner })
    }

    fn in_callers_time(&self) -> bool {
        true
    }
}

/// News for one owner.
struct Heard<'a> {
    memory: &'a Memory,
    owner: &'a str,
}

impl Ear for Heard<'_> {
    fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<Woken> {
        let mut locks = self.memory.locks();
        let Some(ear) = locks.ears.get_mut(self.owner) else {
            return Poll::Pending;
        };
        if let Some(news) = ear.news.take() {
            return Poll::Ready(news);
        }
        let before = waker::replace(&mut ear.waker, cx.waker());
        drop(locks);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        let mut locks = self.memory.locks();
        let left = locks.ears.remove(self.owner);
        drop(locks);
        // Its waker may be the last handle of a task, whose end may come back here.
        drop(left);
    }
}

fn micros_since_epoch() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}
