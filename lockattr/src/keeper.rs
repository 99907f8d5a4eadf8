//! The keeper: renews what is held, gives back what was dropped, and says what was lost.
//!
//! It lives on the engine's thread and asks over a connection of its own, so that neither a body
//! that blocks its runtime nor a busy connection holds up a renewal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{Error, LossCause, StoreError};
use crate::hold::{Common, Grant, Hold, LineId, Names, Rescue};
use crate::owner::Origin;
use crate::queue::{Entrant, Entry, Front, WaitQueues};
use crate::stats::Counters;
use crate::store::{Found, Renewal, Renewed, Store};

mod agenda;
mod in_flight;
mod pending;

pub(crate) use agenda::Slot;
use agenda::{Agenda, Batch, Share};
pub(crate) use in_flight::OnItsWay;
use in_flight::{InFlight, Kind};
pub(crate) use pending::{PendingRelease, Requested};

/// As many leases as one call to the store renews: enough to share its cost, and few enough not to
/// hold up the server's other commands.
const BATCH: usize = 200;

/// A lease is renewed this often within its ttl, so that one renewal may fail unnoticed.
const RENEWALS_PER_TTL: u32 = 3;

/// After this many ttls, and each time its age has doubled, a lease that is still held is warned of.
const OLD: u32 = 10;

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) queue: Arc<WaitQueues>,
    common: Arc<Common>,
    /// Whether the store lets one holder at a time have a key.
    excludes: bool,
    /// How long a request may take to be answered.
    pub(crate) patience: Duration,
    /// The process that has the threads.
    process: u32,
    agenda: Arc<Agenda>,
    in_flight: InFlight,
    /// Whether a release was lately not answered.
    unanswered: AtomicBool,
    /// The store answers again.
    answers_again: Notify,
    /// When the keys of each pending release have expired by themselves.
    pending: Mutex<Slab<Instant>>,
    /// Whether the last renewal could not be asked, so that an outage is one line in the log.
    failing: AtomicBool,
}

/// What a client says that takes no more.
pub(crate) const SHUT_DOWN: &str = "the client was shut down";

impl Keeper {
    /// `patience` is how long a request may take to be answered.
    pub(crate) fn start(
        engine: &Engine,
        store: Arc<dyn Store>,
        counters: Arc<Counters>,
        origin: Origin,
        patience: Duration,
    ) -> Arc<Self> {
        let agenda = Arc::new(Agenda::default());
        let clock = if store.in_callers_time() {
            Clock::Tokio
        } else {
            Clock::Real
        };
        let queue = Arc::new(WaitQueues::new(clock));
        let keeper = Arc::new(Self {
            engine: engine.clone(),
            excludes: store.excludes(),
            store,
            counters: Arc::clone(&counters),
            common: Arc::new(common(origin, counters, Arc::clone(&queue))),
            queue,
            patience,
            process: std::process::id(),
            agenda: Arc::clone(&agenda),
            in_flight: InFlight::default(),
            unanswered: AtomicBool::new(false),
            answers_again: Notify::new(),
            pending: Mutex::default(),
            failing: AtomicBool::new(false),
        });
        engine.spawn(watch(agenda, Arc::downgrade(&keeper)));
        keeper
    }

    /// The clock in which a caller waits, and its lease lives.
    pub(crate) fn clock_of_caller(&self) -> Clock {
        if self.store.in_callers_time() {
            Clock::of_caller()
        } else {
            Clock::Real
        }
    }

    /// Looks after a lease until [`forget`](Self::forget).
    pub(crate) fn keep(self: &Arc<Self>, hold: &Arc<Hold>) -> Slot {
        match hold.clock {
            Clock::Real => self
                .agenda
                .enter(Arc::clone(hold), |share| Some(first_look(hold, share))),
            Clock::Tokio => {
                let slot = self.agenda.enter(Arc::clone(hold), |_| None);
                tokio::spawn(watch_in_callers_time(
                    Arc::downgrade(self),
                    slot,
                    Arc::clone(hold),
                ));
                slot
            }
        }
    }

    /// The leases that run here of any of these locks.
    pub(crate) fn holding(&self, locks: &[String]) -> Vec<Arc<Hold>> {
        let overlaps = |hold: &Hold| hold.names.locks().iter().any(|lock| locks.contains(lock));
        let held = self.agenda.all().into_iter().map(|(_, hold)| hold);
        held.filter(|hold| !hold.has_ended() && overlaps(hold))
            .collect()
    }

    /// Where this client's owners are.
    pub(crate) fn origin(&self) -> &Origin {
        &self.common.origin
    }

