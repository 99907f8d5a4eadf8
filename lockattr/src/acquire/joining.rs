//! Calls within calls: a call that needs keys which the calls around it hold joins them, instead of
//! waiting for itself. Side by side under one call, such calls take turns.

use std::fmt::Write;

use super::{Call, Context};
use crate::acquisition::{LeaseOptions, LockKeys};
use crate::error::Error;
use crate::lease::{Joint, Lease};
use crate::redaction::Redactor;
use crate::runtime::background::Elapsed;
use crate::runtime::turns::MyTurn;
use crate::store::Sharing;

/// What is said to a call that wants more than the call around it has.
const UPGRADE: &str = "a call around it holds the key as `shared`, and cannot have it alone before that has \
                       ended: leave out `shared` in the call around, or call this one after it";

/// What a call has of the calls around it.
pub(super) enum Joined {
    /// All that it needs.
    All(Lease),
    /// Some; the rest is to be had elsewhere.
    Some(HeldAround),
}

/// Keys that are held around a call.
pub(super) struct HeldAround {
    /// All keys of the call.
    keys: LockKeys,
    joints: Vec<Joint>,
    turns_taken: Vec<MyTurn>,
}

impl HeldAround {
    /// The lease of a call that holds these keys beside the lease's own.
    pub(super) fn beside(self, lease: Lease, options: LeaseOptions) -> Lease {
        lease.joined(self.keys, options, self.joints, self.turns_taken)
    }
}

impl Context {
    /// Joins the calls around, and leaves in the call what they do not hold.
    pub(super) async fn join(
        &self,
        around: &[Lease],
        call: &mut Call,
    ) -> Result<Option<Joined>, Error> {
        let sharing = call.keys.sharing();
        let mut to_join: Vec<(&Lease, Vec<&String>)> = Vec::new();
        let mut missing = Vec::new();
        for lock in call.keys.locks() {
            let how = |lease: &Lease| lease.holds(lock);
            let covers = |lease: &&Lease| how(lease).is_some_and(|held| held.covers(sharing));
            let Some(lease) = around.iter().rev().find(covers) else {
                if sharing.is_alone()
                    && around
                        .iter()
                        .any(|lease| how(lease) == Some(Sharing::Readers))
                {
                    // It would wait for the call that it is a part of.
                    return Err(Error::Invalid {
                        key: call.keys.label().to_owned(),
                        reason: UPGRADE.to_owned(),
                    });
                }
                missing.push(lock.clone());
                continue;
            };
            let known = to_join
                .iter_mut()
                .find(|(known, _)| known.is_same_grant(lease));
            match known {
                Some((_, locks)) => locks.push(lock),
                None => to_join.push((lease, vec![lock])),
            }
        }
        let Some((first, _)) = to_join.first() else {
            return Ok(None);
        };
        let first = first.share();
        // All in one order: two that want the same of them do not wait for each other.
        to_join.sort_by_key(|(lease, _)| lease.grant_address());
        let (mut joints, mut turns_taken) = (Vec::new(), Vec::new());
        for (lease, locks) in to_join {
            turns_taken.push(self.turn_under(lease, call).await?);
            joints.push(lease.joint(&locks));
        }
        if let Some(since) = joints.iter().find_map(Joint::done_since)
            && call.options.once.is_some()
        {
            let key = call.keys.label().to_owned();
            return Err(Error::Done { key, since });
        }
        let keys = call.keys.clone();
        if missing.is_empty() {
            return Ok(Some(Joined::All(first.joined(
                keys,
                call.options,
                joints,
                turns_taken,
            ))));
        }
        call.keys = call.keys.only(|lock| missing.contains(lock));
        Ok(Some(Joined::Some(HeldAround {
            keys,
            joints,
            turns_taken,
        })))
    }

    async fn turn_under(&self, lease: &Lease, call: &Call) -> Result<MyTurn, Error> {
        let background = &self.keeper.background;
        let turn = call
            .clock
            .until(background, call.give_up, lease.turn_under());
        turn.await.map_err(|Elapsed| {
            let key = lease.keys_of_call().label_for(call.keys.redactor());
            self.busy_here(&key, lease.remaining(), lease.acquisition().since())
        })
    }
}

/// Says in a busy error what its call holds itself, redacted where the call is.
pub(super) fn while_holding(
    mut error: Error,
    around: &[Lease],
    redactor: Option<&Redactor>,
) -> Error {
    if let Error::Busy { key, holder, .. } = &mut error {
        let mut held: Vec<_> = around
            .iter()
            .map(|lease| lease.keys_of_call().label_for(redactor))
            .filter(|held| held != key)
            .collect();
        held.dedup();
        if !held.is_empty() {
            let held = held.join("`, `");
            // Writing to a string does not fail.
            let _ = write!(holder, " (waited for while holding `{held}`)");
        }
    }
    error
}
