//! Locks in this process alone, for tests and development.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use super::{
    Acquired, Attempt, Claim, Found, Held, Limits, Release, Renewed, Reply, Sharing, Store, Token,
    WakeUp, WakeUps,
};
use crate::error::StoreError;
use crate::limits::MAX_PERMITS;

#[cfg(feature = "inspect")]
mod inspect;
mod locks;
mod names;

use locks::{Holder, Locks, Stored};
pub(crate) use locks::{Refusal, Standing};

/// Locks in this process alone: what the URL `memory:` makes, and what tests can lean on.
///
/// Clones are handles to the same locks, so that several clients can contend, and a test can play
/// the faults of a real store. It lives in the time of the calling tokio runtime: under
/// `#[tokio::test(start_paused = true)]` ttls, waits and renewals pass in virtual time. The clock is to
/// be paused before the first lease is taken.
///
/// [`expire`](Self::expire), [`take`](Self::take) and [`holder`](Self::holder) go by names. The name
/// of a lock is its whole key, with the client's prefix. Of a key with `permits` this is the first
/// slot, slot 0; the name of the next is `{lock:geo}1`, and so on. Of a `shared` key it is all readers.
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
pub struct Memory(Arc<Mutex<MemoryState>>);

#[derive(Default)]
struct MemoryState {
    locks: Locks,
    refusal: Option<String>,
    without_tokens: bool,
}

/// A lease of another store.
pub(crate) struct HeldElsewhere {
    /// Which of the locks.
    pub(crate) lock: usize,
    pub(crate) slot: usize,
    pub(crate) sharing: Sharing,
    pub(crate) owner: String,
    pub(crate) since: SystemTime,
    pub(crate) remaining: Duration,
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
        memory.state().without_tokens = true;
        memory
    }

    /// What stands under these locks of its own.
    pub(crate) fn standing(&self, locks: &[String]) -> Vec<Standing> {
        self.state().locks.standing(locks)
    }

    /// Has leases of another store stand in the way of others here, and no others that did so before.
    pub(crate) fn hold_elsewhere(
        &self,
        locks: &[String],
        held: impl Iterator<Item = HeldElsewhere>,
    ) {
        let held = held.map(|one| {
            let by = Holder::Elsewhere(one.owner, one.since);
            let stored = Stored {
                sharing: one.sharing,
                slot: one.slot,
                ..Stored::alone(by, one.remaining)
            };
            (one.lock, stored)
        });
        // The caller's iterator runs before the lock is taken.
        let held = held.collect();
        self.change(|state| state.locks.hold_elsewhere(locks, held));
    }

    /// A lease of another store has ended: what it held may be taken.
    pub(crate) fn no_longer_elsewhere(&self, owner: &str) {
        self.change(|state| state.locks.no_longer_elsewhere(owner));
    }

    /// Removes a lock under its holder, as a `DEL` by hand, an expiry or an eviction would.
    pub fn expire(&self, name: &str) {
        self.change(|state| state.locks.remove(name));
    }

    /// Puts a lock of another owner under a name, for `ttl` from now, whoever holds it.
    pub fn take(&self, name: &str, owner: &str, ttl: Duration) {
        self.state().locks.seize(name, owner, ttl);
    }

    /// From now on every step fails as unavailable with this reason; `None` makes it work again.
    pub fn refuse(&self, reason: Option<&str>) {
        self.change(|state| {
            state.refusal = reason.map(str::to_owned);
            state.locks.wake_all();
        });
    }

    /// The owner that holds a name now.
    #[must_use]
    pub fn holder(&self, name: &str) -> Option<String> {
        self.state().locks.holder(name)
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        // No change can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change, and then those are woken whom it concerns: not under the lock, since a waker may
    /// come back here.
    fn change<T>(&self, change: impl FnOnce(&mut MemoryState) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let to_wake = mem::take(&mut state.locks.to_wake);
        drop(state);
        to_wake.into_iter().for_each(Waker::wake);
        result
    }

    /// One step, unless the store was told to refuse.
    fn step<'a, T>(
        &'a self,
        step: impl FnOnce(&mut MemoryState) -> Result<T, StoreError> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move {
            self.change(|state| match &state.refusal {
                Some(reason) => Err(StoreError::refused(reason.clone())),
                None => step(state),
            })
        })
    }
}

impl Store for Memory {
    fn limits(&self) -> Limits {
        Limits::default()
            .most_permits(MAX_PERMITS)
            .weights(true)
            .shared(true)
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        self.step(move |state| Ok(state.locks.acquire(claim, attempt)))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        self.step(move |state| {
            let renew = |lease| Ok(state.locks.renew(lease));
            Ok(leases.iter().copied().map(renew).collect())
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        self.step(move |state| Ok(state.locks.release(claim, release)))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.step(move |state| {
            if state.without_tokens {
                return Err(StoreError::refused(
                    "the lock is one of this process alone, and has no token: it could be smaller \
                     than the store's last",
                ));
            }
            Ok(state.locks.token(lease))
        })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        let owner = claim.owner;
        let before = self.state().locks.listen(owner);
        // Not under the lock: its waker may be the last handle of a task.
        drop(before);
        Box::new(OfOwner {
            memory: self,
            owner: owner.to_owned(),
        })
    }

    fn settled<'a>(&'a self, _: &'a str) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        // Every step is done when its future is first polled.
        Box::pin(async { Duration::ZERO })
    }

    fn in_callers_time(&self) -> bool {
        true
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        Some(self)
    }
}

/// Wake-ups of one owner.
struct OfOwner<'a> {
    memory: &'a Memory,
    owner: String,
}

impl WakeUps for OfOwner<'_> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        let mut state = self.memory.state();
        match state.locks.next_wakeup(&self.owner, cx.waker()) {
            Ok(wakeup) => Poll::Ready(wakeup),
            Err(before) => {
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl Drop for OfOwner<'_> {
    fn drop(&mut self) {
        let listener = self
            .memory
            .change(|state| state.locks.close_inbox(&self.owner));
        // Its waker may be the last handle of a task, whose end may come back here.
        drop(listener);
    }
}

/// Not the owners of what is held: whoever knows one can give it back.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Memory")
            .field("names", &state.locks.len())
            .field("waiting", &state.locks.waiting())
            .finish_non_exhaustive()
    }
}
