//! One acquisition: one object from its first request to the last thing that may still come of it.
//!
//! It knows every lock that it has asked for, whether it may stand in the store's queue, whether a
//! request of it was never answered, and until when its lease may be relied on. [`State`] says how far
//! it has come; what the store and the keeper do about that is none of its affairs.
//!
//! There may be very many of them that hold: what few leases need is behind a box that few leases have.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::call_site::CallSite;
use crate::error::{Error, LossCause};
use crate::hold_times::Advice;
use crate::owner::{Id, Origin};
use crate::runtime::clock::Clock;
use crate::runtime::turns::Turns;
use crate::stats::Counters;
use crate::store::{Claim, Found};

mod ended;
mod flags;
mod keys;
mod marks;
mod observed;
mod options;
mod shortenings;
mod state;
mod term;

use flags::{Flags, OBSERVED, RENEWED, SPECIAL};
pub(crate) use keys::LockKeys;
use marks::Marks;
pub(crate) use options::LeaseOptions;
use shortenings::Shortenings;
use state::SharedState;
pub(crate) use state::{EndedBy, Event, Return, State};
pub(crate) use term::{Confirmed, Extension};

/// What callers of one client who want the same have in common: a hash of the locks, with a secret
/// key. Two that had it in common by chance would wait for each other, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueId(u64);

impl From<u64> for QueueId {
    fn from(hash: u64) -> Self {
        Self(hash)
    }
}

impl From<QueueId> for u64 {
    fn from(queue: QueueId) -> Self {
        queue.0
    }
}

#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) keys: LockKeys,
    pub(crate) queue: QueueId,
    id: Id,
    /// The owner as text, where somebody has asked for it.
    text: OnceLock<Box<str>>,
    /// When it was granted, or handed over.
    pub(crate) granted: Instant,
    ttl_ms: AtomicU64,
    /// Until when it may be relied on, in nanoseconds after `granted`.
    deadline: AtomicU64,
    aside: Mutex<Aside>,
    common: Arc<Common>,
    /// Which function it is for.
    pub(crate) site: &'static CallSite,
    pub(crate) clock: Clock,
    flags: Flags,
    state: SharedState,
    /// Whether a request of it was never answered, and may still be carried out.
    unanswered: AtomicBool,
    /// Whether it may stand in the store's queue.
    may_queue: AtomicBool,
    /// How many bodies run under it, which have to be stopped before the keys may be given back: calls
    /// within calls, all of them on one stack.
    guards: AtomicU16,
    /// Whether a renewal is under way; the keeper's schedule has no room for that.
    pub(crate) renewing: AtomicBool,
    /// How often the log was told of its age.
    pub(crate) told: AtomicU8,
    /// How many handles of the lease there are.
    handles: AtomicU32,
}

/// What the acquisitions of one client have in common.
pub(crate) struct Common {
    pub(crate) origin: Origin,
    pub(crate) counters: Arc<Counters>,
    /// Tells what a function that is held for long should have.
    pub(crate) advise: Box<dyn Fn(Advice) + Send + Sync>,
    /// Lets whoever waits for the same know of an end.
    pub(crate) on_end: Box<dyn Fn(&Acquisition) + Send + Sync>,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").finish_non_exhaustive()
    }
}

/// What is seldom looked at. Nothing is woken or dropped while it is locked: a waker may poll inline,
/// and may be the last handle of a task whose end comes back here.
#[derive(Debug, Default)]
struct Aside {
    /// Whom to wake at the end: in most cases one, the call itself.
    waker: Option<Waker>,
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    options: Option<LeaseOptions>,
    /// Which slot it holds of a lock with several.
    slot: usize,
    shared: Option<Arc<SharedByHandles>>,
    /// More of those to wake at the end, by ticket.
    wakers: Vec<Option<Waker>>,
    marks: Marks,
    keepers_release: Option<KeepersRelease>,
    /// The ttl that was asked for with a place in the store's queue, where it is another by now.
    queued_ttl: Option<Duration>,
    /// Of a lease that was extended.
    shortenings: Option<Box<Shortenings>>,
}

/// What handles share, apart from the grant.
#[derive(Debug, Default)]
pub(crate) struct SharedByHandles {
    pub(crate) token: OnceLock<u64>,
    /// Of the calls right under the one that took the lease, one at a time is inside.
    pub(crate) turns: Arc<Turns>,
}

/// What has come of the keeper's own release of keys whose holder gives them back as well, on a runtime
/// that does not get round to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepersRelease {
    /// Under way, or never answered.
    Asked,
    Found(Found),
}

