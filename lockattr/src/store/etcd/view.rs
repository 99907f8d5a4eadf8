//! What one transaction has seen of the locks of a claim: who holds them, and who waits for them.

use std::time::Duration;

use super::fault::Fault;
use super::proto::{KeyValue, Op, Range, Request, Response, TxnAnswer};
use super::wire::{KeyOf, Names, Stored};
use super::{op, range};
use crate::reply::KeptReply;
use crate::store::{Acquired, Claim, Sharing};

pub(super) struct View {
    locks: Vec<LockView>,
    /// At which revision.
    pub(super) revision: i64,
}

/// One lock of the claim.
#[derive(Default)]
struct LockView {
    /// What stands under its key: who holds it alone, or what closes it to all.
    alone: Option<KeyValue>,
    /// Who hold it beside one another, in the order in which they came to hold it.
    holders: Vec<KeyValue>,
    /// In order of arrival.
    queue: Vec<KeyValue>,
}

/// What a claim may do next.
pub(super) enum Next {
    /// It holds all of it, in this slot.
    Ours(usize),
    /// It may take what it does not hold yet, in this slot.
    Take(usize),
    /// This lock refuses it.
    Refused(Refusal),
}

pub(super) struct Refusal {
    pub(super) lock: usize,
    pub(super) answer: Acquired,
    /// Of a lock that somebody holds, under which lease.
    pub(super) lease: Option<i64>,
}

/// Where a claim stands in a queue.
pub(super) struct Standing {
    /// How many wait before it.
    pub(super) before: usize,
    pub(super) revision: i64,
    /// The key of the place before it, which may be that of the holder.
    pub(super) after: Option<Vec<u8>>,
}

impl View {
    /// What a transaction has to read.
    pub(super) fn ops(names: &Names, claim: &Claim<'_>) -> Vec<Op> {
        let of_lock = |lock: &String| {
            let ranges = [range(lock.as_bytes().to_vec()), names.claims(lock)];
            ranges.map(|range| op(Request::Range(range)))
        };
        claim.locks.iter().flat_map(of_lock).collect()
    }

    /// What it has read, as the last of its operations.
    pub(super) fn read(
        names: &Names,
        claim: &Claim<'_>,
        answer: &mut TxnAnswer,
    ) -> Result<Self, Fault> {
        let header = answer.header.as_ref();
        let header = header.ok_or_else(|| Fault::nonsense("no header"))?;
        let revision = header.revision;
        let mut ranges = std::mem::take(&mut answer.responses)
            .into_iter()
            .filter_map(|answer| match answer.response {
                Some(Response::Range(range)) => Some(range.kvs),
                _ => None,
            });
        let mut next = || {
            ranges
                .next()
                .ok_or_else(|| Fault::nonsense("too few ranges"))
        };
        let mut locks = Vec::with_capacity(claim.locks.len());
        for _ in claim.locks {
            let mut lock = LockView {
                alone: next()?.pop(),
                ..LockView::default()
            };
            for kv in next()? {
                match names.read(&kv.key) {
                    Some(KeyOf::Place(_)) => lock.queue.push(kv),
                    Some(KeyOf::Holder(_)) => lock.holders.push(kv),
                    Some(KeyOf::Lock(_)) | None => {}
                }
            }
            lock.queue.sort_by_key(|place| place.create_revision);
            lock.holders.sort_by_key(|holder| holder.create_revision);
            locks.push(lock);
        }
        Ok(Self { locks, revision })
    }

    pub(super) fn next(&self, claim: &Claim<'_>) -> Next {
        let sharing = claim.sharing();
        let mut all_ours = true;
        let mut slot = 0;
        let mut refusal: Option<Refusal> = None;
        for (index, lock) in self.locks.iter().enumerate() {
            if let Some(own) = lock.own(claim.owner) {
                slot = Stored::read(own).slot();
                continue;
            }
            all_ours = false;
            let refused = lock.refusal(sharing);
            let refused = refused.or_else(|| lock.waits_before(claim.owner));
            if refused.is_none() && matches!(sharing, Sharing::Permits { .. }) {
                slot = lock.free_slot();
            }
            if let Some((answer, lease)) = refused {
                let is_sooner = refusal
                    .as_ref()
                    .is_none_or(|known| remaining(&answer) < remaining(&known.answer));
                if is_sooner {
                    refusal = Some(Refusal {
                        lock: index,
                        answer: answer.of_lock(index),
                        lease,
                    });
                }
            }
        }
        match refusal {
            Some(refusal) => Next::Refused(refusal),
            None if all_ours => Next::Ours(slot),
            None => Next::Take(slot),
        }
    }

    /// Of each lock what the owner has of it, or else what is in the way of a claim like its own.
    pub(super) fn found(&self, claim: &Claim<'_>) -> impl Iterator<Item = Option<&KeyValue>> {
        let is_alone = claim.sharing().is_alone();
        let owner = claim.owner;
        self.locks.iter().map(move |lock| {
            let beside = lock.holders.first().filter(|_| is_alone);
            lock.own(owner).or(lock.alone.as_ref()).or(beside)
        })
    }

