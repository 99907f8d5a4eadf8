//! Taking a key: standing in line for it, asking the store, and waiting while it is busy.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::{Error, StoreError};
use crate::hold::{Grant, Hold, KEPT, Names, Terms, relied_on};
use crate::jitter::{between, jittered};
use crate::keeper::{Doubt, Keeper, OnItsWay, Owed, Return, SHUT_DOWN};
use crate::lease::Lease;
use crate::owner::{self, Id};
use crate::queue::{Busy, Entry, Granted, Head, News, Ticket, Wish};
use crate::store::{Acquired, Ear, Request, Try, Woken};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Pauses between looks of a caller whom the store has not promised to wake.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The first of a store's queue looks again after so long: what a lost wake-up costs at most.
const LOOK: Duration = Duration::from_secs(1);

/// Those behind it look up to that much later for each place, also when a holder's ttl is over: of
/// many who wait one looks about as soon as the first would, and what it finds is given to the first.
const STAGGER: Duration = Duration::from_millis(200);

/// As long as a store's answer may take at least before a caller in line asks for itself.
const PATIENCE: Duration = Duration::from_secs(4);

/// The longest pause between two looks; shorter than a store's queue keeps one that does not look.
const LONGEST_LOOK: Duration = Duration::from_secs(100);

/// What a call seldom comes to. The future of every locked function holds the rest of this module,
/// and the crate it is in compiles that: this is boxed, and compiled here.
pub(super) type Rare<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) names: Names,
    pub(super) terms: Terms,
    pub(super) wait: Duration,
}

impl Ask {
    /// The ttl that the store is asked for: a key that is to stay closed for longer does so also
    /// where its holder dies.
    fn ttl(&self) -> Duration {
        self.terms.ttl.max(self.terms.min_hold)
    }

    fn wish(&self) -> Wish {
        // A lease that is handed over runs out sooner than a new one, unless it is renewed; `min_hold`
        // needs all of it at once.
        let takes = self.names.permits() == 1 && self.terms.renew && self.terms.min_hold.is_zero();
        Wish {
            permits: self.names.permits(),
            waits: !self.wait.is_zero(),
            takes: takes.then(|| self.ttl()),
        }
    }
}

/// Takes the key, waiting for it where the call allows that.
///
/// Cancel-safe: a future that is dropped at any point gives back what it may have got.
pub(super) fn take(
    keeper: &Arc<Keeper>,
    ask: Ask,
) -> impl Future<Output = Result<Lease, Error>> + Send {
    // Here, so that the future has but one copy of it.
    let mut asked = Asked::new(keeper, ask);
    async move {
        let clock = keeper.clock_of_caller();
        let give_up = clock.now() + asked.ask.wait;
        let caller = Caller {
            keeper,
            clock,
            give_up,
            _open: keeper.ask(),
        };
        let line = keeper.line_of(&asked.ask.names);
        let (head, wait) = match keeper.enter(line, asked.ask.wish()) {
            Entry::Head(head) => (head, asked.ask.wait),
            Entry::Busy(busy) => return Err(caller.busy(&asked.ask, busy)),
            Entry::Behind(ticket) => {
                let place = Place { keeper, ticket };
                match caller.stand(&asked.ask, place).await? {
                    Turn::Head(head) => (head, caller.left()),
                    Turn::Handed(head, from) => {
                        return Ok(caller.go_on(&mut asked, head, &from));
                    }
                }
            }
        };
        asked.id = keeper.origin().new_id();
        asked.owner = keeper.origin().owner(asked.id);
        let waiter = (!asked.ask.wait.is_zero()).then(|| asked.owner.clone());
        // Before it is asked, so that no news is missed.
        let ear = waiter.as_ref().map(|owner| keeper.store.ear(owner));
        let try_ = if keeper.queue.is_contended(line) {
            Try::Again
        } else {
            Try::First
        };
        let answer = asked.once(try_, wait).await;
        if let Ok(Acquired::Granted { index, sent, .. }) = answer
            && caller.clock.now() < sent + relied_on(asked.ask.ttl())
        {
            keeper.queue.set_contended(line, false);
            return Ok(asked.into_lease(&caller, head, index, sent, Granted::Alone));
        }
        caller.ask_on(asked, head, answer, ear).await
    }
}

/// One call on its way to its lease.
struct Caller<'a> {
    keeper: &'a Arc<Keeper>,
    clock: Clock,
    give_up: Instant,
    /// Shutting down waits for it.
    _open: OnItsWay<&'a Keeper>,
}

/// How a caller comes to the head of its line.
enum Turn {
    Head(Head),
    /// With the lease of the caller before.
    Handed(Head, Arc<Hold>),
}

