//! The locks themselves, in the hands of one caller at a time: what stands under which name, who waits
//! for it, and who is to be woken.

use std::collections::HashMap;
use std::iter;
use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::{
    Acquired, Attempt, Claim, Found, Held, Leave, Release, Renewal, Token, WakeUp, relied_on_until,
};
use super::slots::Slots;
use crate::reply::KeptReply;
use crate::runtime::clock::Clock;
use crate::runtime::waker;

/// As many names are kept at least before those whose time is over are looked for.
const SWEPT_FROM: usize = 1024;

/// Longer than any ttl, and short enough to be added to a moment.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

#[derive(Default)]
pub(super) struct Locks {
    pub(super) entries: HashMap<String, Stored>,
    /// With so many entries those whose time is over are taken out.
    sweep_at: usize,
    last_token: u64,
    /// In order of arrival.
    pub(super) waiters: Vec<QueuedClaim>,
    /// By owner.
    inboxes: HashMap<String, Inbox>,
    /// To be woken once the locks are let go.
    pub(super) to_wake: Vec<Waker>,
}

/// What stands under a name.
pub(super) struct Stored {
    pub(super) by: Holder,
    pub(super) until: Instant,
    /// Of a slot that was granted, how many there are for its holder.
    pub(super) permits: u32,
}

/// Each with since when.
pub(super) enum Holder {
    Owner(String, SystemTime),
    /// A lease of another store, as long as that stands in for this one.
    Elsewhere(String, SystemTime),
    /// The work is done, and this was left with it.
    Done(SystemTime, Option<KeptReply>),
}

impl Holder {
    /// From now on.
    pub(super) fn new(owner: &str) -> Self {
        Self::Owner(owner.to_owned(), SystemTime::now())
    }
}

pub(super) struct QueuedClaim {
    pub(super) slots: Slots<'static>,
    pub(super) owner: String,
    pub(super) ttl: Duration,
}

/// Where an owner's wake-ups go.
#[derive(Default)]
pub(super) struct Inbox {
    next: Option<WakeUp>,
    waker: Option<Waker>,
}

/// What keeps a name from being taken.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// It is held, or stays closed, for so long yet, since then.
    Held(Duration, SystemTime),
    /// Its work is done, since then, and this was left with it.
    Done(SystemTime, Option<KeptReply>),
}

impl Stored {
    fn is_by(&self, owner: &str) -> bool {
        matches!(&self.by, Holder::Owner(holder, _) if holder == owner)
    }
}

impl Locks {
    /// How many names are kept.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Puts something under a name. Nobody sees to what expires, so names that are not asked for any
    /// more are looked for whenever there are twice as many as the last time: a constant cost a name.
    pub(super) fn put(&mut self, name: &str, by: Holder, ttl: Duration) {
        if self.entries.len() >= self.sweep_at.max(SWEPT_FROM) {
            let now = now();
            self.entries.retain(|_, entry| entry.until > now);
            self.entries.shrink_to(2 * SWEPT_FROM);
            self.sweep_at = 2 * self.entries.len();
        }
        let until = after(ttl);
        let stored = Stored {
            by,
            until,
            permits: 1,
        };
        self.entries.insert(name.to_owned(), stored);
    }

    /// Frees a name, whoever holds it.
    pub(super) fn remove(&mut self, name: &str) {
        self.entries.remove(name);
        self.grant_waiting();
    }

    pub(super) fn holder(&mut self, name: &str) -> Option<String> {
        match &self.live(name)?.by {
            Holder::Owner(owner, _) | Holder::Elsewhere(owner, _) => Some(owner.clone()),
            Holder::Done(..) => None,
        }
    }

    pub(super) fn refusals(&mut self, slots: &Slots<'_>) -> Vec<(usize, Refusal)> {
        let now = now();
        let mut found = Vec::new();
        for (index, name) in slots.names().iter().enumerate() {
            let refusal = match self.live(name) {
                Some(Stored { by, until, .. }) => match by {
                    Holder::Owner(_, since) => {
                        Refusal::Held(until.saturating_duration_since(now), *since)
                    }
                    Holder::Done(since, reply) => Refusal::Done(*since, reply.clone()),
                    Holder::Elsewhere(..) => continue,
                },
                None => continue,
            };
            found.push((slots.slot(index), refusal));
        }
        found
    }

    pub(super) fn hold_elsewhere(
        &mut self,
        slots: &Slots<'_>,
        held: Vec<(String, Holder, Duration)>,
    ) {
        for name in slots.names() {
            let is_elsewhere = |entry: &mut Stored| matches!(entry.by, Holder::Elsewhere(..));
            if self.live(name).is_some_and(is_elsewhere) {
                self.entries.remove(name);
            }
        }
        for (name, holder, remaining) in held {
            if self.live(&name).is_none() {
                self.put(&name, holder, remaining);
            }
        }
        self.grant_waiting();
    }

