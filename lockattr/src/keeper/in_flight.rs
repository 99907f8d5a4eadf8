//! What is on its way to the store: counted, so that a shutdown and a thread that ends can wait for it.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Keeper;

/// Requests and releases of one keeper that were not answered yet.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    asking: AtomicUsize,
    releasing: AtomicUsize,
    /// One of the two has come to nought.
    settled: Notify,
    /// How many wait for that.
    tasks_waiting: AtomicUsize,
    /// The same for threads that end.
    settled_for_threads: Condvar,
    threads_waiting: AtomicUsize,
    waiting: Mutex<()>,
}

/// Which of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
    /// A request for keys.
    Asking,
    /// Keys on their way back.
    Releasing,
}

impl InFlight {
    fn count(&self, kind: RequestKind) -> &AtomicUsize {
        match kind {
            RequestKind::Asking => &self.asking,
            RequestKind::Releasing => &self.releasing,
        }
    }

    /// Waits until there is none of that kind.
    pub(super) async fn none(&self, kind: RequestKind) {
        let _waiting = Counted::new(&self.tasks_waiting);
        loop {
            let settled = self.settled.notified();
            if self.count(kind).load(Ordering::SeqCst) == 0 {
                return;
            }
            settled.await;
        }
    }

    fn wait_for_releases(&self, until: Instant) {
        self.threads_waiting.fetch_add(1, Ordering::AcqRel);
        self.wait_in_steps(until);
        self.threads_waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn wait_in_steps(&self, until: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.releasing.load(Ordering::Acquire) > 0 {
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

/// One of those who wait.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a request, or keys on their way back, until the answer is known.
pub(crate) struct OnItsWay<K: Deref<Target = Keeper>> {
    keeper: K,
    kind: RequestKind,
}

impl<K: Deref<Target = Keeper>> OnItsWay<K> {
    pub(super) fn new(keeper: K, kind: RequestKind) -> Self {
        keeper.in_flight.count(kind).fetch_add(1, Ordering::AcqRel);
        Self { keeper, kind }
    }
}

impl<K: Deref<Target = Keeper>> Drop for OnItsWay<K> {
    fn drop(&mut self) {
        let in_flight = &self.keeper.in_flight;
        if in_flight.count(self.kind).fetch_sub(1, Ordering::SeqCst) == 1 {
            // Seldom does anybody wait, and a call to the system tells whether this is a copy.
            if in_flight.tasks_waiting.load(Ordering::SeqCst) > 0 && self.keeper.process().is_here()
            {
                in_flight.settled.notify_waiters();
            }
            // A call to the system, and seldom is there anybody to be told. Who misses it looks again
            // by itself.
            if in_flight.threads_waiting.load(Ordering::Acquire) > 0 {
                in_flight.settled_for_threads.notify_all();
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

/// Has the end of this thread wait for what it gives back.
pub(super) fn wait_at_end_of_thread(keeper: &Arc<Keeper>) {
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
        let ours = |keeper: &Arc<Keeper>| keeper.check_process().is_ok();
        for keeper in self.0.iter().filter_map(Weak::upgrade).filter(ours) {
            keeper.in_flight.wait_for_releases(until);
            keeper.background.wait_until_told(until);
        }
    }
}
