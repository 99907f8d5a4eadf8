//! The suite itself: a store that keeps its promises passes, and one that breaks any is told which.

use std::collections::HashMap;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, UNIX_EPOCH};

use tokio::runtime::Builder;
use tokio::time::sleep;

use super::promise::{self, Promise};
use super::{check, outage};
use crate::Memory;
use crate::error::StoreError;
use crate::runtime::clock::Clock;
use crate::store::{
    Acquired, Attempt, Claim, Found, Held, Leave, Limits, Release, Renewal, Renewed, Reply, Store,
    Token, WakeUp, WakeUps, relied_on_until,
};

#[tokio::test]
async fn memory_passes() {
    check(async || Memory::new()).await;
}

#[tokio::test(start_paused = true)]
async fn memory_passes_in_the_time_of_a_test() {
    check(async || Memory::new()).await;
}

#[tokio::test]
async fn one_store_may_be_asked_everything() {
    let memory = Memory::new();
    check(async || memory.clone()).await;
}

#[tokio::test]
async fn memory_that_refuses_is_an_outage() {
    let memory = Memory::new();
    memory.refuse(Some("out of order"));
    outage(&memory).await;
}

#[test]
fn what_the_limits_rule_out_is_not_asked() {
    /// One that can do neither.
    #[derive(Debug, Default)]
    struct Single(Memory);

    fn is_single(claim: Claim<'_>) {
        assert_eq!((claim.locks.len(), claim.permits), (1, 1));
    }

    impl Store for Single {
        fn limits(&self) -> Limits {
            Limits::default().several_locks(false).permits(false)
        }

        fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
            is_single(claim);
            self.0.acquire(claim, attempt)
        }

        fn renew<'a>(
            &'a self,
            leases: &'a [Held<'a>],
            patience: Duration,
        ) -> Reply<'a, Vec<Renewed>> {
            for lease in leases {
                is_single(lease.claim);
            }
            self.0.renew(leases, patience)
        }

        fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
            is_single(claim);
            self.0.release(claim, release)
        }

        fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
            is_single(lease.claim);
            self.0.token(lease)
        }

        fn in_callers_time(&self) -> bool {
            true
        }
    }

    in_paused_time(check(async || Single::default()));
}

#[test]
fn a_store_that_breaks_a_promise_is_told_which() {
    for (flaw, promise) in FLAWS {
        let make = async || Flawed {
            memory: Memory::new(),
            flaw: *flaw,
            counters: Mutex::default(),
        };
        let checked = catch_unwind(AssertUnwindSafe(|| in_paused_time(check(make))));
        let panic = checked.expect_err(&format!("{flaw:?} passes"));
        let told = panic.downcast_ref::<String>().expect("a message");
        assert!(
            told.contains(&promise.to_string()),
            "{flaw:?} was told as: {told}"
        );
        assert!(!told.contains('\n'), "{told}");
    }
}

#[test]
fn an_outage_that_is_told_as_an_answer_is_noticed() {
    let memory = Memory::new();
    let checked = catch_unwind(AssertUnwindSafe(|| in_paused_time(outage(&memory))));
    let panic = checked.expect_err("it has answered");
    let told = panic.downcast_ref::<String>().expect("a message");
    assert!(told.contains(&promise::UNKNOWN.to_string()), "{told}");
}

fn in_paused_time(test: impl Future<Output = ()>) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

/// How a store breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    KeepsWhatItChecked,
    GrantsWhatIsHeld,
    ForgetsItsGrant,
    DoesNotStartAnew,
    PromisesTheWholeTtl,
    IsOverAtOnce,
    NamesNobody,
    NeverExpires,
    TakesSomeOfSeveral,
    GrantsOneSlotToAll,
    KeepsThePlace,
    MiscountsPlaces,
    ActsLate,
    TellsNobody,
    SaysRenewed,
    SaysHeldWhatIsGone,
    RenewsWhatIsGone,
    RenewsOverOthers,
    RenewsHalfOfALease,
    AnswersOnceForAll,
    ReleasesForOthers,
    SaysOursAlways,
    LooksAtOneSlot,
    IgnoresTheQueue,
    OpensAtOnce,
    WritesNoMark,
    KeepsNoMark,
    MarksUnasked,
    TokensStandStill,
    TokensAsEver,
    TokensForEverybody,
    ShortensUnasked,
    NeverShortens,
    DoneSinceEver,
    HeldSinceEver,
    TokensOfTheFirstLock,
    SlotsOpenAtOnce,
    CountsHolders,
    ReadersAreAlone,
    ReadersMeetWriters,
    PassesWaiters,
    NeverAnswers,
}