impl Caller<'_> {
    /// Stands in line until it is this caller's turn.
    fn stand<'a>(&'a self, ask: &'a Ask, mut place: Place<'a>) -> Rare<'a, Turn> {
        Box::pin(async move {
            if self.keeper.is_closed() {
                return Err(unavailable(ask, StoreError::refused(SHUT_DOWN)));
            }
            // The head may be kept from asking, by a runtime that is blocked: nobody is to be kept for
            // longer than it would take to ask for itself.
            let step = self.keeper.patience.max(PATIENCE);
            let mut silent = None;
            let mut told = None;
            while told.is_none() && self.clock.now() < self.give_up {
                let until = self.give_up.min(self.clock.now() + step / 2);
                told = self.hear(&mut place, until).await;
                if told.is_none() {
                    let head = place.ticket.silent_head();
                    if head.is_some() && head == silent {
                        break;
                    }
                    silent = head;
                }
            }
            if told.is_none() && self.clock.now() >= self.give_up {
                if !ask.wait.is_zero()
                    && let Some(busy) = place.ticket.hurry()
                {
                    return Err(self.busy(ask, busy));
                }
                told = self.hear(&mut place, self.clock.now() + step).await;
            }
            let news = told.or_else(|| place.ticket.unheard()).unwrap_or_else(|| {
                let line = self.keeper.line_of(&ask.names);
                News::Turn(self.keeper.queue.alone(line))
            });
            match news {
                News::Turn(head) => Ok(Turn::Head(head)),
                News::Handed(head, from) => {
                    let left = from.deadline().saturating_duration_since(self.clock.now());
                    if left >= from.ttl() / 3 && from.names.locks() == ask.names.locks() {
                        return Ok(Turn::Handed(head, from));
                    }
                    // Too late, or by chance in the line of another key.
                    self.keeper.give_back(Return::unclaimed(&from));
                    Ok(Turn::Head(head))
                }
                News::Busy(busy) => Err(self.busy(ask, busy)),
                News::Down(source) => Err(unavailable(ask, source)),
            }
        })
    }

    /// What a caller in line is told before a moment.
    async fn hear(&self, place: &mut Place<'_>, until: Instant) -> Option<News> {
        let engine = &self.keeper.engine;
        self.clock
            .until(engine, until, place.ticket.news())
            .await
            .ok()
    }

    /// Goes on with the lease of the caller before, on terms of its own.
    fn go_on(&self, asked: &mut Asked<'_>, head: Head, from: &Hold) -> Lease {
        let ask = &mut asked.ask;
        let hold = self.keeper.hold(Grant {
            index: from.index(),
            id: from.id(),
            clock: self.clock,
            granted: self.clock.now(),
            sent: from.started(),
            terms: Terms {
                ttl: ask.ttl(),
                ..ask.terms
            },
            in_doubt: false,
            names: mem::take(&mut ask.names),
            line: head.line(),
        });
        head.granted(&hold, Granted::Handed);
        Lease::new(hold, Arc::clone(self.keeper))
    }

    /// Goes on after a first answer that was no lease.
    fn ask_on<'a>(
        &'a self,
        mut asked: Asked<'a>,
        head: Head,
        mut answer: Result<Acquired, StoreError>,
        mut ear: Option<Box<dyn Ear + 'a>>,
    ) -> Rare<'a, Lease> {
        Box::pin(async move {
            let keeper = self.keeper;
            let line = head.line();
            let ttl = asked.ask.ttl();
            let mut pause = FIRST_PAUSE;
            let mut granted_after = Granted::Alone;
            loop {
                let now = self.clock.now();
                let next = match answer {
                    Ok(Acquired::Granted { index, sent, .. }) => {
                        if now < sent + relied_on(ttl) {
                            keeper
                                .queue
                                .set_contended(line, granted_after == Granted::AmongOthers);
                            return Ok(asked.into_lease(self, head, index, sent, granted_after));
                        }
                        if now >= self.give_up {
                            let late = "the grant came when its ttl was over";
                            return Err(asked.unavailable(StoreError::refused(late)));
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
                        keeper.queue.set_contended(line, true);
                        let holder = owner::shown(&owner);
                        head.busy(&Busy {
                            holder: Some(holder.clone()),
                            until: now + remaining,
                        });
                        if now >= self.give_up {
                            return Err(Error::Busy {
                                key: asked.key(index),
                                holder,
                                remaining,
                            });
                        }
                        let look = next_look(now, place, remaining, &mut pause);
                        look.min(self.give_up)
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
                        head.down(&source);
                        return Err(asked.unavailable(source));
                    }
                };
                let granted = self.wait_until(next, ear.as_deref_mut()).await;
                if keeper.is_closed() {
                    return Err(asked.unavailable(StoreError::refused(SHUT_DOWN)));
                }
                if let Some((index, since)) = granted
                    // What has run out by half is asked for anew.
                    && self.clock.now() < since + relied_on(ttl) / 2
                {
                    return Ok(asked.into_lease(self, head, index, since, granted_after));
                }
                answer = asked.once(Try::Again, self.left()).await;
            }
        })
    }

    /// For how long it may wait yet.
    fn left(&self) -> Duration {
        self.give_up.saturating_duration_since(self.clock.now())
    }

    /// Waits for the moment to look again, for news from the store, or for the client to be shut
    /// down. The answer is a grant, if that was the news.
    async fn wait_until(
        &self,
        mut next: Instant,
        mut ear: Option<&mut (dyn Ear + '_)>,
    ) -> Option<(usize, Instant)> {
        let mut closed = pin!(self.keeper.queue.closed());
        loop {
            let mut over = pin!(self.sleep_until(next));
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
                    let look = next_look(self.clock.now(), Some(0), remaining, &mut pause);
                    next = next.min(look);
                }
                Some(Woken::Look) | None => return None,
            }
        }
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        self.clock.sleep_until(&self.keeper.engine, at)
    }

    fn busy(&self, ask: &Ask, busy: Busy) -> Error {
        Error::Busy {
            key: ask.names.label().to_owned(),
            holder: busy.holder.unwrap_or_else(|| self.keeper.origin().shown()),
            remaining: busy.until.saturating_duration_since(self.clock.now()),
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

/// A pause, jittered, the next of which is twice as long.
pub(super) fn growing(pause: &mut Duration) -> Duration {
    let now = jittered(*pause);
    *pause = (*pause * 2).min(LONGEST_PAUSE);
    now
}

fn unavailable(ask: &Ask, source: StoreError) -> Error {
    Error::Unavailable {
        key: ask.names.label().to_owned(),
        source,
    }
}

/// A place in the line, whose caller may go away in the very moment that its turn has come.
struct Place<'a> {
    keeper: &'a Arc<Keeper>,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(News::Handed(head, hold)) = self.ticket.unheard() {
            self.keeper.pass_on(head, &hold);
        }
    }
}

