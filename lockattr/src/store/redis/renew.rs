//! Renewing: the keys of many leases in one call of `renew.lua`, over a connection of its own.
//!
//! A key that cannot be renewed fails its own lease and no other. Where the server refuses a whole call
//! for one of its keys, as an ACL or a cluster does, that key is found by bisection. A failed renewal is
//! not repeated here: when to try again is left to the caller.

use std::pin::Pin;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::fault::{Fault, RetryWith};
use super::reply::each;
use super::script::Form;
use super::timeouts::Deadline;
use super::tracking::TrackedKey;
use super::{Redis, millis};
use crate::error::StoreError;
use crate::runtime::together::all;
use crate::store::{Claim, Found, Held, Renewal, Renewed, relied_on_until};

/// One key of a lease that is to be renewed.
#[derive(Clone, Copy)]
pub(super) struct RenewedKey<'a> {
    pub(super) name: &'a str,
    pub(super) owner: &'a str,
    pub(super) ttl: Duration,
    /// Whether less may be left of it by this.
    pub(super) shortens: bool,
    /// Whether nobody may hold it beside the owner.
    pub(super) alone: bool,
}

/// What was found of one key, or why nothing was.
pub(super) type RenewedOnce = Result<Renewal, Fault>;

impl Redis {
    pub(super) async fn renew_leases(
        &self,
        leases: &[Held<'_>],
        patience: Duration,
    ) -> Vec<Renewed> {
        let keys: Vec<_> = leases.iter().flat_map(keys_of).collect();
        let answers = match leases {
            // What becomes of it is to be known, also where it is carried out late.
            [lease] if lease.shortens => {
                let mut deadline = self.deadline();
                let owner = lease.claim.owner;
                self.shorten_keys(owner, &keys, &mut deadline).await
            }
            _ => self.renew_keys(&keys, patience).await,
        };
        let mut answers = answers.into_iter().map(|one| one.map_err(Fault::told));
        leases
            .iter()
            .map(|lease| worst(answers.by_ref().take(lease.claim.locks.len())))
            .collect()
    }

    pub(super) async fn shorten_keys(
        &self,
        owner: &str,
        keys: &[RenewedKey<'_>],
        deadline: &mut Deadline<'_>,
    ) -> Vec<RenewedOnce> {
        let call = |form: Form<'_>| Self::renew_call(form, keys);
        let renew = &self.scripts.renew;
        let answer = match renew
            .run_for(owner, &self.connections, call, deadline)
            .await
        {
            Ok((answer, sent)) => {
                renewed(&answer, keys, sent).ok_or_else(|| self.protocol_error(&answer))
            }
            Err(fault) => Err(fault),
        };
        answer.unwrap_or_else(|fault| keys.iter().map(|_| Err(fault.clone())).collect())
    }

    /// Renews all keys in one call, or each half of them where that is refused for one key.
    pub(super) fn renew_keys<'a>(
        &'a self,
        keys: &'a [RenewedKey<'a>],
        patience: Duration,
    ) -> Pin<Box<dyn Future<Output = Vec<RenewedOnce>> + Send + 'a>> {
        Box::pin(async move {
            match self.renew_together(keys, patience).await {
                Ok(each) => {
                    if each
                        .iter()
                        .any(|one| one.as_ref().is_err_and(Fault::is_transient))
                    {
                        self.watchdog.discard_any();
                    }
                    each
                }
                Err(fault) if fault.retry == Some(RetryWith::FewerKeys) && keys.len() > 1 => {
                    let (left, right) = keys.split_at(keys.len() / 2);
                    let halves = [left, right].map(|half| self.renew_keys(half, patience));
                    all(halves.into()).await.into_iter().flatten().collect()
                }
                Err(fault) => keys.iter().map(|_| Err(fault.clone())).collect(),
            }
        })
    }

    async fn renew_together(
        &self,
        keys: &[RenewedKey<'_>],
        patience: Duration,
    ) -> Result<Vec<RenewedOnce>, Fault> {
        let call = |form: Form<'_>| Self::renew_call(form, keys);
        let renew = &self.scripts.renew;
        let (answer, sent) = renew
            .run_by_watchdog(&self.watchdog, call, patience)
            .await?;
        let renewed = renewed(&answer, keys, sent).ok_or_else(|| {
            self.watchdog.discard_any();
            Fault::protocol_error(&answer)
        })?;
        if !self.is_asking() {
            let is_ours = |one: &RenewedOnce| matches!(one, Ok(Renewal::Until(_)));
            let ours = keys.iter().zip(&renewed).filter(|(_, one)| is_ours(one));
            let tracked = ours.filter_map(|(key, _)| TrackedKey::of(key));
            self.tracking.track(&self.watchdog, tracked.collect());
        }
        Ok(renewed)
    }

    pub(super) fn renew_call(form: Form<'_>, keys: &[RenewedKey<'_>]) -> Cmd {
        let names: Vec<_> = keys.iter().map(|key| key.name).collect();
        let mut command = form.call(&names, &[]);
        for key in keys {
            command.arg(key.owner);
            let ttl = millis(key.ttl);
            match (key.shortens, key.alone) {
                (false, true) => command.arg(ttl),
                (true, true) => command.arg(format!("={ttl}")),
                (false, false) => command.arg(format!("{ttl}+")),
                (true, false) => command.arg(format!("={ttl}+")),
            };
        }
        command
    }
}

