//! Asking the store for a call's keys, and waiting there while they are busy.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::waiting::Turn;
use super::{Call, FIRST_PAUSE, Rare, growing};
use crate::error::{Error, StoreError};
use crate::hold::{Grant, Hold, Terms, relied_on};
use crate::jitter::between;
use crate::keeper::{Keeper, OnItsWay, PendingRelease, Requested, SHUT_DOWN};
use crate::lease::Lease;
use crate::owner::{self, Id};
use crate::queue::{Busy, Entrant, Entry, Front, Granted, HEARS_WITHIN};
use crate::store::{Acquired, Ear, Request, Try, Woken};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The first of a store's queue looks again after so long: what a lost wake-up costs at most.
const LOOK: Duration = Duration::from_secs(1);

/// Those behind it look up to that much later for each place, also when a holder's ttl is over: of
/// many who wait one looks about as soon as the first would, and what it finds is given to the first.
const STAGGER: Duration = Duration::from_millis(200);

/// The longest pause between two looks; shorter than a store's queue keeps one that does not look.
const LONGEST_LOOK: Duration = Duration::from_secs(100);

/// Takes the keys, waiting for them where the call allows that.
///
/// Cancel-safe: a future that is dropped at any point gives back what it may have got.
pub(super) fn take(
    keeper: &Arc<Keeper>,
    call: Call,
) -> impl Future<Output = Result<Lease, Error>> + Send {
    // Here, so that the future has but one copy of it.
    let mut asked = Asked::new(keeper, call);
    async move {
        let caller = Caller {
            keeper,
            _open: keeper.ask(),
        };
        let id = keeper.line_of(&asked.call.names);
        let front = match keeper.enter(id, asked.entrant()) {
            Entry::Front(front) => front,
            Entry::Busy(busy) => return Err(caller.busy(&asked.call, busy)),
            Entry::Behind(place) => match caller.wait_for_turn(&asked.call, id, place).await? {
                Turn::Front(front) => {
                    front.expect(asked.answered_by());
                    front
                }
                Turn::Handed(front, from) => {
                    return Ok(caller.go_on(&mut asked, front, &from));
                }
            },
        };
        asked.id = keeper.origin().new_id();
        asked.owner = keeper.origin().owner(asked.id);
        let waiter = asked.call.waits.then(|| asked.owner.clone());
        // Before it is asked, so that no wake-up is missed.
        let ear = waiter.as_ref().map(|owner| keeper.store.ear(owner));
        let try_ = if keeper.queue.is_contended(id) {
            Try::Again
        } else {
            Try::First
        };
        let answer = asked.once(try_).await;
        if let Ok(Acquired::Granted { index, sent, .. }) = answer
            && asked.call.clock.now() < sent + relied_on(asked.call.ttl())
        {
            keeper.queue.set_contended(id, false);
            return Ok(asked.into_lease(front, index, sent, Granted::Alone));
        }
        caller.ask_on(asked, front, answer, ear).await
    }
}

/// One call on its way to its lease.
pub(super) struct Caller<'a> {
    pub(super) keeper: &'a Arc<Keeper>,
    /// Shutting down waits for it.
    _open: OnItsWay<&'a Keeper>,
}

