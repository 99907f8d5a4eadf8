//! Giving keys back, without anybody waiting for it.

use std::cell::RefCell;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::Keeper;
use crate::error::StoreError;
use crate::hold::{Hold, KEPT, Names, TRIED};
use crate::store::{Found, Leave, Release};

/// How long a key is looked for after a request whose fate a dropped future left open, while the
/// server answers. On one connection the request comes first; this is for one that has ended with its
/// runtime.
const DROPPED: Duration = Duration::from_millis(200);

/// Keys to give back.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) owed: Owed,
    pub(crate) doubt: Doubt,
    /// After this moment they have expired by themselves.
    pub(crate) until: Instant,
    /// How far its holder has come with it.
    pub(crate) returned: u8,
}

/// Whose keys they are.
#[derive(Debug)]
pub(crate) enum Owed {
    /// Those of a lease.
    Lease(Arc<Hold>),
    /// Those of a request that became none.
    Request {
        names: Names,
        owner: String,
        /// The ttl that was asked for, where it may stand in the store's queue.
        queued: Option<Duration>,
    },
}

impl Owed {
    fn owner(&self) -> String {
        match self {
            Self::Lease(hold) => hold.owner(),
            Self::Request { owner, .. } => owner.clone(),
        }
    }

    fn release<'a>(&'a self, owner: &'a str) -> Release<'a> {
        match self {
            Self::Lease(hold) => hold.release(owner),
            Self::Request { names, queued, .. } => {
                names.release(None, owner, Leave::Nothing, *queued)
            }
        }
    }

    fn label(&self) -> &str {
        match self {
            Self::Lease(hold) => hold.names.label(),
            Self::Request { names, .. } => names.label(),
        }
    }
}

/// What is known of a key that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It was granted.
    Granted,
    /// The caller went away while the answer was on its way.
    Dropped,
    /// The request may still be carried out at any time.
    Unanswered,
    /// It stood in a queue, the store's or the client's, and may have been given the key since.
    Queued,
}

impl Return {
    /// The key of a lease that was handed on, and that nobody has taken over.
    pub(crate) fn unclaimed(hold: &Hold) -> Self {
        Self {
            owed: Owed::Request {
                names: hold.names.clone(),
                owner: hold.owner(),
                queued: None,
            },
            doubt: Doubt::Queued,
            until: Instant::now() + hold.ttl(),
            returned: KEPT,
        }
    }

    /// The keys of a lease that was granted.
    pub(crate) fn of(hold: Arc<Hold>) -> Self {
        let doubt = if hold.in_doubt {
            Doubt::Unanswered
        } else {
            Doubt::Granted
        };
        Self {
            until: Instant::now() + hold.ttl().max(hold.closed()),
            returned: hold.returned.load(Ordering::Acquire),
            owed: Owed::Lease(hold),
            doubt,
        }
    }
}

