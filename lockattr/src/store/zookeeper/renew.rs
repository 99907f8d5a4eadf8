//! Renewals: a lease lives with its session, so that one that is held here needs no request.

use std::time::{Duration, Instant};

use super::ZooKeeper;
use super::fault::Failure;
use super::protocol::Request;
use super::release::found_in;
use super::session::Life;
use super::step::Step;
use crate::error::StoreError;
use crate::store::{Found, Held, Renewal, Renewed, relied_on_until};

impl ZooKeeper {
    pub(super) async fn renew_all(
        &self,
        leases: &[Held<'_>],
        patience: Duration,
    ) -> Result<Vec<Renewed>, StoreError> {
        let step = Step {
            deadline: Instant::now() + patience.min(self.longest_step()),
            ..self.step()
        };
        // Where it was not heard of lately, it is asked for.
        let is_fresh = self.session.life().is_some_and(|life| life.is_fresh());
        let away = if is_fresh {
            None
        } else {
            step.ask(Request::sync()).await.err()
        };
        let life = match (self.session.life(), away.clone()) {
            (Some(life), _) => life,
            (None, Some(failure)) => return Err(failure.into()),
            (None, None) => step.life().await?,
        };
        let mut answers = Vec::with_capacity(leases.len());
        for lease in leases {
            answers.push(self.renew_one(&step, *lease, life, away.as_ref()).await);
        }
        Ok(answers)
    }

    /// While no server can be asked, a lease is relied on for as long as the session is. Then there is nothing
    /// more to be had.
    async fn renew_one(
        &self,
        step: &Step<'_>,
        lease: Held<'_>,
        life: Life,
        away: Option<&Failure>,
    ) -> Renewed {
        let claim = lease.claim;
        let claims = self.session.claims();
        let is_here = claims.get(claim.owner).is_some_and(|(nodes, is_held)| {
            let is_of = |lock: &String, place: &String| {
                let node = step.lock_node(lock);
                place
                    .strip_prefix(&node)
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            let mut each = claim.locks.iter().zip(&nodes.places);
            is_held
                && nodes.session == life.session
                && nodes.slot == lease.slot
                && nodes.places.len() == claim.locks.len()
                && each.all(|(lock, place)| is_of(lock, place))
        });
        if is_here && claim.ttl > life.timeout {
            return Err(StoreError::invalid(format!(
                "a ttl of {:?} is longer than the session of this client, which is {:?}",
                claim.ttl, life.timeout
            )));
        }
        let now = Instant::now();
        let until = relied_on_until(now, claim.ttl).min(life.until());
        let renewed = is_here
            .then(|| claims.renew(claim.owner, now + claim.ttl, lease.shortens, until))
            .flatten();
        match (renewed, away) {
            (Some(true), _) | (Some(false), None) => return Ok(Renewal::Until(until)),
            (_, Some(failure)) => return Err(failure.clone().into()),
            (None, None) => {}
        }
        Ok(self.what_became_of(step, lease).await?)
    }

    /// Who stands where a lease was that is not held any more.
    async fn what_became_of(&self, step: &Step<'_>, lease: Held<'_>) -> Result<Renewal, Failure> {
        for lock in lease.claim.locks {
            let listing = step.list(lock).await?;
            if found_in(&listing, lease.claim) == Found::Another || listing.foreign.is_some() {
                return Ok(Renewal::Taken);
            }
        }
        Ok(Renewal::Gone)
    }
}