impl Caller<'_> {
    /// Goes on with the lease of the caller before, on terms of its own.
    fn go_on(&self, asked: &mut Asked<'_>, front: Front, from: &Hold) -> Lease {
        let call = &mut asked.call;
        let hold = self.keeper.hold(Grant {
            index: from.index(),
            id: from.id(),
            clock: call.clock,
            granted: call.clock.now(),
            sent: from.started(),
            terms: Terms {
                ttl: call.ttl(),
                ..call.terms
            },
            in_doubt: false,
            names: mem::take(&mut call.names),
            line: front.queue(),
        });
        front.granted(&hold, Granted::Handed);
        Lease::new(hold, Arc::clone(self.keeper))
    }

    /// Goes on after a first answer that was no lease.
    fn ask_on<'a>(
        &'a self,
        mut asked: Asked<'a>,
        front: Front,
        mut answer: Result<Acquired, StoreError>,
        mut ear: Option<Box<dyn Ear + 'a>>,
    ) -> Rare<'a, Lease> {
        Box::pin(async move {
            let queue = &self.keeper.queue;
            let id = front.queue();
            let (clock, give_up) = (asked.call.clock, asked.call.give_up);
            let ttl = asked.call.ttl();
            let mut pause = FIRST_PAUSE;
            let mut granted_after = Granted::Alone;
            loop {
                let now = clock.now();
                let next = match answer {
                    Ok(Acquired::Granted { index, sent, .. }) => {
                        if now < sent + relied_on(ttl) {
                            queue.set_contended(id, granted_after == Granted::AmongOthers);
                            return Ok(asked.into_lease(front, index, sent, granted_after));
                        }
                        if now >= give_up {
                            return Err(asked.call.unavailable(StoreError::late()));
                        }
                        // The store recognises the owner and starts the ttl anew.
                        now
                    }
                    Ok(Acquired::Busy {
                        index,
                        owner,
                        remaining,
                        place,
                        ..
                    }) => {
                        granted_after = Granted::AmongOthers;
                        queue.set_contended(id, true);
                        let holder = owner::shown(&owner);
                        front.busy(&Busy {
                            holder: Some(holder.clone()),
                            until: now + remaining,
                        });
                        if now >= give_up {
                            return Err(Error::Busy {
                                key: asked.key(index),
                                holder,
                                remaining,
                            });
                        }
                        let look = next_look(now, place, remaining, &mut pause);
                        look.min(give_up)
                    }
                    Ok(Acquired::Done { index, since, .. }) => {
                        return Err(Error::Done {
                            key: asked.key(index),
                            since,
                        });
                    }
                    Ok(Acquired::Foreign { index, found }) => {
                        return Err(Error::Foreign {
                            key: asked.key(index),
                            found,
                        });
                    }
                    Err(source) => {
                        front.unavailable(&source);
                        return Err(asked.call.unavailable(source));
                    }
                };
                front.expect(next + HEARS_WITHIN);
                let granted = self.wait_until(&asked.call, next, ear.as_deref_mut()).await;
                if self.keeper.is_closed() {
                    return Err(asked.call.unavailable(StoreError::refused(SHUT_DOWN)));
                }
                if let Some((index, since)) = granted
                    // What has run out by half is asked for anew.
                    && clock.now() < since + relied_on(ttl) / 2
                {
                    return Ok(asked.into_lease(front, index, since, granted_after));
                }
                front.expect(asked.answered_by());
                answer = asked.once(Try::Again).await;
            }
        })
    }

    /// Waits for the moment to look again, for a wake-up from the store, or for the client to be shut
    /// down. The answer is a grant, if that was the wake-up.
    async fn wait_until(
        &self,
        call: &Call,
        mut next: Instant,
        mut ear: Option<&mut (dyn Ear + '_)>,
    ) -> Option<(usize, Instant)> {
        let mut closed = pin!(self.keeper.queue.closed());
        loop {
            let mut over = pin!(call.clock.sleep_until(&self.keeper.engine, next));
            let woken = poll_fn(|cx| {
                if let Some(ear) = &mut ear
                    && let Poll::Ready(woken) = ear.poll_news(cx)
                {
                    return Poll::Ready(Some(woken));
                }
                if closed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                over.as_mut().poll(cx).map(|()| None)
            });
            match woken.await {
                Some(Woken::Granted { index, since }) => return Some((index, since)),
                Some(Woken::First { remaining }) => {
                    let mut pause = FIRST_PAUSE;
                    let look = next_look(call.clock.now(), Some(0), remaining, &mut pause);
                    next = next.min(look);
                }
                Some(Woken::Look) | None => return None,
            }
        }
    }

    pub(super) fn busy(&self, call: &Call, busy: Busy) -> Error {
        Error::Busy {
            key: call.names.label().to_owned(),
            holder: busy.holder.unwrap_or_else(|| self.keeper.origin().shown()),
            remaining: busy.until.saturating_duration_since(call.clock.now()),
        }
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
    call: Call,
    id: Id,
    /// Empty before the store is asked.
    owner: String,
    stage: Stage,
    /// Whether it may stand in the store's queue.
    may_queue: bool,
    /// Whether a request was never answered, and may yet be carried out.
    unanswered: bool,
}

/// What has come of its last request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has none, or it got nothing.
    Nothing,
    InFlight,
    Granted,
}

