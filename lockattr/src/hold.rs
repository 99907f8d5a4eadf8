//! What a lease and the keeper both know of one grant.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::OnceCell;

use crate::clock::Clock;
use crate::error::{Error, LossCause};
use crate::key::{self, Keys};
use crate::owner::{Id, Origin};
use crate::stats::Counters;
use crate::store::{Found, Leave, Release, Want};
use crate::waker;

/// What is locked: one key, all of several keys, or one of a key's slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    what: What,
    /// The length of the client's prefix, with which each of them starts.
    prefix: usize,
}

/// Whole keys, the client's prefix included.
#[derive(Clone, Debug)]
enum What {
    One(String),
    /// Those of a lock's slots, the lock itself first.
    Slots(Box<[String]>),
    Several(Box<Several>),
}

impl Default for What {
    fn default() -> Self {
        Self::One(String::new())
    }
}

#[derive(Clone, Debug)]
struct Several {
    locks: Vec<String>,
    /// The keys as the user knows them.
    label: String,
}

impl Names {
    pub(crate) fn new(prefix: &str, keys: Keys, permits: u32) -> Self {
        let mut locks = keys.into_iter().map(|key| key.prefixed(prefix));
        let first = locks.next().unwrap_or_default();
        let more: Vec<_> = locks.collect();
        let what = if !more.is_empty() {
            return Self::several([first].into_iter().chain(more).collect(), prefix.len());
        } else if permits > 1 {
            let slots = (0..permits).map(|slot| slot_key(prefix, &first, slot));
            What::Slots(slots.collect())
        } else {
            What::One(first)
        };
        let prefix = prefix.len();
        Self { what, prefix }
    }

    fn several(locks: Vec<String>, prefix: usize) -> Self {
        let labels: Vec<_> = locks.iter().map(|lock| &lock[prefix..]).collect();
        let label = key::label(&labels);
        Self {
            what: What::Several(Box::new(Several { locks, label })),
            prefix,
        }
    }

    /// Those of several locks.
    pub(crate) fn only(&self, wanted: impl Fn(&String) -> bool) -> Self {
        let wanted = self.locks().iter().filter(|lock| wanted(lock)).cloned();
        let mut locks: Vec<_> = wanted.collect();
        if locks.len() > 1 {
            return Self::several(locks, self.prefix);
        }
        Self {
            what: What::One(locks.pop().unwrap_or_default()),
            prefix: self.prefix,
        }
    }

    /// The whole lock keys, the client's prefix included.
    pub(crate) fn locks(&self) -> &[String] {
        match &self.what {
            What::One(lock) => slice::from_ref(lock),
            What::Slots(slots) => slots.get(..1).unwrap_or_default(),
            What::Several(several) => &several.locks,
        }
    }

    /// One of the keys as the user knows it.
    pub(crate) fn key(&self, index: usize) -> String {
        match &self.what {
            What::Several(several) => several.locks.get(index).map(|lock| &lock[self.prefix..]),
            What::One(_) | What::Slots(_) => None,
        }
        .unwrap_or(self.label())
        .to_owned()
    }

    /// How many holders may be at a time.
    pub(crate) fn permits(&self) -> u32 {
        match &self.what {
            What::Slots(slots) => u32::try_from(slots.len()).unwrap_or(u32::MAX),
            What::One(_) | What::Several(_) => 1,
        }
    }

    /// The keys as the user knows them, for errors and logs.
    pub(crate) fn label(&self) -> &str {
        match &self.what {
            What::One(lock) => &lock[self.prefix..],
            What::Slots(slots) => slots.first().map_or("", |lock| &lock[self.prefix..]),
            What::Several(several) => &several.label,
        }
    }

    /// What the store is asked for.
    pub(crate) fn wanted(&self) -> (&[String], Want) {
        match &self.what {
            What::Slots(slots) => (slots, Want::Any),
            What::One(_) | What::Several(_) => (self.locks(), Want::All),
        }
    }

