//! Asking the store for a call's keys, and waiting there while they are busy.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use super::waiting::Turn;
use super::{Call, FIRST_PAUSE, Rare, growing, rare};
use crate::acquisition::{Acquisition, Event, Grant, LockKeys, QueueId};
use crate::error::{Error, LossCause, StoreError};
use crate::keeper::{Keeper, OnItsWay, SHUT_DOWN};
use crate::lease::Lease;
use crate::owner;
use crate::queue::{Busy, Entrant, Entry, Front, Granted, HEARS_WITHIN, Refused, Told};
use crate::reply::KeptReply;
use crate::runtime::jitter::between;
use crate::runtime::process::DroppedAtHome;
use crate::store::{Acquired, Attempt, Claim, Renewal, WakeUp, WakeUps, relied_on};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The first of a store's queue looks again after so long: what a lost wake-up costs at most.
const LOOK: Duration = Duration::from_secs(1);

/// Those behind it look up to that much later for each place, also when a holder's ttl is over: of
/// many who wait one looks about as soon as the first would, and what it finds is given to the first.
const STAGGER: Duration = Duration::from_millis(200);

/// The longest pause between two looks; shorter than a store's queue keeps one that does not look.
const LONGEST_LOOK: Duration = Duration::from_secs(100);

/// Takes the keys out of the call, and then the lease of them, waiting where the call allows that.
///
/// Cancel-safe: a future that is dropped at any point gives back what it may have got.
pub(super) async fn take(keeper: &Arc<Keeper>, call: &mut Call) -> Result<Lease, Error> {
    let queue = keeper.queue_of(&call.keys);
    let caller = Caller::new(keeper, call)?;
    let entrant = caller.entrant(call);
    let front = match keeper.enter(queue, entrant) {
        Entry::Front(front) => front,
        Entry::Busy(busy) => return Err(caller.busy(call, busy)),
        Entry::Behind(place) => match caller.wait_for_turn(call, queue, place).await? {
            Turn::Front(front) => {
                // It may have waited across a fork, and owners are drawn from what was copied.
                keeper.check_process().map_err(|reason| Error::Invalid {
                    key: call.keys.label().to_owned(),
                    reason,
                })?;
                front.expect(caller.answered_by(call));
                front
            }
            Turn::Handed(front, from) => return caller.go_on(call, front, &from),
        },
    };
    let mut asked = Asked::new(keeper, call, queue, entrant.now);
    // Before it is asked, so that none is missed.
    let wakeups = || DroppedAtHome::new(keeper.store.wakeups(asked.claim()), keeper.process());
    let wakeups = asked.waits.then(wakeups);
    let again = keeper.queues.is_contended(queue);
    let answer = asked.once(again).await;
    if let Ok(Acquired::Granted { slot, until, .. }) = answer
        && asked.now() < until
    {
        keeper.queues.set_contended(queue, false);
        return asked.into_lease(front, slot, until, Granted::Alone);
    }
    caller.ask_on(asked, front, answer, wakeups).await
}

/// The same of a call that does not wait, and takes the answer to no earlier request for its own: who is
/// refused was refused by a lease that ran when the call had begun.
pub(super) fn take_now(keeper: &Arc<Keeper>, mut call: Call) -> Rare<'_, Lease> {
    rare(keeper, async move {
        let queue = keeper.queue_of(&call.keys);
        let caller = Caller::new(keeper, &call)?;
        let entrant = Entrant {
            takes: None,
            ..caller.entrant(&call)
        };
        let alone = || keeper.queues.alone(queue, call.keys.sharing().places());
        let front = match keeper.enter(queue, entrant) {
            Entry::Front(front) => front,
            Entry::Busy(busy) if busy.is_here() => return Err(caller.busy(&call, busy)),
            Entry::Busy(_) => alone(),
            // What is being asked there was asked for before.
            Entry::Behind(mut place) => match place.unheard() {
                Some(Told::Front(front)) => front,
                _ => alone(),
            },
        };
        let mut asked = Asked::new(keeper, &mut call, queue, entrant.now);
        let answer = asked.once(keeper.queues.is_contended(queue)).await;
        caller.ask_on(asked, front, answer, None).await
    })
}