    /// A grant, to be kept.
    pub(crate) fn hold(&self, grant: Grant) -> Arc<Hold> {
        Arc::new(Hold::new(grant, Arc::clone(&self.common)))
    }

    /// Gives a lease that nobody holds any more to the next caller who waits for it here, if one
    /// does and may.
    pub(crate) fn hand_over(&self, hold: &Arc<Hold>) -> bool {
        self.queue.have_met(hold.line) && hold.can_be_handed_over() && self.queue.hand_over(hold)
    }

    /// The same for a lease that the next caller did not live to take: if need be, it goes back.
    pub(crate) fn pass_on(self: &Arc<Self>, mut front: Front, hold: &Arc<Hold>) {
        if !front.pass_on(hold) {
            self.give_back(PendingRelease::unclaimed(hold));
        }
    }

    /// Enters a wait queue.
    pub(crate) fn enter(&self, id: LineId, entrant: Entrant) -> Entry {
        if self.excludes {
            self.queue.enter(id, entrant)
        } else {
            Entry::Front(self.queue.alone(id, entrant.permits))
        }
    }

    /// The wait queue of those who want the same.
    pub(crate) fn line_of(&self, names: &Names) -> LineId {
        self.queue.id_of(names.locks(), names.permits())
    }

    /// A process that was forked has none of the client's threads, and the locks are its parent's.
    pub(crate) fn check_process(&self) -> Result<(), String> {
        let here = std::process::id();
        if here == self.process {
            return Ok(());
        }
        Err(format!(
            "its client was made by process {}, and this is process {here}: a process that was forked \
             off has none of a client's threads, and has to make a new client",
            self.process
        ))
    }

    /// A lease is on its way back: the next of its line may ask.
    pub(crate) fn left(&self, hold: &Arc<Hold>) {
        self.queue.left(hold);
    }

    pub(crate) fn forget(&self, slot: Slot) {
        self.agenda.leave(slot);
    }

    /// Gives a lease a ttl of another length from now on.
    pub(crate) async fn extend(&self, slot: Slot, hold: &Hold, ttl: Duration) -> Result<(), Error> {
        self.agenda.claim(slot).await;
        let claimed = Claimed {
            keeper: self,
            slot,
            hold,
        };
        let sent = hold.clock.now();
        let asked = hold.ttl_to_ask(ttl);
        let shortened = hold.runs_at_most_from(sent, ttl);
        let owner = hold.owner();
        let renewals: Vec<_> = renewals(hold, &owner, asked).collect();
        let renewing = self.store.renew(&renewals, patience(hold));
        let answer = self.engine.within(renewing).await;
        let outcome = match answer.and_then(|found| worst(&found)) {
            Ok(Found::Ours) => {
                hold.set_ttl(ttl);
                hold.runs_from(sent, ttl);
                Ok(())
            }
            Ok(Found::Another) => Err(LossCause::Taken),
            Ok(Found::Nothing) => Err(LossCause::Deleted),
            Err(source) => {
                if !source.is_in_doubt() {
                    hold.runs_on(shortened);
                }
                return Err(Error::Unavailable {
                    key: hold.names.label().to_owned(),
                    source,
                });
            }
        };
        drop(claimed);
        outcome.map_err(|cause| {
            hold.end_as(cause);
            hold.lost(hold.loss().unwrap_or(cause))
        })
    }

    /// Renews leases in one call, and says of each what was found.
    async fn renew(self: Arc<Self>, batch: Batch) {
        let terms: Vec<_> = batch
            .iter()
            .map(|(_, hold)| (hold.owner(), hold.ttl(), hold.clock.now()))
            .collect();
        let renewals: Vec<_> = batch
            .iter()
            .zip(&terms)
            .flat_map(|((_, hold), (owner, ttl, _))| renewals(hold, owner, hold.ttl_to_ask(*ttl)))
            .collect();
        let patience = batch
            .iter()
            .map(|(_, hold)| patience(hold))
            .min()
            .unwrap_or_default();
        let answer = self.store.renew(&renewals, patience).await;
        let failed = |found: &Renewed| found.iter().find_map(|one| one.clone().err());
        let error = match &answer {
            Ok(found) => failed(found),
            Err(error) => Some(error.clone()),
        };
        self.tell_outage(error.as_ref(), batch.len());
        if error.is_none() {
            self.tell_answered(true);
        }
        let mut answers = answer.as_deref().unwrap_or_default();
        for ((slot, hold), (_, ttl, sent)) in batch.iter().zip(terms) {
            let (own, rest) = answers.split_at(hold.keys().len().min(answers.len()));
            answers = rest;
            let found = answer.as_ref().map_err(StoreError::clone);
            match found.and_then(|_| worst(own)) {
                Ok(Found::Ours) => {
                    self.counters.renewed.up();
                    hold.runs_from(sent, ttl);
                    warn_of_age(&self.engine, hold, ttl);
                    self.agenda.renewed(*slot, next_look(hold));
                }
                Ok(Found::Nothing) => self.end(*slot, hold, LossCause::Deleted),
                Ok(Found::Another) => self.end(*slot, hold, LossCause::Taken),
                Err(_) => {
                    self.counters.renewal_failed.up();
                    let again = hold.clock.now() + retry_pause(ttl);
                    self.agenda.renewed(*slot, again.min(hold.end()));
                }
            }
        }
    }

