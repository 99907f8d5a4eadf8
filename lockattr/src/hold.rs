//! What a lease and the keeper both know of one grant.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::{Error, LossCause};
use crate::key::Key;
use crate::store::{Leave, Release, Want};

/// What is locked: one key, all of several keys, or one of a key's slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The whole lock keys, the client's prefix included.
    pub(crate) locks: Vec<String>,
    /// The whole keys of a lock's slots, the lock itself first; empty where it has only one.
    slots: Vec<String>,
    /// The keys as the user knows them.
    label: String,
    /// The length of the client's prefix.
    prefix: usize,
}

impl Names {
    pub(crate) fn new(prefix: &str, keys: &[Key], permits: u32) -> Self {
        let whole = |key: &Key| [prefix, key.as_str()].concat();
        let locks: Vec<_> = keys.iter().map(whole).collect();
        let slots = match locks.as_slice() {
            [lock] if permits > 1 => (0..permits)
                .map(|slot| slot_key(prefix, lock, slot))
                .collect(),
            _ => Vec::new(),
        };
        let labels: Vec<_> = keys.iter().map(Key::as_str).collect();
        Self {
            locks,
            slots,
            label: labels.join(" + "),
            prefix: prefix.len(),
        }
    }

    /// One of the keys as the user knows it.
    pub(crate) fn key(&self, index: usize) -> String {
        match self.locks.get(index) {
            Some(lock) if self.locks.len() > 1 => lock[self.prefix..].to_owned(),
            _ => self.label.clone(),
        }
    }

    /// How many holders may be at a time.
    pub(crate) fn permits(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX).max(1)
    }

    /// What callers who want the same have in common.
    pub(crate) fn line(&self) -> Cow<'_, str> {
        match self.locks.as_slice() {
            [lock] => Cow::Borrowed(lock),
            locks => Cow::Owned(locks.join("\n")),
        }
    }

    /// The keys as the user knows them, for errors and logs.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// What the store is asked for.
    pub(crate) fn wanted(&self) -> (&[String], Want) {
        if self.slots.is_empty() {
            (&self.locks, Want::All)
        } else {
            (&self.slots, Want::Any)
        }
    }

    /// What gives back the grant at `index` of what was wanted; or whatever was granted.
    pub(crate) fn release<'a>(
        &'a self,
        index: Option<usize>,
        owner: &'a str,
        leave: Leave,
        queued: Option<Duration>,
    ) -> Release<'a> {
        let (all, want) = self.wanted();
        Release {
            names: index.map_or(all, |index| self.held(index)),
            want,
            index: index.unwrap_or(0),
            lock: self.locks.first().map_or("", String::as_str),
            owner,
            leave,
            asked: queued.map(|ttl| (ttl, all.len())),
        }
    }

    /// What is held after a grant at `index` of what was wanted.
    pub(crate) fn held(&self, index: usize) -> &[String] {
        match self.wanted() {
            (all, Want::All) => all,
            (slots, Want::Any) => slots.get(index..=index).unwrap_or(slots),
        }
    }
}

/// The first slot is the lock itself, so that releases of an application that count differently
/// exclude each other as far as their numbers go.
fn slot_key(prefix: &str, lock: &str, slot: u32) -> String {
    if slot == 0 {
        lock.to_owned()
    } else {
        format!("{prefix}slot:{{{lock}}}{slot}")
    }
}