/// Takes a lease over that another process has handed on, from its owner and with its slot.
pub(super) fn take_over<'a>(
    keeper: &'a Arc<Keeper>,
    mut call: Call,
    owner: &'a str,
    slot: usize,
) -> Rare<'a, Lease> {
    rare(keeper, async move {
        let queue = keeper.queue_of(&call.keys);
        let _caller = Caller::new(keeper, &call)?;
        let front = keeper.queues.alone(queue, call.keys.sharing().places());
        let now = call.clock.now();
        let mut asked = Asked::new(keeper, &mut call, queue, now);
        match asked.take_over(owner, slot).await {
            Ok(Renewal::Until(until)) if asked.now() < until => {
                asked.into_lease(front, slot, until, Granted::AmongOthers)
            }
            Ok(Renewal::Until(_)) => Err(asked.unavailable(StoreError::late())),
            Ok(Renewal::Gone) => Err(asked.lost(LossCause::Deleted)),
            Ok(Renewal::Taken) => Err(asked.lost(LossCause::Taken)),
            Err(source) => Err(asked.unavailable(source)),
        }
    })
}

/// One call on its way to its lease.
pub(super) struct Caller<'a> {
    pub(super) keeper: &'a Arc<Keeper>,
    /// Shutting down waits for it.
    _open: OnItsWay<&'a Keeper>,
}

impl<'a> Caller<'a> {
    fn new(keeper: &'a Arc<Keeper>, call: &Call) -> Result<Self, Error> {
        let open = keeper.ask();
        // Only now: a shutdown waits for what it finds counted.
        if keeper.is_closed() {
            return Err(call.unavailable(StoreError::refused(SHUT_DOWN)));
        }
        Ok(Self {
            keeper,
            _open: open,
        })
    }
}

