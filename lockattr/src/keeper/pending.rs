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
use crate::hold::{BEGUN, Hold, IN_DOUBT, Names, TRIED};
use crate::jitter::jittered;
use crate::on_behalf;
use crate::store::Found;

/// The first pause before a release is asked again, and the longest before one that has failed.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Each pause is such a share of the time that has gone by: what comes late is found when it is by this
/// share later, and what never comes is looked for a few dozen times a day.
const LOOKS_AFTER_SHARE: u32 = 3;

/// A release that has failed is not tried again sooner than this where the store answers others.
const SHORTEST_RETRY: Duration = Duration::from_millis(250);

/// A release that is tried until it is answered.
struct Retry {
    since: Instant,
    until: Instant,
}

impl Retry {
    fn until(until: Instant) -> Self {
        let since = Instant::now();
        Self { since, until }
    }
}

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
            PendingRelease::Request(requested) if requested.unanswered => {
                // What is there by now is waited for, and what may yet come is not.
                let _ = self.release_requested(&requested).await;
                Some(requested)
            }
            PendingRelease::Request(requested) => {
                let mut retry = Retry::until(Instant::now() + requested.ttl);
                while self.release_requested(&requested).await.is_err()
                    && self.pause(&mut retry).await
                {}
                None
            }
        };
        drop(waited_for);
        if let Some(requested) = requested {
            self.release_late(&requested).await;
        }
    }

    /// Gives back what the store may grant later to a request that it has not answered: looked for
    /// after pauses that grow with the time that it has been on its way, and for the last time when
    /// nothing of it can come any more.
    async fn release_late(&self, requested: &Requested) {
        let begun = Instant::now();
        let mut settled = self.store.settled(&requested.owner);
        let mut last = None;
        loop {
            let answered = self.release_requested(requested).await.is_ok();
            let now = Instant::now();
            match last {
                Some(last) if now >= last && (answered || now >= last + requested.ttl) => return,
                _ => {}
            }
            let pause = (begun.elapsed() / LOOKS_AFTER_SHARE).max(FIRST_PAUSE);
            let next = now + pause;
            match last {
                Some(last) if now < last => self.engine.sleep_until(next.min(last)).await,
                Some(_) => self.engine.sleep_until(next).await,
                None => {
                    if let Ok(may_come) = self.engine.until(next, settled.as_mut()).await {
                        last = Some(Instant::now() + may_come.min(requested.ttl));
                    }
                }
            }
        }
    }

    async fn release_requested(&self, requested: &Requested) -> Result<Found, StoreError> {
        let Requested {
            names, owner, ttl, ..
        } = requested;
        let queued = requested.may_queue.then_some(*ttl);
        let answer = self
            .store
            .release(names.release(None, owner, &[], queued))
            .await;
        self.tell_answered(answer.is_ok());
        answer
    }

    async fn release_lease(&self, hold: &Hold) {
        let returned = hold.returned.load(Ordering::Acquire);
        let mut told = [TRIED, IN_DOUBT].contains(&returned);
        // An earlier request that was not answered may have done it.
        let mut maybe_done = [BEGUN, IN_DOUBT].contains(&returned);
        let marked_for = hold.done_for().filter(|_| hold.loss().is_none());
        let left = hold
            .ttl_to_ask(hold.ttl())
            .max(marked_for.unwrap_or_default());
        let mut retry = Retry::until(Instant::now() + left);
        let owner = hold.owner();
        loop {
            let leave = hold.leaves();
            let mut release = hold.release(&owner, &leave);
            release.keep_marks = true;
            let answer = self.store.release(release).await;
            self.tell_answered(answer.is_ok());
            match answer {
                Ok(Found::Another) if marked_for.is_some() => {
                    return self.tell_mark_lost(hold, "another holds the key");
                }
                // Where a mark was to be left, it is there now.
                Ok(found) if found == Found::Ours || maybe_done || marked_for.is_some() => {
                    return self.counters.released.up();
                }
                Ok(_) => return self.tell_late_loss(hold),
                Err(error) => {
                    if !told {
                        self.tell_release_failed(hold, &error);
                    }
                    told = true;
                    maybe_done |= error.is_in_doubt();
                }
            }
            if !self.pause(&mut retry).await {
                if marked_for.is_some() {
                    self.tell_mark_lost(hold, "the store could not be asked in time");
                }
                return;
            }
        }
    }

    /// Waits before a release is asked once more; says whether there is any sense in that.
    async fn pause(&self, retry: &mut Retry) -> bool {
        let now = Instant::now();
        let pause = now.saturating_duration_since(retry.since) / LOOKS_AFTER_SHARE;
        // Many may have failed at the same time.
        let next = now + jittered(pause.clamp(FIRST_PAUSE, LONGEST_PAUSE));
        if next >= retry.until {
            return false;
        }
        // Not at once, where others are answered and this is refused.
        self.engine
            .sleep_until(next.min(now + SHORTEST_RETRY))
            .await;
        let _ = self.engine.until(next, self.answers_again.notified()).await;
        true
    }

    /// The store has answered, or has not. The first answer after failures is news to those releases
    /// that wait before they are tried again.
    pub(crate) fn tell_answered(&self, answered: bool) {
        if !answered {
            self.unanswered.store(true, Ordering::Relaxed);
        } else if self.unanswered.load(Ordering::Relaxed)
            && self.unanswered.swap(false, Ordering::Relaxed)
        {
            self.answers_again.notify_waiters();
        }
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
