//! Another owner in the place of a lease's own: a look at its keys, and one transaction that puts the new owner there
//! as long as they are as they were found, under a lease of etcd's that is the new owner's. Nothing is under the one
//! before then, and it ends by itself.

use std::time::Instant;

use super::acquire::{delete, put};
use super::fault::{Fault, Kind};
use super::leases::{self, LeaseRef};
use super::members::Patience;
use super::proto::{KeyValue, Request, Txn};
use super::renew::{found_keys, found_of};
use super::wire::{self, Stored, claimed};
use super::{Etcd, op, range};
use crate::error::StoreError;
use crate::owner;
use crate::store::{Claim, Found, Held, Renewal, relied_on_until};

/// How often what has changed in between is looked at again.
const TRIES: usize = 5;

impl Etcd {
    pub(super) async fn take_lease_over(
        &self,
        held: Held<'_>,
        new_owner: &str,
    ) -> Result<Renewal, Fault> {
        Self::check_count(&held.claim)?;
        let patience = self.0.members.patience();
        let answer = self.take_over_from(held, new_owner, patience).await;
        let has_nothing = match &answer {
            Ok(renewal) => !matches!(renewal, Renewal::Until(_)),
            Err(fault) => !fault.error.is_in_doubt(),
        };
        if has_nothing {
            self.end(new_owner);
        }
        answer
    }

    async fn take_over_from(
        &self,
        held: Held<'_>,
        new_owner: &str,
        patience: Patience,
    ) -> Result<Renewal, Fault> {
        let Claim { owner, ttl, .. } = held.claim;
        let new = Claim {
            owner: new_owner,
            ..held.claim
        };
        for _ in 0..TRIES {
            let [before, after] = self
                .keys_of(&held.claim, [owner, new_owner], patience)
                .await?;
            if found_of(after.iter().map(Option::as_ref), new_owner) == Found::Ours {
                let renewed = self.renew_all(&[new.held(held.slot)], patience).await.pop();
                return renewed.unwrap_or_else(|| Err(Fault::nonsense("no renewal")));
            }
            match found_of(before.iter().map(Option::as_ref), owner) {
                Found::Ours => {}
                Found::Nothing => return Ok(Renewal::Gone),
                Found::Another => return Ok(Renewal::Taken),
            }
            let known = self.0.leases.current(new_owner);
            let lease = if let Some(lease) = known {
                lease
            } else {
                let seconds = leases::seconds(ttl);
                self.grant(new_owner, seconds, patience).await?
            };
            let before: Vec<_> = before.into_iter().flatten().collect();
            let exchange = self.exchange(&held.claim, &before, &new, lease);
            let sent = Instant::now();
            match self.txn(new_owner, exchange, patience).await {
                // Whether it was done before, or is as it was, is looked for.
                Ok(answer) if !answer.message.succeeded => {}
                Ok(_) if lease.covers(sent, ttl) => {
                    return Ok(Renewal::Until(relied_on_until(sent, ttl)));
                }
                Ok(_) => {}
                Err(fault) => {
                    if fault.kind == Kind::NoLease {
                        self.0.leases.remove(new_owner, lease.id);
                    }
                    return Err(fault);
                }
            }
        }
        Err(Fault::last(StoreError::refused(
            "the lock changes faster than it can be taken over",
        )))
    }

    /// What stands where each of these owners would hold a claim.
    async fn keys_of(
        &self,
        claim: &Claim<'_>,
        owners: [&str; 2],
        patience: Patience,
    ) -> Result<[Vec<Option<KeyValue>>; 2], Fault> {
        let names = &self.0.names;
        let keys = owners.map(|owner| names.held_by(claim, owner));
        let looks = keys.into_iter().flatten();
        let looks = looks.map(|key| op(Request::Range(range(key))));
        let txn = Txn {
            success: looks.collect(),
            ..Txn::default()
        };
        let answer = self.0.members.call(super::TXN, txn, patience, drop).await?;
        let mut before = found_keys(answer.message);
        let after = before.split_off(claim.locks.len().min(before.len()));
        Ok([before, after])
    }

    /// Writes for the new owner what the one before has there, and ends that one's.
    fn exchange(
        &self,
        claim: &Claim<'_>,
        before: &[KeyValue],
        new: &Claim<'_>,
        lease: LeaseRef,
    ) -> Txn {
        let names = &self.0.names;
        let since = owner::since(claim.owner);
        let unchanged = |kv: &KeyValue| wire::was_written_at(&kv.key, kv.mod_revision);
        let mut success = Vec::new();
        let keys = names.held_by(new, new.owner);
        for ((lock, key), kv) in claim.locks.iter().zip(keys).zip(before) {
            let (slot, since) = match Stored::read(kv) {
                Stored::Claimed {
                    slot, since: told, ..
                } => (slot, told.or(since)),
                Stored::Done { .. } | Stored::Foreign(_) => (0, since),
            };
            if key != kv.key {
                success.push(delete(kv.key.clone()));
            }
            success.push(put(key, claimed(new, slot, since), lease));
            // It may have kept its place, which the next one waits for.
            success.push(delete(names.place(lock, claim.owner)));
        }
        Txn {
            compare: before.iter().map(unchanged).collect(),
            success,
            failure: Vec::new(),
        }
    }
}