impl Caller<'_> {
    fn entrant(&self, call: &Call) -> Entrant {
        // A lease that is handed over runs out sooner than a new one, unless it is renewed; `min_hold`
        // needs all of it at once.
        let options = &call.options;
        let takes = call.keys.sharing().is_alone() && options.renew && options.min_hold.is_zero();
        let now = call.clock.now();
        Entrant {
            sharing: call.keys.sharing(),
            waits: call.waits,
            takes: takes.then(|| call.ttl()),
            now,
            expected: now + answered_within(self.keeper, call.ttl()),
        }
    }

    fn answered_by(&self, call: &Call) -> Instant {
        call.clock.now() + answered_within(self.keeper, call.ttl())
    }

    /// Goes on with the lease of the caller before, with options of its own.
    fn go_on(
        &self,
        call: &mut Call,
        front: Front,
        from: &Arc<Acquisition>,
    ) -> Result<Lease, Error> {
        if !self.keeper.close(from) {
            return Err(call.unavailable(StoreError::refused(SHUT_DOWN)));
        }
        let (keys, options) = (mem::take(&mut call.keys), call.lease_options());
        let queue = front.queue();
        let keeper = self.keeper;
        let now = call.clock.now();
        let mut acquisition = keeper.acquisition_after(from, keys, queue, call.clock, now, options);
        acquisition.grant(Grant {
            slot: from.slot(),
            at: now,
            until: from.deadline(),
        });
        let acquisition = Arc::new(acquisition);
        front.granted(&acquisition, Granted::Handed);
        keeper.counters.handed_over_here(acquisition.site);
        Ok(Lease::new(acquisition, Arc::clone(keeper)))
    }

    /// Goes on after a first answer that was no lease.
    fn ask_on<'a>(
        &'a self,
        mut asked: Asked<'a>,
        front: Front,
        mut answer: Result<Acquired, StoreError>,
        mut wakeups: Option<DroppedAtHome<Box<dyn WakeUps + 'a>>>,
    ) -> Rare<'a, Lease> {
        rare(self.keeper, async move {
            let queues = &self.keeper.queues;
            let queue = front.queue();
            let give_up = asked.give_up;
            let ttl = asked.acquisition.ttl();
            let mut pause = FIRST_PAUSE;
            let mut granted_after = Granted::Alone;
            loop {
                let now = asked.now();
                let next = match answer {
                    Ok(Acquired::Granted { slot, until, .. }) => {
                        if now < until {
                            queues.set_contended(queue, granted_after == Granted::AmongOthers);
                            return asked.into_lease(front, slot, until, granted_after);
                        }
                        if now >= give_up {
                            return Err(asked.unavailable(StoreError::late()));
                        }
                        // The store recognises the owner and starts the ttl anew. One that answers at
                        // once, and always too late, is not to keep the thread.
                        now + SHORTEST_PAUSE
                    }
                    Ok(Acquired::Busy {
                        lock,
                        owner,
                        remaining,
                        since,
                        place,
                        ..
                    }) => {
                        granted_after = Granted::AmongOthers;
                        queues.set_contended(queue, true);
                        let since = since.or_else(|| owner::since(&owner));
                        let holder = owner::shown(&owner);
                        front.busy(&Busy {
                            holder: Some(holder.clone()),
                            since,
                            until: now + remaining,
                        });
                        if now >= give_up {
                            return Err(Error::Busy {
                                key: asked.key(lock),
                                holder,
                                remaining,
                                since,
                            });
                        }
                        let look = next_look(now, place, remaining, &mut pause);
                        look.min(give_up)
                    }
                    Ok(Acquired::Done {
                        lock, since, reply, ..
                    }) => {
                        queues.set_contended(queue, true);
                        let refused = Refused::Done(lock, since, reply);
                        front.refused(&refused);
                        return Err(refusal(&asked.acquisition.keys, refused));
                    }
                    Ok(Acquired::Foreign { lock, found }) => {
                        let refused = Refused::Foreign(lock, found);
                        front.refused(&refused);
                        return Err(refusal(&asked.acquisition.keys, refused));
                    }
                    Err(source) => {
                        // What is this caller's fault alone the next one may ask for.
                        if !source.is_invalid() {
                            front.unavailable(&source);
                        }
                        return Err(asked.unavailable(source));
                    }
                };
                front.expect(next + HEARS_WITHIN);
                let granted = self.wait_until(&asked, next, wakeups.as_mut()).await;
                if self.keeper.is_closed() {
                    return Err(asked.unavailable(StoreError::refused(SHUT_DOWN)));
                }
                if let Some((slot, until)) = granted
                    // What has run out by half is asked for anew.
                    && asked.now() + relied_on(ttl) / 2 < until
                {
                    let lease = asked.into_lease(front, slot, until, granted_after)?;
                    let site = lease.site();
                    self.keeper.counters.handed_over_by_store(site);
                    return Ok(lease);
                }
                front.expect(asked.answered_by());
                answer = asked.once(true).await;
            }
        })
    }

    /// Waits for the moment to look again, for a wake-up from the store, or for the client to be shut
    /// down. The answer is a grant, if that was the wake-up.
    async fn wait_until(
        &self,
        asked: &Asked<'_>,
        mut next: Instant,
        mut wakeups: Option<&mut DroppedAtHome<Box<dyn WakeUps + '_>>>,
    ) -> Option<(usize, Instant)> {
        let (keeper, clock) = (self.keeper, asked.acquisition.clock);
        let mut closed = pin!(keeper.queues.closed());
        loop {
            let mut over = pin!(clock.sleep_until(&keeper.background, next));
            let woken = poll_fn(|cx| {
                if let Some(wakeups) = wakeups.as_mut().and_then(|own| own.get_mut())
                    && let Poll::Ready(wakeup) = wakeups.poll_next(cx)
                {
                    return Poll::Ready(Some(wakeup));
                }
                if closed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                over.as_mut().poll(cx).map(|()| None)
            });
            match woken.await {
                Some(WakeUp::Granted { slot, until }) => return Some((slot, until)),
                Some(WakeUp::First { remaining }) => {
                    let mut pause = FIRST_PAUSE;
                    let look = next_look(clock.now(), Some(0), remaining, &mut pause);
                    next = next.min(look);
                }
                Some(WakeUp::Look) | None => return None,
            }
        }
    }

    pub(super) fn busy(&self, call: &Call, busy: Busy) -> Error {
        Error::Busy {
            key: call.keys.label().to_owned(),
            holder: busy.holder.unwrap_or_else(|| self.keeper.origin().shown()),
            remaining: busy.until.saturating_duration_since(call.clock.now()),
            since: busy.since,
        }
    }
}

