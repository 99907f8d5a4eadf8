//! Locks in etcd.
//!
//! A lock is a key under a lease of etcd's, written by a transaction that finds it free: see [`wire`] for the keys,
//! [`leases`] for the leases. Those who wait stand in a queue of keys, in the order in which those were created,
//! and each of them is told by a watch of the key before it ([`wakeups`], [`watcher`]). Readers, and holders of some of
//! the permits, have a key each beside the lock, in one range with the queue ([`view`]). A fencing token is the
//! revision of a write that its holder alone can make.
//!
//! What this survives: whatever etcd does. A lock is held by whoever a majority of the members says, and a lease is
//! over when the majority's leader says so; a member, the leader or the client's connections may go at any time.
//! Without a majority nothing is granted, and leases end at their deadline here and stay in etcd until a majority
//! is there again. The clocks of the members do not matter, as long as they run at the speed of ours, within a
//! hundredth.
//! What it does not survive: data that is taken back, as by a snapshot that is restored; tokens may be drawn a
//! second time then, since revisions are. Nor, before etcd 3.4.31 and 3.5.13, a leader that stood still for longer than
//! a lease: it may propose to end it when it comes back, and the next leader does.
//!
//! Each step has a file. All connections are driven on the client's own thread, so that no application holds up a
//! renewal, and clients outlive runtimes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::fault::Fault;
use self::keep_alives::KeepAlives;
use self::leases::{LeaseRef, Leases};
use self::members::{Answer, Members, Patience, REVOKE, TXN};
use self::proto::{LeaseGrant, LeaseGranted, LeaseId, Nothing, Op, Range, Request, Txn, TxnAnswer};
use self::wakeups::Waiting;
use self::wire::Names;
use super::{
    Acquired, Attempt, Claim, Found, Held, Limits, Listed, Release, Renewal, Renewed, Reply, Store,
    Token, WakeUps,
};
use crate::error::{Error, StoreError};
use crate::runtime::background::Background;

mod acquire;
mod check;
#[cfg(test)]
mod conformance;
mod endpoint;
mod fault;
#[cfg(feature = "inspect")]
mod inspect;
mod keep_alives;
mod leases;
mod login;
mod members;
mod met;
mod proto;
mod release;
mod renew;
mod settled;
mod standing;
mod take_over;
mod token;
mod url;
mod view;
mod wakeups;
mod watcher;
mod wire;

pub(crate) use endpoint::Settings;
pub(crate) use url::location;

/// The shortest ttl: below it nothing is left for a second try of a renewal.
const SHORTEST_TTL: Duration = Duration::from_millis(500);

/// How much longer an answer may take than it is waited for, on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// The most keys of one transaction. Each may take three operations, where a claim that may stand in a queue is given
/// back, or goes from one queue to another, which has two more: `--max-txn-ops` is 128 unless set.
const MOST_KEYS: usize = 42;

#[derive(Clone, Debug)]
pub(crate) struct Etcd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    names: Names,
    members: Members,
    keep_alives: KeepAlives,
    leases: Leases,
    waiting: Waiting,
}

impl Etcd {
    pub(crate) fn new(settings: Settings, background: &Background) -> Result<Self, Error> {
        let names = Names::new(&settings.prefix);
        let members = settings.members(background)?;
        let (waiting, orders) = Waiting::new();
        background.spawn(watcher::run(members.clone(), waiting.watched(), orders));
        Ok(Self(Arc::new(Inner {
            names,
            keep_alives: KeepAlives::new(&members),
            members,
            leases: Leases::default(),
            waiting,
        })))
    }

    /// Asks for a transaction in the name of an owner.
    async fn txn(
        &self,
        owner: &str,
        txn: Txn,
        patience: Patience,
    ) -> Result<Answer<TxnAnswer>, Fault> {
        let done = self.0.leases.sends(owner);
        self.0.members.call(TXN, txn, patience, done).await
    }

