//! Renewals: a keep-alive for each lease, and then one look at all of their keys, which says that they are held
//! still, and that it was the leader who has kept the leases alive.
//!
//! A lease of etcd's runs for as long as it was granted for, whenever it runs anew. A ttl that is longer, or one that
//! is to be shorter, needs another lease, under which the keys are put in one step.

use std::time::Instant;

use super::acquire::delete;
use super::fault::{Fault, Kind};
use super::keep_alives::Kept;
use super::leases::{self, LeaseRef};
use super::members::Patience;
use super::proto::{KeyValue, Op, Put, Request, Response, Txn, TxnAnswer};
use super::wire::{self, Stored, claimed};
use super::{Etcd, op, range};
use crate::error::StoreError;
use crate::store::{Claim, Found, Held, Renewal, Renewed, relied_on, relied_on_until};

/// The most keys that are looked at in one step.
const MOST_LOOKS: usize = 128;

/// What is known of one lease while it is renewed.
struct Renewing<'a> {
    held: Held<'a>,
    keys: Vec<Vec<u8>>,
    sent: Instant,
    kept: Vec<(LeaseRef, Result<Kept, Fault>)>,
    found: Result<Look, Fault>,
}

/// What a look has found.
#[derive(Default)]
struct Look {
    keys: Vec<Option<KeyValue>>,
    term: u64,
}

/// What comes of a renewal at first.
enum Outcome {
    Is(Renewal),
    /// It is under a lease that nobody knew of.
    Unknown(i64),
    /// It has to be put under another one.
    Moves,
}