/// For how long a front that asks is waited for: as long as the store may take to answer, or so long
/// that one which is not polled any more costs the others less than a ttl.
fn answered_within(keeper: &Keeper, ttl: Duration) -> Duration {
    let less_than_a_ttl = (ttl / 2).max(2 * HEARS_WITHIN);
    keeper.patience.min(less_than_a_ttl) + HEARS_WITHIN
}

/// What is told where nobody can have some keys.
pub(super) fn refusal(keys: &LockKeys, refused: Refused) -> Error {
    match refused {
        Refused::Done(lock, since, reply) => done(keys, Some(lock), since, reply),
        Refused::Foreign(lock, found) => Error::Foreign {
            key: keys.key(lock),
            found,
        },
    }
}

/// What is told where the work of one of the locks is done, or of any where it is not known of which.
pub(super) fn done(
    keys: &LockKeys,
    lock: Option<usize>,
    since: SystemTime,
    reply: Option<KeptReply>,
) -> Error {
    let redacted = keys.redactor().is_some();
    Error::Done {
        key: lock.map_or_else(|| keys.label().to_owned(), |lock| keys.key(lock)),
        since,
        reply: reply.map(|reply| reply.redacted(redacted)),
    }
}

/// When one that waits looks again by itself.
fn next_look(
    now: Instant,
    place: Option<u64>,
    remaining: Duration,
    pause: &mut Duration,
) -> Instant {
    let remaining = remaining.max(SHORTEST_PAUSE);
    let Some(place) = place else {
        return now + remaining.min(growing(pause));
    };
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    let later = STAGGER.saturating_mul(place).min(LONGEST_LOOK);
    let look = between(LOOK * 3 / 4, LOOK + later);
    now + look.min(remaining.saturating_add(between(Duration::ZERO, later)))
}

/// What a call has asked the store for, until it is a lease; dropped, it gives back what it may have
/// got.
struct Asked<'a> {
    keeper: &'a Arc<Keeper>,
    /// Nobody else has it before it is a lease, but a shutdown.
    acquisition: Arc<Acquisition>,
    owner: String,
    waits: bool,
    /// When it waits no longer.
    give_up: Instant,
    /// Whether its last request was not answered yet.
    in_flight: bool,
    is_lease: bool,
}

impl<'a> Asked<'a> {
    fn new(keeper: &'a Arc<Keeper>, call: &mut Call, queue: QueueId, now: Instant) -> Self {
        let (keys, options) = (mem::take(&mut call.keys), call.lease_options());
        let acquisition = Arc::new(keeper.acquisition(keys, queue, call.clock, now, options));
        keeper.open(&acquisition);
        Self {
            keeper,
            owner: acquisition.owner(),
            acquisition,
            waits: call.waits,
            give_up: call.give_up,
            in_flight: false,
            is_lease: false,
        }
    }