pub(super) fn keys_of<'a>(lease: &Held<'a>) -> impl Iterator<Item = RenewedKey<'a>> + use<'a> {
    let Claim {
        owner, ttl, locks, ..
    } = lease.claim;
    let (shortens, alone) = (lease.shortens, lease.claim.sharing().is_alone());
    locks.iter().map(move |name| RenewedKey {
        name,
        owner,
        ttl,
        shortens,
        alone,
    })
}

/// What was answered for each key.
fn renewed(answer: &Value, keys: &[RenewedKey<'_>], sent: Instant) -> Option<Vec<RenewedOnce>> {
    let renewal = |(key, found): (&RenewedKey<'_>, Result<Found, Fault>)| {
        found.map(|found| match found {
            Found::Ours => Renewal::Until(relied_on_until(sent, key.ttl)),
            Found::Nothing => Renewal::Gone,
            Found::Another => Renewal::Taken,
        })
    };
    let found = each(answer, keys.len())?;
    Some(keys.iter().zip(found).map(renewal).collect())
}

/// A lease of several keys is as good as the worst of them: lost where one is known to be, however
/// little is known of the others; and renewed only where all are.
pub(super) fn worst(answers: impl Iterator<Item = Renewed>) -> Renewed {
    let worst = answers.reduce(|left, right| match (left, right) {
        (lost @ Ok(Renewal::Gone | Renewal::Taken), _)
        | (_, lost @ Ok(Renewal::Gone | Renewal::Taken)) => lost,
        // For the other key it was done.
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(StoreError::in_doubt(error.to_string())),
        (failed @ Err(_), Err(_)) => failed,
        (Ok(Renewal::Until(left)), Ok(Renewal::Until(right))) => {
            Ok(Renewal::Until(left.min(right)))
        }
    });
    worst.unwrap_or_else(|| Err(StoreError::refused("a lease of no locks was to be renewed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_several_keys_is_as_good_as_the_worst_of_them() {
        let early = Instant::now();
        let late = early + Duration::from_secs(1);
        let until = |at| Ok(Renewal::Until(at));
        let failed = || Err(StoreError::refused("no"));
        let of = |answers: Vec<Renewed>| worst(answers.into_iter());
        assert_eq!(
            of(vec![until(late), until(early)]).unwrap(),
            Renewal::Until(early)
        );
        assert!(of(vec![until(late), failed(), until(late)]).is_err());
        for lost in [Renewal::Gone, Renewal::Taken] {
            assert_eq!(of(vec![failed(), until(early), Ok(lost)]).unwrap(), lost);
            assert_eq!(of(vec![Ok(lost), failed()]).unwrap(), lost);
        }
        assert!(of(Vec::new()).is_err());
    }
}