const FLAWS: &[(Flaw, Promise)] = &[
    (Flaw::KeepsWhatItChecked, promise::CHECKED),
    (Flaw::GrantsWhatIsHeld, promise::GRANTS),
    (Flaw::ForgetsItsGrant, promise::RECOGNISES),
    (Flaw::DoesNotStartAnew, promise::RECOGNISES),
    (Flaw::PromisesTheWholeTtl, promise::RELIED_ON),
    (Flaw::IsOverAtOnce, promise::RELIED_ON),
    (Flaw::NamesNobody, promise::BUSY_OWNER),
    (Flaw::NeverExpires, promise::RECOGNISES),
    (Flaw::TakesSomeOfSeveral, promise::GRANTS),
    (Flaw::GrantsOneSlotToAll, promise::GRANTS),
    (Flaw::KeepsThePlace, promise::ZERO_WAIT),
    (Flaw::MiscountsPlaces, promise::PLACE),
    (Flaw::ActsLate, promise::SETTLED),
    (Flaw::TellsNobody, promise::PLACE),
    (Flaw::SaysRenewed, promise::RENEWS),
    (Flaw::SaysHeldWhatIsGone, promise::RENEWAL_GONE),
    (Flaw::RenewsWhatIsGone, promise::NEVER_CREATES),
    (Flaw::RenewsOverOthers, promise::MISMATCH),
    (Flaw::RenewsHalfOfALease, promise::RENEWAL_GONE),
    (Flaw::AnswersOnceForAll, promise::ONE_EACH),
    (Flaw::ReleasesForOthers, promise::MISMATCH),
    (Flaw::SaysOursAlways, promise::FOUND),
    (Flaw::LooksAtOneSlot, promise::ENDS),
    (Flaw::IgnoresTheQueue, promise::FOUND),
    (Flaw::OpensAtOnce, promise::CLOSED),
    (Flaw::WritesNoMark, promise::DONE),
    (Flaw::KeepsNoMark, promise::KEEP_MARKS),
    (Flaw::MarksUnasked, promise::KEEP_MARKS),
    (Flaw::TokensStandStill, promise::TOKEN),
    (Flaw::TokensAsEver, promise::AT_LEAST),
    (Flaw::TokensForEverybody, promise::TOKEN),
    (Flaw::ShortensUnasked, promise::NEVER_SHORTENS),
    (Flaw::NeverShortens, promise::SHORTENS),
    (Flaw::DoneSinceEver, promise::SINCE),
    (Flaw::HeldSinceEver, promise::BUSY_SINCE),
    (Flaw::TokensOfTheFirstLock, promise::TOKEN),
    (Flaw::SlotsOpenAtOnce, promise::CLOSED),
    (Flaw::CountsHolders, promise::TOGETHER),
    (Flaw::ReadersAreAlone, promise::GRANTS),
    (Flaw::ReadersMeetWriters, promise::TOGETHER),
    (Flaw::PassesWaiters, promise::ORDER),
    (Flaw::NeverAnswers, promise::BOUND),
];

/// Locks in memory that break one promise.
#[derive(Debug)]
struct Flawed {
    memory: Memory,
    flaw: Flaw,
    /// The last token of each lock.
    counters: Mutex<HashMap<String, u64>>,
}

fn now() -> Instant {
    Clock::Tokio.now()
}

impl Flawed {
    fn is_held_by(&self, claim: Claim<'_>) -> bool {
        self.memory.holder(&claim.locks[0]).as_deref() == Some(claim.owner)
    }

