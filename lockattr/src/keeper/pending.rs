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

use tokio::sync::futures::Notified;

use super::Keeper;
use super::in_flight::{OnItsWay, RequestKind, wait_at_end_of_thread};
use crate::acquisition::{Acquisition, Event, Return, State};
use crate::error::StoreError;
use crate::runtime::background::Elapsed;
use crate::runtime::jitter::jittered;
use crate::runtime::on_behalf;
use crate::store::{Found, Release};

/// The first pause before a release is asked again, and the longest before one that has failed.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Each pause is such a share of the time that has gone by: what comes late is found when it is by this
/// share later, and what never comes is looked for a few dozen times a day.
const LOOKS_AFTER_SHARE: u32 = 3;

/// A release that has failed is not tried again sooner than this where the store answers others. Each try
/// that fails while others are answered doubles it: the store may refuse this one for good.
const SHORTEST_RETRY: Duration = Duration::from_millis(250);

/// A release that is tried until it is answered.
struct Retry {
    since: Instant,
    until: Instant,
    not_before: Duration,
}

impl Retry {
    fn until(until: Instant) -> Self {
        Self {
            since: Instant::now(),
            until,
            not_before: SHORTEST_RETRY,
        }
    }
}

impl Keeper {
    /// The one way out: gives back whatever an acquisition holds, or may yet get, without waiting for
    /// it; or lets the next caller of this process go on with it.
    ///
    /// Works wherever a future can be dropped: on any thread, in a runtime that is shutting down,
    /// while a panic unwinds. The first request is on its way when this returns.
    pub(crate) fn give_back(self: &Arc<Self>, acquisition: Arc<Acquisition>) {
        // The locks are those of the process that has forked this one.
        if self.check_process().is_err() {
            return;
        }
        let before = acquisition.state();
        let held = matches!(before, State::Held | State::Over(..));
        if before == State::Idle && !acquisition.is_unanswered() {
            return;
        }
        acquisition.give_back();
        match acquisition.state() {
            State::Over(_, Return::HandedOn | Return::Unclaimed | Return::Done) => {}
            State::Over(_, Return::NotYet) if held && self.hand_over(&acquisition) => {}
            _ if held => self.release_held(&acquisition),
            _ => self.release(acquisition, false),
        }
    }

    /// The same for a lease that was handed on, and that nobody has taken.
    pub(crate) fn take_back(self: &Arc<Self>, lease: &Arc<Acquisition>) {
        if self.check_process().is_ok() && lease.happens(Event::NotTaken).is_ok() {
            self.close(lease);
            self.release_held(lease);
        }
    }

    fn release_held(self: &Arc<Self>, lease: &Arc<Acquisition>) {
        self.release(Arc::clone(lease), true);
        self.left(lease);
    }

    /// What the requests of a lease that was given back may yet leave beside what it held: one of them
    /// was never answered.
    pub(super) fn release_unanswered(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        if acquisition.is_unanswered() {
            self.release(Arc::clone(acquisition), false);
        }
    }

