//! Pending releases: keys that are given back while nobody waits for it.
//!
//! A release is asked again until the store has answered it, or until the keys have expired by
//! themselves. Where a request for keys was never answered, the store may carry it out at any later
//! time: then all that was asked for is given back, the place in the store's queue included, once more
//! when the store knows that nothing of it can come any more.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Keeper;
use super::in_flight::{Kind, OnItsWay, wait_at_end_of_thread};
use crate::error::StoreError;
use crate::hold::{Hold, KEPT, Names, TRIED};
use crate::jitter::jittered;
use crate::on_behalf;
use crate::store::Found;

/// The first pause before a release is asked again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Keys to give back.
#[derive(Debug)]
pub(crate) enum PendingRelease {
    /// Those of a lease.
    Lease(Arc<Hold>),
    /// Those of a request that became none.
    Request(Requested),
}

/// What a request may have left behind.
#[derive(Debug)]
pub(crate) struct Requested {
    pub(crate) names: Names,
    pub(crate) owner: String,
    pub(crate) ttl: Duration,
    /// Whether it may stand in the store's queue.
    pub(crate) may_queue: bool,
    /// Whether one of its requests was not answered, and may yet be carried out.
    pub(crate) unanswered: bool,
}

impl PendingRelease {
    /// The key of a lease that was handed on, and that nobody has taken over.
    pub(crate) fn unclaimed(hold: &Hold) -> Self {
        Self::Request(Requested {
            names: hold.names.clone(),
            owner: hold.owner(),
            ttl: hold.ttl(),
            may_queue: false,
            unanswered: false,
        })
    }

    /// What the requests of a lease that was given back may yet leave: one was never answered.
    pub(crate) fn beside(hold: &Hold) -> Option<Self> {
        Requested::beside(hold).map(Self::Request)
    }

    /// By when the keys have expired by themselves, and nothing is left to be said under them.
    fn until(&self) -> Instant {
        let left = match self {
            Self::Lease(hold) => hold
                .ttl_to_ask(hold.ttl())
                .max(hold.done_for().unwrap_or_default()),
            Self::Request(requested) => requested.ttl,
        };
        Instant::now() + left
    }
}

impl Requested {
    /// What a lease's requests may leave, beside what the lease holds.
    fn beside(hold: &Hold) -> Option<Self> {
        hold.in_doubt.then(|| Self {
            names: hold.names.clone(),
            owner: hold.owner(),
            ttl: hold.ttl(),
            may_queue: true,
            unanswered: true,
        })
    }
}

