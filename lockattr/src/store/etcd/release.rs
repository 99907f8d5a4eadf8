//! Releasing: a transaction that deletes what is the owner's, or writes what is to be left there, and a second one
//! where not all of it was.
//!
//! Where a request was not answered, or it is not known what the claim holds, its leases are revoked, so that nothing
//! can come of it any more.

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use super::acquire::delete;
use super::fault::Fault;
use super::leases;
use super::members::{Answer, GRANT, Patience};
use super::proto::{
    Compare, KeyValue, LeaseGrant, LeaseGranted, Op, Put, Request, Response, Txn, TxnAnswer,
};
use super::renew::found_keys;
use super::view::View;
use super::wire::{self, KeyOf, Stored, closed, done};
use super::{Etcd, op, range};
use crate::error::StoreError;
use crate::store::{Claim, Found, Leave, Release};

/// How often what has changed in between is looked at again.
const TRIES: usize = 5;

/// One release on its way.
struct Releasing<'a> {
    etcd: &'a Etcd,
    claim: Claim<'a>,
    release: Release<'a>,
    patience: Patience,
    /// The leases of what is to be left, by their seconds.
    marks: HashMap<u64, i64>,
    in_doubt: bool,
}

/// What is to be done about one key.
struct Key<'a> {
    lock: &'a str,
    name: Vec<u8>,
    slot: usize,
    leave: Leave,
    /// What it was found to be when it was done with.
    found: Option<Found>,
}

