//! Fencing tokens: the revision of a write to all keys of a lease, which only their holder makes. Where a larger one
//! was asked for, by how much is kept beside the lock, for good.

use super::fault::Fault;
use super::proto::{KeyValue, Put, Request, Txn};
use super::renew::{found_keys, found_of};
use super::wire;
use super::{Etcd, op, range};
use crate::error::StoreError;
use crate::store::{Found, Held, Token};

/// How often a raise is tried that somebody else makes at the same time.
const TRIES: usize = 10;

impl Etcd {
    pub(super) async fn draw_token(&self, held: Held<'_>) -> Result<Token, Fault> {
        Self::check_count(&held.claim)?;
        let patience = self.0.members.patience();
        for _ in 0..TRIES {
            let keys = self.0.names.held(&held);
            let write = |key: &Vec<u8>| {
                op(Request::Put(Put {
                    key: key.clone(),
                    ignore_value: true,
                    ignore_lease: true,
                    ..Put::default()
                }))
            };
            let raises = held.claim.locks.iter().map(|lock| self.0.names.raise(lock));
            let raises: Vec<_> = raises.collect();
            let read = |key: &Vec<u8>| op(Request::Range(range(key.clone())));
            let owner = held.claim.owner;
            let txn = Txn {
                compare: keys
                    .iter()
                    .flat_map(|key| wire::is_by(key, owner))
                    .collect(),
                success: keys
                    .iter()
                    .map(write)
                    .chain(raises.iter().map(read))
                    .collect(),
                failure: keys.iter().map(read).collect(),
            };
            let answer = self.txn(owner, txn, patience).await?.message;
            if !answer.succeeded {
                let keys = found_keys(answer);
                match found_of(keys.iter().map(Option::as_ref), owner) {
                    // It was put back in between.
                    Found::Ours => continue,
                    other => return Ok(Token::NotHeld(other)),
                }
            }
            let revision = answer.header.as_ref().map_or(0, |header| header.revision);
            let revision = u64::try_from(revision).unwrap_or(0);
            let known = found_keys(answer);
            let above = known.iter().map(|kv| kv.as_ref().map_or(Ok(0), raised_by));
            let above = above.collect::<Result<Vec<_>, _>>()?;
            let token = revision + above.into_iter().max().unwrap_or(0);
            if token >= held.at_least {
                return Ok(Token::Drawn(token));
            }
            if self.raise(held, &raises, &known, revision).await? {
                return Ok(Token::Drawn(held.at_least));
            }
        }
        Err(Fault::last(StoreError::refused(
            "others draw tokens of the lock at the same time; ask again",
        )))
    }

    /// Has all later tokens be larger than what is asked for now, unless somebody else was faster.
    async fn raise(
        &self,
        held: Held<'_>,
        raises: &[Vec<u8>],
        known: &[Option<KeyValue>],
        revision: u64,
    ) -> Result<bool, Fault> {
        let unchanged = raises.iter().zip(known).map(|(key, kv)| {
            let written = kv.as_ref().map_or(0, |kv| kv.mod_revision);
            wire::was_written_at(key, written)
        });
        let by = held.at_least - revision;
        let put = |key: &Vec<u8>| {
            op(Request::Put(Put {
                key: key.clone(),
                value: by.to_string().into(),
                ..Put::default()
            }))
        };
        let txn = Txn {
            compare: unchanged.collect(),
            success: raises.iter().map(put).collect(),
            failure: Vec::new(),
        };
        let patience = self.0.members.patience();
        let answer = self.txn(held.claim.owner, txn, patience).await?;
        Ok(answer.message.succeeded)
    }
}

fn raised_by(kv: &KeyValue) -> Result<u64, Fault> {
    let by = std::str::from_utf8(&kv.value)
        .ok()
        .and_then(|text| text.parse().ok());
    by.ok_or_else(|| {
        let key = String::from_utf8_lossy(&kv.key);
        Fault::last(StoreError::refused(format!(
            "`{key}` is to say by how much the tokens of a lock are raised, and has something else: delete it"
        )))
    })
}