impl Keeper {
    /// Gives keys back, without waiting for it.
    ///
    /// Works wherever a future can be dropped: on any thread, in a runtime that is shutting down,
    /// while a panic unwinds. The first request is on its way when this returns.
    pub(crate) fn give_back(self: &Arc<Self>, pending: PendingRelease) {
        // The locks are those of the process that has forked this one.
        if self.check_process().is_err() {
            return;
        }
        let keeper = Arc::clone(self);
        let on_its_way = OnItsWay::new(Arc::clone(self), Kind::Releasing);
        let until = self.pending_until(pending.until());
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            keeper.carry_out(pending, (on_its_way, until)).await;
        });
        // A store in memory is done at once, and whoever asks next finds the key free.
        if self.poll_once(work.as_mut()).is_pending() {
            wait_at_end_of_thread(self);
            self.engine.spawn(work);
        }
    }

    /// Polls what is going to be polled on the engine, on behalf of whoever drops something here.
    fn poll_once(&self, work: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Poll<()> {
        let poll = || work.poll(&mut Context::from_waker(Waker::noop()));
        let polled = if self.store.in_callers_time() {
            // Its time is that of the runtime here.
            on_behalf::poll_here(poll)
        } else {
            on_behalf::poll_within(self.engine.runtime(), poll)
        };
        polled.unwrap_or(Poll::Pending)
    }

    /// Keys begin to go back; they have arrived, or were given up, when the answer is dropped.
    pub(crate) fn releases(&self) -> OnItsWay<&Self> {
        OnItsWay::new(self, Kind::Releasing)
    }

    async fn carry_out(&self, pending: PendingRelease, waited_for: impl Send) {
        let requested = match pending {
            PendingRelease::Lease(hold) => {
                self.release_lease(&hold).await;
                Requested::beside(&hold)
            }
            PendingRelease::Request(requested) => {
                self.release_requested(&requested).await;
                requested.unanswered.then_some(requested)
            }
        };
        // For what may yet come nobody waits.
        drop(waited_for);
        if let Some(requested) = requested {
            self.release_late(&requested).await;
        }
    }

    /// Gives back what the store may grant later to a request that it has not answered.
    async fn release_late(&self, requested: &Requested) {
        let for_long = self.store.settled(&requested.owner).await;
        let until = Instant::now() + for_long.min(requested.ttl);
        let mut pause = FIRST_PAUSE;
        loop {
            self.release_requested(requested).await;
            let again = Instant::now() + pause;
            if again >= until {
                return;
            }
            self.engine.sleep_until(again).await;
            pause *= 2;
        }
    }

    async fn release_requested(&self, requested: &Requested) {
        let Requested {
            names, owner, ttl, ..
        } = requested;
        let until = Instant::now() + *ttl;
        let mut pause = FIRST_PAUSE;
        let queued = requested.may_queue.then_some(*ttl);
        while self
            .store
            .release(names.release(None, owner, &[], queued))
            .await
            .is_err()
            && self.pause_before_next(until, &mut pause).await
        {}
    }

    async fn release_lease(&self, hold: &Hold) {
        let returned = hold.returned.load(Ordering::Acquire);
        let mut told = returned == TRIED;
        // An earlier request that was not answered may have done it.
        let mut maybe_done = returned != KEPT;
        let until = Instant::now() + hold.ttl_to_ask(hold.ttl());
        let until = hold
            .done_for()
            .map_or(until, |left| until.max(Instant::now() + left));
        let is_done = hold.done_for().is_some() && hold.loss().is_none();
        let owner = hold.owner();
        let mut pause = FIRST_PAUSE;
        loop {
            let leave = hold.leaves();
            let mut release = hold.release(&owner, &leave);
            release.keep_marks = true;
            match self.store.release(release).await {
                Ok(Found::Ours) => {
                    self.counters.released.up();
                    return;
                }
                // The mark stands, where there was one to be left.
                Ok(Found::Nothing) if is_done => {
                    self.counters.released.up();
                    return;
                }
                Ok(_) if maybe_done => {
                    self.counters.released.up();
                    return;
                }
                Ok(_) => {
                    self.tell_late_loss(hold);
                    if is_done {
                        self.tell_mark_lost(hold, "another holds the key");
                    }
                    return;
                }
                Err(error) => {
                    if !told {
                        self.tell_release_failed(hold, &error);
                    }
                    told = true;
                    maybe_done |= error.is_in_doubt();
                }
            }
            if !self.pause_before_next(until, &mut pause).await {
                if is_done {
                    self.tell_mark_lost(
                        hold,
                        "the store could not be asked for as long as it would have meant something",
                    );
                }
                return;
            }
        }
    }

    /// Waits before a release is asked once more; says whether there is any sense in that.
    async fn pause_before_next(&self, until: Instant, pause: &mut Duration) -> bool {
        // Many may have failed at the same time.
        let again = Instant::now() + jittered(*pause);
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        if again >= until {
            return false;
        }
        self.engine.sleep_until(again).await;
        true
    }

    /// The key of a lease that was given back in the background was not there any more. Unless its
    /// loss was seen before, this is where it is told.
    fn tell_late_loss(&self, hold: &Hold) {
        if hold.loss().is_none() && hold.rescue().is_none() {
            self.counters.lost.up();
            let key = hold.names.label().to_owned();
            self.engine.tell(move || {
                tracing::warn!(
                    key,
                    "the key of a lock that was given back was gone, or another's"
                );
            });
        }
    }

    /// What `once` has promised cannot be kept, and the caller was answered long ago.
    fn tell_mark_lost(&self, hold: &Hold, why: &'static str) {
        self.counters.marks_lost.up();
        let key = hold.names.label().to_owned();
        self.engine.tell(move || {
            tracing::error!(
                key,
                why,
                "work is done whose mark could not be written: it may run again before its `once` \
                 is over"
            );
        });
    }

    /// A release could not be asked. The key expires by itself if the keeper has no more luck.
    pub(crate) fn tell_release_failed(&self, hold: &Hold, error: &StoreError) {
        self.counters.release_failed.up();
        let (key, error) = (hold.names.label().to_owned(), error.clone());
        self.engine.tell(move || {
            tracing::warn!(
                key, error = %error,
                "a lock could not be given back; trying again until it has expired"
            );
        });
    }
}