impl<'a> Asked<'a> {
    fn new(keeper: &'a Arc<Keeper>, call: Call) -> Self {
        Self {
            keeper,
            call,
            id: Id::default(),
            owner: String::new(),
            stage: Stage::Nothing,
            may_queue: false,
            unanswered: false,
        }
    }

    fn entrant(&self) -> Entrant {
        let call = &self.call;
        // A lease that is handed over runs out sooner than a new one, unless it is renewed; `min_hold`
        // needs all of it at once.
        let terms = &call.terms;
        let takes = call.names.permits() == 1 && terms.renew && terms.min_hold.is_zero();
        let now = call.clock.now();
        Entrant {
            permits: call.names.permits(),
            waits: call.waits,
            takes: takes.then(|| call.ttl()),
            now,
            expected: now + self.keeper.patience + HEARS_WITHIN,
        }
    }

    /// By when a request that is made now is answered, or has failed.
    fn answered_by(&self) -> Instant {
        self.call.clock.now() + self.keeper.patience + HEARS_WITHIN
    }

    async fn once(&mut self, try_: Try) -> Result<Acquired, StoreError> {
        let left = if self.call.waits {
            self.call.left()
        } else {
            Duration::ZERO
        };
        let waits = !left.is_zero();
        self.stage = Stage::InFlight;
        self.may_queue |= waits;
        let (names, want) = self.call.names.wanted();
        let request = Request {
            names,
            want,
            owner: &self.owner,
            ttl: self.call.ttl(),
            try_,
            wait: left,
        };
        let answer = self
            .keeper
            .engine
            .within(self.keeper.store.acquire(request))
            .await;
        if answer.is_ok() {
            self.keeper.tell_answered(true);
        }
        self.stage = match &answer {
            Ok(Acquired::Granted { .. }) => Stage::Granted,
            _ => Stage::Nothing,
        };
        self.unanswered |= match &answer {
            Ok(
                Acquired::Granted { in_doubt, .. }
                | Acquired::Busy { in_doubt, .. }
                | Acquired::Done { in_doubt, .. },
            ) => *in_doubt,
            Ok(Acquired::Foreign { .. }) => false,
            Err(error) => error.is_in_doubt(),
        };
        // A refusal changes nothing of a place that it had before.
        if let Ok(answer) = &answer {
            self.may_queue = waits && matches!(answer, Acquired::Busy { .. });
        }
        answer
    }

    fn into_lease(mut self, front: Front, index: usize, sent: Instant, granted: Granted) -> Lease {
        let ttl = self.call.ttl();
        let grant = Grant {
            names: mem::take(&mut self.call.names),
            line: front.queue(),
            index,
            id: self.id,
            clock: self.call.clock,
            granted: sent,
            sent,
            terms: Terms {
                ttl,
                ..self.call.terms
            },
            in_doubt: self.unanswered,
        };
        // From here on the lease answers for the keys.
        (self.stage, self.may_queue, self.unanswered) = (Stage::Nothing, false, false);
        let hold = self.keeper.hold(grant);
        front.granted(&hold, granted);
        Lease::new(hold, Arc::clone(self.keeper))
    }

    /// The key that an answer speaks of, as the user knows it.
    fn key(&self, index: usize) -> String {
        self.call.names.key(index)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Nothing && !self.may_queue && !self.unanswered {
            return;
        }
        let ttl = self.call.ttl();
        self.keeper.give_back(PendingRelease::Request(Requested {
            names: mem::take(&mut self.call.names),
            owner: mem::take(&mut self.owner),
            ttl,
            may_queue: self.may_queue,
            unanswered: self.unanswered || self.stage == Stage::InFlight,
        }));
    }
}
