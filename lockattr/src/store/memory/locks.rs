//! The locks themselves, in the hands of one caller at a time: who holds which, who waits for it, and
//! who is to be woken.

use std::collections::HashMap;
use std::iter;
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::{
    Acquired, Attempt, Claim, Found, Held, Leave, Release, Renewal, Sharing, Token, WakeUp,
    relied_on_until,
};
use super::names;
use crate::runtime::clock::Clock;
use crate::runtime::waker;

/// As many locks are kept at least before those whose time is over are looked for.
const SWEPT_FROM: usize = 1024;

/// Longer than any ttl, and short enough to be added to a moment.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

#[derive(Default)]
pub(super) struct Locks {
    /// What stands under each lock, in the order in which it came there; never nothing.
    pub(super) entries: HashMap<String, Vec<Stored>>,
    /// With so many locks those whose time is over are taken out.
    sweep_at: usize,
    last_token: u64,
    /// In order of arrival.
    pub(super) waiters: Vec<QueuedClaim>,
    /// By owner.
    inboxes: HashMap<String, Inbox>,
    /// To be woken once the locks are let go.
    pub(super) to_wake: Vec<Waker>,
}

/// What stands under a lock.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) by: Holder,
    pub(super) until: Instant,
    pub(super) sharing: Sharing,
    /// Its number, among those with permits.
    pub(super) slot: usize,
}

/// Each with since when.
#[derive(Clone)]
pub(super) enum Holder {
    Owner(String, SystemTime),
    /// A lease of another store, as long as that stands in for this one.
    Elsewhere(String, SystemTime),
    /// The work is done.
    Done(SystemTime),
}

impl Holder {
    /// From now on.
    pub(super) fn new(owner: &str) -> Self {
        Self::Owner(owner.to_owned(), SystemTime::now())
    }
}

#[derive(Clone)]
pub(super) struct QueuedClaim {
    pub(super) locks: Vec<String>,
    pub(super) sharing: Sharing,
    pub(super) owner: String,
    pub(super) ttl: Duration,
}

/// Where an owner's wake-ups go.
#[derive(Default)]
pub(super) struct Inbox {
    next: Option<WakeUp>,
    waker: Option<Waker>,
}

/// What stands under a lock of this store's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) slot: usize,
    pub(crate) sharing: Sharing,
    pub(crate) what: Refusal,
}

/// What keeps a lock from being taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is held, or stays closed, for so long yet, since then.
    Held(Duration, SystemTime),
    /// Its work is done, since then.
    Done(SystemTime),
}

impl Stored {
    /// Alone, from now on.
    pub(super) fn alone(by: Holder, ttl: Duration) -> Self {
        Self {
            by,
            until: after(ttl),
            sharing: Sharing::Alone,
            slot: 0,
        }
    }

    fn is_by(&self, owner: &str) -> bool {
        matches!(&self.by, Holder::Owner(holder, _) if holder == owner)
    }

    fn is_elsewhere(&self) -> bool {
        matches!(self.by, Holder::Elsewhere(..))
    }

    /// What an owner is told that cannot have the lock beside this.
    fn refusal(&self) -> Acquired {
        match &self.by {
            Holder::Owner(owner, since) | Holder::Elsewhere(owner, since) => {
                let remaining = self.until.saturating_duration_since(now());
                Acquired::busy(0, owner.clone(), remaining).since(*since)
            }
            Holder::Done(since) => Acquired::done(0, *since),
        }
    }
}

impl Locks {
    /// How many locks are kept.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Puts something under a lock, beside what is there. Nobody sees to what expires, so locks that are
    /// not asked for any more are looked for whenever there are twice as many as the last time: a constant
    /// cost a lock.
    pub(super) fn put(&mut self, lock: &str, stored: Stored) {
        if self.entries.len() >= self.sweep_at.max(SWEPT_FROM) {
            let now = now();
            self.entries.retain(|_, entries| {
                entries.retain(|entry| entry.until > now);
                !entries.is_empty()
            });
            self.entries.shrink_to(2 * SWEPT_FROM);
            self.sweep_at = 2 * self.entries.len();
        }
        match self.entries.get_mut(lock) {
            Some(entries) => entries.push(stored),
            None => {
                self.entries.insert(lock.to_owned(), vec![stored]);
            }
        }
    }

