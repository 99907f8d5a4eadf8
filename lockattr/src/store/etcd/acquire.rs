//! Acquiring: one transaction where the locks are free and nobody waits for them; a look at what it has found, and
//! a second transaction, for everything else.
//!
//! Whoever waits puts a key into the queue of the lock that refuses it. The first of a queue takes the lock in the
//! same step in which it leaves its place; everybody else finds that somebody waits, and does not overtake.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::fault::{Fault, Kind};
use super::keep_alives::Kept;
use super::leases::{self, LeaseRef, Place};
use super::members::{Answer, Patience, TIME_TO_LIVE};
use super::proto::{Compare, Delete, LeaseId, Op, Put, Request, TimeToLive, Txn, TxnAnswer};
use super::view::{Next, Refusal, View};
use super::wire::{self, claimed};
use super::{Etcd, Inner, op, range};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, Renewal, Sharing, relied_on_until};

/// How often a claim takes what it has seen free, and finds that somebody else was faster.
const TRIES: usize = 100;

/// One that waits takes a place after so many tries, which keeps the others from being faster.
const TRIES_WITHOUT_PLACE: usize = 8;

impl Etcd {
    pub(super) async fn acquire_locks(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
    ) -> Result<Acquired, Fault> {
        Self::check_count(&claim)?;
        let mut contest = Contest {
            etcd: self,
            claim,
            waits: !attempt.wait.is_zero() && self.0.waiting.is_listening(claim.owner),
            patience: self.0.members.patience(),
            in_doubt: false,
        };
        let answer = loop {
            match contest.run().await {
                // The lease has ended, and with it whatever was under it: the claim begins anew.
                Err(fault) if fault.kind == Kind::NoLease && contest.has_time() => {
                    contest.drop_lease();
                }
                answer => break answer,
            }
        };
        let in_doubt = contest.in_doubt;
        match answer {
            Ok(acquired) if in_doubt => Ok(acquired.doubtful()),
            Ok(acquired) => Ok(acquired),
            Err(fault) => {
                let fault = fault.after(in_doubt);
                if !fault.error.is_in_doubt() && self.0.leases.place(claim.owner).is_none() {
                    self.end(claim.owner);
                }
                Err(fault)
            }
        }
    }

    /// A claim has nothing under its lease any more.
    pub(super) fn end(&self, owner: &str) {
        let left = self.0.leases.end(owner);
        self.revoke_later(owner, left);
    }

    /// The lease that a claim writes under.
    async fn lease(&self, claim: &Claim<'_>, patience: Patience) -> Result<LeaseRef, Fault> {
        if let Some(lease) = self.0.leases.current(claim.owner) {
            return Ok(lease);
        }
        let seconds = leases::seconds(claim.ttl);
        match self.0.leases.reuse(claim.owner, seconds) {
            Some(lease) => Ok(lease),
            None => self.grant(claim.owner, seconds, patience).await,
        }
    }
}

/// One claim on its way.
struct Contest<'a> {
    etcd: &'a Etcd,
    claim: Claim<'a>,
    waits: bool,
    patience: Patience,
    /// Whether a request was not answered.
    in_doubt: bool,
}

/// What a transaction is to do.
struct Taking {
    slot: usize,
    /// At which revision it was seen that there is room; `None` where it was not looked.
    seen: Option<i64>,
    /// Of the locks, which the claim holds already.
    held: Vec<bool>,
    /// The place that it leaves.
    place: Option<Place>,
}