    /// What the claim holds of several locks.
    pub(super) fn ours(&self, owner: &str) -> Vec<&KeyValue> {
        let locks = self.locks.iter();
        locks.filter_map(|lock| lock.own(owner)).collect()
    }

    /// Whether the claim holds a lock already.
    pub(super) fn is_ours(&self, lock: usize, owner: &str) -> bool {
        let lock = self.locks.get(lock);
        lock.is_some_and(|lock| lock.own(owner).is_some())
    }

    /// What has to change of a lock before the first in its queue may have it that wants it so.
    pub(super) fn in_the_way(
        &self,
        lock: usize,
        sharing: Sharing,
        names: &Names,
        key: &str,
    ) -> Range {
        let lock = &self.locks[lock];
        if lock.alone.is_some() {
            return range(key.as_bytes().to_vec());
        }
        // One that could not be beside it in any case has to go, and the youngest goes last as a rule. Otherwise
        // any that goes may leave room.
        let excludes = |holder: &&KeyValue| {
            let holder = Stored::read(holder).sharing();
            !sharing.fits_beside(holder.into_iter())
        };
        match lock.holders.iter().rev().find(excludes) {
            Some(holder) => range(holder.key.clone()),
            None => names.holders(key),
        }
    }

    /// Where a claim stands in the queue of a lock.
    pub(super) fn standing(&self, lock: usize, place: &[u8]) -> Option<Standing> {
        let lock = self.locks.get(lock)?;
        let index = lock.queue.iter().position(|other| other.key == place)?;
        let (before, own) = lock.queue.split_at(index);
        let waits = |other: &&KeyValue| !lock.is_holders(other);
        Some(Standing {
            before: before.iter().filter(waits).count(),
            revision: own.first()?.create_revision,
            after: before.last().map(|before| before.key.clone()),
        })
    }
}

impl LockView {
    fn own(&self, owner: &str) -> Option<&KeyValue> {
        let mut kvs = self.alone.iter().chain(&self.holders);
        kvs.find(|kv| Stored::read(kv).is_by(owner))
    }

    /// Whether a place is that of somebody who holds the lock by now.
    fn is_holders(&self, place: &KeyValue) -> bool {
        match Stored::read(place) {
            Stored::Claimed { owner, .. } => self.own(owner).is_some(),
            Stored::Done { .. } | Stored::Foreign(_) => false,
        }
    }

    /// The lowest slot that no holder has.
    fn free_slot(&self) -> usize {
        let holders = self.holders.iter();
        let mut taken: Vec<_> = holders.map(|holder| Stored::read(holder).slot()).collect();
        taken.sort_unstable();
        taken.dedup();
        let slots = taken.iter().enumerate();
        slots.take_while(|(slot, taken)| slot == *taken).count()
    }

    /// Who waits for a lock that has room, and comes before this owner.
    fn waits_before(&self, owner: &str) -> Option<(Acquired, Option<i64>)> {
        let mut waiting = self.queue.iter().filter(|place| !self.is_holders(place));
        let first = waiting.next()?;
        match Stored::read(first) {
            Stored::Claimed { owner: first, .. } if first == owner => None,
            Stored::Claimed { owner, ttl, .. } => Some((Acquired::busy(0, owner, ttl), None)),
            // It is nobody's who could be waited for; but it is in the way until somebody deletes it.
            _ => Some((Acquired::foreign(0, "a place in its queue"), None)),
        }
    }

    /// Why a lock cannot be had so, if it cannot: whichever ends first.
    fn refusal(&self, sharing: Sharing) -> Option<(Acquired, Option<i64>)> {
        if let Some(alone) = &self.alone {
            return Some(refusal(alone));
        }
        let holders = || self.holders.iter().map(Stored::read);
        if let Some(foreign) = self
            .holders
            .iter()
            .find(|kv| Stored::read(kv).sharing().is_none())
        {
            return Some(refusal(foreign));
        }
        if sharing.fits_beside(holders().filter_map(|holder| holder.sharing())) {
            return None;
        }
        let refusals = self.holders.iter().map(refusal);
        refusals.min_by_key(|(answer, _)| remaining(answer))
    }
}

/// What is told to one whom this is in the way, and under which lease it is.
fn refusal(kv: &KeyValue) -> (Acquired, Option<i64>) {
    match Stored::read(kv) {
        Stored::Claimed {
            owner, ttl, since, ..
        } => {
            let busy = Acquired::busy(0, owner, ttl);
            let busy = since.into_iter().fold(busy, Acquired::since);
            (busy, Some(kv.lease))
        }
        Stored::Done { since, reply, .. } => {
            let done = Acquired::done(0, since).replied(reply.map(KeptReply::new));
            (done, None)
        }
        Stored::Foreign(what) => (Acquired::foreign(0, what), None),
    }
}

/// For how long a lock is busy at most.
fn remaining(answer: &Acquired) -> Duration {
    match answer {
        Acquired::Busy { remaining, .. } => *remaining,
        _ => Duration::MAX,
    }
}

impl Acquired {
    fn of_lock(mut self, index: usize) -> Self {
        if let Self::Busy { lock, .. } | Self::Done { lock, .. } | Self::Foreign { lock, .. } =
            &mut self
        {
            *lock = index;
        }
        self
    }
}