    /// What gives back the grant at `index` of what was wanted; or whatever was granted.
    pub(crate) fn release<'a>(
        &'a self,
        index: Option<usize>,
        owner: &'a str,
        leave: &'a [Leave],
        queued: Option<Duration>,
    ) -> Release<'a> {
        let (all, want) = self.wanted();
        Release {
            names: index.map_or(all, |index| self.held(index)),
            want,
            index: index.unwrap_or(0),
            lock: self.locks().first().map_or("", String::as_str),
            owner,
            leave,
            keep_marks: false,
            granted: index.is_some(),
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

/// What callers who want the same have in common: a hash of the locks, with a secret key. Two keys
/// that had it in common by chance would wait for each other, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LineId(u64);

impl From<u64> for LineId {
    fn from(hash: u64) -> Self {
        Self(hash)
    }
}

impl From<LineId> for u64 {
    fn from(line: LineId) -> Self {
        line.0
    }
}

/// One grant: who holds what, and until when this process may rely on it.
///
/// There may be very many of them: what few leases need is behind a box that few leases have.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) names: Names,
    pub(crate) line: LineId,
    id: Id,
    /// The owner as text, where somebody has asked for it.
    text: OnceLock<Box<str>>,
    /// When the request that won was sent; or when the lease was handed over.
    pub(crate) granted: Instant,
    ttl_ms: AtomicU64,
    /// The deadline, in nanoseconds after `granted`.
    deadline: AtomicU64,
    aside: Mutex<Aside>,
    common: Arc<Common>,
    /// Which of what was wanted it is.
    index: u16,
    pub(crate) clock: Clock,
    renew: bool,
    /// Whether the call asked for more than a ttl.
    special: bool,
    /// Whether an earlier request of this owner may still be carried out after the release.
    pub(crate) in_doubt: bool,
    /// Whether a body runs under it, which has to be stopped before the key may be given back.
    pub(crate) guarded: AtomicBool,
    /// Whether a renewal is under way; the keeper's table has no room for that.
    pub(crate) renewing: AtomicBool,
    /// How often the log was told of its age.
    pub(crate) told: AtomicU8,
    ending: AtomicU8,
    /// How far its holder's giving back has come.
    pub(crate) returned: AtomicU8,
    /// How many handles of the lease there are.
    handles: AtomicU32,
}

/// What the leases of one client have in common.
pub(crate) struct Common {
    pub(crate) origin: Origin,
    pub(crate) counters: Arc<Counters>,
    /// Who has to know of every loss.
    pub(crate) tell: Box<dyn Fn(&Hold) + Send + Sync>,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").finish_non_exhaustive()
    }
}

/// What is seldom looked at.
#[derive(Debug, Default)]
struct Aside {
    /// Whom to wake at the end: in most cases one, the call itself.
    waker: Option<Waker>,
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    /// What the call asked for.
    terms: Option<Terms>,
    shared: Option<Arc<Shared>>,
    /// More of those to wake at the end, by ticket.
    wakers: Vec<Option<Waker>>,
    /// What calls want to be left under the locks that they named.
    marks: Vec<Mark>,
    /// What came of the keeper's own try to give the key back.
    rescue: Option<Rescue>,
}

/// What is to be left under one of the locks when it is given back.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Which of the locks.
    lock: usize,
    /// Until when it stays closed.
    closed: Option<Instant>,
    /// A success under it.
    done: Option<Done>,
}

/// A success that keeps a lock from being taken again.
#[derive(Clone, Copy, Debug)]
struct Done {
    since: SystemTime,
    until: Instant,
}

/// What handles share, apart from the grant.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) token: OnceCell<u64>,
    /// The place right under the call that took the lease.
    pub(crate) joining: Arc<tokio::sync::Mutex<()>>,
}

/// A try of the keeper to give back a key whose holder does so as well, and gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rescue {
    /// Under way, or never answered.
    Asked,
    /// It was answered.
    Found(Found),
}

/// How far giving back has come: not begun; the store is being asked; it could not be asked, and
/// that has been told; the same where it may have been done; it is done.
pub(crate) const KEPT: u8 = 0;
pub(crate) const BEGUN: u8 = 1;
pub(crate) const TRIED: u8 = 2;
pub(crate) const IN_DOUBT: u8 = 3;
pub(crate) const DONE: u8 = 4;

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

/// The deadline before and after it was shortened, in nanoseconds after the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortened {
    before: u64,
    now: u64,
}