    fn claim(&self) -> Claim<'_> {
        self.acquisition.claim(&self.owner, self.acquisition.ttl())
    }

    fn now(&self) -> Instant {
        self.acquisition.clock.now()
    }

    fn answered_by(&self) -> Instant {
        self.now() + answered_within(self.keeper, self.acquisition.ttl())
    }

    async fn once(&mut self, again: bool) -> Result<Acquired, StoreError> {
        let left = if self.waits {
            self.give_up.saturating_duration_since(self.now())
        } else {
            Duration::ZERO
        };
        let waits = !left.is_zero();
        let _ = self.acquisition.happens(Event::Ask);
        if waits {
            self.acquisition.set_may_queue(true);
        }
        self.in_flight = true;
        let attempt = if again {
            Attempt::again(left)
        } else {
            Attempt::first(left)
        };
        let asking = self.keeper.store.acquire(self.claim(), attempt);
        let answer = self.keeper.ask_store(asking).await;
        self.in_flight = false;
        let acquisition = &self.acquisition;
        if answer.is_ok() {
            self.keeper.tell_answered(true);
        }
        let in_doubt = match &answer {
            Ok(acquired) => acquired.is_in_doubt(),
            Err(error) => error.is_in_doubt(),
        };
        if in_doubt {
            acquisition.set_unanswered();
        }
        // A refusal changes nothing of a place that it had before, and a request that comes late may
        // take one yet.
        if let Ok(answer) = &answer
            && !acquisition.is_unanswered()
        {
            acquisition.set_may_queue(waits && matches!(answer, Acquired::Busy { .. }));
        }
        // What was granted may still come too late to be a lease.
        if !matches!(answer, Ok(Acquired::Granted { .. })) {
            let queued = acquisition.may_queue();
            let _ = acquisition.happens(Event::Refuse { queued });
        }
        answer
    }

    /// Asks for what an owner holds.
    async fn take_over(&mut self, owner: &str, slot: usize) -> Result<Renewal, StoreError> {
        let _ = self.acquisition.happens(Event::Ask);
        self.in_flight = true;
        let claim = self.acquisition.claim(owner, self.acquisition.ttl());
        let asking = self.keeper.store.take_over(claim.held(slot), &self.owner);
        let answer = self.keeper.ask_store(asking).await;
        self.in_flight = false;
        self.keeper.tell_answered(answer.is_ok());
        if answer.as_ref().is_err_and(StoreError::is_in_doubt) {
            self.acquisition.set_unanswered();
        }
        if !matches!(answer, Ok(Renewal::Until(_))) {
            let _ = self.acquisition.happens(Event::Refuse { queued: false });
        }
        answer
    }

    fn lost(&self, cause: LossCause) -> Error {
        Error::Lost {
            key: self.acquisition.keys.label().to_owned(),
            cause,
            held: Duration::ZERO,
        }
    }

    fn into_lease(
        mut self,
        front: Front,
        slot: usize,
        until: Instant,
        granted: Granted,
    ) -> Result<Lease, Error> {
        if !self.keeper.close(&self.acquisition) {
            return Err(self.unavailable(StoreError::refused(SHUT_DOWN)));
        }
        let at = until.checked_sub(relied_on(self.acquisition.ttl()));
        let at = at.unwrap_or(until);
        if let Some(acquisition) = Arc::get_mut(&mut self.acquisition) {
            acquisition.grant(Grant { slot, at, until });
        }
        // From here on the lease answers for the keys.
        self.is_lease = true;
        let acquisition = Arc::clone(&self.acquisition);
        front.granted(&acquisition, granted);
        Ok(Lease::new(acquisition, Arc::clone(self.keeper)))
    }

    /// The key that an answer speaks of, as the user knows it.
    fn key(&self, lock: usize) -> String {
        self.acquisition.keys.key(lock)
    }

    fn unavailable(&self, source: StoreError) -> Error {
        source.told_of(self.acquisition.keys.label())
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.is_lease || self.keeper.check_process().is_err() {
            return;
        }
        self.keeper.close(&self.acquisition);
        // A shutdown has given it back.
        if self.acquisition.has_ended() {
            return;
        }
        if self.in_flight {
            self.acquisition.set_unanswered();
        }
        self.keeper.give_back(Arc::clone(&self.acquisition));
    }
}