impl Contest<'_> {
    fn has_time(&self) -> bool {
        Instant::now() < self.patience.deadline
    }

    fn drop_lease(&self) {
        let Claim { owner, .. } = self.claim;
        if let Some(lease) = self.etcd.0.leases.current(owner) {
            self.etcd.0.leases.remove(owner, lease.id);
        }
        self.etcd.0.leases.set_place(owner, None);
    }

    async fn run(&mut self) -> Result<Acquired, Fault> {
        let Claim { owner, ttl, .. } = self.claim;
        let mut lease = self.etcd.lease(&self.claim, self.patience).await?;
        let place = self.etcd.0.leases.place(owner);
        // One that was told to look is about to have it, and its lease has run for a while.
        let is_near = place.is_none() || self.etcd.0.waiting.was_told(owner);
        let mut kept = None;
        if is_near && !lease.covers(Instant::now(), ttl) {
            let answer = self.keep_alive(lease.id).await?;
            if answer.ttl.is_zero() {
                self.drop_lease();
                lease = self.etcd.lease(&self.claim, self.patience).await?;
            } else {
                kept = Some(answer);
            }
        }
        // A new lease has no place.
        let place = self.etcd.0.leases.place(owner);
        let mut taking = Taking {
            slot: 0,
            seen: None,
            held: vec![false; self.claim.locks.len()],
            place,
        };
        // What refuses one lock is known at once, and the claim queues in the same step. Where others hold some of the
        // permits, there may be enough left, and a place would keep others from them who do not wait.
        let is_conclusive = !matches!(self.claim.sharing(), Sharing::Permits { .. });
        let may_join = self.waits && self.claim.locks.len() == 1;
        for tries in 0..TRIES {
            let joins = if tries == 0 {
                is_conclusive
            } else {
                tries >= TRIES_WITHOUT_PLACE && !is_conclusive
            };
            let joined = (may_join && joins && taking.place.is_none()).then_some(0);
            let sent = Instant::now();
            let mut answer = self.take(&taking, lease, joined).await?;
            if answer.succeeded {
                let term = answer.header.as_ref().map_or(0, |header| header.raft_term);
                let place = taking.place.filter(|_| self.keeps_place());
                self.etcd.0.leases.set_place(owner, place);
                return self.granted(taking.slot, sent, term, kept).await;
            }
            let mut view = View::read(&self.etcd.0.names, &self.claim, &mut answer)?;
            // What was in doubt may have put it into another queue.
            loop {
                match view.next(&self.claim) {
                    Next::Ours(slot) => {
                        self.etcd.0.leases.set_place(owner, self.place_in(&view));
                        return self.recognised(slot).await;
                    }
                    Next::Take(slot) => {
                        taking = self.taking(&view, slot);
                        break;
                    }
                    Next::Refused(refusal) => {
                        let is_busy = matches!(refusal.answer, Acquired::Busy { .. });
                        if !self.waits || !is_busy {
                            return self.refused(&view, refusal).await;
                        }
                        if let Some(busy) = self.queued(&view, &refusal) {
                            return Ok(busy);
                        }
                        view = self.join(&view, refusal.lock, lease).await?;
                    }
                }
                if !self.has_time() {
                    return Err(too_much_change());
                }
            }
            if !self.has_time() {
                break;
            }
        }
        Err(too_much_change())
    }

    /// Whether the place stays while the lock is held: what is given back then is what the next one waits for
    /// already. Of several holders or locks, the others may be given back before.
    fn keeps_place(&self) -> bool {
        self.claim.locks.len() == 1 && self.claim.sharing().is_alone()
    }

    async fn keep_alive(&self, id: i64) -> Result<Kept, Fault> {
        let Patience { deadline, each } = self.patience;
        let first = self
            .etcd
            .0
            .keep_alives
            .ask(id, deadline.min(Instant::now() + each));
        match first.await {
            // A keep-alive does no harm where it is done twice.
            Err(fault) if fault.kind != Kind::NoLease && self.has_time() => {
                let again = deadline.min(Instant::now() + each);
                self.etcd.0.keep_alives.ask(id, again).await
            }
            answer => answer,
        }
    }

    async fn txn(&mut self, txn: Txn) -> Result<Answer<TxnAnswer>, Fault> {
        let answer = self.etcd.txn(self.claim.owner, txn, self.patience).await;
        self.in_doubt |= match &answer {
            Ok(answer) => answer.in_doubt,
            Err(fault) => fault.error.is_in_doubt(),
        };
        answer
    }

    /// Takes what is free, if it is.
    async fn take(
        &mut self,
        taking: &Taking,
        lease: LeaseRef,
        joins: Option<usize>,
    ) -> Result<TxnAnswer, Fault> {
        let names = &self.etcd.0.names;
        let claim = &self.claim;
        let mut compare = Vec::new();
        let mut success = Vec::new();
        for (index, lock) in claim.locks.iter().enumerate() {
            let key = names.holder(lock, claim.sharing(), claim.owner);
            if taking.held[index] {
                compare.extend(wire::is_by(&key, claim.owner));
                continue;
            }
            compare.push(wire::is_free(lock.as_bytes()));
            let place = taking.place.filter(|place| place.lock == index);
            compare.extend(self.has_room(lock, taking.seen, place));
            if place.is_some() && !self.keeps_place() {
                success.push(delete(names.place(lock, claim.owner)));
            }
            success.push(put(key, claimed(claim, taking.slot, None), lease));
        }
        let mut failure = Vec::new();
        if let Some(index) = joins {
            let place = names.place(&claim.locks[index], claim.owner);
            failure.push(put(place, wire::waits(claim), lease));
        }
        failure.extend(View::ops(names, claim));
        let answer = self
            .txn(Txn {
                compare,
                success,
                failure,
            })
            .await?;
        Ok(answer.message)
    }

    /// What has to be so beside a lock that is free: whoever holds it leaves room, and nobody waits before.
    ///
    /// Room that was seen is there as long as nobody has come since. A holder takes no more than it did, and whoever
    /// stood before a place and did not hold the lock would have been seen.
    fn has_room(&self, lock: &str, seen: Option<i64>, place: Option<Place>) -> Vec<Compare> {
        let names = &self.etcd.0.names;
        let sharing = self.claim.sharing();
        let mut compare = Vec::with_capacity(3);
        match (place, seen) {
            (Some(Place { revision, .. }), _) => {
                let own = names.place(lock, self.claim.owner);
                compare.push(wire::was_created_at(&own, revision));
                if sharing.is_alone() || seen.is_none() {
                    compare.push(wire::none_before(names.queue(lock), revision));
                }
            }
            (None, Some(seen)) if !sharing.is_alone() => {
                compare.push(wire::none_after(names.queue(lock), seen));
            }
            // Nobody is there at all.
            (None, _) if sharing != Sharing::Readers => {
                return vec![wire::is_empty(names.claims(lock))];
            }
            (None, _) => compare.push(wire::is_empty(names.queue(lock))),
        }
        compare.push(match (sharing, seen) {
            (Sharing::Readers, _) => wire::is_empty(names.permits(lock)),
            (Sharing::Permits { .. }, Some(seen)) => wire::none_after(names.holders(lock), seen),
            (Sharing::Permits { .. }, None) | (Sharing::Alone, _) => {
                wire::is_empty(names.holders(lock))
            }
        });
        compare
    }

    fn taking(&self, view: &View, slot: usize) -> Taking {
        let Claim { owner, locks, .. } = self.claim;
        let held = (0..locks.len()).map(|lock| view.is_ours(lock, owner));
        let place = self.place_in(view);
        Taking {
            slot,
            seen: Some(view.revision),
            held: held.collect(),
            place,
        }
    }

    /// Where a view has the claim stand.
    fn place_in(&self, view: &View) -> Option<Place> {
        let places = self.claim.locks.iter().enumerate();
        let mut places = places.filter_map(|(lock, key)| {
            let place = self.etcd.0.names.place(key, self.claim.owner);
            let revision = view.standing(lock, &place)?.revision;
            Some(Place { lock, revision })
        });
        places.next()
    }

    /// Counts the lease of what was granted.
    async fn granted(
        &self,
        slot: usize,
        sent: Instant,
        term: u64,
        kept: Option<Kept>,
    ) -> Result<Acquired, Fault> {
        let Claim { owner, ttl, .. } = self.claim;
        let leases = &self.etcd.0.leases;
        let lease = leases.current(owner);
        if let (Some(lease), Some(kept)) = (lease, kept)
            && kept.term == term
        {
            leases.renewed(owner, lease.id, kept.sent);
        }
        if leases
            .current(owner)
            .is_some_and(|lease| lease.covers(sent, ttl))
        {
            return Ok(Acquired::granted(slot, relied_on_until(sent, ttl)));
        }
        self.recognised(slot).await
    }

    /// Starts the ttl of what it holds anew.
    async fn recognised(&self, slot: usize) -> Result<Acquired, Fault> {
        let held = self.claim.held(slot);
        let mut renewed = self.etcd.renew_all(&[held], self.patience).await;
        match renewed.pop() {
            Some(Ok(Renewal::Until(until))) => Ok(Acquired::granted(slot, until)),
            Some(Err(fault)) => Err(fault),
            _ => Err(Fault::last(StoreError::in_doubt(
                "etcd has granted the lock, and it was gone when it was looked for",
            ))),
        }
    }

    /// The answer to one that stands in the queue of the lock that refuses it.
    fn queued(&self, view: &View, refusal: &Refusal) -> Option<Acquired> {
        let names = &self.etcd.0.names;
        let Claim { owner, locks, .. } = self.claim;
        let lock = &locks[refusal.lock];
        let standing = view.standing(refusal.lock, &names.place(lock, owner))?;
        let place = Place {
            lock: refusal.lock,
            revision: standing.revision,
        };
        self.etcd.0.leases.set_place(owner, Some(place));
        let sharing = self.claim.sharing();
        let is_first = standing.before == 0;
        let in_the_way = || view.in_the_way(refusal.lock, sharing, names, lock);
        let mut ranges: Vec<_> = is_first.then(in_the_way).into_iter().collect();
        ranges.extend(standing.after.map(range));
        let waiting = &self.etcd.0.waiting;
        if waiting.queued(owner, ranges, view.revision + 1)
            && let Some(lease) = self.etcd.0.leases.current(owner)
        {
            let (inner, owner) = (Arc::downgrade(&self.etcd.0), owner.to_owned());
            let background = self.etcd.0.members.background();
            background.spawn(keep_place(inner, owner, lease));
        }
        let before = u64::try_from(standing.before).unwrap_or(u64::MAX);
        Some(refusal.answer.clone().queued(before))
    }

    /// Queues for a lock, and for no other.
    async fn join(&mut self, view: &View, lock: usize, lease: LeaseRef) -> Result<View, Fault> {
        let names = &self.etcd.0.names;
        let mut success = self.places_but(view, Some(lock));
        let place = names.place(&self.claim.locks[lock], self.claim.owner);
        success.push(put(place, wire::waits(&self.claim), lease));
        // What it holds of several locks goes back: all or none.
        let (compare, mut given_back) = self.give_back(view);
        success.append(&mut given_back);
        success.extend(View::ops(names, &self.claim));
        let failure = View::ops(names, &self.claim);
        let mut answer = self
            .txn(Txn {
                compare,
                success,
                failure,
            })
            .await?;
        View::read(&self.etcd.0.names, &self.claim, &mut answer.message)
    }

    /// The places of the claim that a view has, but for one.
    fn places_but(&self, view: &View, kept: Option<usize>) -> Vec<Op> {
        let mut ops = Vec::new();
        for (index, lock) in self.claim.locks.iter().enumerate() {
            let place = self.etcd.0.names.place(lock, self.claim.owner);
            if Some(index) != kept && view.standing(index, &place).is_some() {
                ops.push(delete(place));
            }
        }
        ops
    }

    fn give_back(&self, view: &View) -> (Vec<Compare>, Vec<Op>) {
        let ours = view.ours(self.claim.owner).into_iter();
        ours.map(|kv| {
            let unchanged = wire::was_written_at(&kv.key, kv.mod_revision);
            (unchanged, delete(kv.key.clone()))
        })
        .unzip()
    }

    /// The answer to one that does not wait, or for which there is nothing to wait for.
    async fn refused(&mut self, view: &View, refusal: Refusal) -> Result<Acquired, Fault> {
        let (compare, mut success) = self.give_back(view);
        success.append(&mut self.places_but(view, None));
        if !success.is_empty() {
            let failure = Vec::new();
            self.txn(Txn {
                compare,
                success,
                failure,
            })
            .await?;
        }
        let Claim { owner, .. } = self.claim;
        self.etcd.0.leases.set_place(owner, None);
        if !self.in_doubt {
            self.etcd.end(owner);
        }
        let mut answer = refusal.answer;
        if let (Acquired::Busy { remaining, .. }, Some(id)) = (&mut answer, refusal.lease) {
            let request = LeaseId { id };
            let asking = self
                .etcd
                .0
                .members
                .call(TIME_TO_LIVE, request, self.patience, drop);
            let left: Result<Answer<TimeToLive>, Fault> = asking.await;
            // Where it cannot be told, it is the whole ttl at most.
            if let Ok(Answer { message, .. }) = left {
                let left = u64::try_from(message.ttl).unwrap_or(0);
                *remaining = (*remaining).min(Duration::from_secs(left));
            }
        }
        Ok(answer)
    }
}