    /// Takes out what stands under a lock and is chosen.
    fn take_out(&mut self, lock: &str, chosen: impl Fn(&Stored) -> bool) {
        if let Some(entries) = self.entries.get_mut(lock) {
            entries.retain(|entry| !chosen(entry));
            if entries.is_empty() {
                self.entries.remove(lock);
            }
        }
    }

    /// Frees a name, whoever holds it.
    pub(super) fn remove(&mut self, name: &str) {
        let (lock, slot) = names::parts(name);
        self.take_out(lock, |entry| names::is_under(entry, slot));
        self.grant_waiting();
    }

    /// Ends what stands under a lock and is chosen.
    #[cfg(feature = "inspect")]
    pub(super) fn end(&mut self, lock: &str, chosen: impl Fn(&Stored) -> bool) {
        self.take_out(lock, chosen);
        self.grant_waiting();
    }

    /// Has an owner hold a name, whoever holds it.
    pub(super) fn seize(&mut self, name: &str, owner: &str, ttl: Duration) {
        let (lock, slot) = names::parts(name);
        let permits = self
            .live(lock)
            .iter()
            .find_map(|entry| match entry.sharing {
                Sharing::Permits { permits, .. } => Some(permits),
                Sharing::Alone | Sharing::Readers => None,
            });
        self.take_out(lock, |entry| names::is_under(entry, slot));
        let mut stored = Stored::alone(Holder::new(owner), ttl);
        if slot > 0 || permits.is_some() {
            stored.slot = slot;
            stored.sharing = Sharing::Permits {
                permits: permits.unwrap_or(u32::MAX),
                weight: 1,
            };
        }
        self.put(lock, stored);
    }

    pub(super) fn holder(&mut self, name: &str) -> Option<String> {
        let (lock, slot) = names::parts(name);
        let mut entries = self.live(lock).iter();
        match &entries.find(|entry| names::is_under(entry, slot))?.by {
            Holder::Owner(owner, _) | Holder::Elsewhere(owner, _) => Some(owner.clone()),
            Holder::Done(_) => None,
        }
    }

    /// What stands under these locks of this store's own.
    pub(super) fn standing(&mut self, locks: &[String]) -> Vec<Standing> {
        let now = now();
        let mut found = Vec::new();
        for lock in locks {
            for entry in self.live(lock) {
                let what = match entry.by {
                    Holder::Owner(_, since) => {
                        Refusal::Held(entry.until.saturating_duration_since(now), since)
                    }
                    Holder::Done(since) => Refusal::Done(since),
                    Holder::Elsewhere(..) => continue,
                };
                found.push(Standing {
                    slot: entry.slot,
                    sharing: entry.sharing,
                    what,
                });
            }
        }
        found
    }

    /// Has other stores hold these locks so, and in no other way than that.
    pub(super) fn hold_elsewhere(&mut self, locks: &[String], held: Vec<(usize, Stored)>) {
        for lock in locks {
            self.take_out(lock, Stored::is_elsewhere);
        }
        for (lock, stored) in held {
            if let Some(lock) = locks.get(lock) {
                self.put(lock, stored);
            }
        }
        self.grant_waiting();
    }

    pub(super) fn no_longer_elsewhere(&mut self, owner: &str) {
        let is_it =
            |entry: &Stored| matches!(&entry.by, Holder::Elsewhere(holder, _) if holder == owner);
        self.entries.retain(|_, entries| {
            entries.retain(|entry| !is_it(entry));
            !entries.is_empty()
        });
        self.grant_waiting();
    }