/// One grant: who holds what, and until when this process may rely on it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) names: Names,
    /// Which of what was wanted it is.
    pub(crate) index: usize,
    pub(crate) owner: String,
    pub(crate) clock: Clock,
    /// When the request that won was sent; or when the lease was handed over.
    pub(crate) granted: Instant,
    /// What the call asked for.
    pub(crate) terms: Terms,
    /// Whether an earlier request of this owner may still be carried out after the release.
    pub(crate) in_doubt: bool,
    /// Whether a body runs under it, which has to be stopped before the key may be given back.
    pub(crate) guarded: AtomicBool,
    /// The age, in nanoseconds, at which the log is told of it next.
    pub(crate) told_at: AtomicU64,
    /// Until when the key stays closed, in nanoseconds after `granted`.
    closed: AtomicU64,
    /// The mark that a success is to leave, and when it came.
    mark: Mutex<Option<(Duration, SystemTime)>>,
    ttl_ms: AtomicU64,
    /// The deadline, in nanoseconds after `granted`.
    deadline: AtomicU64,
    ending: AtomicU8,
    /// Whom to wake at the end, by ticket.
    wakers: Mutex<Vec<Option<Waker>>>,
    told: Notify,
    losses: Arc<dyn Losses>,
}

/// Who has to know of every loss.
pub(crate) trait Losses: fmt::Debug + Send + Sync {
    /// The lease is about to be announced as lost.
    fn count(&self);

    /// The lease was announced as lost.
    fn lost(&self, hold: &Hold);
}

const HELD: u8 = 0;
const GIVEN_BACK: u8 = 1;
const LOSSES: [(u8, LossCause); 5] = [
    (2, LossCause::Expired),
    (3, LossCause::Deleted),
    (4, LossCause::Taken),
    (5, LossCause::Shutdown),
    (6, LossCause::HeldTooLong),
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
    pub(crate) names: Names,
    /// Which of what was wanted it is.
    pub(crate) index: usize,
    pub(crate) owner: String,
    pub(crate) clock: Clock,
    pub(crate) granted: Instant,
    /// When the request was sent that the ttl counts from.
    pub(crate) sent: Instant,
    pub(crate) terms: Terms,
    pub(crate) in_doubt: bool,
}

/// How a lease is to be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// Whether the keeper renews it.
    pub(crate) renew: bool,
    /// The key stays closed at least this long, counted from the grant.
    pub(crate) min_hold: Duration,
    /// The lease ends after this long.
    pub(crate) max_hold: Option<Duration>,
    /// How long a success keeps the key from running again.
    pub(crate) once: Option<Duration>,
    /// How long a body may wind down after a loss.
    pub(crate) grace: Duration,
}

