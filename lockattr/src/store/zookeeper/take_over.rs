//! Owners that take over from others: the node of a place goes with its session, so another one stands in the place of
//! it, of the session of the new owner and with the same number.

use std::time::{Instant, SystemTime};

use super::ZooKeeper;
use super::acquire::{LONGEST_REQUEST, has_slots, list_all, too_long, too_many};
use super::claims::Nodes;
use super::fault::Failure;
use super::listing::{Listing, server_time};
use super::names::{self, Place};
use super::protocol::{Code, NodeKind, Request, done_together};
use super::release::found_in;
use super::step::{Step, TRIES, restless};
use crate::error::StoreError;
use crate::store::{Claim, Found, Held, Renewal, relied_on_until};

/// What a try has come to; nothing where others have changed what was looked at.
type Outcome = Result<Option<Renewal>, StoreError>;

/// What is to be done of one lock.
enum Inheritance {
    /// The place at this node is the new owner's once the requests are done; none are, where it was done before.
    Heir(String, Vec<Request>),
    NotHeld,
    /// It has changed since it was listed.
    Changed,
}

impl ZooKeeper {
    pub(super) async fn replace(
        &self,
        lease: Held<'_>,
        new_owner: &str,
    ) -> Result<Renewal, StoreError> {
        let step = self.step();
        let life = step.life().await?;
        if lease.claim.ttl > life.timeout {
            return Err(too_long(lease.claim, life));
        }
        for _ in 0..TRIES {
            if let Some(answer) = self.try_to_replace(&step, lease, new_owner).await? {
                return Ok(answer);
            }
        }
        Err(restless())
    }

    async fn try_to_replace(&self, step: &Step<'_>, lease: Held<'_>, new_owner: &str) -> Outcome {
        let claim = lease.claim;
        let heir = Claim {
            owner: new_owner,
            ..claim
        };
        let mut sent = Instant::now();
        // The server that is asked may not have heard yet of what the owner has at another one.
        let synced = step.send(Request::sync());
        let listings = list_all(step, claim).await?;
        synced.answer().await?;
        let mut session = step.life().await?.session;
        let (mut places, mut requests) = (Vec::new(), Vec::new());
        for (lock, listing) in claim.locks.iter().zip(&listings) {
            match inherit(step, lock, listing, lease, heir, session).await? {
                Inheritance::Heir(place, of_lock) => {
                    places.push(place);
                    requests.extend(of_lock);
                }
                Inheritance::NotHeld => return Ok(Some(not_held(listing, claim))),
                Inheritance::Changed => return Ok(None),
            }
        }
        // Where there are none, all of it was done before.
        if !requests.is_empty() {
            let request = Request::multi(&requests);
            // Each place goes and comes.
            if request.len() > 2 * LONGEST_REQUEST {
                return Err(too_many(request.len()));
            }
            let answer = step.ask(request).await?;
            if let Err((_, code)) = done_together(&answer.body).map_err(Failure::from)? {
                return match code {
                    Code::NO_NODE | Code::NODE_EXISTS => Ok(None),
                    code => Err(Failure::Refused(code, "create nodes").into()),
                };
            }
            (session, sent) = (answer.session, answer.sent);
        }
        let claims = self.session.claims();
        // It may have been one of this client.
        claims.forget(claim.owner);
        let slot_node = has_slots(claim).then(|| step.slot_node(&claim.locks[0], lease.slot));
        let nodes = Nodes {
            session,
            places,
            slot: lease.slot,
            slot_node,
            made: None,
        };
        claims.wait(new_owner, nodes.clone(), claim.ttl, &[]);
        let life = self.session.life().filter(|life| life.session == session);
        let over = || StoreError::in_doubt("the session of the new owner has ended");
        let until = relied_on_until(sent, claim.ttl).min(life.ok_or_else(over)?.until());
        let ends = Instant::now() + claim.ttl;
        if claims.hold(new_owner, nodes, claim.ttl, ends, until) {
            Ok(Some(Renewal::Until(until)))
        } else {
            Err(over())
        }
    }
}

/// What has the new owner take one lock over.
async fn inherit(
    step: &Step<'_>,
    lock: &str,
    listing: &Listing,
    lease: Held<'_>,
    heir: Claim<'_>,
    session: i64,
) -> Result<Inheritance, Failure> {
    let lock_node = step.lock_node(lock);
    let path = |name: &str| format!("{lock_node}/{name}");
    let held = &listing.places[..listing.held(&[])];
    let of = |owner: &str| held.iter().find(|place| place.owner == owner);
    if let Some(place) = of(heir.owner) {
        let node = path(&place.name);
        let stored = step.get(&node, false).await?;
        let is_own = stored.is_some_and(|(_, stat)| stat.session == session);
        return Ok(if is_own {
            Inheritance::Heir(node, Vec::new())
        } else {
            Inheritance::NotHeld
        });
    }
    let Some(place) = of(lease.claim.owner) else {
        return Ok(Inheritance::NotHeld);
    };
    let slot = has_slots(heir).then(|| step.slot_node(lock, lease.slot));
    let Some(since) = held_since(step, place, &lock_node, slot.as_deref()).await? else {
        return Ok(Inheritance::Changed);
    };
    let name = names::taken_over(heir, since, place.number);
    let (node, kind, acl) = (path(&name), NodeKind::Ephemeral, step.acl);
    let mut requests = vec![
        Request::delete(&path(&place.name)),
        Request::create(&node, &names::place_data(heir), kind, acl),
    ];
    if let Some(slot) = &slot {
        requests.push(Request::delete(slot));
        requests.push(Request::create(slot, &name, kind, acl));
    }
    Ok(Inheritance::Heir(node, requests))
}

/// Since when a place holds its lock, with this slot where it has one. Nothing where it does not.
async fn held_since(
    step: &Step<'_>,
    place: &Place,
    lock_node: &str,
    slot: Option<&str>,
) -> Result<Option<SystemTime>, Failure> {
    let stored = match slot {
        Some(slot) => step.get(slot, false).await?,
        None => {
            step.get(&format!("{lock_node}/{}", place.name), false)
                .await?
        }
    };
    let stored = stored.filter(|(holder, _)| slot.is_none() || *holder == place.name);
    Ok(stored.map(|(_, stat)| place.since.unwrap_or(server_time(stat.ctime))))
}

fn not_held(listing: &Listing, claim: Claim<'_>) -> Renewal {
    if found_in(listing, claim) == Found::Another || listing.foreign.is_some() {
        Renewal::Taken
    } else {
        Renewal::Gone
    }
}
