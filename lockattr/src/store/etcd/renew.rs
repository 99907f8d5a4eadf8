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

/// How often a move is tried that something else comes before.
const MOVES: usize = 3;

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
    /// It has to be put under another one, as it was found.
    Moves(Vec<KeyValue>),
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
        let known = leases.iter().map(|held| {
            let under = self.0.leases.all(held.claim.owner);
            (*held, under)
        });
        let known: Vec<_> = known.collect();
        let mut answers = Vec::with_capacity(leases.len());
        for (held, outcome) in leases.iter().zip(self.renew_under(&known, patience).await) {
            let answer = match outcome {
                Ok(Outcome::Is(renewal)) => Ok(renewal),
                Ok(Outcome::Moves(found)) => self.move_to_another(*held, found, patience).await,
                Ok(Outcome::Unknown(id)) => self.renew_unknown(*held, id, patience).await,
                Err(fault) => Err(fault),
            };
            answers.push(answer);
        }
        answers
    }

    /// Renews each with the leases that its keys may be under.
    async fn renew_under(
        &self,
        leases: &[(Held<'_>, Vec<LeaseRef>)],
        patience: Patience,
    ) -> Vec<Result<Outcome, Fault>> {
        let sent = Instant::now();
        let by = patience.deadline.min(sent + patience.each);
        // All of them are on their way before the first is waited for.
        let ask = |lease: &LeaseRef| (*lease, self.0.keep_alives.ask(lease.id, by));
        let asked = leases
            .iter()
            .map(|(_, under)| under.iter().map(ask).collect::<Vec<_>>());
        let asked: Vec<_> = asked.collect();
        let mut renewing = Vec::with_capacity(leases.len());
        for ((held, _), asked) in leases.iter().zip(asked) {
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
            let found = keys.into_iter().flatten().collect();
            return Ok(Outcome::Moves(found));
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

    /// Renews what stands under a lease of which this client knows nothing: it is of another one, or was given back
    /// meanwhile and serves another claim, which must not be touched.
    async fn renew_unknown(
        &self,
        held: Held<'_>,
        id: i64,
        patience: Patience,
    ) -> Result<Renewal, Fault> {
        let lease = LeaseRef {
            id,
            length: held.claim.ttl,
            since: Instant::now(),
        };
        let renewed = self.renew_under(&[(held, vec![lease])], patience).await;
        match renewed.into_iter().next() {
            Some(Ok(Outcome::Is(renewal))) => Ok(renewal),
            Some(Ok(Outcome::Moves(found))) => self.move_to_another(held, found, patience).await,
            Some(Err(fault)) => Err(fault),
            Some(Ok(Outcome::Unknown(_))) | None => Err(Fault::last(StoreError::refused(
                "somebody else puts the lock under other leases",
            ))),
        }
    }

    /// Puts what is held under a new lease, whose length fits the ttl; as it was found, so that a request which is
    /// carried out late, after another one has moved the keys again, does nothing.
    async fn move_to_another(
        &self,
        held: Held<'_>,
        mut found: Vec<KeyValue>,
        patience: Patience,
    ) -> Result<Renewal, Fault> {
        let claim = held.claim;
        let seconds = leases::seconds(claim.ttl);
        let lease = self.grant(claim.owner, seconds, patience).await?;
        for _ in 0..MOVES {
            let put = |kv: &KeyValue| {
                op(Request::Put(Put {
                    key: kv.key.clone(),
                    value: renewed(&claim, kv),
                    lease: lease.id,
                    ..Put::default()
                }))
            };
            let unchanged = |kv: &KeyValue| wire::was_written_at(&kv.key, kv.mod_revision);
            let look = |kv: &KeyValue| op(Request::Range(range(kv.key.clone())));
            // Whoever comes next waits for the lock itself then.
            let places = self.places_of(&claim);
            let txn = Txn {
                compare: found.iter().map(unchanged).collect(),
                success: found.iter().map(put).chain(places).collect(),
                failure: found.iter().map(look).collect(),
            };
            // Where this is not answered, both leases are kept alive until it is known which it is.
            let answer = match self.txn(claim.owner, txn, patience).await {
                Ok(answer) => answer.message,
                Err(fault) if fault.error.is_in_doubt() => return Err(fault),
                Err(fault) => {
                    self.revoke_later(claim.owner, vec![lease]);
                    return Err(fault);
                }
            };
            let succeeded = answer.succeeded;
            let keys = found_keys(answer);
            // A first try may have done it that was not answered.
            let is_done = succeeded || keys.iter().flatten().all(|kv| kv.lease == lease.id);
            match found_of(keys.iter().map(Option::as_ref), claim.owner) {
                Found::Ours if is_done => {
                    let left = self.0.leases.moved(claim.owner, lease.id);
                    self.revoke_later(claim.owner, left);
                    self.0.leases.set_place(claim.owner, None);
                    return Ok(Renewal::Until(relied_on_until(lease.since, claim.ttl)));
                }
                // It was written in between: a token was drawn.
                Found::Ours => found = keys.into_iter().flatten().collect(),
                lost => {
                    self.revoke_later(claim.owner, vec![lease]);
                    return Ok(if lost == Found::Nothing {
                        Renewal::Gone
                    } else {
                        Renewal::Taken
                    });
                }
            }
        }
        self.revoke_later(claim.owner, vec![lease]);
        Err(Fault::last(StoreError::refused(
            "the lock changes faster than it can be renewed",
        )))
    }
}

/// What is to be written for a claim in place of what it has there, for its ttl of now.
fn renewed(claim: &Claim<'_>, kv: &KeyValue) -> Vec<u8> {
    match Stored::read(kv) {
        Stored::Claimed { slot, since, .. } => claimed(claim, slot, since),
        Stored::Done { .. } | Stored::Foreign(_) => claimed(claim, 0, None),
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
