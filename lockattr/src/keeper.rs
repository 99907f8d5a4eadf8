//! The keeper: renews what is held, gives back what was dropped, and says what was lost.
//!
//! It lives on the engine's thread and asks over a connection of its own, so that neither a body
//! that blocks its runtime nor a busy connection holds up a renewal.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{Error, LossCause, StoreError};
use crate::hold::{Common, Grant, Hold, LineId, Names, Rescue};
use crate::owner::Origin;
use crate::queue::{Entry, Head, Queue, Wish};
use crate::stats::Counters;
use crate::store::{Found, Renewal, Store};

mod agenda;
mod give_back;

pub(crate) use agenda::Slot;
use agenda::{Agenda, Batch, Share};
pub(crate) use give_back::{Doubt, OnItsWay, Owed, Return};

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
    pub(crate) queue: Arc<Queue>,
    common: Arc<Common>,
    /// Whether the store lets one holder at a time have a key.
    excludes: bool,
    /// How long a request may take to be answered.
    pub(crate) patience: Duration,
    agenda: Arc<Agenda>,
    /// Requests whose fate is open.
    asking: AtomicUsize,
    /// Keys on their way back.
    returning: AtomicUsize,
    /// One of the two has come to nought.
    settled: Notify,
    /// The same for threads that end.
    settled_for_threads: Condvar,
    threads_waiting: AtomicUsize,
    waiting: Mutex<()>,
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
        let queue = Arc::new(Queue::default());
        let keeper = Arc::new(Self {
            engine: engine.clone(),
            excludes: store.excludes(),
            store,
            counters: Arc::clone(&counters),
            common: Arc::new(common(origin, counters, Arc::clone(&queue))),
            queue,
            patience,
            agenda: Arc::clone(&agenda),
            asking: AtomicUsize::new(0),
            returning: AtomicUsize::new(0),
            settled: Notify::new(),
            settled_for_threads: Condvar::new(),
            threads_waiting: AtomicUsize::new(0),
            waiting: Mutex::new(()),
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

    /// For how long a lease of any of these locks runs that is held here.
    pub(crate) fn held(&self, locks: &[String]) -> Option<Duration> {
        let overlaps = |hold: &Hold| hold.names.locks().iter().any(|lock| locks.contains(lock));
        let held = self.agenda.all();
        held.iter()
            .filter(|(_, hold)| !hold.has_ended() && overlaps(hold))
            .map(|(_, hold)| hold.end().saturating_duration_since(hold.clock.now()))
            .max()
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
        self.queue.is_crowd(hold.line) && hold.can_be_handed_over() && self.queue.hand_over(hold)
    }

    /// The same for a lease that the next caller did not live to take: if need be, it goes back.
    pub(crate) fn pass_on(self: &Arc<Self>, mut head: Head, hold: &Arc<Hold>) {
        if !head.pass_on(hold) {
            self.give_back(Return::unclaimed(hold));
        }
    }

    /// Stands in a line.
    pub(crate) fn enter(&self, line: LineId, wish: Wish) -> Entry {
        if self.excludes {
            self.queue.enter(line, wish)
        } else {
            Entry::Head(self.queue.alone(line))
        }
    }

    /// The line of those who want the same.
    pub(crate) fn line_of(&self, names: &Names) -> LineId {
        self.queue.line_of(names.locks())
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
        hold.runs_at_most_from(sent, ttl);
        let owner = hold.owner();
        let renewals: Vec<_> = renewals(hold, &owner, ttl).collect();
        let answer = self.store.renew(&renewals, patience(hold)).await;
        let outcome = match answer.map(|found| worst(&found)) {
            Ok(Found::Ours) => {
                hold.set_ttl(ttl);
                hold.runs_from(sent, ttl);
                Ok(())
            }
            Ok(Found::Another) => Err(LossCause::Taken),
            Ok(Found::Nothing) => Err(LossCause::Deleted),
            Err(source) => {
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
            .flat_map(|((_, hold), (owner, ttl, _))| renewals(hold, owner, *ttl))
            .collect();
        let patience = batch
            .iter()
            .map(|(_, hold)| patience(hold))
            .min()
            .unwrap_or_default();
        let answer = self.store.renew(&renewals, patience).await;
        self.tell_outage(answer.as_ref().err(), batch.len());
        let mut answers = answer.as_deref().unwrap_or_default();
        for ((slot, hold), (_, ttl, sent)) in batch.iter().zip(terms) {
            let (own, rest) = answers.split_at(hold.keys().len().min(answers.len()));
            answers = rest;
            if answer.is_err() {
                self.counters.renewal_failed.up();
                let again = hold.clock.now() + retry_pause(ttl);
                self.agenda.renewed(*slot, again.min(hold.end()));
                continue;
            }
            match worst(own) {
                Found::Ours => {
                    self.counters.renewed.up();
                    hold.runs_from(sent, ttl);
                    warn_of_age(&self.engine, hold, ttl);
                    self.agenda.renewed(*slot, next_look(hold, sent));
                }
                Found::Nothing => self.end(*slot, hold, LossCause::Deleted),
                Found::Another => self.end(*slot, hold, LossCause::Taken),
            }
        }
    }

    /// Gives back what its holder has given back a while ago, and whose runtime has not got round to
    /// sending that: it may be blocked until the key has expired.
    async fn rescue(self: Arc<Self>, hold: Arc<Hold>) {
        hold.set_rescue(Rescue::Asked);
        let owner = hold.owner();
        if let Ok(found) = self.store.release(hold.release(&owner)).await {
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
        OnItsWay::new(self, |keeper| &keeper.asking)
    }

    /// Whether no more leases are to be had.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Lets no more leases be had, ends every one, and waits until every key is back.
    ///
    /// Requests on their way are waited for as long as the store may take to answer them.
    /// A body that blocks its thread cannot be stopped; its key stays until its lease has ended.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.queue.close(&StoreError::refused(SHUT_DOWN));
        let _ = self
            .engine
            .until(Instant::now() + self.patience, self.settled(&self.asking))
            .await;
        let mut held = self.agenda.all();
        held.retain(|(_, hold)| !hold.is_given_back());
        let last = held.iter().map(|(_, hold)| hold.deadline()).max();
        for (slot, hold) in held {
            hold.end_as(LossCause::Shutdown);
            if !hold.guarded.load(Ordering::Acquire) {
                self.agenda.leave(slot);
                self.give_back(Return::of(hold));
            }
        }
        if let Some(last) = last {
            // Past the last deadline the leases have ended by themselves.
            let _ = self.engine.until(last, self.agenda.empty()).await;
        }
        self.settled(&self.returning).await;
    }

    async fn settled(&self, count: &AtomicUsize) {
        loop {
            let settled = self.settled.notified();
            if count.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }
}

/// A loss is counted, and whoever waits for the key may ask the store for it.
fn common(origin: Origin, counters: Arc<Counters>, queue: Arc<Queue>) -> Common {
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

/// A lease of several keys is as good as the worst of them.
fn worst(found: &[Found]) -> Found {
    let bad = |found: &&Found| **found != Found::Ours;
    match found {
        [] => Found::Nothing,
        found => found.iter().find(bad).copied().unwrap_or(Found::Ours),
    }
}

/// The right to renew one lease, given up also by a future that is dropped.
struct Claimed<'a> {
    keeper: &'a Keeper,
    slot: Slot,
    hold: &'a Hold,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let due = next_look(self.hold, self.hold.clock.now());
        self.keeper.agenda.renewed(self.slot, due);
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
    let mut from = hold.granted;
    loop {
        let next = next_look(&hold, from);
        if tokio::time::timeout_at(next.into(), hold.ended())
            .await
            .is_ok()
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
        from = hold.clock.now();
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

/// When a lease whose ttl was started at `sent` needs attention next.
fn next_look(hold: &Hold, sent: Instant) -> Instant {
    let mut next = hold.end();
    if hold.renews() {
        next = next.min(sent + hold.ttl() / RENEWALS_PER_TTL);
    }
    next
}

/// How long a renewal may take: a half-dead connection has to be found out while there is time for
/// another one.
fn patience(hold: &Hold) -> Duration {
    let left = hold.deadline().saturating_duration_since(hold.clock.now());
    (left / 3).clamp(Duration::from_millis(20), Duration::from_secs(1))
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
