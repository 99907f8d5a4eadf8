//! What a lease and the keeper both know of one grant.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::{Error, LossCause};
use crate::stats::Counters;

/// A whole lock key: the client's prefix, and the key that the user knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    whole: String,
    prefix: usize,
}

impl Name {
    pub(crate) fn new(prefix: &str, key: &str) -> Self {
        Self {
            whole: [prefix, key].concat(),
            prefix: prefix.len(),
        }
    }

    pub(crate) fn whole(&self) -> &str {
        &self.whole
    }

    pub(crate) fn key(&self) -> &str {
        &self.whole[self.prefix..]
    }
}

/// One grant: who holds what, and until when this process may rely on it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: Name,
    pub(crate) owner: String,
    pub(crate) clock: Clock,
    /// When the request that won was sent.
    pub(crate) granted: Instant,
    /// Whether the keeper renews it.
    pub(crate) renew: bool,
    /// Whether an earlier request of this owner may still be carried out after the release.
    pub(crate) in_doubt: bool,
    /// Whether a body runs under it, which has to be stopped before the key may be given back.
    pub(crate) guarded: AtomicBool,
    ttl_ms: AtomicU64,
    /// The deadline, in nanoseconds after `granted`.
    deadline: AtomicU64,
    end: AtomicU8,
    waker: Mutex<Option<Waker>>,
    told: Notify,
    counters: Arc<Counters>,
}

const HELD: u8 = 0;
const GIVEN_BACK: u8 = 1;
const LOSSES: [(u8, LossCause); 4] = [
    (2, LossCause::Expired),
    (3, LossCause::Deleted),
    (4, LossCause::Taken),
    (5, LossCause::Shutdown),
];

/// How much of a ttl is relied on, from the moment that its request was sent.
///
/// Clocks of two machines run at different speeds, and a store expires keys in steps of a
/// millisecond: a hundredth and two milliseconds are left out, as in the Redlock description.
pub(crate) fn relied_on(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}

/// What a grant begins with.
pub(crate) struct Grant {
    pub(crate) name: Name,
    pub(crate) owner: String,
    pub(crate) clock: Clock,
    pub(crate) sent: Instant,
    pub(crate) ttl: Duration,
    pub(crate) renew: bool,
    pub(crate) in_doubt: bool,
}

impl Hold {
    pub(crate) fn new(grant: Grant, counters: Arc<Counters>) -> Self {
        let hold = Self {
            name: grant.name,
            owner: grant.owner,
            clock: grant.clock,
            granted: grant.sent,
            renew: grant.renew,
            in_doubt: grant.in_doubt,
            guarded: AtomicBool::new(false),
            ttl_ms: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            end: AtomicU8::new(HELD),
            waker: Mutex::new(None),
            told: Notify::new(),
            counters,
        };
        hold.set_ttl(grant.ttl);
        hold.runs_from(grant.sent, grant.ttl);
        hold
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Acquire))
    }

    pub(crate) fn set_ttl(&self, ttl: Duration) {
        let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.ttl_ms.store(ms, Ordering::Release);
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.granted + Duration::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// The store has confirmed a ttl that was asked for at `sent`.
    pub(crate) fn runs_from(&self, sent: Instant, ttl: Duration) {
        self.deadline
            .store(self.nanos(sent, ttl), Ordering::Release);
    }

    /// The store is being asked for a ttl that may end sooner, and may not be heard to confirm it.
    pub(crate) fn runs_at_most_from(&self, sent: Instant, ttl: Duration) {
        self.deadline
            .fetch_min(self.nanos(sent, ttl), Ordering::AcqRel);
    }

    fn nanos(&self, sent: Instant, ttl: Duration) -> u64 {
        let until = sent + relied_on(ttl);
        u64::try_from(until.saturating_duration_since(self.granted).as_nanos()).unwrap_or(u64::MAX)
    }

    /// How the lease was lost, if it was. A deadline that has passed is a loss from the first time
    /// that anybody looks, and for good.
    pub(crate) fn loss(&self) -> Option<LossCause> {
        if self.end.load(Ordering::Acquire) == HELD && self.clock.now() >= self.deadline() {
            self.end_as(LossCause::Expired);
        }
        let end = self.end.load(Ordering::Acquire);
        LOSSES
            .iter()
            .find(|(code, _)| *code == end)
            .map(|(_, cause)| *cause)
    }

    /// Ends the lease as lost, unless it has ended already.
    pub(crate) fn end_as(&self, cause: LossCause) {
        let code = LOSSES
            .iter()
            .find(|(_, known)| *known == cause)
            .map_or(LOSSES[0].0, |(code, _)| *code);
        if self.end_with(code) {
            // Counted before anybody is told, so that whoever is told finds it counted.
            self.counters.lost.up();
            self.announce();
        }
    }

    /// Ends the lease as given back by its holder, unless it has ended already.
    pub(crate) fn end_given_back(&self) {
        if self.end_with(GIVEN_BACK) {
            self.announce();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.load(Ordering::Acquire) != HELD
    }

    fn end_with(&self, code: u8) -> bool {
        self.end
            .compare_exchange(HELD, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn announce(&self) {
        self.told.notify_waiters();
        let waker = self.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whom to wake when the lease ends. To be called before looking whether it has.
    pub(crate) fn wake_at_end(&self, waker: &Waker) {
        let mut slot = self.waker();
        match &mut *slot {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the lease has ended, in whatever way.
    pub(crate) async fn ended(&self) {
        loop {
            let told = self.told.notified();
            if self.has_ended() {
                return;
            }
            told.await;
        }
    }

    pub(crate) fn lost(&self, cause: LossCause) -> Error {
        Error::Lost {
            key: self.name.key().to_owned(),
            cause,
            held: self.clock.now().saturating_duration_since(self.granted),
        }
    }
}