/// What a grant begins with.
pub(crate) struct Grant {
    pub(crate) names: Names,
    pub(crate) line: LineId,
    /// Which of what was wanted it is.
    pub(crate) index: usize,
    pub(crate) id: Id,
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

impl Terms {
    fn are_special(&self) -> bool {
        !self.min_hold.is_zero()
            || self.max_hold.is_some()
            || self.once.is_some()
            || !self.grace.is_zero()
    }
}

impl Hold {
    pub(crate) fn new(grant: Grant, common: Arc<Common>) -> Self {
        let terms = grant.terms;
        let hold = Self {
            names: grant.names,
            line: grant.line,
            id: grant.id,
            text: OnceLock::new(),
            granted: grant.granted,
            ttl_ms: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            aside: Mutex::default(),
            common,
            // A key has a thousand slots at most.
            index: u16::try_from(grant.index).unwrap_or(u16::MAX),
            clock: grant.clock,
            renew: terms.renew,
            special: terms.are_special(),
            in_doubt: grant.in_doubt,
            guarded: AtomicBool::new(false),
            renewing: AtomicBool::new(false),
            told: AtomicU8::new(0),
            ending: AtomicU8::new(HELD),
            returned: AtomicU8::new(0),
            handles: AtomicU32::new(1),
        };
        if hold.special {
            hold.aside().more().terms = Some(terms);
        }
        hold.set_ttl(terms.ttl);
        hold.runs_from(grant.sent, terms.ttl);
        // The store granted before its answer came, which is now.
        hold.close_for(0..hold.names.locks().len(), terms.min_hold);
        hold
    }

    /// Which of what was wanted it is.
    pub(crate) fn index(&self) -> usize {
        self.index.into()
    }

    /// Whether the keeper renews it.
    pub(crate) fn renews(&self) -> bool {
        self.renew
    }

    /// What the call asked for.
    pub(crate) fn terms(&self) -> Terms {
        self.special_terms().unwrap_or_else(|| Terms {
            ttl: self.ttl(),
            renew: self.renew,
            min_hold: Duration::ZERO,
            max_hold: None,
            once: None,
            grace: Duration::ZERO,
        })
    }

    fn special_terms(&self) -> Option<Terms> {
        if !self.special {
            return None;
        }
        self.aside().more.as_ref()?.terms
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

    /// What the handles share.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(self.aside().more().shared.get_or_insert_default())
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
            && self.leaves().is_empty()
            && self.loss().is_none()
    }

    /// When the lease ends unless it is renewed, and at the latest.
    pub(crate) fn end(&self) -> Instant {
        let deadline = self.deadline();
        self.last_moment()
            .map_or(deadline, |last| last.min(deadline))
    }

    fn last_moment(&self) -> Option<Instant> {
        Some(self.granted + self.special_terms()?.max_hold?)
    }

    /// A success is to keep these locks from being taken again for so long.
    pub(crate) fn mark_done(&self, locks: impl IntoIterator<Item = usize>, length: Duration) {
        let done = Done {
            since: SystemTime::now(),
            until: self.clock.now() + length,
        };
        let mut aside = self.aside();
        for lock in locks {
            let mark = aside.more().mark(lock);
            if mark.done.is_none_or(|known| known.until < done.until) {
                mark.done = Some(done);
            }
        }
    }

    /// Since when the work of any of these locks is done, if a call under this lease has done it.
    pub(crate) fn done_since(&self, locks: &[usize]) -> Option<SystemTime> {
        let aside = self.aside();
        let marks = &aside.more.as_ref()?.marks;
        let of_these = marks.iter().filter(|mark| locks.contains(&mark.lock));
        of_these.filter_map(|mark| Some(mark.done?.since)).min()
    }

    /// These locks are to stay closed for so long from now on.
    pub(crate) fn close_for(&self, locks: impl IntoIterator<Item = usize>, length: Duration) {
        if length.is_zero() {
            return;
        }
        let until = self.clock.now() + length;
        let mut aside = self.aside();
        for lock in locks {
            let closed = &mut aside.more().mark(lock).closed;
            *closed = (*closed).max(Some(until));
        }
    }

    /// For how long any of the locks is to stay closed yet.
    pub(crate) fn closed(&self) -> Duration {
        let aside = self.aside();
        let marks = aside.more.iter().flat_map(|more| &more.marks);
        let Some(until) = marks.filter_map(|mark| mark.closed).max() else {
            return Duration::ZERO;
        };
        until.saturating_duration_since(self.clock.now())
    }

    /// For how long a success keeps any of the locks from being taken again.
    pub(crate) fn done_for(&self) -> Option<Duration> {
        let aside = self.aside();
        let marks = &aside.more.as_ref()?.marks;
        let until = marks
            .iter()
            .filter_map(|mark| Some(mark.done?.until))
            .max()?;
        Some(until.saturating_duration_since(self.clock.now()))
    }

