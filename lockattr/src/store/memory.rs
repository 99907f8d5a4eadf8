//! Locks in this process alone, for tests and development.

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{
    Acquired, Ear, Found, Leave, Release, Renewal, Renewed, Reply, Request, Store, Token, Want,
    Woken,
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
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Locks>>);

/// As many names are kept at least before those whose time is over are looked for.
const SWEPT_FROM: usize = 1024;

#[derive(Default)]
struct Locks {
    held: HashMap<String, Held>,
    /// With so many names those whose time is over are taken out.
    sweep_at: usize,
    last_token: u64,
    without_tokens: bool,
    refusal: Option<String>,
    /// Who waits, in order of arrival.
    waiting: Vec<Waiting>,
    /// Who hears, by owner.
    ears: HashMap<String, Hears>,
    /// To be woken once the locks are let go.
    to_wake: Vec<Waker>,
}

struct Waiting {
    names: Vec<String>,
    want: Want,
    owner: String,
    ttl: Duration,
}

#[derive(Default)]
struct Hears {
    news: Option<Woken>,
    waker: Option<Waker>,
}

struct Held {
    by: Holder,
    until: Instant,
}

enum Holder {
    Owner(String),
    /// A lease of another store, as long as that stands in for this one.
    Elsewhere(String),
    /// The work is done, since then.
    Done(SystemTime),
}

/// What keeps a name from being taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is held, or stays closed, for so long yet.
    Held(Duration),
    /// Its work is done, since then.
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

    /// One that draws no tokens: what stands in for another store for a while would draw smaller ones.
    pub(crate) fn without_tokens() -> Self {
        let memory = Self::new();
        memory.locks().without_tokens = true;
        memory
    }

    /// What stands under these names, as far as it keeps anybody from taking them.
    pub(crate) fn refusals(&self, names: &[String]) -> Vec<Refusal> {
        let mut locks = self.locks();
        let now = now();
        let found = names.iter().filter_map(|name| {
            let held = locks.live(name)?;
            match held.by {
                Holder::Owner(_) => Some(Refusal::Held(held.until.saturating_duration_since(now))),
                Holder::Done(since) => Some(Refusal::Done(since)),
                Holder::Elsewhere(_) => None,
            }
        });
        found.collect()
    }

    /// Keeps these names from being taken which other stores' leases hold, by their owners and for as
    /// long as they run, and no others that were kept so before.
    pub(crate) fn hold_elsewhere(
        &self,
        names: &[String],
        held: impl Iterator<Item = (String, String, Duration)>,
    ) {
        self.change(|locks| {
            for name in names {
                let is_elsewhere = |held: &mut Held| matches!(held.by, Holder::Elsewhere(_));
                if locks.live(name).is_some_and(is_elsewhere) {
                    locks.held.remove(name);
                }
            }
            for (name, owner, remaining) in held {
                if locks.live(&name).is_none() {
                    let by = Holder::Elsewhere(owner);
                    let until = after(remaining);
                    locks.held.insert(name, Held { by, until });
                }
            }
            locks.settle();
        });
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
        self.locks().keep(name, Held { by, until });
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
            Holder::Owner(owner) | Holder::Elsewhere(owner) => Some(owner.clone()),
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
    /// Keeps something under a name. What expires is not seen to, so names that nobody asks for any
    /// more are looked for whenever there are twice as many as the last time: a constant cost a name.
    fn keep(&mut self, name: &str, held: Held) {
        if self.held.len() >= self.sweep_at.max(SWEPT_FROM) {
            let now = now();
            self.held.retain(|_, held| held.until > now);
            self.held.shrink_to(2 * SWEPT_FROM);
            self.sweep_at = 2 * self.held.len();
        }
        self.held.insert(name.to_owned(), held);
    }

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
            Holder::Owner(owner) | Holder::Elsewhere(owner) => Acquired::Busy {
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
            self.keep(name, Held { by, until });
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

    fn release(&mut self, name: &str, owner: &str, leave: Leave, keep_marks: bool) -> Found {
        let mut found = self.find(name, owner);
        let keep = keep_marks && matches!(leave, Leave::Done(_));
        if keep
            && matches!(
                self.live(name),
                Some(Held {
                    by: Holder::Done(_),
                    ..
                })
            )
        {
            // An earlier release has done it.
            found = Found::Ours;
        } else if found == Found::Ours || keep && found == Found::Nothing {
            let left = match leave {
                Leave::Nothing => None,
                Leave::Closed(length) => {
                    let origin = owner.split_once('@').map_or("", |(_, origin)| origin);
                    Some((Holder::Owner(format!("{:032}@{origin}", 0)), length))
                }
                Leave::Done(length) => Some((Holder::Done(SystemTime::now()), length)),
            };
            match left {
                None => {
                    self.held.remove(name);
                }
                Some((by, length)) => {
                    let until = after(length);
                    self.keep(name, Held { by, until });
                }
            }
        }
        found
    }
}

/// Not the owners of what is held: whoever knows one can give it back.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = self.locks();
        f.debug_struct("Memory")
            .field("names", &locks.held.len())
            .field("waiting", &locks.waiting.len())
            .finish_non_exhaustive()
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

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], _: Duration) -> Reply<'a, Renewed> {
        self.step(move |locks| {
            let renew = |lease: &Renewal<'_>| {
                let found = locks.find(lease.name, lease.owner);
                if found == Found::Ours
                    && let Some(held) = locks.live(lease.name)
                {
                    held.until = after(lease.ttl);
                }
                Ok(found)
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
                keep_marks,
                ..
            } = release;
            let mut answer = Found::Ours;
            let leave = leave.iter().chain(iter::repeat(&Leave::Nothing));
            let mut done = Vec::new();
            for (name, leave) in names.iter().zip(leave) {
                match locks.release(name, owner, *leave, keep_marks) {
                    Found::Ours => {}
                    other => answer = other,
                }
                if matches!(leave, Leave::Done(_)) {
                    done.push(name);
                }
            }
            locks.waiting.retain(|waiting| waiting.owner != owner);
            locks.settle();
            // Nobody has to wait for what is done any longer.
            locks.tell_all(|waits| waits.iter().any(|name| done.contains(&name)));
            answer
        })
    }

    fn token<'a>(
        &'a self,
        held: &'a [String],
        _: &'a [String],
        owner: &'a str,
    ) -> Reply<'a, Token> {
        if self.locks().without_tokens {
            let refusal = "the lock is one of this process alone, and has no token: it could be \
                           smaller than the store's last";
            return Box::pin(async move { Err(StoreError::refused(refusal)) });
        }
        self.step(move |locks| {
            let mut found = held.iter().map(|name| locks.find(name, owner));
            if let Some(found) = found.find(|found| *found != Found::Ours) {
                return Token::NotHeld(found);
            }
            locks.last_token = micros_since_epoch().max(locks.last_token + 1);
            Token::Drawn(locks.last_token)
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

    fn settled<'a>(&'a self, _: &'a str) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        // Every step is done when it is asked.
        Box::pin(async { Duration::ZERO })
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