    /// Gives back what its holder has given back a while ago, and whose runtime has not got round to
    /// sending that: it may be blocked until the key has expired.
    async fn rescue(self: Arc<Self>, hold: Arc<Hold>) {
        hold.set_rescue(Rescue::Asked);
        let (owner, leave) = (hold.owner(), hold.leaves());
        if let Ok(found) = self.store.release(hold.release(&owner, &leave)).await {
            hold.set_rescue(Rescue::Found(found));
            hold.tell_line();
        }
    }

    fn end(&self, slot: Slot, hold: &Hold, cause: LossCause) {
        // A renewal that comes back after the release finds nothing, which is no loss.
        hold.end_as(cause);
        self.agenda.leave(slot);
    }

    fn tell_outage(&self, error: Option<&StoreError>, leases: usize) {
        let failing = error.is_some();
        if self.failing.swap(failing, Ordering::Relaxed) == failing {
            return;
        }
        if let Some(error) = error.cloned() {
            self.engine.tell(move || {
                tracing::warn!(
                    leases, error = %error,
                    "leases could not be renewed; trying again until they end"
                );
            });
        } else {
            self.engine
                .tell(move || tracing::info!(leases, "leases are renewed again"));
        }
    }

    /// A request begins; it ends when the answer is dropped.
    pub(crate) fn ask(&self) -> OnItsWay<&Self> {
        OnItsWay::new(self, Kind::Asking)
    }

    /// Whether no more leases are to be had.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Lets no more leases be had, ends every one, and waits until every key is back, or has expired
    /// by itself.
    ///
    /// Requests on their way are waited for as long as the store may take to answer them.
    /// A body that blocks its thread cannot be stopped; its key stays until its lease has ended.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.queue.close(&StoreError::refused(SHUT_DOWN));
        let patience = Instant::now() + self.patience;
        self.end_all();
        let asking = self.in_flight.none(Kind::Asking);
        if self.engine.until(patience, asking).await.is_ok() {
            // What was on its way may have become a lease.
            self.end_all();
        }
        let held = self.agenda.all();
        let held = held.iter().map(|(_, hold)| hold.deadline());
        let pending: Vec<_> = self.pending().iter().map(|(_, until)| *until).collect();
        let Some(last) = held.chain(pending).max() else {
            return;
        };
        let all_back = async {
            self.agenda.empty().await;
            self.in_flight.none(Kind::Releasing).await;
        };
        // Past the last deadline the leases have ended by themselves.
        let _ = self.engine.until(last, all_back).await;
    }

    /// Ends every lease, and gives back those under which no body has to be stopped before.
    fn end_all(self: &Arc<Self>) {
        for (slot, hold) in self.agenda.all() {
            if hold.is_given_back() {
                continue;
            }
            hold.end_as(LossCause::Shutdown);
            if !hold.guarded.load(Ordering::Acquire) && self.agenda.leave(slot) {
                self.give_back(PendingRelease::Lease(hold));
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Slab<Instant>> {
        // Nothing in here panics half-way.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A release is pending until then, or until the answer is dropped.
    fn pending_until(self: &Arc<Self>, until: Instant) -> Pending {
        Pending {
            index: self.pending().insert(until),
            keeper: Arc::clone(self),
        }
    }
}

/// A release that a shutdown waits for.
struct Pending {
    keeper: Arc<Keeper>,
    index: usize,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.keeper.pending().remove(self.index);
    }
}

/// A loss is counted, and whoever waits for the key may ask the store for it.
fn common(origin: Origin, counters: Arc<Counters>, queue: Arc<WaitQueues>) -> Common {
    Common {
        origin,
        counters,
        tell: Box::new(move |hold| queue.turn(hold.line)),
    }
}

/// What renews a lease: all of its keys.
fn renewals<'a>(
    hold: &'a Hold,
    owner: &'a str,
    ttl: Duration,
) -> impl Iterator<Item = Renewal<'a>> {
    hold.keys()
        .iter()
        .map(move |name| Renewal { name, owner, ttl })
}

