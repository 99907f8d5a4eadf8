//! Giving locks back, with what is to be left there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ZooKeeper;
use super::acquire::has_slots;
use super::claims::Nodes;
use super::fault::Failure;
use super::listing::Listing;
use super::names;
use super::protocol::{Code, NodeKind, Request, data};
use super::step::{Step, TRIES, restless, was_there};
use crate::error::StoreError;
use crate::reply::KeptReply;
use crate::store::{Claim, Found, Leave, Release};

/// The most bytes of replies that are left in one step with the end of several places.
const MOST_WITH_A_LIST: usize = 64 * 1024;

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
        let mut marks: Vec<_> = (0..nodes.places.len())
            .filter_map(|lock| {
                let place = names::place_of(&nodes.places[lock]);
                mark(step, claim, release, lock, place.as_ref())
            })
            .collect();
        // Calls within a call for a long list have left them: the names of all places are in the same request.
        let replies = marks.iter().filter_map(|mark| mark.reply.as_ref());
        if nodes.places.len() > 1
            && replies.map(|reply| reply.as_str().len()).sum::<usize>() > MOST_WITH_A_LIST
        {
            for mark in &mut marks {
                mark.reply = mark.reply.as_ref().map(KeptReply::left_out);
            }
        }
        for _ in 0..TRIES {
            let mut requests: Vec<_> = nodes.all().map(|node| Request::delete(node)).collect();
            requests.extend(marks.iter().map(|mark| self.make_mark(step, mark)));
            if let [request] = &requests[..] {
                if was_there(step.ask(request.clone()).await)? {
                    return Ok(Found::Ours);
                }
                return self.end_whatever(step, claim, release).await;
            }
            match step.together(&requests).await? {
                Ok(()) => {
                    for mark in marks {
                        self.sweep(mark);
                    }
                    return Ok(Found::Ours);
                }
                Err((_, Code::UNIMPLEMENTED)) => self.knows_no_ttls.store(true, Ordering::Relaxed),
                // An earlier release, which was not answered, has left one and no more.
                Err((_, Code::NODE_EXISTS)) => {
                    for mark in &marks {
                        step.delete(&mark.node).await?;
                    }
                }
                Err((_, Code::NO_NODE)) => return self.end_whatever(step, claim, release).await,
                Err((_, code)) => return Err(Failure::Refused(code, "delete nodes").into()),
            }
        }
        Err(restless())
    }

    /// By the servers' own ttl, where they know such nodes.
    fn make_mark(&self, step: &Step<'_>, mark: &Mark) -> Request {
        let Mark {
            node,
            length,
            reply,
        } = mark;
        let data = names::mark_data(*length, reply.as_ref());
        if self.knows_no_ttls.load(Ordering::Relaxed) {
            Request::create(node, &data, NodeKind::Persistent, step.acl)
        } else {
            Request::create_for(node, &data, *length, step.acl)
        }
    }

    fn sweep(&self, mark: Mark) {
        if self.knows_no_ttls.load(Ordering::Relaxed) {
            self.session.claims().sweep(mark.node, mark.length);
        }
    }

    /// Ends what is found of an owner. Each lock by itself: one that is gone is none that is not given back.
    async fn end_whatever(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, StoreError> {
        free_slots_of(step, claim).await?;
        let mut any_ours = false;
        let mut worst = Found::Ours;
        for (index, lock) in claim.locks.iter().enumerate() {
            let listing = step.list(lock).await?;
            let of_owner = |place: &&names::Place| place.owner == claim.owner;
            let mut found = found_in(&listing, claim);
            for place in listing.places.iter().filter(of_owner) {
                let path = format!("{}/{}", step.lock_node(lock), place.name);
                if step.delete(&path).await? {
                    found = Found::Ours;
                }
            }
            let place = listing.places.iter().find(of_owner);
            let is_left = found == Found::Ours && release.slot.is_some()
                || found == Found::Nothing && release.keep_marks && listing.marks.is_empty();
            if let Some(mark) = mark(step, claim, release, index, place)
                && is_left
            {
                self.leave(step, lock, mark).await?;
            }
            any_ours |= found == Found::Ours;
            worst = match (worst, found) {
                (Found::Another, _) | (_, Found::Another) => Found::Another,
                (Found::Nothing, _) | (_, Found::Nothing) => Found::Nothing,
                (Found::Ours, Found::Ours) => Found::Ours,
            };
        }
        Ok(if any_ours && release.slot.is_none() {
            Found::Ours
        } else {
            worst
        })
    }

    async fn leave(&self, step: &Step<'_>, lock: &str, mark: Mark) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            match step.ask(self.make_mark(step, &mark)).await {
                Ok(_) => {
                    self.sweep(mark);
                    return Ok(());
                }
                Err(Failure::Refused(Code::UNIMPLEMENTED, _)) => {
                    self.knows_no_ttls.store(true, Ordering::Relaxed);
                }
                // An earlier release has left it.
                Err(Failure::Refused(Code::NODE_EXISTS, _)) => return Ok(()),
                Err(Failure::Refused(Code::NO_NODE, _)) => step.make_lock(lock).await?,
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(restless())
    }
}

/// Frees the slots of which an owner is found to be the holder.
pub(super) async fn free_slots_of(step: &Step<'_>, claim: Claim<'_>) -> Result<(), Failure> {
    if !has_slots(claim) {
        return Ok(());
    }
    let lock = &claim.locks[0];
    let listing = step.list(lock).await?;
    let paths = listing.slots.iter().map(|slot| step.slot_node(lock, *slot));
    let asked = paths.map(|path| {
        let asked = step.send(Request::get(&path, false));
        (path, asked)
    });
    let asked: Vec<_> = asked.collect();
    for (path, asked) in asked {
        let holder = match asked.answer().await {
            Ok(answer) => data(&answer.body)?.0,
            Err(Failure::Refused(Code::NO_NODE, _)) => continue,
            Err(failure) => return Err(failure),
        };
        if holder.starts_with(&names::places_of(claim.owner)) {
            step.delete(&path).await?;
        }
    }
    Ok(())
}

/// What is found of a lock where its owner has nothing: whom it lets hold the lock beside it has taken nothing from it.
pub(super) fn found_in(listing: &Listing, claim: Claim<'_>) -> Found {
    match listing.first_but(claim.owner) {
        Some(first) if claim.sharing().is_alone() || first.sharing.is_alone() => Found::Another,
        _ => Found::Nothing,
    }
}

/// What is to be left at a lock.
struct Mark {
    node: String,
    length: Duration,
    reply: Option<KeptReply>,
}

/// Of an owner that had this place. What is left of one that shared the lock stands for that.
fn mark(
    step: &Step<'_>,
    claim: Claim<'_>,
    release: Release<'_>,
    lock: usize,
    place: Option<&names::Place>,
) -> Option<Mark> {
    let leave = release
        .leave
        .get(lock)
        .filter(|leave| **leave != Leave::Nothing)?;
    if place.is_none() && !leave.is_done() && !claim.sharing().is_alone() {
        return None;
    }
    let slot = release.slot.filter(|_| has_slots(claim));
    let lock_node = step.lock_node(&claim.locks[lock]);
    let name = names::mark(leave, slot.unwrap_or(0), claim.owner, place);
    let node = format!("{lock_node}/{name}");
    Some(Mark {
        node,
        length: leave.length(),
        reply: leave.reply().cloned(),
    })
}
