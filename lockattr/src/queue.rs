//! Asking for a key, and waiting for one that is busy.
//!
//! For now each caller asks the store for itself: at once, then after pauses that grow and are
//! jittered so that waiters do not come back in step, and never later than the holder's lease can
//! end.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::{Error, StoreError};
use crate::hold::{Grant, Hold, Names, Terms, relied_on};
use crate::keeper::{Doubt, Keeper, OnItsWay, Owed, Return};
use crate::lease::Lease;
use crate::owner;
use crate::store::{Acquired, Request, Try};

/// What a client says that takes no more.
pub(crate) const SHUT_DOWN: &str = "the client was shut down";

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) names: Names,
    pub(crate) owner: String,
    pub(crate) terms: Terms,
    pub(crate) wait: Duration,
}

impl Ask {
    /// The ttl that the store is asked for: a key that is to stay closed for longer does so also
    /// where its holder dies.
    fn ttl(&self) -> Duration {
        self.terms.ttl.max(self.terms.min_hold)
    }
}

/// Takes the key, waiting for it where the call allows that.
///
/// Cancel-safe: a future that is dropped at any point gives back what it may have got.
pub(crate) async fn acquire(keeper: &Arc<Keeper>, ask: Ask) -> Result<Lease, Error> {
    let clock = keeper.clock_of_caller();
    let give_up = clock.now() + ask.wait;
    let mut asked = Asked::new(keeper, ask);
    let mut try_ = Try::First;
    let mut pause = FIRST_PAUSE;
    loop {
        let answer = asked.once(try_).await;
        try_ = Try::Again;
        let now = clock.now();
        let next = match answer {
            Ok(Acquired::Granted { index, sent, .. }) => {
                if now < sent + relied_on(asked.ask.ttl()) {
                    return Ok(asked.into_lease(index, sent, clock));
                }
                if now >= give_up {
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
                ..
            }) => {
                if now >= give_up {
                    return Err(Error::Busy {
                        key: asked.key(index),
                        holder: owner::shown(&owner),
                        remaining,
                    });
                }
                let end_of_lease = now + remaining.max(SHORTEST_PAUSE);
                next_look(now, &mut pause, give_up.min(end_of_lease))
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
            Err(source) => return Err(asked.unavailable(source)),
        };
        if keeper.is_closed() {
            return Err(asked.unavailable(StoreError::refused(SHUT_DOWN)));
        }
        clock.sleep_until(&keeper.engine, next).await;
    }
}

/// The next time to look again, after a pause that grows; never after `give_up`.
pub(crate) fn next_look(now: Instant, pause: &mut Duration, give_up: Instant) -> Instant {
    let next = now + jittered(*pause);
    *pause = (*pause * 2).min(LONGEST_PAUSE);
    next.min(give_up)
}

/// Between half of a pause and the whole, different for each waiter.
fn jittered(pause: Duration) -> Duration {
    // Randomly keyed for each call, which is all that is needed here.
    let random = RandomState::new().hash_one(0_u8);
    let share = u32::try_from(random % 512).unwrap_or(0) + 512;
    pause * share / 1024
}

/// A request whose grant nobody has taken over yet; dropped, it gives back what it may have got.
struct Asked<'a> {
    keeper: &'a Arc<Keeper>,
    ask: Ask,
    fate: Fate,
    /// Shutting down waits for it.
    _open: OnItsWay,
}

/// What a request may have left behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing: it was answered, or never asked.
    Clear,
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
            fate: Fate::Clear,
            _open: keeper.ask(),
        }
    }

    async fn once(&mut self, try_: Try) -> Result<Acquired, StoreError> {
        let before = self.fate;
        if before == Fate::Clear {
            self.fate = Fate::Open;
        }
        let (names, want) = self.ask.names.wanted();
        let request = Request {
            names,
            want,
            owner: &self.ask.owner,
            ttl: self.ask.ttl(),
            try_,
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
        } else if self.fate == Fate::Open && !matches!(answer, Ok(Acquired::Granted { .. })) {
            self.fate = Fate::Clear;
        }
        answer
    }

    fn into_lease(mut self, index: usize, sent: Instant, clock: Clock) -> Lease {
        let ttl = self.ask.ttl();
        let grant = Grant {
            names: mem::take(&mut self.ask.names),
            index,
            owner: mem::take(&mut self.ask.owner),
            clock,
            sent,
            terms: Terms {
                ttl,
                ..self.ask.terms
            },
            in_doubt: self.fate == Fate::InDoubt,
        };
        // From here on the lease answers for the key.
        self.fate = Fate::Clear;
        let hold = Hold::new(grant, Arc::clone(&self.keeper.counters));
        Lease::new(Arc::new(hold), Arc::clone(self.keeper))
    }

    /// The key that an answer speaks of, as the user knows it.
    fn key(&self, index: usize) -> String {
        self.ask.names.key(index)
    }

    fn unavailable(&self, source: StoreError) -> Error {
        Error::Unavailable {
            key: self.ask.names.label().to_owned(),
            source,
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let doubt = match self.fate {
            Fate::Clear => return,
            Fate::Open => Doubt::Dropped,
            Fate::InDoubt => Doubt::Unanswered,
        };
        let until = Instant::now() + self.ask.ttl();
        self.keeper.give_back(Return {
            owed: Owed::Request {
                names: mem::take(&mut self.ask.names),
                owner: mem::take(&mut self.ask.owner),
            },
            doubt,
            until,
            told: false,
        });
    }
}