    pub(super) fn acquire(&mut self, claim: Claim<'_>, attempt: Attempt) -> Acquired {
        let owner = claim.owner;
        // Those who wait come before those who come.
        self.grant_waiting();
        let mut refusal = match self.grant(claim.locks, claim.sharing(), owner, claim.ttl) {
            Ok(slot) => {
                self.leave_queue(owner);
                return Acquired::Granted {
                    slot,
                    until: relied_on(claim.ttl),
                    in_doubt: false,
                };
            }
            Err(refusal) => refusal,
        };
        match &mut refusal {
            Acquired::Busy { place, .. }
                if !attempt.wait.is_zero() && self.inboxes.contains_key(owner) =>
            {
                *place = u64::try_from(self.queue(claim)).ok();
            }
            // Those behind it may have what it waited for.
            _ if self.leave_queue(owner) => self.grant_waiting(),
            _ => {}
        }
        refusal
    }

    /// Has an owner wait, if it does not yet. Answers how many stand before it.
    fn queue(&mut self, claim: Claim<'_>) -> usize {
        let is_it = |waiter: &QueuedClaim| waiter.owner == claim.owner;
        self.waiters.iter().position(is_it).unwrap_or_else(|| {
            self.waiters.push(QueuedClaim {
                locks: claim.locks.to_vec(),
                sharing: claim.sharing(),
                owner: claim.owner.to_owned(),
                ttl: claim.ttl,
            });
            self.waiters.len() - 1
        })
    }

    /// Answers whether the owner waited.
    fn leave_queue(&mut self, owner: &str) -> bool {
        let before = self.waiters.len();
        self.waiters.retain(|waiter| waiter.owner != owner);
        self.waiters.len() < before
    }

    /// Grants all locks, and says which slot of the only one; or why not.
    fn grant(
        &mut self,
        locks: &[String],
        sharing: Sharing,
        owner: &str,
        ttl: Duration,
    ) -> Result<usize, Acquired> {
        let refused = locks.iter().enumerate().filter_map(|(index, lock)| {
            let mut refusal = self.refusal(lock, sharing, owner)?;
            if let Acquired::Busy { lock, .. } | Acquired::Done { lock, .. } = &mut refusal {
                *lock = index;
            }
            Some(refusal)
        });
        if let Some(refusal) = refused.min_by_key(ends) {
            return Err(refusal);
        }
        let mut slot = 0;
        for lock in locks {
            let entries = self.live(lock);
            // What is the owner's already is so since it was granted.
            if let Some(own) = entries.iter_mut().find(|entry| entry.is_by(owner)) {
                own.until = after(ttl);
                slot = own.slot;
                continue;
            }
            if matches!(sharing, Sharing::Permits { .. }) {
                let is_free = |slot: &usize| entries.iter().all(|entry| entry.slot != *slot);
                slot = (0..=entries.len()).find(is_free).unwrap_or_default();
            }
            let stored = Stored {
                sharing,
                slot,
                ..Stored::alone(Holder::new(owner), ttl)
            };
            self.put(lock, stored);
        }
        Ok(slot)
    }

    /// Why an owner cannot have a lock, if it cannot: whoever holds it, or who waits for it.
    fn refusal(&mut self, lock: &String, sharing: Sharing, owner: &str) -> Option<Acquired> {
        let entries = self.live(lock);
        if entries.iter().any(|entry| entry.is_by(owner)) {
            return None;
        }
        let first = entries.iter().min_by_key(|entry| entry.until)?.refusal();
        let is_done = |entry: &&Stored| matches!(entry.by, Holder::Done(_));
        if let Some(done) = entries.iter().find(is_done) {
            return Some(done.refusal());
        }
        let holders = || entries.iter().map(|entry| entry.sharing);
        if !sharing.fits_beside(holders()) {
            return Some(first);
        }
        let holders: Vec<_> = holders().collect();
        let waits = |waiter: &QueuedClaim| {
            waiter.locks.contains(lock)
                && self.inboxes.contains_key(&waiter.owner)
                && !waiter.sharing.fits_beside(holders.iter().copied())
        };
        let mut before = self.waiters.iter().take_while(|one| one.owner != owner);
        before.any(waits).then_some(first)
    }

