//! The keeper: renews what is held, gives back what was dropped, and says what was lost.
//!
//! It lives on the background thread and asks over a connection of its own, so that neither a body
//! that blocks its runtime nor a busy connection holds up a renewal. It is the one way out: whoever
//! ends an acquisition, a call, a drop or a shutdown, calls [`Keeper::give_back`]; and a holder that
//! waits for the answer [`Keeper::release_confirmed`].

use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

use crate::acquisition::{
    Acquisition, Common, Event, LeaseOptions, LockKeys, QueueId, Return, State,
};
use crate::error::{LossCause, StoreError};
use crate::owner::Origin;
use crate::queue::{Entrant, Entry, Front, WaitQueues};
use crate::runtime::background::Background;
use crate::runtime::blocking;
use crate::runtime::clock::Clock;
use crate::runtime::process::{DroppedAtHome, Process};
use crate::stats::Counters;
use crate::store::{Reply, Sharing, Store};

mod confirmed;
mod extensions;
mod in_flight;
mod looks;
mod open;
mod pending;
mod renewals;
mod schedule;

pub(crate) use in_flight::OnItsWay;
use in_flight::{InFlight, RequestKind};
use open::Open;
use schedule::RenewalSchedule;
pub(crate) use schedule::ScheduleKey;

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) background: Background,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) queues: Arc<WaitQueues>,
    common: Arc<Common>,
    /// Who else has to know of the end of a lease.
    on_end: OnceLock<OnEnd>,
    /// Whether callers wait for each other: not where everybody is granted everything.
    excludes: bool,
    /// How long a request may take to be answered.
    pub(crate) patience: Duration,
    schedule: Arc<RenewalSchedule>,
    in_flight: InFlight,
    open: Open,
    /// Whether a release was lately not answered.
    unanswered: AtomicBool,
    /// The store answers again.
    answers_again: Notify,
    /// When the keys of each pending release have expired by themselves.
    pending: Mutex<Slab<Instant>>,
    /// Whether the last renewal could not be asked, so that an outage is one line in the log.
    failing: AtomicBool,
}

/// Called at the end of a lease.
struct OnEnd(Box<dyn Fn(&Acquisition) + Send + Sync>);

impl fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnEnd").finish_non_exhaustive()
    }
}

/// What a client says that takes no more.
pub(crate) const SHUT_DOWN: &str = "the client was shut down";

impl Keeper {
    pub(crate) fn start(
        background: &Background,
        store: Arc<dyn Store>,
        counters: Arc<Counters>,
        origin: Origin,
    ) -> Arc<Self> {
        Self::start_with(background, store, counters, origin, true)
    }

    /// A keeper of leases that exclude nobody.
    pub(crate) fn start_unguarded(
        background: &Background,
        store: Arc<dyn Store>,
        counters: Arc<Counters>,
        origin: Origin,
    ) -> Arc<Self> {
        Self::start_with(background, store, counters, origin, false)
    }

    fn start_with(
        background: &Background,
        store: Arc<dyn Store>,
        counters: Arc<Counters>,
        origin: Origin,
        excludes: bool,
    ) -> Arc<Self> {
        let schedule = Arc::new(RenewalSchedule::default());
        let clock = if store.in_callers_time() {
            Clock::Tokio
        } else {
            Clock::Real
        };
        let queues = Arc::new(WaitQueues::new(clock));
        let common = {
            let (queues, tell) = (Arc::clone(&queues), background.clone());
            Common {
                origin,
                counters: Arc::clone(&counters),
                advise: Box::new(move |advice| tell.tell(move || advice.tell())),
                // Whoever waits for what was lost may ask the store for it.
                on_end: Box::new(move |lease| queues.turn(lease.queue)),
            }
        };
        let keeper = Arc::new(Self {
            background: background.clone(),
            patience: store.limits().longest_answer,
            store,
            counters,
            queues,
            common: Arc::new(common),
            on_end: OnceLock::new(),
            excludes,
            schedule: Arc::clone(&schedule),
            in_flight: InFlight::default(),
            open: Open::default(),
            unanswered: AtomicBool::new(false),
            answers_again: Notify::new(),
            pending: Mutex::default(),
            failing: AtomicBool::new(false),
        });
        background.spawn(renewals::watch(schedule, Arc::downgrade(&keeper)));
        keeper.store.tell_ended(looks::leases_of(&keeper));
        keeper
    }