/// A request whose grant nobody has taken over yet; dropped, it gives back what it may have got.
struct Asked<'a> {
    keeper: &'a Arc<Keeper>,
    ask: Ask,
    id: Id,
    /// Empty before the store is asked.
    owner: String,
    fate: Fate,
}

/// What a request may have left behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing: it was answered, or never asked.
    Clear,
    /// A place in the store's queue, or the key that it led to.
    Queued,
    /// A key, granted or about to be.
    Open,
    /// A key, at any time, by a request that was never answered.
    InDoubt,
}

impl<'a> Asked<'a> {
    fn new(keeper: &'a Arc<Keeper>, ask: Ask) -> Self {
        Self {
            keeper,
            ask,
            id: Id::default(),
            owner: String::new(),
            fate: Fate::Clear,
        }
    }

    async fn once(&mut self, try_: Try, left: Duration) -> Result<Acquired, StoreError> {
        if matches!(self.fate, Fate::Clear | Fate::Queued) {
            self.fate = Fate::Open;
        }
        let (names, want) = self.ask.names.wanted();
        let request = Request {
            names,
            want,
            owner: &self.owner,
            ttl: self.ask.ttl(),
            try_,
            wait: left,
        };
        let answer = self.keeper.store.acquire(request).await;
        let in_doubt = match &answer {
            Ok(
                Acquired::Granted { in_doubt, .. }
                | Acquired::Busy { in_doubt, .. }
                | Acquired::Done { in_doubt, .. },
            ) => *in_doubt,
            Ok(Acquired::Foreign { .. }) => false,
            Err(error) => error.is_in_doubt(),
        };
        if in_doubt {
            self.fate = Fate::InDoubt;
        } else if self.fate == Fate::Open {
            self.fate = match &answer {
                Ok(Acquired::Granted { .. }) => Fate::Open,
                Ok(Acquired::Busy { .. }) if !left.is_zero() => Fate::Queued,
                _ => Fate::Clear,
            };
        }
        answer
    }

    fn into_lease(
        mut self,
        caller: &Caller<'_>,
        head: Head,
        index: usize,
        sent: Instant,
        granted: Granted,
    ) -> Lease {
        let ttl = self.ask.ttl();
        let grant = Grant {
            names: mem::take(&mut self.ask.names),
            line: head.line(),
            index,
            id: self.id,
            clock: caller.clock,
            granted: sent,
            sent,
            terms: Terms {
                ttl,
                ..self.ask.terms
            },
            in_doubt: self.fate == Fate::InDoubt,
        };
        // From here on the lease answers for the key.
        self.fate = Fate::Clear;
        let hold = self.keeper.hold(grant);
        head.granted(&hold, granted);
        Lease::new(hold, Arc::clone(self.keeper))
    }

    /// The key that an answer speaks of, as the user knows it.
    fn key(&self, index: usize) -> String {
        self.ask.names.key(index)
    }

    fn unavailable(&self, source: StoreError) -> Error {
        unavailable(&self.ask, source)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let doubt = match self.fate {
            Fate::Clear => return,
            Fate::Queued => Doubt::Queued,
            Fate::Open => Doubt::Dropped,
            Fate::InDoubt => Doubt::Unanswered,
        };
        let ttl = self.ask.ttl();
        let until = Instant::now() + ttl;
        let queued = (!self.ask.wait.is_zero()).then_some(ttl);
        self.keeper.give_back(Return {
            owed: Owed::Request {
                names: mem::take(&mut self.ask.names),
                owner: mem::take(&mut self.owner),
                queued,
            },
            doubt,
            until,
            returned: KEPT,
        });
    }
}