    async fn take(
        &self,
        mut claim: Claim<'_>,
        mut attempt: Attempt,
    ) -> Result<Acquired, StoreError> {
        let granted = |ttl| Acquired::granted(0, relied_on_until(now(), ttl));
        match self.flaw {
            Flaw::ForgetsItsGrant if self.is_held_by(claim) => {
                let rival = Claim {
                    owner: "nobody",
                    ..claim
                };
                return self.memory.acquire(rival, attempt).await;
            }
            Flaw::DoesNotStartAnew if self.is_held_by(claim) => return Ok(granted(claim.ttl)),
            Flaw::TakesSomeOfSeveral => {
                for index in 0..claim.locks.len() {
                    let locks = &claim.locks[index..=index];
                    let one = Claim { locks, ..claim };
                    let mut one = self.memory.acquire(one, attempt).await?;
                    if let Acquired::Busy { lock, .. } = &mut one {
                        *lock = index;
                        return Ok(one);
                    }
                    if claim.locks.len() == 1 {
                        return Ok(one);
                    }
                }
                return Ok(granted(claim.ttl));
            }
            Flaw::NeverExpires => {
                let ttl = Duration::from_secs(86_400);
                let longer = Claim { ttl, ..claim };
                let mut answer = self.memory.acquire(longer, attempt).await?;
                match &mut answer {
                    Acquired::Granted { .. } => answer = granted(claim.ttl),
                    Acquired::Busy { remaining, .. } => *remaining = claim.ttl,
                    _ => {}
                }
                return Ok(answer);
            }
            Flaw::CountsHolders => claim.weight = 1,
            Flaw::ReadersAreAlone => claim.shared = false,
            Flaw::KeepsThePlace if attempt.again => attempt.wait = Duration::from_secs(60),
            _ => {}
        }
        let mut acquired = self.memory.acquire(claim, attempt).await?;
        match (self.flaw, &mut acquired) {
            (Flaw::GrantsWhatIsHeld, Acquired::Busy { .. }) => acquired = granted(claim.ttl),
            (Flaw::ReadersMeetWriters, Acquired::Busy { .. }) if claim.shared => {
                acquired = granted(claim.ttl);
            }
            (Flaw::PassesWaiters, Acquired::Busy { .. }) => {
                let standing = self.memory.standing(claim.locks);
                let holders = standing.into_iter().map(|one| one.sharing);
                if claim.sharing().fits_beside(holders) {
                    acquired = granted(claim.ttl);
                }
            }
            (Flaw::PromisesTheWholeTtl, Acquired::Granted { until, .. }) => {
                *until = now() + claim.ttl;
            }
            (Flaw::IsOverAtOnce, Acquired::Granted { until, .. }) => *until = now(),
            (Flaw::GrantsOneSlotToAll, Acquired::Granted { slot, .. }) => *slot = 0,
            (Flaw::NamesNobody, Acquired::Busy { owner, .. }) => owner.clear(),
            (Flaw::DoneSinceEver, Acquired::Done { since, .. }) => *since = UNIX_EPOCH,
            (Flaw::HeldSinceEver, Acquired::Busy { since, .. }) => *since = Some(UNIX_EPOCH),
            (
                Flaw::MiscountsPlaces,
                Acquired::Busy {
                    place: Some(place), ..
                },
            ) => *place = 0,
            _ => {}
        }
        Ok(acquired)
    }

    async fn renew_one(&self, mut lease: Held<'_>) -> Renewed {
        let claim = lease.claim;
        let until = Renewal::Until(relied_on_until(now(), claim.ttl));
        match self.flaw {
            Flaw::SaysRenewed => return Ok(until),
            Flaw::RenewsHalfOfALease => lease.claim.locks = &claim.locks[..1],
            Flaw::ShortensUnasked => lease.shortens = true,
            Flaw::NeverShortens => lease.shortens = false,
            _ => {}
        }
        let mut answers = self.memory.renew(&[lease], Duration::MAX).await?;
        let renewed = answers.remove(0)?;
        match (self.flaw, renewed) {
            (Flaw::SaysHeldWhatIsGone, Renewal::Gone) => return Ok(until),
            (Flaw::RenewsWhatIsGone, Renewal::Gone) | (Flaw::RenewsOverOthers, Renewal::Taken) => {
                self.memory.take(&claim.locks[0], claim.owner, claim.ttl);
            }
            _ => {}
        }
        Ok(renewed)
    }