    /// Has etcd grant a lease to an owner, which is its current one then.
    async fn grant(
        &self,
        owner: &str,
        seconds: u64,
        patience: Patience,
    ) -> Result<LeaseRef, Fault> {
        loop {
            let id = leases::new_id().map_err(Fault::last)?;
            let lease = LeaseRef {
                id,
                length: Duration::from_secs(seconds),
                since: Instant::now(),
            };
            // It is known before it is asked for, so that whoever gives back the owner's keys can revoke it.
            self.0.leases.add(owner, lease);
            let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
            let request = LeaseGrant { ttl, id };
            let done = self.0.leases.sends(owner);
            let once = Patience {
                deadline: patience.deadline.min(Instant::now() + patience.each),
                ..patience
            };
            let granted = self.0.members.call(members::GRANT, request, once, done);
            let granted: Result<Answer<LeaseGranted>, Fault> = granted.await;
            match granted {
                Ok(Answer { message, .. }) if message.error.is_empty() && message.ttl > 0 => {
                    let length = message.ttl.unsigned_abs();
                    self.0
                        .leases
                        .granted(owner, id, Duration::from_secs(length));
                    return Ok(LeaseRef {
                        length: Duration::from_secs(length),
                        ..lease
                    });
                }
                Ok(_) => return Err(Fault::nonsense("a lease that was not granted")),
                // A second request for the same id might be carried out after the lease was revoked.
                Err(fault) if fault.error.is_in_doubt() && Instant::now() < patience.deadline => {
                    self.0.leases.remove(owner, id);
                }
                Err(fault) => {
                    self.0.leases.remove(owner, id);
                    return Err(fault);
                }
            }
        }
    }

    /// Ends a lease, and with it whatever is under it or would come under it late.
    async fn revoke(&self, owner: &str, id: i64, patience: Patience) -> Result<(), Fault> {
        let request = LeaseId { id };
        let revoked = self.0.members.call(REVOKE, request, patience, drop);
        let revoked: Result<Answer<Nothing>, Fault> = revoked.await;
        match revoked {
            Err(fault) if fault.kind != fault::Kind::NoLease => Err(fault),
            _ => {
                self.0.leases.remove(owner, id);
                Ok(())
            }
        }
    }

    /// The same while nobody waits for it.
    fn revoke_later(&self, owner: &str, leases: Vec<LeaseRef>) {
        for lease in leases {
            let (etcd, owner) = (self.clone(), owner.to_owned());
            let patience = self.0.members.patience();
            self.0.members.background().spawn(async move {
                // Where this fails, it ends by itself.
                let _ = etcd.revoke(&owner, lease.id, patience).await;
            });
        }
    }

    /// Whether a claim has more keys than one transaction takes.
    fn check_count(claim: &Claim<'_>) -> Result<(), Fault> {
        if claim.locks.len() <= MOST_KEYS {
            return Ok(());
        }
        Err(Fault::last(StoreError::invalid(format!(
            "etcd takes at most {MOST_KEYS} keys in one step, not {}",
            claim.locks.len()
        ))))
    }
}

impl Store for Etcd {
    fn limits(&self) -> Limits {
        Limits::default()
            .shortest_ttl(SHORTEST_TTL)
            .most_permits(u32::MAX)
            .weights(true)
            .shared(true)
            .hand_off(true)
            .longest_answer(self.0.members.timeouts().step() + SLACK)
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(async move { self.check_rights(claim).await.map_err(Fault::told) })
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(async move {
            let acquired = self.acquire_locks(claim, attempt).await;
            acquired.map_err(Fault::told)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(self.renew_leases(leases, patience).await) })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(async move {
            let released = self.release_locks(claim, release).await;
            released.map_err(Fault::told)
        })
    }

    fn take_over<'a>(&'a self, lease: Held<'a>, new_owner: &'a str) -> Reply<'a, Renewal> {
        Box::pin(async move {
            let taken = self.take_lease_over(lease, new_owner).await;
            taken.map_err(Fault::told)
        })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(async move { self.draw_token(lease).await.map_err(Fault::told) })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        Box::new(self.0.waiting.listen(claim.owner))
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(self.settle(owner))
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        Box::pin(async move { self.standing(lock).await.map_err(Fault::told) })
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        Some(self)
    }
}

fn range(key: Vec<u8>) -> Range {
    let range_end = Vec::new();
    Range { key, range_end }
}

fn op(request: Request) -> Op {
    let request = Some(request);
    Op { request }
}