impl Hold {
    pub(crate) fn new(grant: Grant, losses: Arc<dyn Losses>) -> Self {
        let hold = Self {
            names: grant.names,
            index: grant.index,
            owner: grant.owner,
            clock: grant.clock,
            granted: grant.granted,
            terms: grant.terms,
            in_doubt: grant.in_doubt,
            guarded: AtomicBool::new(false),
            told_at: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            mark: Mutex::new(None),
            ttl_ms: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            ending: AtomicU8::new(HELD),
            wakers: Mutex::default(),
            told: Notify::new(),
            losses,
        };
        hold.set_ttl(grant.terms.ttl);
        hold.runs_from(grant.sent, grant.terms.ttl);
        // The store granted before its answer came, which is now.
        hold.close_for(grant.terms.min_hold);
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

    /// When the ttl was started last.
    pub(crate) fn started(&self) -> Instant {
        let deadline = self.deadline();
        deadline
            .checked_sub(relied_on(self.ttl()))
            .unwrap_or(deadline)
    }

    /// Whether another caller may go on with what its holder has given up.
    pub(crate) fn can_be_handed_over(&self) -> bool {
        let left = self.deadline().saturating_duration_since(self.clock.now());
        self.clock == Clock::Real
            && !self.in_doubt
            && self.names.permits() == 1
            && left >= self.ttl() / 2
            && self.leave() == Leave::Nothing
            && self.loss().is_none()
    }

    /// When the lease ends unless it is renewed, and at the latest.
    pub(crate) fn end(&self) -> Instant {
        let deadline = self.deadline();
        self.last_moment()
            .map_or(deadline, |last| last.min(deadline))
    }

    fn last_moment(&self) -> Option<Instant> {
        self.terms.max_hold.map(|max| self.granted + max)
    }

    /// A success is to keep the key from running again for so long.
    pub(crate) fn mark_done(&self, length: Duration) {
        let mut mark = self.mark();
        let longer = mark.is_none_or(|(known, _)| known < length);
        if longer {
            *mark = Some((length, SystemTime::now()));
        }
    }

    /// Since when the work is done, if a call under this lease has done it.
    pub(crate) fn done_since(&self) -> Option<SystemTime> {
        self.mark().map(|(_, since)| since)
    }

    /// The key is to stay closed for so long from now on.
    pub(crate) fn close_for(&self, length: Duration) {
        let until = (self.clock.now() + length).saturating_duration_since(self.granted);
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        if !length.is_zero() {
            self.closed.fetch_max(nanos, Ordering::AcqRel);
        }
    }

    /// For how long the key is to stay closed yet.
    pub(crate) fn closed(&self) -> Duration {
        let open = self.granted + Duration::from_nanos(self.closed.load(Ordering::Acquire));
        open.saturating_duration_since(self.clock.now())
    }

    /// What a release at this moment leaves under the key.
    pub(crate) fn leave(&self) -> Leave {
        // Stores count in milliseconds, and the key is to stay closed at least so long.
        let millis = self.closed().as_nanos().div_ceil(1_000_000);
        let closed = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        // What was done under a lease that had ended counts for nothing.
        let mark = if self.loss().is_some() {
            None
        } else {
            *self.mark()
        };
        match mark {
            Some((length, _)) => Leave::Done(length.max(closed)),
            None if !closed.is_zero() => Leave::Closed(closed),
            None => Leave::Nothing,
        }
    }

    fn mark(&self) -> std::sync::MutexGuard<'_, Option<(Duration, SystemTime)>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that are held.
    pub(crate) fn keys(&self) -> &[String] {
        self.names.held(self.index)
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
        if !self.has_ended() {
            let now = self.clock.now();
            if now >= self.deadline() {
                self.end_as(LossCause::Expired);
            } else if self.last_moment().is_some_and(|last| now >= last) {
                self.end_as(LossCause::HeldTooLong);
            }
        }
        let end = self.ending.load(Ordering::Acquire);
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
            self.losses.count();
            self.announce();
            self.losses.lost(self);
        }
    }

    /// Ends the lease as given back by its holder, unless it has ended already.
    pub(crate) fn end_given_back(&self) {
        if self.end_with(GIVEN_BACK) {
            self.announce();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ending.load(Ordering::Acquire) != HELD
    }

    fn end_with(&self, code: u8) -> bool {
        self.ending
            .compare_exchange(HELD, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn announce(&self) {
        self.told.notify_waiters();
        let wakers = std::mem::take(&mut *self.wakers());
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }

    /// Has `waker` woken when the lease ends. To be called before looking whether it has; a ticket
    /// is to be kept for the next call, and handed in when there is none.
    pub(crate) fn wake_at_end(&self, ticket: &mut Option<usize>, waker: &Waker) {
        let mut wakers = self.wakers();
        let place = ticket.and_then(|ticket| wakers.get_mut(ticket));
        match place {
            Some(Some(known)) => known.clone_from(waker),
            Some(place) => *place = Some(waker.clone()),
            None => {
                let free = wakers.iter().position(Option::is_none);
                let index = free.unwrap_or_else(|| {
                    wakers.push(None);
                    wakers.len() - 1
                });
                wakers[index] = Some(waker.clone());
                *ticket = Some(index);
            }
        }
    }

    /// Nobody waits with this ticket any more.
    pub(crate) fn hand_in(&self, ticket: usize) {
        if let Some(place) = self.wakers().get_mut(ticket) {
            *place = None;
        }
    }

    fn wakers(&self) -> std::sync::MutexGuard<'_, Vec<Option<Waker>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
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
            key: self.names.label().to_owned(),
            cause,
            held: self.clock.now().saturating_duration_since(self.granted),
        }
    }
}