impl Keeper {
    /// Gives a key back, without waiting for it.
    ///
    /// Works wherever a future can be dropped: on any thread, in a runtime that is shutting down,
    /// while a panic unwinds. The first request is on its way when this returns.
    pub(crate) fn give_back(self: &Arc<Self>, what: Return) {
        let keeper = Arc::clone(self);
        let on_its_way = OnItsWay::new(Arc::clone(self), |keeper| &keeper.returning);
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            keeper.return_key(&what, on_its_way).await;
        });
        // A store in memory is done at once, and whoever asks next finds the key free.
        let first = if may_poll_here() {
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        } else {
            Poll::Pending
        };
        if first.is_pending() {
            wait_at_end_of_thread(self);
            self.engine.spawn(work);
        }
    }

    /// A key begins to go back; it has arrived, or was given up, when the answer is dropped.
    pub(crate) fn returns(&self) -> OnItsWay<&Self> {
        OnItsWay::new(self, |keeper| &keeper.returning)
    }

    async fn return_key(&self, what: &Return, on_its_way: OnItsWay<Arc<Self>>) {
        let mut on_its_way = Some(on_its_way);
        let begun = Instant::now();
        let mut doubt = what.doubt;
        let mut told = what.returned == TRIED;
        // An earlier request that was not answered may have done it.
        let mut maybe_done = what.returned != KEPT;
        let mut pause = Duration::from_millis(25);
        let owed = &what.owed;
        let owner = owed.owner();
        loop {
            match self.store.release(owed.release(&owner)).await {
                // There may have been two requests, and one of them may yet come: it is looked for, but
                // nobody waits for that.
                Ok(Found::Ours) if doubt == Doubt::Unanswered => drop(on_its_way.take()),
                Ok(Found::Ours) => {
                    if doubt == Doubt::Granted {
                        self.counters.released.up();
                    }
                    return;
                }
                Ok(_) => match doubt {
                    Doubt::Granted if maybe_done => {
                        self.counters.released.up();
                        return;
                    }
                    Doubt::Granted => {
                        self.tell_late_loss(owed);
                        return;
                    }
                    Doubt::Dropped if begun.elapsed() > DROPPED => return,
                    // The store has answered that nothing is there, and it knew the request.
                    Doubt::Queued => return,
                    // As long as that may take nobody waits.
                    Doubt::Unanswered if what.doubt == Doubt::Dropped => drop(on_its_way.take()),
                    Doubt::Dropped | Doubt::Unanswered => {}
                },
                Err(error) => {
                    if doubt == Doubt::Granted && !told {
                        self.tell_release_failed(owed.label(), &error);
                    }
                    told = true;
                    maybe_done |= error.is_in_doubt();
                    // The connection was silent, and what is on it may come at any time:
                    // where a blocked runtime has yet to write it, or a frozen server to read it.
                    if doubt == Doubt::Dropped && error.is_in_doubt() {
                        doubt = Doubt::Unanswered;
                    }
                }
            }
            let again = Instant::now() + pause;
            if again >= what.until {
                return;
            }
            self.engine.sleep_until(again).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    /// The key of a lease that was given back in the background was not there any more. Unless its
    /// loss was seen before, this is where it is told.
    fn tell_late_loss(&self, owed: &Owed) {
        if let Owed::Lease(hold) = owed
            && hold.loss().is_none()
            && hold.rescue().is_none()
        {
            self.counters.lost.up();
            let key = owed.label().to_owned();
            self.engine.tell(move || {
                tracing::warn!(
                    key,
                    "the key of a lock that was given back was gone, or another's"
                );
            });
        }
    }

    /// A release could not be asked. The key expires by itself if the keeper has no more luck.
    pub(crate) fn tell_release_failed(&self, key: &str, error: &StoreError) {
        self.counters.release_failed.up();
        let (key, error) = (key.to_owned(), error.clone());
        self.engine.tell(move || {
            tracing::warn!(
                key, error = %error,
                "a lock could not be given back; trying again until it has expired"
            );
        });
    }
}

/// Counts a request, or a key on its way back, until its fate is known.
pub(crate) struct OnItsWay<K: Deref<Target = Keeper>> {
    keeper: K,
    count: fn(&Keeper) -> &AtomicUsize,
}

impl<K: Deref<Target = Keeper>> OnItsWay<K> {
    pub(super) fn new(keeper: K, count: fn(&Keeper) -> &AtomicUsize) -> Self {
        count(&keeper).fetch_add(1, Ordering::AcqRel);
        Self { keeper, count }
    }
}

impl<K: Deref<Target = Keeper>> Drop for OnItsWay<K> {
    fn drop(&mut self) {
        if (self.count)(&self.keeper).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.keeper.settled.notify_waiters();
            // A call to the system, and seldom is there anybody to hear it. One who misses it looks
            // again by itself.
            if self.keeper.threads_waiting.load(Ordering::Acquire) > 0 {
                self.keeper.settled_for_threads.notify_all();
            }
        }
    }
}

thread_local! {
    /// The keepers to which this thread has given something back.
    static GIVEN_BACK: RefCell<GivenBack> = const { RefCell::new(GivenBack(Vec::new())) };
}

/// When a thread ends, its process may be ending too, and the keeper's thread with it: a thread that
/// has dropped leases gives their requests a moment to leave the machine.
struct GivenBack(Vec<Weak<Keeper>>);

/// How long a thread stays for that; a store that answers takes less than a hundredth of it.
const LAST_MOMENT: Duration = Duration::from_millis(250);

fn wait_at_end_of_thread(keeper: &Arc<Keeper>) {
    // Where the thread is past that, there is nothing left to be done.
    let _ = GIVEN_BACK.try_with(|given_back| {
        let keepers = &mut given_back.borrow_mut().0;
        keepers.retain(|known| known.strong_count() > 0);
        if !keepers
            .iter()
            .any(|known| known.as_ptr() == Arc::as_ptr(keeper))
        {
            keepers.push(Arc::downgrade(keeper));
        }
    });
}

impl Drop for GivenBack {
    fn drop(&mut self) {
        let until = Instant::now() + LAST_MOMENT;
        for keeper in self.0.iter().filter_map(Weak::upgrade) {
            keeper.wait_for_returns(until);
            keeper.engine.wait_until_told(until);
        }
    }
}

impl Keeper {
    fn wait_for_returns(&self, until: Instant) {
        self.threads_waiting.fetch_add(1, Ordering::AcqRel);
        self.wait_in_steps(until);
        self.threads_waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn wait_in_steps(&self, until: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.returning.load(Ordering::Acquire) > 0 {
            // In short steps: the last key may arrive between the look and the wait.
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let step = left.min(Duration::from_millis(5));
            let waited = self.settled_for_threads.wait_timeout(waiting, step);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A thread that ends may drop a lease when what tokio keeps of the thread is gone already.
fn may_poll_here() -> bool {
    !Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}