    /// Gives back what is held, or else whatever was asked for.
    fn release(self: &Arc<Self>, acquisition: Arc<Acquisition>, held: bool) {
        let keeper = Arc::clone(self);
        let left = acquisition.ttl_to_ask(acquisition.ttl());
        // A mark that is owed is asked for as long as it would last; a shutdown waits for the keys alone.
        let owed = left.max(acquisition.done_for().unwrap_or_default());
        let waited_for = (
            OnItsWay::new(Arc::clone(self), RequestKind::Releasing),
            self.pending_until(Instant::now() + left),
        );
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            if held {
                keeper.release_lease(&acquisition, owed).await;
            } else if !acquisition.is_unanswered() {
                keeper.release_request(&acquisition).await;
            } else {
                // What is there by now is waited for, and what may yet come is not.
                let _ = keeper.release_whatever(&acquisition).await;
            }
            drop(waited_for);
            if acquisition.is_unanswered() {
                keeper.release_late(&acquisition).await;
            }
        });
        // A store in memory is done at once, and whoever asks next finds the key free.
        if self.poll_once(work.as_mut()).is_pending() {
            wait_at_end_of_thread(self);
            self.background.spawn(work);
        }
    }

    /// Polls what is going to be polled on the background thread, on behalf of whoever drops something
    /// here.
    fn poll_once(&self, work: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Poll<()> {
        let poll = || work.poll(&mut Context::from_waker(Waker::noop()));
        let polled = if self.store.in_callers_time() {
            // Its time is that of the runtime here.
            on_behalf::poll_here(poll)
        } else {
            on_behalf::poll_within(self.background.runtime(), poll)
        };
        polled.unwrap_or(Poll::Pending)
    }

    async fn release_request(&self, acquisition: &Acquisition) {
        let mut retry = Retry::until(Instant::now() + acquisition.ttl());
        loop {
            let answers_again = self.answers_again.notified();
            let answered = self.release_whatever(acquisition).await.is_ok();
            if answered || !self.pause(&mut retry, answers_again).await {
                return;
            }
        }
    }

    async fn release_whatever(&self, acquisition: &Acquisition) -> Result<Found, StoreError> {
        let owner = acquisition.owner();
        let claim = acquisition.claim(&owner, acquisition.queued_ttl());
        let release = Release::whatever(acquisition.may_queue());
        let answer = self.ask_store(self.store.release(claim, release)).await;
        self.tell_answered(answer.is_ok());
        answer
    }

    /// Gives back what the store may grant later to a request that it has not answered: looked for
    /// after pauses that grow with the time that it has been on its way, and for the last time when
    /// nothing of it can come any more.
    async fn release_late(&self, acquisition: &Acquisition) {
        let begun = Instant::now();
        let (owner, ttl) = (acquisition.owner(), acquisition.ttl());
        let mut settled = self.store.settled(&owner);
        let mut last = None;
        loop {
            let answered = self.release_whatever(acquisition).await.is_ok();
            let now = Instant::now();
            match last {
                Some(last) if now >= last && (answered || now >= last + ttl) => return,
                _ => {}
            }
            let pause = (begun.elapsed() / LOOKS_AFTER_SHARE).max(FIRST_PAUSE);
            let next = now + pause;
            match last {
                Some(last) if now < last => self.background.sleep_until(next.min(last)).await,
                Some(_) => self.background.sleep_until(next).await,
                None => {
                    if let Ok(may_come) = self.background.until(next, settled.as_mut()).await {
                        last = Some(Instant::now() + may_come.min(ttl));
                    }
                }
            }
        }
    }

    async fn release_lease(&self, lease: &Acquisition, tries_for: Duration) {
        let before = lease.state();
        let quiet = matches!(before, State::Over(_, Return::Unclaimed));
        let mut failed = matches!(before, State::Over(_, Return::Failed | Return::InDoubt));
        // An earlier request that was not answered may have done it.
        let mut maybe_done = matches!(before, State::Over(_, Return::Asked | Return::InDoubt));
        let marked = lease.done_for().is_some();
        let mut retry = Retry::until(Instant::now() + tries_for);
        let owner = lease.owner();
        loop {
            let left_behind = lease.leaves();
            let release = Release::held(lease.slot(), &left_behind).keeping_marks();
            let claim = lease.claim(&owner, lease.ttl());
            let _ = lease.happens(Event::Release);
            let answers_again = self.answers_again.notified();
            let answer = self.ask_store(self.store.release(claim, release)).await;
            self.tell_answered(answer.is_ok());
            match answer {
                Ok(found) => {
                    let _ = lease.happens(Event::Answer);
                    if found == Found::Another && marked {
                        self.tell_mark_lost(lease, "another holds the key");
                    } else if quiet {
                        // It was counted as given back when it was handed on.
                    } else if found == Found::Ours || maybe_done || marked {
                        // Where a mark was to be left, it is there now.
                        self.counters.released();
                        if failed {
                            self.counters.released_late(lease.site);
                        }
                    } else {
                        self.tell_late_loss(lease, found);
                    }
                    return;
                }
                Err(error) => {
                    let in_doubt = error.is_in_doubt();
                    let _ = lease.happens(Event::Fail { in_doubt });
                    if !failed && !quiet {
                        self.tell_release_failed(lease, &error);
                    }
                    failed = true;
                    maybe_done |= in_doubt;
                }
            }
            if !self.pause(&mut retry, answers_again).await {
                self.counters.release_abandoned(lease.site);
                if marked {
                    self.tell_mark_lost(lease, "the store could not be asked in time");
                }
                return;
            }
        }
    }

    /// Waits before a release is asked once more; says whether there is any sense in that. What was
    /// answered since `answers_again` was made, which is before the release has failed, is news as well.
    async fn pause(&self, retry: &mut Retry, answers_again: Notified<'_>) -> bool {
        let now = Instant::now();
        let pause = now.saturating_duration_since(retry.since) / LOOKS_AFTER_SHARE;
        // Many may have failed at the same time.
        let next = now + jittered(pause.clamp(FIRST_PAUSE, LONGEST_PAUSE));
        if next >= retry.until {
            return false;
        }
        let not_before = now + retry.not_before;
        self.background.sleep_until(next.min(not_before)).await;
        if next > not_before {
            let answers = self.background.until(next, answers_again).await;
            retry.not_before = match answers {
                Ok(()) => retry.not_before * 2,
                Err(Elapsed) => SHORTEST_RETRY,
            };
        }
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
    fn tell_late_loss(&self, lease: &Acquisition, found: Found) {
        if lease.loss().is_none() && !lease.may_be_released_by_keeper() {
            lease.count_lost(found.loss());
            let (key, site) = (lease.keys.label().to_owned(), lease.site);
            self.background.tell(move || {
                tracing::warn!(
                    target: "lockattr",
                    function = site.told_function(),
                    template = site.told_template(),
                    key,
                    "the key of a lock that was given back was gone, or another's"
                );
            });
        }
    }

    /// What `once` has promised cannot be kept, and the caller was answered long ago.
    fn tell_mark_lost(&self, lease: &Acquisition, why: &'static str) {
        self.counters.marks_lost(lease.site);
        let (key, site) = (lease.keys.label().to_owned(), lease.site);
        self.background.tell(move || {
            tracing::error!(
                target: "lockattr",
                function = site.told_function(),
                template = site.told_template(),
                key,
                error = why,
                "work is done whose mark could not be written: it may run again before its `once` \
                 is over"
            );
        });
    }

    /// A release could not be asked. The key expires by itself if the keeper has no more luck.
    pub(super) fn tell_release_failed(&self, lease: &Acquisition, error: &StoreError) {
        self.counters.release_failed();
        let (key, site) = (lease.keys.label().to_owned(), lease.site);
        let error = error.clone();
        self.background.tell(move || {
            tracing::warn!(
                target: "lockattr",
                function = site.told_function(),
                template = site.told_template(),
                key,
                %error,
                "a lock could not be given back; trying again until it has expired"
            );
        });
    }
}

/// A release that a shutdown waits for.
struct Pending {
    keeper: Arc<Keeper>,
    index: usize,
}

impl Keeper {
    /// A release is pending until then, or until the answer is dropped.
    fn pending_until(self: &Arc<Self>, until: Instant) -> Pending {
        Pending {
            index: self.pending().insert(until),
            keeper: Arc::clone(self),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.keeper.pending().remove(self.index);
    }
}
