//! Renewals: one call for each hash slot, and all at the same time.
//!
//! The calls for the slots of a node are sent together over its connection for renewals. Each has its own
//! answer: a node that is silent fails the leases that it keeps, and when the time is over the others are
//! answered. When to try again is left to the caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Cluster;
use super::slots::slot_of;
use super::steering::Steering;
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all_until};
use crate::store::redis::Redis;
use crate::store::redis::fault::{Fault, Redirect};
use crate::store::redis::renew::{RenewedKey, RenewedOnce, keys_of, worst};
use crate::store::{Held, Renewed};

/// So many redirections are followed within one renewal.
const REDIRECTIONS: u32 = 4;

impl Cluster {
    pub(super) async fn renew_leases(
        &self,
        leases: &[Held<'_>],
        patience: Duration,
    ) -> Vec<Renewed> {
        // Every key with its slot, and where its answer belongs.
        let mut keys: Vec<(u16, usize, RenewedKey<'_>)> = Vec::new();
        for key in leases.iter().flat_map(keys_of) {
            keys.push((slot_of(key.name), keys.len(), key));
        }
        let mut answers: Vec<Renewed> = keys
            .iter()
            .map(|_| {
                Err(StoreError::in_doubt(format!(
                    "no answer within {patience:?}"
                )))
            })
            .collect();
        keys.sort_by_key(|(slot, index, _)| (*slot, *index));
        let groups: Vec<_> = keys.chunk_by(|left, right| left.0 == right.0).collect();
        let shortened = match leases {
            [lease] if lease.shortens => Some(lease.claim.owner),
            _ => None,
        };
        let renewing = groups.iter().map(|group| {
            let keys: Vec<_> = group.iter().map(|(_, _, key)| *key).collect();
            let slot = group.first().map_or(0, |(slot, ..)| *slot);
            Box::pin(async move {
                match shortened {
                    Some(owner) => self.shorten_in_slot(slot, owner, &keys).await,
                    // A connection that is silent for so long is given up before the time is over, so
                    // that the next try makes another one.
                    None => self.renew_in_slot(slot, &keys, patience * 3 / 4).await,
                }
            }) as Boxed<'_, Vec<RenewedOnce>>
        });
        let bound = match shortened {
            // What becomes of it is to be known, also where it is carried out late.
            Some(_) => self.nodes.request_timeout() * 2,
            None => patience,
        };
        let over = self.nodes.background.sleep_until(Instant::now() + bound);
        let done = all_until(renewing.collect(), over).await;
        for (group, done) in groups.into_iter().zip(done) {
            for ((_, index, _), answer) in group.iter().zip(done.into_iter().flatten()) {
                answers[*index] = answer.map_err(|fault| fault.error);
            }
        }
        let mut answers = answers.into_iter();
        leases
            .iter()
            .map(|lease| worst(answers.by_ref().take(lease.claim.locks.len())))
            .collect()
    }

    async fn renew_in_slot(
        &self,
        slot: u16,
        keys: &[RenewedKey<'_>],
        patience: Duration,
    ) -> Vec<RenewedOnce> {
        let Some(mut node) = self.nodes.of_slot(slot) else {
            drop(self.nodes.refresh());
            let unknown = StoreError::refused("which node keeps the lock is not known yet");
            let fault = Fault::unreachable(unknown);
            return keys.iter().map(|_| Err(fault.clone())).collect();
        };
        let mut answers = node.renew_keys(keys, patience).await;
        for _ in 0..REDIRECTIONS {
            let Some(redirect) = answers.iter().find_map(redirect).cloned() else {
                break;
            };
            let followed = match self.nodes.follow(&redirect, &node) {
                Ok(followed) => followed,
                Err(fault) => return keys.iter().map(|_| Err(fault.clone())).collect(),
            };
            let sent_on = |answer: &RenewedOnce| self::redirect(answer) == Some(&redirect);
            let indices: Vec<_> = (0..keys.len())
                .filter(|index| sent_on(&answers[*index]))
                .collect();
            let moved: Vec<_> = indices.iter().map(|index| keys[*index]).collect();
            let renewed = followed.renew_keys(&moved, patience).await;
            for (index, answer) in indices.into_iter().zip(renewed) {
                answers[index] = answer;
            }
            node = followed;
        }
        if answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .any(Fault::is_steered)
        {
            // The next try may find the node that has taken its place.
            drop(self.nodes.refresh());
        }
        answers
            .into_iter()
            .map(|answer| told(answer, &node))
            .collect()
    }

    async fn shorten_in_slot(
        &self,
        slot: u16,
        owner: &str,
        keys: &[RenewedKey<'_>],
    ) -> Vec<RenewedOnce> {
        let mut deadline = self.deadline();
        let mut steering = Steering::new(&self.nodes, slot);
        loop {
            let node = match steering.next(&mut deadline).await {
                Ok(node) => node,
                Err(fault) => return keys.iter().map(|_| Err(fault.clone())).collect(),
            };
            let answers = node.shorten_keys(owner, keys, &mut deadline).await;
            let steered = |answer: &RenewedOnce| answer.as_ref().is_err_and(Fault::is_steered);
            let Some(failed) = answers.iter().position(steered) else {
                return answers
                    .into_iter()
                    .map(|answer| told(answer, &node))
                    .collect();
            };
            // Each is asked for by the same script, which does it as well the second time.
            if let Some(Err(fault)) = answers.into_iter().nth(failed) {
                steering.failed(node, fault);
            }
        }
    }
}

fn redirect(answer: &RenewedOnce) -> Option<&Redirect> {
    answer.as_ref().err()?.redirect.as_deref()
}

fn told(answer: RenewedOnce, node: &Arc<Redis>) -> RenewedOnce {
    answer.map_err(|fault| fault.of_node(&node.address()))
}