    async fn end(&self, claim: Claim<'_>, mut release: Release<'_>) -> Result<Found, StoreError> {
        let leaves = |what: fn(&Leave) -> bool| release.leave.iter().any(what);
        let (closes, marks) = (
            leaves(|leave| matches!(leave, Leave::Closed(_))),
            leaves(|leave| matches!(leave, Leave::Done(_))),
        );
        match self.flaw {
            Flaw::OpensAtOnce if closes => release.leave = &[],
            Flaw::WritesNoMark if marks => release.leave = &[],
            Flaw::SlotsOpenAtOnce if claim.permits > 1 => release.leave = &[],
            Flaw::KeepsNoMark => release.keep_marks = false,
            Flaw::MarksUnasked => release.keep_marks = true,
            Flaw::LooksAtOneSlot
                if claim.permits > 1 && release.slot.is_none() && !self.is_held_by(claim) =>
            {
                return Ok(Found::Nothing);
            }
            Flaw::IgnoresTheQueue if release.may_queue && !self.is_held_by(claim) => {
                let holder = self.memory.holder(&claim.locks[0]);
                return Ok(holder.map_or(Found::Nothing, |_| Found::Another));
            }
            _ => {}
        }
        let found = self.memory.release(claim, release).await?;
        match (self.flaw, found) {
            (Flaw::ReleasesForOthers, Found::Another) => self.memory.expire(&claim.locks[0]),
            (Flaw::SaysOursAlways, _) => return Ok(Found::Ours),
            _ => {}
        }
        Ok(found)
    }
}

impl Store for Flawed {
    fn limits(&self) -> Limits {
        self.memory.limits()
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(async move {
            if self.flaw == Flaw::KeepsWhatItChecked {
                self.memory.acquire(claim, Attempt::default()).await?;
            }
            Ok(())
        })
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        if self.flaw != Flaw::ActsLate {
            return Box::pin(self.take(claim, attempt));
        }
        // What is spawned goes on when its future is dropped.
        let memory = self.memory.clone();
        let (locks, owner) = (claim.locks.to_vec(), claim.owner.to_owned());
        let (sharing, ttl) = (claim.sharing(), claim.ttl);
        Box::pin(async move {
            let acting = tokio::spawn(async move {
                sleep(Duration::from_millis(100)).await;
                let claim = Claim::new(&locks, &owner, ttl).with(sharing);
                memory.acquire(claim, attempt).await
            });
            acting.await.expect("it ends")
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for lease in leases {
                answers.push(self.renew_one(*lease).await);
            }
            if self.flaw == Flaw::AnswersOnceForAll {
                answers.truncate(1);
            }
            Ok(answers)
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.end(claim, release))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(async move {
            let asked = if self.flaw == Flaw::TokensAsEver {
                lease.claim.held(lease.slot)
            } else {
                lease
            };
            let token = self.memory.token(asked).await?;
            Ok(match (self.flaw, token) {
                (Flaw::NeverAnswers, _) => pending().await,
                (Flaw::TokensStandStill, Token::Drawn(_)) => Token::Drawn(7),
                (Flaw::TokensOfTheFirstLock, Token::Drawn(_)) => {
                    let mut counters = self.counters.lock().expect("nobody panics here");
                    let first = &lease.claim.locks[0];
                    let next = counters
                        .get(first)
                        .map_or(1, |last| last + 1)
                        .max(asked.at_least);
                    let counted = lease.claim.locks.iter().cloned();
                    counters.extend(counted.map(|lock| (lock, next)));
                    Token::Drawn(next)
                }
                (Flaw::TokensForEverybody, Token::NotHeld(_)) => Token::Drawn(u64::MAX),
                (_, token) => token,
            })
        })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        /// Keeps its owner in the queue.
        struct Silent<'a>(
            #[allow(dead_code, reason = "it is there to be dropped")] Box<dyn WakeUps + 'a>,
        );

        impl WakeUps for Silent<'_> {
            fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<WakeUp> {
                Poll::Pending
            }
        }

        let wakeups = self.memory.wakeups(claim);
        if self.flaw == Flaw::TellsNobody {
            Box::new(Silent(wakeups))
        } else {
            wakeups
        }
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        self.memory.settled(owner)
    }

    fn in_callers_time(&self) -> bool {
        true
    }
}