    pub(super) fn no_longer_elsewhere(&mut self, owner: &str) {
        let is_it =
            |entry: &Stored| matches!(&entry.by, Holder::Elsewhere(holder, _) if holder == owner);
        self.entries.retain(|_, entry| !is_it(entry));
        self.grant_waiting();
    }

    pub(super) fn acquire(&mut self, claim: Claim<'_>, attempt: Attempt) -> Acquired {
        let slots = Slots::all(claim.locks, claim.permits);
        let owner = claim.owner;
        // Those who wait come before those who come.
        self.grant_waiting();
        let mut refusal = match self.grant(&slots, owner, claim.ttl) {
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
                *place = u64::try_from(self.queue(slots, owner, claim.ttl)).ok();
            }
            _ => {
                self.leave_queue(owner);
            }
        }
        refusal
    }

    /// Has an owner wait, if it does not yet. Answers how many stand before it.
    fn queue(&mut self, slots: Slots<'_>, owner: &str, ttl: Duration) -> usize {
        let is_it = |waiter: &QueuedClaim| waiter.owner == owner;
        self.waiters.iter().position(is_it).unwrap_or_else(|| {
            self.waiters.push(QueuedClaim {
                slots: slots.into_owned(),
                owner: owner.to_owned(),
                ttl,
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

    /// Grants all locks, or a slot of the only one, and says which slot; or why not.
    fn grant(&mut self, slots: &Slots<'_>, owner: &str, ttl: Duration) -> Result<usize, Acquired> {
        let names = slots.names();
        let refusals: Vec<_> = names.iter().map(|name| self.refusal(name, owner)).collect();
        let (slot, granted) = match slots {
            Slots::Locks(_) if refusals.iter().all(Option::is_none) => (0, names),
            Slots::Locks(_) => return Err(soonest(refusals.into_iter().enumerate())),
            Slots::OfOne(_) => {
                // The one that is the owner's already comes first.
                let own = |name: &String| self.find(name, owner) == Found::Ours;
                let free = || refusals.iter().position(Option::is_none);
                match names.iter().position(own).or_else(free) {
                    Some(slot) => (slot, &names[slot..=slot]),
                    None => return Err(soonest(iter::repeat(0).zip(refusals))),
                }
            }
        };
        for name in granted {
            // What is the owner's already is so since it was granted.
            match self.live(name) {
                Some(entry) if entry.is_by(owner) => entry.until = after(ttl),
                _ => self.put(name, Holder::new(owner), ttl),
            }
            if let (Slots::OfOne(all), Some(entry)) = (slots, self.entries.get_mut(name)) {
                entry.permits = u32::try_from(all.len()).unwrap_or(u32::MAX);
            }
        }
        Ok(slot)
    }

    /// Why an owner cannot have a name, if it cannot.
    fn refusal(&mut self, name: &str, owner: &str) -> Option<Acquired> {
        let entry = self.live(name).filter(|entry| !entry.is_by(owner))?;
        Some(match &entry.by {
            Holder::Owner(owner, since) | Holder::Elsewhere(owner, since) => {
                let remaining = entry.until.saturating_duration_since(now());
                Acquired::busy(0, owner.clone(), remaining).since(*since)
            }
            Holder::Done(since, reply) => Acquired::done(0, *since).replied(reply.clone()),
        })
    }

    /// Grants what is free to those who wait for it, in the order in which they came.
    fn grant_waiting(&mut self) {
        for waiter in mem::take(&mut self.waiters) {
            let QueuedClaim { slots, owner, ttl } = &waiter;
            if self.inboxes.contains_key(owner)
                && let Ok(slot) = self.grant(slots, owner, *ttl)
            {
                let until = relied_on(*ttl);
                self.wake(owner, WakeUp::Granted { slot, until });
            } else {
                self.waiters.push(waiter);
            }
        }
    }

    /// The answer is the owner's listener before, which is not to be dropped under a lock.
    pub(super) fn listen(&mut self, owner: &str) -> Option<Inbox> {
        self.inboxes.insert(owner.to_owned(), Inbox::default())
    }

    pub(super) fn close_inbox(&mut self, owner: &str) -> Option<Inbox> {
        self.inboxes.remove(owner)
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
        let concerned = concerned.filter(|waiter| concerns(waiter.slots.names()));
        let owners: Vec<_> = concerned.map(|waiter| waiter.owner.clone()).collect();
        for owner in owners {
            self.wake(&owner, WakeUp::Look);
        }
    }

    /// Renews a lease where all of it is still held.
    pub(super) fn renew(&mut self, lease: Held<'_>) -> Renewal {
        let slots = Slots::held(lease);
        let Claim { owner, ttl, .. } = lease.claim;
        match self.find_all(slots.names(), owner) {
            Found::Nothing => Renewal::Gone,
            Found::Another => Renewal::Taken,
            Found::Ours => {
                for name in slots.names() {
                    if let Some(entry) = self.live(name) {
                        let until = after(ttl);
                        entry.until = if lease.shortens {
                            until
                        } else {
                            until.max(entry.until)
                        };
                    }
                }
                Renewal::Until(relied_on(ttl))
            }
        }
    }

    /// Puts another owner in the place of a lease's own where that holds all of it, or where this was done before.
    pub(super) fn take_over(&mut self, lease: Held<'_>, new_owner: &str) -> Renewal {
        let slots = Slots::held(lease);
        let owner = lease.claim.owner;
        for name in slots.names() {
            match self.find(name, owner) {
                Found::Ours => {}
                _ if self.find(name, new_owner) == Found::Ours => {}
                Found::Nothing => return Renewal::Gone,
                Found::Another => return Renewal::Taken,
            }
        }
        let until = after(lease.claim.ttl);
        for name in slots.names() {
            if let Some(entry) = self.live(name) {
                entry.until = until.max(entry.until);
                if let Holder::Owner(holder, _) = &mut entry.by {
                    new_owner.clone_into(holder);
                }
            }
        }
        Renewal::Until(relied_on(lease.claim.ttl))
    }

    pub(super) fn release(&mut self, claim: Claim<'_>, release: Release<'_>) -> Found {
        let owner = claim.owner;
        let slots = match release.slot {
            Some(slot) => Slots::held(claim.held(slot)),
            None => Slots::all(claim.locks, claim.permits),
        };
        let leave = release.leave.iter().chain(iter::repeat(&Leave::Nothing));
        let mut found = Vec::new();
        let mut done = Vec::new();
        for (name, leave) in slots.names().iter().zip(leave) {
            found.push(self.release_one(name, owner, leave, release.keep_marks));
            if leave.is_done() {
                done.push(name);
            }
        }
        let stood = self.leave_queue(owner);
        self.grant_waiting();
        // Nobody has to wait for what is done any longer.
        self.wake_waiting_for(|names| names.iter().any(|name| done.contains(&name)));
        if release.slot.is_none() && (stood || found.contains(&Found::Ours)) {
            Found::Ours
        } else {
            worst(found)
        }
    }

    fn release_one(&mut self, name: &str, owner: &str, leave: &Leave, keep_marks: bool) -> Found {
        let found = self.find(name, owner);
        let keeps = keep_marks && leave.is_done();
        let is_mark = |entry: &mut Stored| matches!(entry.by, Holder::Done(..));
        if keeps && self.live(name).is_some_and(is_mark) {
            // An earlier release has done it.
            return Found::Ours;
        }
        if found == Found::Ours || keeps && found == Found::Nothing {
            match leave {
                Leave::Nothing => {
                    self.entries.remove(name);
                }
                Leave::Closed(length) => {
                    let origin = owner.split_once('@').map_or("", |(_, origin)| origin);
                    let nobody = format!("{:032}@{origin}", 0);
                    self.put(name, Holder::new(&nobody), *length);
                }
                Leave::Done(length) | Leave::Replied(length, _) => {
                    let done = Holder::Done(SystemTime::now(), leave.reply().cloned());
                    self.put(name, done, *length);
                }
            }
        }
        found
    }

    pub(super) fn token(&mut self, lease: Held<'_>) -> Token {
        let slots = Slots::held(lease);
        match self.find_all(slots.names(), lease.claim.owner) {
            Found::Ours => {
                self.last_token = micros_since_epoch()
                    .max(self.last_token + 1)
                    .max(lease.at_least);
                Token::Drawn(self.last_token)
            }
            other => Token::NotHeld(other),
        }
    }

    fn find_all(&mut self, names: &[String], owner: &str) -> Found {
        worst(names.iter().map(|name| self.find(name, owner)))
    }

    fn find(&mut self, name: &str, owner: &str) -> Found {
        match self.live(name) {
            None => Found::Nothing,
            Some(entry) if entry.is_by(owner) => Found::Ours,
            Some(_) => Found::Another,
        }
    }

    /// What stands under a name and is not over yet.
    fn live(&mut self, name: &str) -> Option<&mut Stored> {
        if self.entries.get(name)?.until <= now() {
            self.entries.remove(name);
            return None;
        }
        self.entries.get_mut(name)
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

/// Of several refusals, each with the index of its lock, the one whose lease ends first.
fn soonest(refusals: impl Iterator<Item = (usize, Option<Acquired>)>) -> Acquired {
    let ends = |refusal: &Acquired| match refusal {
        Acquired::Busy { remaining, .. } => *remaining,
        _ => Duration::MAX,
    };
    let refusals = refusals.filter_map(|(index, refusal)| {
        let mut refusal = refusal?;
        if let Acquired::Busy { lock, .. } | Acquired::Done { lock, .. } = &mut refusal {
            *lock = index;
        }
        Some(refusal)
    });
    refusals
        .min_by_key(ends)
        .expect("what was not granted was refused")
}

/// The calling runtime's time where there is one, and real time elsewhere.
pub(super) fn now() -> Instant {
    Clock::Tokio.now()
}

/// The moment when a ttl that starts now is over; in a century for one that never is.
fn after(ttl: Duration) -> Instant {
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
