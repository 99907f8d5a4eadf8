//! Giving locks back, with what is to be left there.

use super::ZooKeeper;
use super::acquire::permits;
use super::claims::Nodes;
use super::fault::Failure;
use super::listing::Listing;
use super::names;
use super::protocol::{Code, NodeKind, Request};
use super::step::{Step, TRIES, restless, was_there};
use crate::error::StoreError;
use crate::store::{Claim, Found, Leave, Release};

impl ZooKeeper {
    pub(super) async fn give_back(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, StoreError> {
        let step = self.step();
        let claims = self.session.claims();
        let known = claims.get(claim.owner);
        let found = match (known, release.slot) {
            (Some((nodes, true)), Some(slot))
                if slot == nodes.slot && nodes.places.len() == claim.locks.len() =>
            {
                self.end(&step, claim, release, &nodes).await?
            }
            // Another slot than its own.
            (Some((nodes, true)), Some(slot)) if slot != nodes.slot => {
                let listing = step.list(&claim.locks[0]).await?;
                return Ok(found_in(&listing, claim));
            }
            _ => self.end_whatever(&step, claim, release).await?,
        };
        claims.forget(claim.owner);
        Ok(found)
    }

    /// Ends a hold whose nodes are known: all of it in one step, and else what is left of it.
    async fn end(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        release: Release<'_>,
        nodes: &Nodes,
    ) -> Result<Found, StoreError> {
        for _ in 0..TRIES {
            let mut requests = Vec::new();
            for (lock, place) in nodes.places.iter().enumerate() {
                requests.push(Request::delete(place));
                if let Some((mark, length)) = mark(step, claim, release, lock) {
                    let kind = NodeKind::Persistent;
                    requests.push(Request::create(&mark, &length, kind, step.acl));
                }
            }
            requests.extend(nodes.slot_node.as_deref().map(Request::delete));
            if let [request] = &requests[..] {
                if was_there(step.ask(request.clone()).await)? {
                    return Ok(Found::Ours);
                }
                return self.end_whatever(step, claim, release).await;
            }
            match step.together(&requests).await? {
                Ok(_) => return Ok(Found::Ours),
                // A mark that is over stands there yet.
                Err((_, Code::NODE_EXISTS)) => self.remove_marks(step, claim, release).await?,
                Err((_, Code::NO_NODE)) => return self.end_whatever(step, claim, release).await,
                Err((_, code)) => return Err(Failure::Refused(code, "delete nodes").into()),
            }
        }
        Err(restless())
    }

    /// Ends what is found of an owner. Each lock by itself: one that is gone is none that is not given back.
    async fn end_whatever(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, StoreError> {
        let mut any_ours = false;
        let mut worst = Found::Ours;
        for (index, lock) in claim.locks.iter().enumerate() {
            let listing = step.list(lock).await?;
            let mark = mark(step, claim, release, index);
            let of_owner = |place: &&names::Place| place.owner == claim.owner;
            let mut found = found_in(&listing, claim);
            for place in listing.places.iter().filter(of_owner) {
                let path = format!("{}/{}", step.lock_node(lock), place.name);
                if step.delete(&path).await? {
                    found = Found::Ours;
                }
            }
            let is_left = found == Found::Ours && release.slot.is_some()
                || found == Found::Nothing && release.keep_marks && listing.marks.is_empty();
            if let Some((mark, length)) = mark
                && is_left
            {
                self.leave(step, lock, &mark, &length).await?;
            }
            any_ours |= found == Found::Ours;
            worst = match (worst, found) {
                (Found::Another, _) | (_, Found::Another) => Found::Another,
                (Found::Nothing, _) | (_, Found::Nothing) => Found::Nothing,
                (Found::Ours, Found::Ours) => Found::Ours,
            };
        }
        self.free_slots_of(step, claim).await?;
        Ok(if any_ours && release.slot.is_none() {
            Found::Ours
        } else {
            worst
        })
    }

    /// Frees the slots of which an owner is found to be the holder.
    pub(super) async fn free_slots_of(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
    ) -> Result<(), StoreError> {
        if claim.permits == 1 {
            return Ok(());
        }
        let lock = &claim.locks[0];
        let listing = step.list(lock).await?;
        for slot in listing.slots {
            let path = format!("{}/{}{slot}", step.lock_node(lock), names::SLOT);
            let holder = step.get(&path, false).await?;
            if holder.is_some_and(|(name, _)| name.starts_with(&names::places_of(claim.owner))) {
                step.delete(&path).await?;
            }
        }
        Ok(())
    }

    async fn remove_marks(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<(), StoreError> {
        for lock in 0..claim.locks.len() {
            if let Some((mark, _)) = mark(step, claim, release, lock) {
                step.delete(&mark).await?;
            }
        }
        Ok(())
    }

    async fn leave(
        &self,
        step: &Step<'_>,
        lock: &str,
        mark: &str,
        length: &str,
    ) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            match step.create(mark, length, NodeKind::Persistent).await {
                Ok(_) => return Ok(()),
                Err(Failure::Refused(Code::NODE_EXISTS, _)) => {
                    match step.set(mark, length, -1).await {
                        Ok(_) => return Ok(()),
                        Err(Failure::Refused(Code::NO_NODE, _)) => {}
                        Err(failure) => return Err(failure.into()),
                    }
                }
                Err(Failure::Refused(Code::NO_NODE, _)) => step.make_lock(lock).await?,
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(restless())
    }
}

/// What a release finds where its owner has nothing.
pub(super) fn found_in(listing: &Listing, claim: Claim<'_>) -> Found {
    if listing.first_but(claim.owner).is_some() {
        Found::Another
    } else {
        Found::Nothing
    }
}

/// The node of what is to be left at a lock, and the milliseconds for which it stands.
fn mark(
    step: &Step<'_>,
    claim: Claim<'_>,
    release: Release<'_>,
    lock: usize,
) -> Option<(String, String)> {
    let (prefix, length) = match release.leave.get(lock)? {
        Leave::Nothing => return None,
        Leave::Closed(length) => (names::CLOSED, length),
        Leave::Done(length) => (names::DONE, length),
    };
    let slot = release.slot.filter(|slot| *slot < permits(claim));
    let node = step.lock_node(&claim.locks[lock]);
    let path = format!("{node}/{prefix}{}", slot.unwrap_or(0));
    Some((path, length.as_millis().to_string()))
}