impl Etcd {
    pub(super) async fn renew_leases(
        &self,
        leases: &[Held<'_>],
        patience: std::time::Duration,
    ) -> Vec<Renewed> {
        let patience = Patience {
            deadline: Instant::now() + patience,
            each: (patience / 2).min(self.0.members.timeouts().reply),
        };
        let renewed = self.renew_all(leases, patience).await;
        renewed
            .into_iter()
            .map(|one| one.map_err(Fault::told))
            .collect()
    }

    pub(super) async fn renew_all(
        &self,
        leases: &[Held<'_>],
        patience: Patience,
    ) -> Vec<Result<Renewal, Fault>> {
        let mut answers = Vec::with_capacity(leases.len());
        for (held, outcome) in leases.iter().zip(self.renew_once(leases, patience).await) {
            let answer = match outcome {
                Ok(Outcome::Is(renewal)) => Ok(renewal),
                Ok(Outcome::Moves) => self.move_to_another(*held, patience).await,
                Ok(Outcome::Unknown(id)) => self.renew_unknown(*held, id, patience).await,
                Err(fault) => Err(fault),
            };
            answers.push(answer);
        }
        answers
    }

    async fn renew_once(
        &self,
        leases: &[Held<'_>],
        patience: Patience,
    ) -> Vec<Result<Outcome, Fault>> {
        let sent = Instant::now();
        let by = patience.deadline.min(sent + patience.each);
        // All of them are on their way before the first is waited for.
        let asked: Vec<_> = leases
            .iter()
            .map(|held| {
                let known = self.0.leases.all(held.claim.owner).into_iter();
                known
                    .map(|lease| (lease, self.0.keep_alives.ask(lease.id, by)))
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut renewing = Vec::with_capacity(leases.len());
        for (held, asked) in leases.iter().zip(asked) {
            let mut kept = Vec::with_capacity(asked.len());
            for (lease, answer) in asked {
                kept.push((lease, answer.await));
            }
            renewing.push(Renewing {
                held: *held,
                keys: self.0.names.held(held),
                sent,
                kept,
                found: Ok(Look::default()),
            });
        }
        self.look_all(&mut renewing, patience).await;
        renewing.into_iter().map(|one| self.outcome(one)).collect()
    }

    /// Looks at the keys of all, in as few steps as they fit into.
    async fn look_all(&self, renewing: &mut [Renewing<'_>], patience: Patience) {
        let mut looks = Vec::new();
        let mut from = 0;
        while from < renewing.len() {
            let mut keys = Vec::new();
            let mut to = from;
            while let Some(next) = renewing.get(to)
                && (to == from || keys.len() + next.keys.len() <= MOST_LOOKS)
            {
                keys.extend(next.keys.iter().cloned());
                to += 1;
            }
            looks.push((from..to, self.look(keys, patience)));
            from = to;
        }
        for (these, look) in looks {
            let look = look.await;
            let mut keys = look
                .as_ref()
                .map_or(&[][..], |look| &look.keys[..])
                .iter()
                .cloned();
            for one in &mut renewing[these] {
                one.found = match &look {
                    Ok(Look { term, .. }) => Ok(Look {
                        keys: keys.by_ref().take(one.keys.len()).collect(),
                        term: *term,
                    }),
                    Err(fault) => Err(fault.clone()),
                };
            }
        }
    }

    /// What stands under these keys. It is asked for when this returns.
    fn look(
        &self,
        keys: Vec<Vec<u8>>,
        patience: Patience,
    ) -> impl Future<Output = Result<Look, Fault>> + Send + use<> {
        let ranges = keys.into_iter().map(|key| op(Request::Range(range(key))));
        let txn = Txn {
            success: ranges.collect(),
            ..Txn::default()
        };
        let asking = self.0.members.call(super::TXN, txn, patience, drop);
        async move {
            let answer: super::Answer<TxnAnswer> = asking.await?;
            let term = answer
                .message
                .header
                .as_ref()
                .map_or(0, |header| header.raft_term);
            let keys = found_keys(answer.message);
            Ok(Look { keys, term })
        }
    }

    fn outcome(&self, renewing: Renewing<'_>) -> Result<Outcome, Fault> {
        let Renewing {
            held,
            sent,
            kept,
            found,
            ..
        } = renewing;
        let Look { keys, term } = found?;
        let claim = held.claim;
        let found = found_of(keys.iter().map(Option::as_ref), claim.owner);
        if found != Found::Ours {
            self.leave_place(&claim);
        }
        match found {
            Found::Nothing => return Ok(Outcome::Is(Renewal::Gone)),
            Found::Another => return Ok(Outcome::Is(Renewal::Taken)),
            Found::Ours => {}
        }
        let mut lengths = Vec::new();
        for key in keys.iter().flatten() {
            let known = kept.iter().find(|(lease, _)| lease.id == key.lease);
            let Some((lease, answer)) = known else {
                return Ok(Outcome::Unknown(key.lease));
            };
            match answer {
                Ok(kept) if kept.ttl.is_zero() => {
                    return Err(Fault::last(StoreError::refused(
                        "the lease has ended, and its key is about to go",
                    )));
                }
                Ok(kept) if kept.term != term || term == 0 => {
                    return Err(Fault {
                        error: StoreError::in_doubt(
                            "etcd has changed its leader while a lease was renewed",
                        ),
                        kind: Kind::Away,
                    });
                }
                Ok(kept) => {
                    self.0.leases.renewed(claim.owner, lease.id, kept.sent);
                    lengths.push(kept.ttl);
                }
                Err(fault) => return Err(fault.clone()),
            }
        }
        let shortest = lengths.iter().min().copied().unwrap_or_default();
        let longest = lengths.iter().max().copied().unwrap_or_default();
        let is_too_long = held.shortens && longest.as_secs() > leases::seconds(claim.ttl);
        if is_too_long || relied_on(shortest) < claim.ttl {
            return Ok(Outcome::Moves);
        }
        Ok(Outcome::Is(Renewal::Until(relied_on_until(
            sent, claim.ttl,
        ))))
    }

    /// The place that a claim has kept while it holds its lock.
    fn places_of(&self, claim: &Claim<'_>) -> Option<Op> {
        let place = self.0.leases.place(claim.owner)?;
        let lock = claim.locks.get(place.lock)?;
        Some(delete(self.0.names.place(lock, claim.owner)))
    }

    /// A lease was lost: its place is in the way of those who wait, and nobody waits for this.
    fn leave_place(&self, claim: &Claim<'_>) {
        let Some(place) = self.places_of(claim) else {
            return;
        };
        let txn = Txn {
            success: vec![place],
            ..Txn::default()
        };
        let done = self.0.leases.sends(claim.owner);
        let patience = self.0.members.patience();
        let asking = self
            .0
            .members
            .call::<_, TxnAnswer, _>(super::TXN, txn, patience, done);
        // It is asked for; where that fails, the place ends with its lease.
        drop(asking);
    }

    /// Renews what stands under a lease of which this client knows nothing.
    async fn renew_unknown(
        &self,
        held: Held<'_>,
        id: i64,
        patience: Patience,
    ) -> Result<Renewal, Fault> {
        let unknown = LeaseRef {
            id,
            length: held.claim.ttl,
            since: Instant::now(),
        };
        self.0.leases.add(held.claim.owner, unknown);
        match self.renew_once(&[held], patience).await.pop() {
            Some(Ok(Outcome::Is(renewal))) => Ok(renewal),
            Some(Ok(Outcome::Moves)) => self.move_to_another(held, patience).await,
            Some(Err(fault)) => Err(fault),
            Some(Ok(Outcome::Unknown(_))) | None => Err(Fault::last(StoreError::refused(
                "somebody else puts the lock under other leases",
            ))),
        }
    }

    /// Puts what is held under a new lease, whose length fits the ttl.
    async fn move_to_another(&self, held: Held<'_>, patience: Patience) -> Result<Renewal, Fault> {
        let claim = held.claim;
        let seconds = leases::seconds(claim.ttl);
        let before = self.0.leases.current(claim.owner);
        let lease = self.grant(claim.owner, seconds, patience).await?;
        let keys = self.0.names.held(&held);
        let put = |key: &Vec<u8>| {
            op(Request::Put(Put {
                key: key.clone(),
                value: claimed(&claim),
                lease: lease.id,
                ..Put::default()
            }))
        };
        // Whoever comes next waits for the lock itself then.
        let places = self.places_of(&claim);
        let txn = Txn {
            compare: keys
                .iter()
                .flat_map(|key| wire::is_by(key, claim.owner))
                .collect(),
            success: keys.iter().map(put).chain(places).collect(),
            failure: keys
                .iter()
                .map(|key| op(Request::Range(range(key.clone()))))
                .collect(),
        };
        // Where this is not answered, both leases are kept alive until it is known which it is.
        let answer = match self.txn(claim.owner, txn, patience).await {
            Ok(answer) => answer,
            Err(fault) => {
                if !fault.error.is_in_doubt() {
                    self.0.leases.remove(claim.owner, lease.id);
                    self.revoke_later(claim.owner, vec![lease]);
                }
                return Err(fault);
            }
        };
        if answer.message.succeeded {
            let left = if answer.in_doubt {
                Vec::new()
            } else {
                self.0.leases.moved(claim.owner, lease.id)
            };
            self.revoke_later(claim.owner, left);
            self.0.leases.set_place(claim.owner, None);
            return Ok(Renewal::Until(relied_on_until(lease.since, claim.ttl)));
        }
        self.revoke_later(claim.owner, vec![lease]);
        let keys = found_keys(answer.message);
        match found_of(keys.iter().map(Option::as_ref), claim.owner) {
            Found::Nothing => Ok(Renewal::Gone),
            Found::Another => Ok(Renewal::Taken),
            // It was put back in between.
            Found::Ours => Err(Fault::last(StoreError::refused(format!(
                "the lock has changed while it was renewed; its lease is {before:?}"
            )))),
        }
    }
}

/// The key of each range.
pub(super) fn found_keys(answer: TxnAnswer) -> Vec<Option<KeyValue>> {
    let ranges = answer
        .responses
        .into_iter()
        .filter_map(|one| match one.response {
            Some(Response::Range(range)) => Some(range.kvs.into_iter().next()),
            _ => None,
        });
    ranges.collect()
}

/// Of what stands under several keys, what it comes to for an owner that is to hold all of them.
pub(super) fn found_of<'a>(keys: impl Iterator<Item = Option<&'a KeyValue>>, owner: &str) -> Found {
    let mut worst = Found::Ours;
    for key in keys {
        match key {
            Some(kv) if Stored::read(kv).is_by(owner) => {}
            Some(_) => return Found::Another,
            None => worst = Found::Nothing,
        }
    }
    worst
}
