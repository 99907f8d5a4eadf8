//! A store whose callers are told at once that it is away, where that was seen a moment ago.
//!
//! While a server is down or cut off, each call finds that out for itself, which takes as long as a
//! connection or a reply may take. Here the first one does; those that come after it are told what it
//! was told, while the background asks the store now and then. The first answer, to whatever step, ends
//! that. Renewals and releases are never held back, and neither is what a store refuses in its own words.

use std::future::ready;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{
    Acquired, Attempt, Claim, Found, Held, Limits, Release, Renewed, Reply, Store, Token, WakeUps,
};
use crate::error::StoreError;
use crate::runtime::background::Background;
use crate::runtime::jitter::jittered;

/// The first pause before the store is asked again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A store, and what is known of its outage.
#[derive(Clone, Debug)]
pub(crate) struct FailFast(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    background: Background,
    /// For how long an outage is taken to last after it was seen.
    length: Duration,
    probe: Probe,
    outage: Mutex<Option<Outage>>,
}

/// A lock that nobody takes, and an owner that holds nothing: to give that back changes nothing, and is
/// answered by a store that answers.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) lock: String,
    pub(crate) owner: String,
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
    pub(crate) fn new(
        store: Arc<dyn Store>,
        background: &Background,
        length: Duration,
        probe: Probe,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            background: background.clone(),
            length,
            probe,
            outage: Mutex::default(),
        }))
    }

    /// What a call is told instead of asking.
    fn told(&self) -> Option<StoreError> {
        let mut known = self.0.outage();
        let outage = known.as_mut()?;
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
        drop(known);
        if begins {
            let probing = self.clone();
            self.0
                .background
                .spawn(async move { probing.probe().await });
        }
        Some(error)
    }

    /// Asks the store now and then, for as long as it is away and somebody wants to know.
    async fn probe(&self) {
        let inner = &*self.0;
        let mut pause = FIRST_PAUSE;
        loop {
            inner
                .background
                .sleep_until(Instant::now() + jittered(pause))
                .await;
            pause = (2 * pause).min(LONGEST_PAUSE);
            let locks = [inner.probe.lock.clone()];
            let claim = Claim::new(&locks, &inner.probe.owner, inner.length);
            let asking = inner.store.release(claim, Release::whatever(false));
            let answer = inner.background.ask(asking).await;
            inner.saw(match &answer {
                Some(answer) => answer.as_ref().err(),
                None => return,
            });
            let mut known = inner.outage();
            let Some(outage) = known.as_mut() else {
                return;
            };
            if !mem::take(&mut outage.was_told) {
                outage.is_probed = false;
                return;
            }
        }
    }
}

impl Inner {
    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        // Replaced as a whole, or a flag of it.
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step was answered, or has failed so.
    fn saw(&self, error: Option<&StoreError>) {
        let mut known = self.outage();
        let before = match (error.filter(|error| error.is_outage()), &mut *known) {
            (None, known) => known.take(),
            (Some(error), Some(outage)) => {
                outage.seen = Instant::now();
                let before = mem::replace(&mut outage.error, error.clone());
                drop(known);
                drop(before);
                return;
            }
            (Some(error), known @ None) => known.replace(Outage {
                error: error.clone(),
                seen: Instant::now(),
                is_probed: false,
                was_told: false,
            }),
        };
        drop(known);
        drop(before);
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
        if let Some(error) = self.told() {
            return Box::pin(ready(Err(error)));
        }
        let asking = self.0.store.acquire(claim, attempt);
        Box::pin(async move {
            let answer = asking.await;
            self.0.saw(answer.as_ref().err());
            answer
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        let renewing = self.0.store.renew(leases, patience);
        Box::pin(async move {
            let answers = renewing.await;
            if let Ok(each) = &answers
                && each.iter().any(Result::is_ok)
            {
                self.0.saw(None);
            }
            answers
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        let releasing = self.0.store.release(claim, release);
        Box::pin(async move {
            let answer = releasing.await;
            self.0.saw(answer.as_ref().err());
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

    fn in_callers_time(&self) -> bool {
        self.0.store.in_callers_time()
    }
}