    /// Asks the store for a step, wherever this is polled.
    pub(crate) async fn ask_store<T>(&self, step: Reply<'_, T>) -> Result<T, StoreError> {
        let step = DroppedAtHome::new(step, self.process());
        let answer = self.background.ask(step).await;
        answer.unwrap_or_else(|| Err(StoreError::in_doubt("the store panicked")))
    }

    /// Polls a future of this client's on a thread that may wait. What it asks goes over the client's own
    /// thread, so that it depends on no runtime that nobody may be running.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let enters = !self.store.in_callers_time() && !blocking::is_thread_ending();
        let _context = enters.then(|| self.background.runtime().enter());
        blocking::block_on(future)
    }

    /// The clock in which a caller waits, and its lease lives.
    pub(crate) fn clock_of_caller(&self) -> Clock {
        if self.store.in_callers_time() {
            Clock::of_caller()
        } else {
            Clock::Real
        }
    }

    /// The leases that run here.
    fn running(&self) -> impl Iterator<Item = Arc<Acquisition>> {
        let held = self.schedule.all().into_iter().map(|(_, lease)| lease);
        held.filter(|lease| !lease.has_ended())
    }

    /// Those of any of these locks.
    pub(crate) fn holding(&self, locks: &[String]) -> Vec<Arc<Acquisition>> {
        let overlaps =
            |lease: &Acquisition| lease.keys.locks().iter().any(|lock| locks.contains(lock));
        self.running().filter(|lease| overlaps(lease)).collect()
    }

    /// Their keys.
    #[cfg(feature = "testing")]
    pub(crate) fn held(&self) -> Vec<String> {
        let keys = |lease: Arc<Acquisition>| lease.keys.plain().to_owned();
        self.running().map(keys).collect()
    }

    /// Where this client's owners are.
    pub(crate) fn origin(&self) -> &Origin {
        &self.common.origin
    }

    /// An acquisition that has asked for nothing yet.
    pub(crate) fn acquisition(
        &self,
        keys: LockKeys,
        queue: QueueId,
        clock: Clock,
        now: Instant,
        options: LeaseOptions,
    ) -> Acquisition {
        let id = self.origin().new_id();
        Acquisition::new(
            keys,
            queue,
            id,
            clock,
            now,
            options,
            Arc::clone(&self.common),
        )
    }

    /// The acquisition of a caller that goes on with the lease of another.
    pub(crate) fn acquisition_after(
        &self,
        from: &Acquisition,
        keys: LockKeys,
        queue: QueueId,
        clock: Clock,
        now: Instant,
        options: LeaseOptions,
    ) -> Acquisition {
        let (id, common) = (from.id(), Arc::clone(&self.common));
        Acquisition::new(keys, queue, id, clock, now, options, common)
    }

    /// The wait queue of those who want the same.
    pub(crate) fn queue_of(&self, keys: &LockKeys) -> QueueId {
        self.queues.id_of(keys.locks(), keys.sharing())
    }

    /// Enters a wait queue.
    pub(crate) fn enter(&self, queue: QueueId, entrant: Entrant) -> Entry {
        // Readers have nothing to wait for among themselves.
        if self.excludes && entrant.sharing != Sharing::Readers {
            self.queues.enter(queue, entrant)
        } else {
            Entry::Front(self.queues.alone(queue, entrant.sharing.places()))
        }
    }

    /// The process that has the threads, and the locks.
    pub(crate) fn process(&self) -> Process {
        self.origin().process()
    }

    /// A process that was forked has none of the client's threads, and the locks are its parent's.
    pub(crate) fn check_process(&self) -> Result<(), String> {
        if self.process().is_here() {
            return Ok(());
        }
        let (made_by, here) = (self.process().id(), Process::here().id());
        Err(format!(
            "its client was made by process {made_by}, and this is process {here}: a process that was forked \
             off has none of a client's threads, and has to make a new client"
        ))
    }

    /// Gives a lease that nobody holds any more to the next caller who waits for it here, if one
    /// does and may.
    fn hand_over(&self, lease: &Arc<Acquisition>) -> bool {
        if !self.queues.have_met(lease.queue) || !lease.can_be_handed_over() {
            return false;
        }
        // Before it is offered: the next caller may be gone before this goes on, and the lease on its
        // way back.
        if let Err(now) = lease.happens(Event::HandOn) {
            return matches!(now, State::Over(_, Return::HandedOn | Return::Unclaimed));
        }
        self.open(lease);
        if !self.queues.hand_over(lease) {
            self.close(lease);
            if lease.happens(Event::NotHandedOn).is_ok() {
                return false;
            }
            // A shutdown has taken it back.
        }
        self.counters.released();
        true
    }

    /// The same for a lease that the next caller did not live to take: if need be, it goes back.
    pub(crate) fn pass_on(self: &Arc<Self>, mut front: Front, lease: &Arc<Acquisition>) {
        if !front.pass_on(lease) {
            self.take_back(lease);
        }
    }

    /// A lease is on its way back: the next of its queue may ask.
    pub(crate) fn left(&self, lease: &Arc<Acquisition>) {
        self.queues.left(lease);
        if let Some(on_end) = self.on_end.get() {
            on_end.0(lease);
        }
    }

    /// Has something called at the end of each lease from now on.
    pub(crate) fn at_each_end(&self, call: impl Fn(&Acquisition) + Send + Sync + 'static) {
        let _ = self.on_end.set(OnEnd(Box::new(call)));
    }

    pub(crate) fn forget(&self, key: ScheduleKey) {
        self.schedule.leave(key);
    }

    /// A request begins; it ends when the answer is dropped.
    pub(crate) fn ask(&self) -> OnItsWay<&Self> {
        OnItsWay::new(self, RequestKind::Asking)
    }

    /// Whether no more leases are to be had.
    pub(crate) fn is_closed(&self) -> bool {
        self.queues.is_closed()
    }

    /// Lets no more leases be had, ends every one, and waits until every key is back, or has expired
    /// by itself.
    ///
    /// Requests on their way are waited for as long as the store may take to answer them. Then what
    /// their callers may have been granted goes back, for they may not be polled any more.
    /// A body that blocks its thread cannot be stopped; its key stays until its lease has ended.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.queues.close(&StoreError::refused(SHUT_DOWN));
        let patience = Instant::now() + self.patience;
        self.end_all();
        let asking = self.in_flight.none(RequestKind::Asking);
        if self.background.until(patience, asking).await.is_err() {
            self.give_back_all_open();
        }
        // What was on its way may have become a lease.
        self.end_all();
        let held = self.schedule.all();
        let held = held.iter().map(|(_, lease)| lease.deadline());
        let pending: Vec<_> = self.pending().iter().map(|(_, until)| *until).collect();
        let Some(last) = held.chain(pending).max() else {
            return;
        };
        let all_back = async {
            self.schedule.empty().await;
            self.in_flight.none(RequestKind::Releasing).await;
        };
        // Past the last deadline the leases have ended by themselves.
        let _ = self.background.until(last, all_back).await;
    }

    /// Ends every lease, and gives back those under which no body has to be stopped before.
    fn end_all(self: &Arc<Self>) {
        for (key, lease) in self.schedule.all() {
            if lease.is_given_back() {
                continue;
            }
            lease.lose(LossCause::Shutdown);
            if !lease.is_guarded() {
                self.give_back_at_end(key, &lease);
            }
        }
    }

    /// Gives back a lease of a client that is shut down, whatever handles there are.
    pub(crate) fn give_back_at_end(self: &Arc<Self>, key: ScheduleKey, lease: &Arc<Acquisition>) {
        if !lease.is_given_back() && self.schedule.leave(key) {
            self.give_back(Arc::clone(lease));
        }
    }

    fn pending(&self) -> MutexGuard<'_, Slab<Instant>> {
        // Nothing in here panics half-way.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