    /// Grants what is free to those who wait for it, in the order in which they came.
    fn grant_waiting(&mut self) {
        for QueuedClaim {
            locks,
            sharing,
            owner,
            ttl,
        } in self.listening()
        {
            if let Ok(slot) = self.grant(&locks, sharing, &owner, ttl) {
                let until = relied_on(ttl);
                self.leave_queue(&owner);
                self.wake(&owner, WakeUp::Granted { slot, until });
            }
        }
    }

    /// Those who wait and can be told.
    fn listening(&self) -> Vec<QueuedClaim> {
        let waiters = self.waiters.iter();
        let listening = waiters.filter(|waiter| self.inboxes.contains_key(&waiter.owner));
        listening.cloned().collect()
    }

    /// The answer is the owner's listener before, which is not to be dropped under a lock.
    pub(super) fn listen(&mut self, owner: &str) -> Option<Inbox> {
        self.inboxes.insert(owner.to_owned(), Inbox::default())
    }

    pub(super) fn close_inbox(&mut self, owner: &str) -> Option<Inbox> {
        let inbox = self.inboxes.remove(owner);
        // Whoever wants less than it may go before it now.
        if self.waiters.iter().any(|waiter| waiter.owner == owner) {
            self.grant_waiting();
        }
        inbox
    }

    /// The owner's next wake-up; or the waker before, which is not to be dropped under a lock.
    pub(super) fn next_wakeup(
        &mut self,
        owner: &str,
        waker: &Waker,
    ) -> Result<WakeUp, Option<Waker>> {
        let listener = self.inboxes.get_mut(owner).ok_or(None)?;
        match listener.next.take() {
            Some(wakeup) => Ok(wakeup),
            None => Err(waker::replace(&mut listener.waker, waker)),
        }
    }

    fn wake(&mut self, owner: &str, wakeup: WakeUp) {
        if let Some(listener) = self.inboxes.get_mut(owner) {
            listener.next = Some(wakeup);
            self.to_wake.extend(listener.waker.take());
        }
    }

    /// All who wait had better look again.
    pub(super) fn wake_all(&mut self) {
        self.wake_waiting_for(|_| true);
    }

    fn wake_waiting_for(&mut self, concerns: impl Fn(&[String]) -> bool) {
        let concerned = self.waiters.iter();
        let concerned = concerned.filter(|waiter| concerns(&waiter.locks));
        let owners: Vec<_> = concerned.map(|waiter| waiter.owner.clone()).collect();
        for owner in owners {
            self.wake(&owner, WakeUp::Look);
        }
    }

    /// Renews a lease where all of it is still held.
    pub(super) fn renew(&mut self, lease: Held<'_>) -> Renewal {
        let Claim {
            owner, ttl, locks, ..
        } = lease.claim;
        match self.find_all(&lease.claim) {
            Found::Nothing => Renewal::Gone,
            Found::Another => Renewal::Taken,
            Found::Ours => {
                for lock in locks {
                    let mut entries = self.live(lock).iter_mut();
                    if let Some(own) = entries.find(|entry| entry.is_by(owner)) {
                        let until = after(ttl);
                        own.until = if lease.shortens {
                            until
                        } else {
                            until.max(own.until)
                        };
                    }
                }
                Renewal::Until(relied_on(ttl))
            }
        }
    }

    pub(super) fn release(&mut self, claim: Claim<'_>, release: Release<'_>) -> Found {
        let owner = claim.owner;
        let leave = release.leave.iter().chain(iter::repeat(&Leave::Nothing));
        let mut found = Vec::new();
        let mut done = Vec::new();
        for (lock, leave) in claim.locks.iter().zip(leave) {
            found.push(self.release_one(lock, &claim, *leave, release.keep_marks));
            if matches!(leave, Leave::Done(_)) {
                done.push(lock);
            }
        }
        let stood = self.leave_queue(owner);
        self.grant_waiting();
        // Nobody has to wait for what is done any longer.
        self.wake_waiting_for(|locks| locks.iter().any(|lock| done.contains(&lock)));
        if release.slot.is_none() && (stood || found.contains(&Found::Ours)) {
            Found::Ours
        } else {
            worst(found)
        }
    }