impl Etcd {
    pub(super) async fn release_locks(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, Fault> {
        Self::check_count(&claim)?;
        let mut releasing = Releasing {
            etcd: self,
            claim,
            release,
            patience: self.0.members.patience(),
            marks: HashMap::new(),
            in_doubt: false,
        };
        releasing.grant_marks().await?;
        let found = match release.slot {
            Some(slot) => releasing.held(slot).await?,
            None => releasing.whatever().await?,
        };
        let in_doubt = releasing.in_doubt;
        if release.slot.is_none() || self.0.leases.is_in_doubt(claim.owner) {
            // What fails here is done when the claim is to be settled.
            let _ = self.revoke_all(claim.owner).await;
        } else {
            self.end(claim.owner);
        }
        // A lease that is not there any more may have been released by a try that was not answered.
        if in_doubt && release.slot.is_some() {
            return Ok(Found::Ours);
        }
        Ok(found)
    }

    /// Revokes all leases that a claim may have something under.
    pub(super) async fn revoke_all(&self, owner: &str) -> Result<(), Fault> {
        let mut failed = None;
        for lease in self.0.leases.revoked(owner) {
            let patience = self.0.members.patience();
            failed = self
                .revoke(owner, lease.id, patience)
                .await
                .err()
                .or(failed);
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        self.0.leases.set_place(owner, None);
        // Without a lease it is forgotten.
        self.0.leases.end(owner);
        Ok(())
    }
}

impl Releasing<'_> {
    /// A lease for each length of what is to be left.
    async fn grant_marks(&mut self) -> Result<(), Fault> {
        for leave in self.release.leave {
            let Some(seconds) = seconds_of(leave) else {
                continue;
            };
            if self.marks.contains_key(&seconds) {
                continue;
            }
            let id = leases::new_id().map_err(Fault::last)?;
            let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
            // One that is granted and not used ends by itself.
            let request = LeaseGrant { ttl, id };
            let once = Patience {
                deadline: self
                    .patience
                    .deadline
                    .min(Instant::now() + self.patience.each),
                ..self.patience
            };
            let granted = self.etcd.0.members.call(GRANT, request, once, drop);
            let _: Answer<LeaseGranted> = granted.await?;
            self.marks.insert(seconds, id);
        }
        Ok(())
    }

    async fn txn(&mut self, txn: Txn) -> Result<TxnAnswer, Fault> {
        let answer = self.etcd.txn(self.claim.owner, txn, self.patience).await?;
        self.in_doubt |= answer.in_doubt;
        Ok(answer.message)
    }

    /// What is held is known, and all of it is there as a rule.
    async fn held(&mut self, slot: usize) -> Result<Found, Fault> {
        let leave = self
            .release
            .leave
            .iter()
            .cloned()
            .chain(std::iter::repeat(Leave::Nothing));
        let keys = self.etcd.0.names.held(&self.claim.held(slot));
        let locks = self.claim.locks.iter().zip(keys).zip(leave);
        let keys = locks.map(|((lock, name), leave)| Key {
            lock,
            name,
            slot,
            leave,
            found: None,
        });
        let mut keys: Vec<_> = keys.collect();
        let ours = keys
            .iter()
            .flat_map(|key| wire::is_by(&key.name, self.claim.owner));
        let left = keys.iter().map(|key| self.left(key));
        let txn = Txn {
            compare: ours.collect(),
            success: left.chain(self.places()).collect(),
            failure: looks(&keys).chain(self.places()).collect(),
        };
        let answer = self.txn(txn).await?;
        if answer.succeeded {
            return Ok(Found::Ours);
        }
        self.found(&mut keys, found_keys(answer)).await
    }

    /// What is held is not known.
    async fn whatever(&mut self) -> Result<Found, Fault> {
        let names = &self.etcd.0.names;
        let txn = Txn {
            success: self.places().chain(View::ops(names, &self.claim)).collect(),
            ..Txn::default()
        };
        let mut answer = self.txn(txn).await?;
        let stood = answer
            .responses
            .iter()
            .any(|one| matches!(&one.response, Some(Response::Delete(place)) if place.deleted > 0));
        let view = View::read(&self.etcd.0.names, &self.claim, &mut answer)?;
        let mut worst = Found::Ours;
        let mut held_any = false;
        let claim = self.claim;
        let names = self.etcd.0.names.held_by(&claim, claim.owner);
        let locks = claim.locks.iter().zip(names).zip(view.found(&claim));
        for (index, ((lock, name), kv)) in locks.enumerate() {
            let leave = self.release.leave.get(index).cloned();
            let mut key = [Key {
                lock,
                name,
                slot: kv.map_or(0, |kv| Stored::read(kv).slot()),
                leave: leave.unwrap_or(Leave::Nothing),
                found: None,
            }];
            let found = self.found(&mut key, vec![kv.cloned()]).await?;
            held_any |= found == Found::Ours;
            worst = worse(worst, found);
        }
        if stood || held_any {
            return Ok(Found::Ours);
        }
        Ok(worst)
    }

    /// Goes on with what was found under some keys, of which not all are the owner's.
    async fn found(
        &mut self,
        keys: &mut [Key<'_>],
        mut kvs: Vec<Option<KeyValue>>,
    ) -> Result<Found, Fault> {
        for _ in 0..TRIES {
            self.pass_over_held(keys, &kvs).await?;
            let (mut compare, mut success) = (Vec::new(), Vec::new());
            let mut doing = Vec::new();
            for (key, kv) in keys.iter_mut().zip(&kvs) {
                if key.found.is_some() {
                    continue;
                }
                match self.to_do(key, kv.as_ref()) {
                    Ok((unchanged, left)) => {
                        compare.extend(unchanged);
                        success.push(left);
                        doing.push(if kv.is_some() {
                            Found::Ours
                        } else {
                            Found::Nothing
                        });
                    }
                    Err(found) => key.found = Some(found),
                }
            }
            if success.is_empty() {
                return Ok(keys
                    .iter()
                    .filter_map(|key| key.found)
                    .fold(Found::Ours, worse));
            }
            let failure = looks(keys).collect();
            let answer = self
                .txn(Txn {
                    compare,
                    success,
                    failure,
                })
                .await?;
            if answer.succeeded {
                let mut done = doing.into_iter();
                for key in keys.iter_mut().filter(|key| key.found.is_none()) {
                    key.found = done.next();
                }
            } else {
                kvs = found_keys(answer);
            }
        }
        Err(Fault::last(StoreError::refused(
            "the lock changes faster than it can be given back",
        )))
    }

    /// Whether a mark is to be left also where nothing is there.
    fn keeps(&self, key: &Key<'_>) -> bool {
        self.release.keep_marks && key.leave.is_done()
    }

    /// No mark is left under a lock whose key is free since others hold it beside one another.
    async fn pass_over_held(
        &self,
        keys: &mut [Key<'_>],
        kvs: &[Option<KeyValue>],
    ) -> Result<(), Fault> {
        let names = &self.etcd.0.names;
        let mut free: Vec<_> = keys
            .iter_mut()
            .zip(kvs)
            .filter(|(key, kv)| key.found.is_none() && kv.is_none() && self.keeps(key))
            .map(|(key, _)| key)
            .collect();
        if free.is_empty() {
            return Ok(());
        }
        let holders = free.iter().map(|key| names.holders(key.lock));
        for holder in self.etcd.read(holders).await? {
            if let Some(KeyOf::Holder(lock)) = names.read(&holder.key) {
                for key in free.iter_mut().filter(|key| key.lock == lock) {
                    key.found = Some(Found::Another);
                }
            }
        }
        Ok(())
    }

    /// What has to be done about a key under which this was found, as long as it stays so; or what it is, where
    /// there is nothing to do.
    fn to_do(&self, key: &Key<'_>, kv: Option<&KeyValue>) -> Result<(Vec<Compare>, Op), Found> {
        let keeps = self.keeps(key);
        let Some(kv) = kv else {
            return if keeps {
                let holders = self.etcd.0.names.holders(key.lock);
                let is_free = vec![wire::is_free(&key.name), wire::is_empty(holders)];
                Ok((is_free, self.left(key)))
            } else {
                Err(Found::Nothing)
            };
        };
        match Stored::read(kv) {
            stored if stored.is_by(self.claim.owner) => Ok((
                vec![wire::was_written_at(&key.name, kv.mod_revision)],
                self.left(key),
            )),
            // An earlier release has done it.
            Stored::Done { .. } if keeps => Err(Found::Ours),
            _ => Err(Found::Another),
        }
    }

    /// What is to be left under a key.
    fn left(&self, key: &Key<'_>) -> Op {
        let value = match &key.leave {
            Leave::Nothing => return delete(key.name.clone()),
            Leave::Closed(length) => closed(&self.claim, key.slot, *length),
            Leave::Done(length) | Leave::Replied(length, _) => {
                done(SystemTime::now(), *length, key.leave.reply())
            }
        };
        let lease = seconds_of(&key.leave).and_then(|seconds| self.marks.get(&seconds));
        op(Request::Put(Put {
            key: key.name.clone(),
            value,
            // Zero would be a key that stays, and each length has its lease.
            lease: lease.copied().unwrap_or(-1),
            ..Put::default()
        }))
    }

    /// The places in which the claim may stand.
    fn places(&self) -> impl Iterator<Item = Op> + use<'_> {
        let may_stand =
            self.release.may_queue || self.etcd.0.leases.place(self.claim.owner).is_some();
        let locks = self.claim.locks.iter().filter(move |_| may_stand);
        locks.map(|lock| delete(self.etcd.0.names.place(lock, self.claim.owner)))
    }
}

fn looks<'a>(keys: &'a [Key<'_>]) -> impl Iterator<Item = Op> + use<'a> {
    keys.iter()
        .map(|key| op(Request::Range(range(key.name.clone()))))
}

fn worse(one: Found, other: Found) -> Found {
    match (one, other) {
        (Found::Another, _) | (_, Found::Another) => Found::Another,
        (Found::Nothing, _) | (_, Found::Nothing) => Found::Nothing,
        _ => Found::Ours,
    }
}

fn seconds_of(leave: &Leave) -> Option<u64> {
    (*leave != Leave::Nothing).then(|| leases::seconds_of_mark(leave.length()))
}
