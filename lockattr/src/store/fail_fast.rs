//! A store whose callers are told at once that it is away, where that was seen a moment ago.
//!
//! While a server is down or cut off, each call finds that out for itself, which takes as long as a
//! connection or a reply may take. Here the first one does; those that come after it are told what it
//! was told, while the background asks the store now and then. The first answer, to whatever step, ends
//! that. Renewals and releases are never held back, and neither is what a store refuses in its own words.
//!
//! A store of several servers has parts, each of which may be away by itself: an outage is one of the locks
//! that are kept there, and so is the answer that ends it.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{
    Acquired, Attempt, Claim, Found, Held, HeldLeases, Limits, Listed, Release, Renewal, Renewed,
    Reply, Store, Token, WakeUps,
};
use crate::error::StoreError;
use crate::runtime::background::Background;
use crate::runtime::jitter::jittered;

/// The first pause before the store is asked again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// So many parts at most are remembered for having answered.
const MOST_PARTS: usize = 256;

/// A store, and what is known of its outages.
#[derive(Clone, Debug)]
pub(crate) struct FailFast(Arc<FailFastInner>);

struct FailFastInner {
    store: Arc<dyn Store>,
    background: Background,
    /// For how long an outage is taken to last after it was seen.
    length: Duration,
    /// An owner that holds nothing: to give that back changes nothing, and is answered by a store that answers.
    nobody: String,
    part_of: PartOf,
    parts: Mutex<HashMap<u64, OutagePart>>,
}

/// Which part of its store keeps these locks now.
pub(crate) type PartOf = Arc<dyn Fn(&[String]) -> u64 + Send + Sync>;

/// The only part of a store that is there or away as a whole.
pub(crate) fn whole() -> PartOf {
    Arc::new(|_| 0)
}

#[derive(Debug, Default)]
struct OutagePart {
    /// When it answered last. What was asked before and fails later is no outage.
    answered: Option<Instant>,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    error: StoreError,
    seen: Instant,
    /// Whether the background asks.
    is_probed: bool,
    /// Whether anybody was told of it since the background has asked last.
    was_told: bool,
}

impl FailFast {
    /// `nobody` is an owner that holds nothing.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        part_of: PartOf,
        background: &Background,
        length: Duration,
        nobody: String,
    ) -> Self {
        Self(Arc::new(FailFastInner {
            store,
            background: background.clone(),
            length,
            nobody,
            part_of,
            parts: Mutex::default(),
        }))
    }

    /// What a claim on these locks is told instead of asking.
    fn told(&self, part: u64, locks: &[String]) -> Option<StoreError> {
        let mut parts = self.0.parts();
        let outage = parts.get_mut(&part)?.outage.as_mut()?;
        let ago = outage.seen.elapsed();
        if ago >= self.0.length {
            return None;
        }
        outage.was_told = true;
        let begins = !mem::replace(&mut outage.is_probed, true);
        let error = StoreError::unreachable(format!(
            "not asked, since the store was away {}ms ago: {}",
            ago.as_millis(),
            outage.error
        ));
        drop(parts);
        if begins {
            let (probing, locks) = (self.clone(), locks.to_vec());
            self.0
                .background
                .spawn(async move { probing.probe(part, &locks).await });
        }
        Some(error)
    }

    /// Asks for locks of a part now and then, for as long as it is away and somebody wants to know.
    async fn probe(&self, part: u64, locks: &[String]) {
        let inner = &*self.0;
        let mut pause = FIRST_PAUSE;
        loop {
            inner
                .background
                .sleep_until(Instant::now() + jittered(pause))
                .await;
            pause = (2 * pause).min(LONGEST_PAUSE);
            let asked = Instant::now();
            let claim = Claim::new(locks, &inner.nobody, inner.length);
            let asking = inner.store.release(claim, Release::whatever(false));
            let Some(answer) = inner.background.ask(asking).await else {
                return;
            };
            inner.saw(part, asked, answer.as_ref().err());
            let mut parts = inner.parts();
            let outage = parts.get_mut(&part).and_then(|part| part.outage.as_mut());
            let Some(outage) = outage else {
                return;
            };
            if !mem::take(&mut outage.was_told) {
                outage.is_probed = false;
                return;
            }
        }
    }
}

impl FailFastInner {
    fn parts(&self) -> MutexGuard<'_, HashMap<u64, OutagePart>> {
        // Every change is done or not begun when something panics.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step that was asked of a part then was answered, or has failed so.
    fn saw(&self, part: u64, asked: Instant, error: Option<&StoreError>) {
        let now = Instant::now();
        let mut parts = self.parts();
        let known = parts.entry(part).or_default();
        let before = match error.filter(|error| error.is_outage()) {
            None => {
                known.answered = Some(now);
                known.outage.take().map(|outage| outage.error)
            }
            Some(_) if known.answered >= Some(asked) => None,
            Some(error) => match &mut known.outage {
                Some(outage) => {
                    outage.seen = now;
                    Some(mem::replace(&mut outage.error, error.clone()))
                }
                unknown @ None => {
                    *unknown = Some(Outage {
                        error: error.clone(),
                        seen: now,
                        is_probed: false,
                        was_told: false,
                    });
                    None
                }
            },
        };
        if parts.len() > MOST_PARTS {
            parts.retain(|_, part| part.outage.is_some());
        }
        drop(parts);
        // The store's own, like what it was made with.
        drop(before);
    }
}

impl fmt::Debug for FailFastInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailFastInner")
            .field("store", &self.store)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Store for FailFast {
    fn limits(&self) -> Limits {
        self.0.store.limits()
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        self.0.store.check(claim)
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        let part = (self.0.part_of)(claim.locks);
        if let Some(error) = self.told(part, claim.locks) {
            return Box::pin(ready(Err(error)));
        }
        let asked = Instant::now();
        let asking = self.0.store.acquire(claim, attempt);
        Box::pin(async move {
            let answer = asking.await;
            self.0.saw(part, asked, answer.as_ref().err());
            answer
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        let asked = Instant::now();
        let renewing = self.0.store.renew(leases, patience);
        Box::pin(async move {
            let answers = renewing.await;
            let each = answers.iter().flatten();
            let renewed = leases.iter().zip(each).filter(|(_, one)| one.is_ok());
            let mut parts: Vec<_> = renewed
                .map(|(lease, _)| (self.0.part_of)(lease.claim.locks))
                .collect();
            parts.sort_unstable();
            parts.dedup();
            for part in parts {
                self.0.saw(part, asked, None);
            }
            answers
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        let part = (self.0.part_of)(claim.locks);
        let asked = Instant::now();
        let releasing = self.0.store.release(claim, release);
        Box::pin(async move {
            let answer = releasing.await;
            // Where it was not known what is held, a minority of a quorum is enough to know that there was
            // something.
            if release.slot.is_some() || !matches!(answer, Ok(Found::Ours)) {
                self.0.saw(part, asked, answer.as_ref().err());
            }
            answer
        })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.0.store.token(lease)
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        self.0.store.wakeups(claim)
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        self.0.store.settled(owner)
    }

    fn take_over<'a>(&'a self, lease: Held<'a>, new_owner: &'a str) -> Reply<'a, Renewal> {
        self.0.store.take_over(lease, new_owner)
    }

    fn tell_ended(&self, leases: HeldLeases) {
        self.0.store.tell_ended(leases);
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        self.0.store.status(lock)
    }

    fn in_callers_time(&self) -> bool {
        self.0.store.in_callers_time()
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        self.0.store.inspect()
    }
}