    /// What a release at this moment leaves under each of the keys; empty where that is nothing.
    pub(crate) fn leaves(&self) -> Vec<Leave> {
        let marks = match &self.aside().more {
            Some(more) if !more.marks.is_empty() => more.marks.clone(),
            _ => return Vec::new(),
        };
        // What was done under a lease that had ended counts for nothing.
        let is_lost = self.loss().is_some();
        let now = self.clock.now();
        let mut leaves = vec![Leave::Nothing; self.names.locks().len()];
        for mark in marks {
            let closed = mark.closed.map_or(Duration::ZERO, |until| left(until, now));
            let done = mark.done.filter(|_| !is_lost);
            let done = done.map_or(Duration::ZERO, |done| left(done.until, now));
            leaves[mark.lock] = if !done.is_zero() {
                Leave::Done(done.max(closed))
            } else if closed.is_zero() {
                Leave::Nothing
            } else {
                Leave::Closed(closed)
            };
        }
        if leaves.iter().all(|leave| *leave == Leave::Nothing) {
            leaves.clear();
        }
        leaves
    }

    /// The ttl that the store is asked for: a lock that is to stay closed for longer than the lease
    /// does so also where its holder dies.
    pub(crate) fn ttl_to_ask(&self, ttl: Duration) -> Duration {
        ttl.max(self.closed())
    }

    /// The keeper tries to give the key back as well, or has done so.
    pub(crate) fn set_rescue(&self, rescue: Rescue) {
        self.aside().more().rescue = Some(rescue);
    }

    pub(crate) fn rescue(&self) -> Option<Rescue> {
        self.aside().more.as_ref()?.rescue
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

    /// What gives its keys back at this moment, and leaves that there.
    pub(crate) fn release<'a>(&'a self, owner: &'a str, leave: &'a [Leave]) -> Release<'a> {
        self.names.release(Some(self.index()), owner, leave, None)
    }

    /// The keys that are held.
    pub(crate) fn keys(&self) -> &[String] {
        self.names.held(self.index())
    }

    /// The store has confirmed a ttl that was asked for at `sent`.
    pub(crate) fn runs_from(&self, sent: Instant, ttl: Duration) {
        self.deadline
            .store(self.nanos(sent, ttl), Ordering::Release);
    }

    /// The store is being asked for a ttl that may end sooner, and may not be heard to confirm it.
    /// The answer takes that back.
    pub(crate) fn runs_at_most_from(&self, sent: Instant, ttl: Duration) -> Shortened {
        let now = self.nanos(sent, ttl);
        let before = self.deadline.fetch_min(now, Ordering::AcqRel);
        Shortened { before, now }
    }

