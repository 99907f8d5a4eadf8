//! The check at connect: everything that a lock may need, once, on a key of its own.

use super::acquire::delete;
use super::fault::Fault;
use super::proto::{Put, Request, Txn};
use super::{Etcd, op, range, watcher};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, Release, Renewal, Sharing};

impl Etcd {
    pub(super) async fn check_rights(&self, claim: Claim<'_>) -> Result<(), Fault> {
        let checked = self.try_all(claim).await;
        let released = self.release_locks(claim, Release::whatever(true)).await;
        checked?;
        released.map(drop)
    }

    async fn try_all(&self, claim: Claim<'_>) -> Result<(), Fault> {
        let slot = match self.acquire_locks(claim, Attempt::default()).await? {
            Acquired::Granted { slot, .. } => slot,
            other => {
                return Err(Fault::last(StoreError::refused(format!(
                    "the key of a check, which is nobody else's, was answered as {other:?}"
                ))));
            }
        };
        let patience = self.0.members.patience();
        let renewed = self.renew_all(&[claim.held(slot)], patience).await;
        for renewal in renewed {
            if !matches!(renewal?, Renewal::Until(_)) {
                return Err(Fault::last(StoreError::refused(
                    "the key of a check was gone at once: does somebody delete the keys under the prefix?",
                )));
            }
        }
        self.try_helper_keys(claim).await?;
        let names = &self.0.names;
        for lock in claim.locks {
            watcher::check(&self.0.members, range(lock.as_bytes().to_vec())).await?;
            watcher::check(&self.0.members, names.claims(lock)).await?;
        }
        Ok(())
    }

    /// Writes, reads and deletes what stands beside a lock.
    async fn try_helper_keys(&self, claim: Claim<'_>) -> Result<(), Fault> {
        let names = &self.0.names;
        let patience = self.0.members.patience();
        let Some(lease) = self.0.leases.current(claim.owner) else {
            return Ok(());
        };
        for lock in claim.locks {
            let keys = [
                names.holder(lock, Sharing::Readers, claim.owner),
                names.place(lock, claim.owner),
                names.raise(lock),
            ];
            let put = |key: &Vec<u8>| {
                op(Request::Put(Put {
                    key: key.clone(),
                    lease: lease.id,
                    ..Put::default()
                }))
            };
            let looks = [op(Request::Range(names.claims(lock)))];
            let written = Txn {
                success: keys.iter().map(put).chain(looks).collect(),
                ..Txn::default()
            };
            self.txn(claim.owner, written, patience).await?;
            let deleted = Txn {
                success: keys.into_iter().map(delete).collect(),
                ..Txn::default()
            };
            self.txn(claim.owner, deleted, patience).await?;
        }
        Ok(())
    }
}