/// What was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) slot: usize,
    pub(crate) at: Instant,
    /// Until when it may be relied on.
    pub(crate) until: Instant,
}

impl Acquisition {
    /// One that has asked for nothing yet, `now`.
    pub(crate) fn new(
        keys: LockKeys,
        queue: QueueId,
        id: Id,
        clock: Clock,
        now: Instant,
        options: LeaseOptions,
        common: Arc<Common>,
    ) -> Self {
        let acquisition = Self {
            keys,
            queue,
            id,
            text: OnceLock::new(),
            granted: now,
            ttl_ms: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            aside: Mutex::default(),
            common,
            site: options.site,
            clock,
            flags: Flags::none()
                .with(RENEWED, options.renew)
                .with(SPECIAL, options.are_special()),
            state: SharedState::new(State::Idle),
            unanswered: AtomicBool::new(false),
            may_queue: AtomicBool::new(false),
            guards: AtomicU16::new(0),
            renewing: AtomicBool::new(false),
            told: AtomicU8::new(0),
            handles: AtomicU32::new(1),
        };
        if acquisition.flags.has(SPECIAL) {
            acquisition.aside().more().options = Some(options);
        }
        acquisition.store_ttl(options.ttl);
        acquisition
    }

    /// The store asks, or another caller has handed on, what becomes a lease by this.
    pub(crate) fn grant(&mut self, grant: Grant) {
        if grant.slot > 0 {
            self.aside().more().slot = grant.slot;
        }
        self.granted = grant.at;
        self.runs_until(grant.until);
        // The store granted before its answer came, which is now.
        let min_hold = self.special_options().map(|options| options.min_hold);
        self.close_for(0..self.keys.locks().len(), min_hold.unwrap_or_default());
        let _ = self.happens(Event::Grant);
        self.flags = self.flags.with(OBSERVED, self.site.observed.hold_begins());
    }