    /// The store has refused to shorten the ttl.
    pub(crate) fn runs_on(&self, shortened: Shortened) {
        let Shortened { before, now } = shortened;
        if now < before {
            // Not where a confirmed ttl has come in between.
            let _ =
                self.deadline
                    .compare_exchange(now, before, Ordering::AcqRel, Ordering::Acquire);
        }
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
            self.common.counters.lost.up();
            self.announce();
            self.tell_line();
        }
    }

    /// Whoever waits for the key may ask the store for it.
    pub(crate) fn tell_line(&self) {
        (self.common.tell)(self);
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

    /// Whether its holder has asked the store to take it back, and waits for the answer. Before that,
    /// another caller may still go on with it.
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.is_given_back() && self.returned.load(Ordering::Acquire) == BEGUN
    }

    /// Whether its holder has given it back, or is about to.
    pub(crate) fn is_given_back(&self) -> bool {
        self.ending.load(Ordering::Acquire) == GIVEN_BACK
    }

    fn end_with(&self, code: u8) -> bool {
        self.ending
            .compare_exchange(HELD, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn announce(&self) {
        let mut aside = self.aside();
        let first = aside.waker.take();
        let more = aside.more.as_mut().map(|more| mem::take(&mut more.wakers));
        drop(aside);
        let more = more.into_iter().flatten().flatten();
        first.into_iter().chain(more).for_each(Waker::wake);
    }

    /// Has `waker` woken when the lease ends. To be called before looking whether it has; a ticket
    /// is to be kept for the next call, and handed in when there is none.
    pub(crate) fn wake_at_end(&self, ticket: &mut Option<usize>, waker: &Waker) {
        let mut aside = self.aside();
        let known = ticket.and_then(|ticket| aside.place(ticket));
        let place = if let Some(place) = known {
            place
        } else {
            let free = aside.free_ticket();
            *ticket = Some(free);
            match aside.place(free) {
                Some(place) => place,
                None => return,
            }
        };
        let before = waker::replace(place, waker);
        drop(aside);
        drop(before);
    }

    /// Nobody waits with this ticket any more.
    pub(crate) fn hand_in(&self, ticket: usize) {
        let mut aside = self.aside();
        let waker = aside.place(ticket).and_then(Option::take);
        drop(aside);
        // It may be the last handle of a task, whose end may come back here.
        drop(waker);
    }

    /// Wakes those who wait for the end, to look when it is.
    pub(crate) fn wake(&self) {
        let aside = self.aside();
        let first = aside.waker.clone();
        let more = aside.more.as_ref().map(|more| more.wakers.clone());
        drop(aside);
        let more = more.into_iter().flatten().flatten();
        first.into_iter().chain(more).for_each(Waker::wake);
    }

    /// Waits for a moment in the calling runtime's time, which is reckoned anew at each wake-up; says
    /// whether the lease has ended before.
    pub(crate) async fn ended_before(&self, moment: impl Fn() -> Instant) -> bool {
        let mut waiting = Waiting {
            hold: self,
            ticket: None,
        };
        let mut sleep = pin!(tokio::time::sleep_until(moment().into()));
        poll_fn(|cx| {
            self.wake_at_end(&mut waiting.ticket, cx.waker());
            if self.has_ended() {
                return Poll::Ready(true);
            }
            let moment = moment().into();
            if sleep.deadline() != moment {
                sleep.as_mut().reset(moment);
            }
            sleep.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    /// Waits until the lease has ended, in whatever way.
    pub(crate) async fn ended(&self) {
        let mut waiting = Waiting {
            hold: self,
            ticket: None,
        };
        poll_fn(|cx| {
            self.wake_at_end(&mut waiting.ticket, cx.waker());
            if self.has_ended() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    pub(crate) fn lost(&self, cause: LossCause) -> Error {
        Error::Lost {
            key: self.names.label().to_owned(),
            cause,
            held: self.clock.now().saturating_duration_since(self.granted),
        }
    }
}

/// What is left of a time, in milliseconds: stores count in these, and nothing is to end too early.
fn left(until: Instant, now: Instant) -> Duration {
    let nanos = until.saturating_duration_since(now).as_nanos();
    Duration::from_millis(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

impl More {
    fn mark(&mut self, lock: usize) -> &mut Mark {
        let known = self.marks.iter().position(|mark| mark.lock == lock);
        let index = known.unwrap_or_else(|| {
            self.marks.push(Mark {
                lock,
                closed: None,
                done: None,
            });
            self.marks.len() - 1
        });
        &mut self.marks[index]
    }
}

impl Aside {
    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// The place of a ticket: 0 is the first one's.
    fn place(&mut self, ticket: usize) -> Option<&mut Option<Waker>> {
        match ticket.checked_sub(1) {
            None => Some(&mut self.waker),
            Some(index) => self.more.as_mut()?.wakers.get_mut(index),
        }
    }

    fn free_ticket(&mut self) -> usize {
        if self.waker.is_none() {
            return 0;
        }
        let wakers = &mut self.more().wakers;
        let free = wakers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            wakers.push(None);
            wakers.len() - 1
        });
        index + 1
    }
}

/// Somebody who waits for the end of a lease.
struct Waiting<'a> {
    hold: &'a Hold,
    ticket: Option<usize>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.hold.hand_in(ticket);
        }
    }
}

#[cfg(test)]
impl Hold {
    /// A renewed lease of nothing in particular.
    pub(crate) fn sample(
        line: LineId,
        sent: Instant,
        ttl: Duration,
        tell: impl Fn(&Self) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let grant = Grant {
            names: Names::default(),
            line,
            index: 0,
            id: Id::default(),
            clock: Clock::Real,
            granted: sent,
            sent,
            terms: Terms {
                ttl,
                renew: true,
                min_hold: Duration::ZERO,
                max_hold: None,
                once: None,
                grace: Duration::ZERO,
            },
            in_doubt: false,
        };
        let common = Common {
            origin: Origin::here(),
            counters: Arc::default(),
            tell: Box::new(tell),
        };
        Arc::new(Self::new(grant, Arc::new(common)))
    }
}