/// A lease of several keys is as good as the worst of them; lost where one is known to be, however
/// little is known of the others.
fn worst(found: &[Result<Found, StoreError>]) -> Result<Found, StoreError> {
    let is_lost = |one: &&Result<Found, _>| matches!(one, Ok(Found::Nothing | Found::Another));
    let lost = found.iter().find(is_lost);
    let failed = || found.iter().find(|one| one.is_err());
    let worst = lost.or_else(failed).or(found.first());
    worst.cloned().unwrap_or_else(|| {
        let fewer = "the store has answered for fewer leases than it was asked for";
        Err(StoreError::refused(fewer))
    })
}

/// The right to renew one lease, given up also by a future that is dropped.
struct Claimed<'a> {
    keeper: &'a Keeper,
    slot: Slot,
    hold: &'a Hold,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // Where the deadline was shortened and nothing was confirmed, that is at once.
        self.keeper.agenda.renewed(self.slot, next_look(self.hold));
        if self.hold.clock == Clock::Tokio {
            self.hold.wake();
        }
    }
}

/// The keeper's work in real time. Ends with the engine.
async fn watch(agenda: Arc<Agenda>, keeper: Weak<Keeper>) {
    loop {
        let due = agenda.next().await;
        let Some(keeper) = keeper.upgrade() else {
            return;
        };
        let (late, due): (Batch, Batch) =
            due.into_iter().partition(|(_, hold)| hold.is_given_back());
        for (_, hold) in late {
            // What another caller may go on with, or is answered by now, needs none.
            if hold.is_on_its_way() {
                keeper.engine.spawn(Arc::clone(&keeper).rescue(hold));
            }
        }
        for batch in due.chunks(BATCH) {
            // On a task of its own: a server that does not answer must hold up no other lease.
            keeper
                .engine
                .spawn(Arc::clone(&keeper).renew(batch.to_vec()));
        }
    }
}

/// The same for one lease in the time of the calling runtime, whose clock a test has paused.
async fn watch_in_callers_time(keeper: Weak<Keeper>, slot: Slot, hold: Arc<Hold>) {
    let mut not_before = hold.granted;
    loop {
        if hold
            .ended_before(|| next_look(&hold).max(not_before).min(hold.end()))
            .await
        {
            return;
        }
        let Some(keeper) = keeper.upgrade() else {
            return;
        };
        if hold.loss().is_some() {
            keeper.agenda.leave(slot);
            return;
        }
        not_before = hold.clock.now() + retry_pause(hold.ttl());
        if hold.renews() {
            keeper.agenda.claim(slot).await;
            let renewal = Arc::clone(&keeper).renew(vec![(slot, Arc::clone(&hold))]);
            // A store that does not answer must not hold up the end of the lease.
            let end = hold.end();
            if tokio::time::timeout_at(end.into(), renewal).await.is_err() {
                keeper.agenda.renewed(slot, end);
            }
        }
    }
}

/// When a new lease needs attention first: by its share of the time from the middle of an interval to
/// its end, so that leases taken together are not due together.
fn first_look(hold: &Hold, share: Share) -> Instant {
    if !hold.renews() {
        return hold.end();
    }
    let half = hold.ttl() / (2 * RENEWALS_PER_TTL);
    hold.end().min(hold.started() + half + share.of_time(half))
}

/// When a lease needs attention next.
fn next_look(hold: &Hold) -> Instant {
    let mut next = hold.end();
    if hold.renews() {
        next = next.min(hold.started() + hold.ttl() / RENEWALS_PER_TTL);
    }
    next
}

/// How long a renewal may take: a half-dead connection has to be found out while there is time for
/// another one, and a server that is far away is to be waited for.
fn patience(hold: &Hold) -> Duration {
    let left = hold.deadline().saturating_duration_since(hold.clock.now());
    (left / 3).max(Duration::from_millis(20))
}

fn retry_pause(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

/// A lease that was renewed many times may belong to a body that hangs for ever.
fn warn_of_age(engine: &Engine, hold: &Hold, ttl: Duration) {
    let age = hold.clock.now().saturating_duration_since(hold.granted);
    let told = hold.told.load(Ordering::Relaxed);
    if age < (ttl * OLD).saturating_mul(1 << told) {
        return;
    }
    hold.told.store((told + 1).min(31), Ordering::Relaxed);
    let key = hold.names.label().to_owned();
    engine.tell(move || {
        tracing::warn!(
            key,
            ?age,
            "a lock has been held for very long; does its body hang?"
        );
    });
}
