//! What one transaction has seen of the locks of a claim: who holds them, and who waits for them.

use std::time::Duration;

use super::fault::Fault;
use super::proto::{KeyValue, Op, Request, Response, TxnAnswer};
use super::wire::{Names, Stored};
use super::{op, range};
use crate::reply::KeptReply;
use crate::store::{Acquired, Claim};

pub(super) struct View {
    locks: Vec<LockView>,
    /// At which revision.
    pub(super) revision: i64,
}

/// One lock of the claim.
struct LockView {
    slots: Vec<(usize, KeyValue)>,
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
            let slots = (claim.permits > 1).then(|| names.more_slots(lock));
            let ranges = [Some(range(lock.as_bytes().to_vec())), slots];
            let ranges = ranges.into_iter().flatten().chain([names.queue(lock)]);
            ranges
                .map(|range| op(Request::Range(range)))
                .collect::<Vec<_>>()
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
        for lock in claim.locks {
            let mut found = next()?;
            if claim.permits > 1 {
                found.extend(next()?);
            }
            let in_slot = |kv: KeyValue| {
                let slot = names.slot_of(lock, &kv.key)?;
                (slot < claim.permits as usize).then_some((slot, kv))
            };
            let mut queue = next()?;
            queue.sort_by_key(|place| place.create_revision);
            locks.push(LockView {
                slots: found.into_iter().filter_map(in_slot).collect(),
                queue,
            });
        }
        Ok(Self { locks, revision })
    }

    pub(super) fn next(&self, claim: &Claim<'_>) -> Next {
        let has_slots = claim.permits > 1;
        let mut all_ours = true;
        let mut free = 0;
        let mut refusal: Option<Refusal> = None;
        for (index, lock) in self.locks.iter().enumerate() {
            let is_ours = |(_, kv): &&(usize, KeyValue)| Stored::read(kv).is_by(claim.owner);
            if let Some((slot, _)) = lock.slots.iter().find(is_ours) {
                if has_slots {
                    return Next::Ours(*slot);
                }
                continue;
            }
            all_ours = false;
            let taken = |slot: &usize| lock.slots.iter().any(|(taken, _)| taken == slot);
            let first_free = (0..claim.permits as usize).find(|slot| !taken(slot));
            let refused = match first_free {
                Some(slot) => {
                    free = slot;
                    lock.waits_before(claim.owner)
                }
                None => lock.refusal(),
            };
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
            None if all_ours => Next::Ours(0),
            None => Next::Take(free),
        }
    }

    /// What stands in the slots of each lock.
    pub(super) fn slots(&self) -> impl Iterator<Item = &[(usize, KeyValue)]> {
        self.locks.iter().map(|lock| &lock.slots[..])
    }

    /// What the claim holds of several locks.
    pub(super) fn ours(&self, owner: &str) -> Vec<&KeyValue> {
        let slots = self.locks.iter().flat_map(|lock| &lock.slots);
        let kvs = slots.map(|(_, kv)| kv);
        kvs.filter(|kv| Stored::read(kv).is_by(owner)).collect()
    }

    /// Whether the claim holds a lock already.
    pub(super) fn is_ours(&self, lock: usize, owner: &str) -> bool {
        let lock = self.locks.get(lock);
        lock.is_some_and(|lock| {
            let mut slots = lock.slots.iter();
            slots.any(|(_, kv)| Stored::read(kv).is_by(owner))
        })
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
    /// Whether a place is that of somebody who holds the lock by now.
    fn is_holders(&self, place: &KeyValue) -> bool {
        let Stored::Claimed { owner, .. } = Stored::read(place) else {
            return false;
        };
        let mut slots = self.slots.iter();
        slots.any(|(_, kv)| Stored::read(kv).is_by(owner))
    }

    /// Who waits for a lock that is free, and comes before this owner.
    fn waits_before(&self, owner: &str) -> Option<(Acquired, Option<i64>)> {
        let first = self.queue.first()?;
        match Stored::read(first) {
            Stored::Claimed { owner: first, .. } if first == owner => None,
            Stored::Claimed { owner, ttl, .. } => Some((Acquired::busy(0, owner, ttl), None)),
            // It is nobody's who could be waited for; but it is in the way until somebody deletes it.
            _ => Some((Acquired::foreign(0, "a place in its queue"), None)),
        }
    }

    /// Why a lock cannot be had of which no slot is free: whichever ends first.
    fn refusal(&self) -> Option<(Acquired, Option<i64>)> {
        let refusals = self.slots.iter().map(|(_, kv)| match Stored::read(kv) {
            Stored::Claimed { owner, ttl, .. } => (Acquired::busy(0, owner, ttl), Some(kv.lease)),
            Stored::Done { since, reply, .. } => {
                let done = Acquired::done(0, since).replied(reply.map(KeptReply::new));
                (done, None)
            }
            Stored::Foreign(what) => (Acquired::foreign(0, what), None),
        });
        refusals.min_by_key(|(answer, _)| remaining(answer))
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