/// Keeps the place of a claim that waits, as long as it does what it is told.
async fn keep_place(inner: Weak<Inner>, owner: String, lease: LeaseRef) {
    let mut next = lease.since + lease.length / 3;
    loop {
        sleep_until(next.into()).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        if !inner.waiting.is_to_stay(&owner) {
            return;
        }
        let Some(lease) = inner.leases.current(&owner) else {
            inner.waiting.stays_no_more(&owner);
            return;
        };
        let third = lease.length / 3;
        let asked = Instant::now();
        let answer = inner.keep_alives.ask(lease.id, asked + third / 2).await;
        // Its place is gone with the lease, and it is to queue again.
        if answer.as_ref().is_ok_and(|kept| kept.ttl.is_zero()) {
            inner.waiting.tell(&owner);
        }
        next = match answer {
            Ok(_) => asked + third,
            Err(_) => Instant::now() + third / 8,
        };
    }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: LeaseRef) -> Op {
    op(Request::Put(Put {
        key,
        value,
        lease: lease.id,
        ..Put::default()
    }))
}

pub(super) fn delete(key: Vec<u8>) -> Op {
    op(Request::Delete(Delete { key }))
}

fn too_much_change() -> Fault {
    Fault::last(StoreError::refused(
        "others were faster whenever the lock was free; ask again",
    ))
}