    fn release_one(
        &mut self,
        lock: &str,
        claim: &Claim<'_>,
        leave: Leave,
        keep_marks: bool,
    ) -> Found {
        let owner = claim.owner;
        let found = self.find(lock, claim);
        let keeps = keep_marks && matches!(leave, Leave::Done(_));
        let is_mark = |entry: &Stored| matches!(entry.by, Holder::Done(_));
        if keeps && self.live(lock).iter().any(is_mark) {
            // An earlier release has done it.
            return Found::Ours;
        }
        if found == Found::Ours || keeps && found == Found::Nothing {
            let own = self.live(lock).iter().find(|entry| entry.is_by(owner));
            let own = own.cloned();
            self.take_out(lock, |entry| entry.is_by(owner));
            match leave {
                Leave::Nothing => {}
                Leave::Closed(length) => {
                    let origin = owner.split_once('@').map_or("", |(_, origin)| origin);
                    let nobody = Holder::new(&format!("{:032}@{origin}", 0));
                    let stored = own.unwrap_or_else(|| Stored::alone(nobody.clone(), length));
                    self.put(
                        lock,
                        Stored {
                            by: nobody,
                            until: after(length),
                            ..stored
                        },
                    );
                }
                Leave::Done(length) => {
                    let done = Holder::Done(SystemTime::now());
                    self.put(lock, Stored::alone(done, length));
                }
            }
        }
        found
    }

    pub(super) fn token(&mut self, lease: Held<'_>) -> Token {
        match self.find_all(&lease.claim) {
            Found::Ours => {
                self.last_token = micros_since_epoch()
                    .max(self.last_token + 1)
                    .max(lease.at_least);
                Token::Drawn(self.last_token)
            }
            other => Token::NotHeld(other),
        }
    }

    fn find_all(&mut self, claim: &Claim<'_>) -> Found {
        worst(claim.locks.iter().map(|lock| self.find(lock, claim)))
    }

    fn find(&mut self, lock: &str, claim: &Claim<'_>) -> Found {
        let entries = self.live(lock);
        if entries.iter().any(|entry| entry.is_by(claim.owner)) {
            return Found::Ours;
        }
        // Whom it lets hold the lock beside it has taken nothing from it.
        let beside = |entry: &Stored| !claim.sharing().is_alone() && !entry.sharing.is_alone();
        if entries.iter().all(beside) {
            Found::Nothing
        } else {
            Found::Another
        }
    }

    /// What stands under a lock and is not over yet.
    pub(super) fn live(&mut self, lock: &str) -> &mut [Stored] {
        let now = now();
        let Some(entries) = self.entries.get_mut(lock) else {
            return &mut [];
        };
        entries.retain(|entry| entry.until > now);
        if entries.is_empty() {
            self.entries.remove(lock);
            return &mut [];
        }
        self.entries
            .get_mut(lock)
            .map_or(&mut [], |entries| entries)
    }
}

/// Of what was found under several names, what the lease as a whole comes to.
fn worst(found: impl IntoIterator<Item = Found>) -> Found {
    found
        .into_iter()
        .fold(Found::Ours, |worst, found| match found {
            Found::Ours => worst,
            Found::Another => Found::Another,
            Found::Nothing if worst == Found::Another => worst,
            Found::Nothing => Found::Nothing,
        })
}

/// When what refuses a lock is over.
fn ends(refusal: &Acquired) -> Duration {
    match refusal {
        Acquired::Busy { remaining, .. } => *remaining,
        _ => Duration::MAX,
    }
}

/// The calling runtime's time where there is one, and real time elsewhere.
pub(super) fn now() -> Instant {
    Clock::Tokio.now()
}

/// The moment when a ttl that starts now is over; in a century for one that never is.
pub(super) fn after(ttl: Duration) -> Instant {
    now() + ttl.min(CENTURY)
}

/// Until when a ttl that starts now may be relied on.
fn relied_on(ttl: Duration) -> Instant {
    relied_on_until(now(), ttl.min(CENTURY))
}

fn micros_since_epoch() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}