    pub(crate) fn happens(&self, event: Event) -> Result<State, State> {
        self.state.happens(event)
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// What the store is asked about, by its owner.
    pub(crate) fn claim<'a>(&'a self, owner: &'a str, ttl: Duration) -> Claim<'a> {
        Claim::new(self.keys.locks(), owner, ttl).with(self.keys.sharing())
    }

    pub(crate) fn slot(&self) -> usize {
        if self.keys.sharing().is_alone() {
            return 0;
        }
        self.aside().more.as_ref().map_or(0, |more| more.slot)
    }

    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Acquire)
    }

    /// A request of it was not answered.
    pub(crate) fn set_unanswered(&self) {
        self.unanswered.store(true, Ordering::Release);
    }

    pub(crate) fn may_queue(&self) -> bool {
        self.may_queue.load(Ordering::Acquire)
    }

    pub(crate) fn set_may_queue(&self, may_queue: bool) {
        self.may_queue.store(may_queue, Ordering::Release);
    }

    /// Whether the keeper renews it.
    pub(crate) fn renews(&self) -> bool {
        self.flags.has(RENEWED)
    }

    /// How it is to be held.
    pub(crate) fn options(&self) -> LeaseOptions {
        let plain = || LeaseOptions::plain(self.site, self.ttl(), self.renews());
        self.special_options().unwrap_or_else(plain)
    }

    fn special_options(&self) -> Option<LeaseOptions> {
        if !self.flags.has(SPECIAL) {
            return None;
        }
        self.aside().more.as_ref()?.options
    }

    /// One more body runs under it.
    pub(crate) fn guard(&self) {
        self.guards.fetch_add(1, Ordering::AcqRel);
    }

    /// One body less; says whether it was the last.
    pub(crate) fn unguard(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guards.load(Ordering::Acquire) > 0
    }

    /// One more handle.
    pub(crate) fn take_handle(&self) {
        // As with an `Arc`, a handle is made from one that stays.
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// One handle less; says whether it was the last.
    pub(crate) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether there are more handles than this one.
    pub(crate) fn is_shared(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 1
    }

    pub(crate) fn shared(&self) -> Arc<SharedByHandles> {
        Arc::clone(self.aside().more().shared.get_or_insert_default())
    }

    /// The fencing token, where one was drawn.
    pub(crate) fn drawn_token(&self) -> Option<u64> {
        let aside = self.aside();
        let shared = aside.more.as_ref()?.shared.as_ref()?;
        shared.token.get().copied()
    }

    /// Whether another caller may go on with what its holder has given up.
    pub(crate) fn can_be_handed_over(&self) -> bool {
        let left = self.deadline().saturating_duration_since(self.clock.now());
        self.clock == Clock::Real
            && !self.is_unanswered()
            && !self.may_be_shortened()
            && self.keys.sharing().is_alone()
            && left >= self.ttl() / 2
            && self.leaves().is_empty()
            && self.loss().is_none()
    }

    pub(crate) fn set_keepers_release(&self, release: Option<KeepersRelease>) {
        self.aside().more().keepers_release = release;
    }

    pub(crate) fn keepers_release(&self) -> Option<KeepersRelease> {
        self.aside().more.as_ref()?.keepers_release
    }

    /// Whether the keeper's own release may have been the one that found the keys.
    pub(crate) fn may_be_released_by_keeper(&self) -> bool {
        matches!(
            self.keepers_release(),
            Some(KeepersRelease::Asked | KeepersRelease::Found(Found::Ours))
        )
    }

    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which acquisition it is.
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Who holds the keys in the store.
    pub(crate) fn owner(&self) -> String {
        self.common.origin.owner(self.id)
    }

    /// The same for somebody who cannot keep it; a lease whose owner nobody asks for has no room for
    /// the text.
    pub(crate) fn owner_kept(&self) -> &str {
        self.text.get_or_init(|| self.owner().into_boxed_str())
    }

    /// How the lease was lost, if it was. A deadline that has passed is a loss from the first time
    /// that anybody looks, and for good.
    pub(crate) fn loss(&self) -> Option<LossCause> {
        if self.state() == State::Held {
            let now = self.clock.now();
            if now >= self.deadline() {
                self.lose(LossCause::Expired);
            } else if self.last_moment().is_some_and(|last| now >= last) {
                self.lose(LossCause::HeldTooLong);
            }
        }
        match self.state() {
            State::Over(EndedBy::Lost(cause), _) => Some(cause),
            _ => None,
        }
    }

    /// Ends the lease as lost, unless it has ended already.
    pub(crate) fn lose(&self, cause: LossCause) {
        if self.happens(Event::Lose(cause)).is_ok() {
            // Counted before anybody is told, so that whoever is told finds it counted.
            self.count_lost(cause);
            let now = self.clock.now();
            self.hold_ends(now.min(self.end()));
            self.tell_ended();
            self.tell_queue();
        }
    }

    /// Ends it as given back by its holder, unless it has ended already.
    pub(crate) fn give_back(&self) {
        if let Ok(before) = self.happens(Event::GiveBack) {
            if before == State::Held {
                #[cfg(feature = "testing")]
                self.recorded(crate::testing::What::Released);
                self.hold_ends(self.clock.now());
            }
            self.tell_ended();
        }
    }

    /// Whoever waits for the same may ask the store for it.
    pub(crate) fn tell_queue(&self) {
        (self.common.on_end)(self);
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state(), State::Over(..))
    }

    /// Whether the store has said that nothing of it is left.
    pub(crate) fn is_known_to_be_gone(&self) -> bool {
        matches!(self.state(), State::Over(_, Return::Done)) && !self.is_unanswered()
    }

    /// Whether its holder has asked the store to take it back, and waits for the answer.
    pub(crate) fn is_on_its_way_back(&self) -> bool {
        self.state() == State::Over(EndedBy::GivenBack, Return::Asked)
    }

    /// Whether its holder has given it back, or is about to.
    pub(crate) fn is_given_back(&self) -> bool {
        matches!(self.state(), State::Over(EndedBy::GivenBack, _))
    }

    pub(crate) fn lost(&self, cause: LossCause) -> Error {
        Error::Lost {
            key: self.keys.label().to_owned(),
            cause,
            held: self.clock.now().saturating_duration_since(self.granted),
        }
    }
}

impl Aside {
    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

#[cfg(test)]
impl Acquisition {
    /// A renewed lease of nothing in particular.
    pub(crate) fn sample(
        queue: QueueId,
        sent: Instant,
        ttl: Duration,
        on_end: impl Fn(&Self) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let common = Common {
            origin: Origin::here(),
            counters: Arc::default(),
            advise: Box::new(|_| {}),
            on_end: Box::new(on_end),
        };
        let mut acquisition = Self::new(
            LockKeys::of_one("sample"),
            queue,
            Id::default(),
            Clock::Real,
            sent,
            LeaseOptions::plain(CallSite::unnamed(), ttl, true),
            Arc::new(common),
        );
        let _ = acquisition.happens(Event::Ask);
        acquisition.grant(Grant {
            slot: 0,
            at: sent,
            until: crate::store::relied_on_until(sent, ttl),
        });
        Arc::new(acquisition)
    }
}
