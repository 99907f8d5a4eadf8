//! Asking for locks: a place in the queue of each, and a look at who is before it.

use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use super::ZooKeeper;
use super::claims::Nodes;
use super::fault::Failure;
use super::listing::{Busy, Finding, Listing, Mark, Watch, server_time};
use super::names;
use super::protocol::{Code, NodeKind, Request, children, created, data};
use super::release::free_slots_of;
use super::session::{Answer, Life};
use super::step::{ServerTime, Step, TRIES, listed, restless};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, Sharing, relied_on_until};

/// Servers end the connection on which a longer request than one of 1,048,575 bytes comes (`jute.maxbuffer`), unless
/// they are told otherwise. A release deletes as much as was created, and may leave as much.
pub(super) const LONGEST_REQUEST: usize = 500_000;

/// After such a pause it is looked first for whether those have gone who do not wait; after twice that next.
const PASSING: Duration = Duration::from_millis(2);

/// A claim that has its places, and what stands at each lock.
struct Standing {
    nodes: Nodes,
    listings: Vec<Listing>,
    /// When the request was sent from which a grant counts.
    sent: Instant,
    /// Whether it holds its locks as far as is known.
    is_held: bool,
}

/// What a look has come to; nothing where others have changed what was looked at.
type Outcome = Result<Option<Acquired>, StoreError>;

impl ZooKeeper {
    pub(super) async fn take(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
    ) -> Result<Acquired, StoreError> {
        let step = self.step();
        let life = step.life().await?;
        if claim.ttl > life.timeout {
            return Err(too_long(claim, life));
        }
        let mut pause = PASSING;
        for _ in 0..TRIES {
            if let Some(answer) = self.look(&step, claim, attempt, &mut pause).await? {
                return Ok(answer);
            }
        }
        Err(restless())
    }

    async fn look(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        attempt: Attempt,
        pause: &mut Duration,
    ) -> Outcome {
        let claims = self.session.claims();
        let known = match claims.get(claim.owner) {
            Some((nodes, is_held)) => Some(again(step, claim, nodes, is_held).await?),
            None if claims.is_unanswered(claim.owner) => self.find(step, claim).await?,
            None => None,
        };
        if let Some(standing) = known {
            return self.judge(step, claim, attempt, standing, pause).await;
        }
        // Where it was busy a moment ago, a look is what is needed in general.
        if attempt.again
            && attempt.wait.is_zero()
            && let [lock] = claim.locks
        {
            let listing = step.list(lock).await?;
            if listing.marks.is_empty()
                && listing.foreign.is_none()
                && let Some(first) = listing.places.first()
                && !listing.has_room(claim.sharing())
            {
                let busy = Acquired::busy(0, first.owner.clone(), first.ttl);
                return Ok(Some(since(busy, first.since)));
            }
        }
        let waits = !attempt.wait.is_zero();
        match self.queue(step, claim, waits).await? {
            Some(standing) => self.judge(step, claim, attempt, standing, pause).await,
            None => Ok(None),
        }
    }

    /// Takes places in the queues, all in one step. Those of several locks are in the same order in each
    /// queue, so that no two claims wait for each other. Nothing where a lock had no node yet.
    async fn queue(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        waits: bool,
    ) -> Result<Option<Standing>, StoreError> {
        let claims = self.session.claims();
        let data = names::place_data(claim);
        let places = claim.locks.iter().map(|lock| {
            let path = format!("{}/{}", step.lock_node(lock), names::place(claim, waits));
            Request::create(&path, &data, NodeKind::EphemeralSequential, step.acl)
        });
        let places: Vec<_> = places.collect();
        let request = match &places[..] {
            [place] => place.clone(),
            places => Request::multi(places),
        };
        if request.len() > LONGEST_REQUEST {
            return Err(too_many(request.len()));
        }
        claims.set_unanswered(claim.owner);
        let creating = step.send(request);
        // Requests of one session are carried out in their order.
        let listing = list_all(step, claim);
        let made = creating.answer().await.and_then(|answer| {
            let made = read_places(&answer, places.len())?;
            Ok((answer, made))
        });
        let (answer, (places, made)) = match made {
            Ok(made) => made,
            // It is looked for.
            Err(Failure::InDoubt(_)) if Instant::now() < step.deadline => return Ok(None),
            Err(failure) => {
                if !matches!(failure, Failure::InDoubt(_)) {
                    claims.set_answered(claim.owner);
                }
                if !matches!(failure, Failure::Refused(Code::NO_NODE, _)) {
                    return Err(failure.into());
                }
                for lock in claim.locks {
                    step.make_lock(lock).await?;
                }
                return Ok(None);
            }
        };
        let nodes = Nodes {
            session: answer.session,
            places,
            slot: 0,
            slot_node: None,
            made,
        };
        claims.wait(claim.owner, nodes.clone(), claim.ttl, &[]);
        Ok(Some(Standing {
            nodes,
            listings: listing.await.map_err(Failure::after_something)?,
            sent: answer.sent,
            is_held: false,
        }))
    }

    /// Looks for the places of an owner whose request was not answered. What an earlier session has left
    /// of them is removed. The server that is asked now may be behind the one that was asked then.
    async fn find(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
    ) -> Result<Option<Standing>, StoreError> {
        let sent = Instant::now();
        let in_doubt = Failure::after_something;
        step.ask(Request::sync()).await.map_err(in_doubt)?;
        // It takes one anew.
        free_slots_of(step, claim).await.map_err(in_doubt)?;
        let listings = list_all(step, claim).await.map_err(in_doubt)?;
        let life = step.life().await.map_err(in_doubt)?;
        let mut places = Vec::new();
        let mut is_whole = true;
        for (lock, listing) in claim.locks.iter().zip(&listings) {
            let of_owner = |place: &&names::Place| place.owner == claim.owner;
            let mut is_here = false;
            for place in listing.places.iter().filter(of_owner) {
                let path = format!("{}/{}", step.lock_node(lock), place.name);
                let stored = step.get(&path, false).await.map_err(in_doubt)?;
                let session = stored.map(|(_, stat)| stat.session);
                is_here |= session == Some(life.session);
                places.push(path);
            }
            is_whole &= is_here;
        }
        if !is_whole || places.len() != claim.locks.len() {
            for place in places {
                step.delete(&place).await.map_err(in_doubt)?;
            }
            return Ok(None);
        }
        let nodes = Nodes {
            session: life.session,
            places,
            slot: 0,
            slot_node: None,
            made: None,
        };
        let claims = self.session.claims();
        claims.wait(claim.owner, nodes.clone(), claim.ttl, &[]);
        Ok(Some(Standing {
            nodes,
            listings,
            sent,
            is_held: false,
        }))
    }

    async fn judge(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        attempt: Attempt,
        mut standing: Standing,
        pause: &mut Duration,
    ) -> Outcome {
        let foreign = standing.listings.iter().enumerate();
        let mut foreign =
            foreign.filter_map(|(lock, listing)| Some((lock, listing.foreign.clone()?)));
        if let Some((lock, name)) = foreign.next() {
            let answer = Acquired::foreign(lock, format!("a node `{name}`"));
            return self.withdraw(step, claim, &standing, answer).await;
        }
        if standing.is_held && standing.has_all() {
            return Ok(self.hold(claim, standing));
        }
        let mut busy = None;
        let mut marks = Vec::new();
        for lock in 0..claim.locks.len() {
            marks = self.marks(step, claim, lock, &mut standing).await?;
            let listing = &standing.listings[lock];
            match listing.find(claim.owner, &marks) {
                Finding::Free => {}
                Finding::Done(since, reply) => {
                    let answer = Acquired::done(lock, since).replied(reply);
                    return self.withdraw(step, claim, &standing, answer).await;
                }
                Finding::Missing => {
                    // It was deleted by somebody else: it queues anew.
                    self.withdraw(step, claim, &standing, Acquired::busy(0, "", claim.ttl))
                        .await?;
                    return Ok(None);
                }
                found => busy = busy.or(Some((lock, found))),
            }
        }
        match busy {
            None if !has_slots(claim) => Ok(self.hold(claim, standing)),
            None => self.take_slot(step, claim, standing, marks).await,
            Some((
                _,
                Finding::Busy(Busy {
                    is_passing: true, ..
                }),
            )) if attempt.wait.is_zero()
                && *pause < PASSING * (1 << (TRIES - 2))
                && Instant::now() + *pause < step.deadline =>
            {
                sleep(*pause).await;
                *pause *= 2;
                Ok(None)
            }
            Some((lock, found)) if attempt.wait.is_zero() => {
                let answer = told(lock, &found);
                self.withdraw(step, claim, &standing, answer).await
            }
            Some((lock, found)) => self.wait(step, claim, standing, lock, &found, marks).await,
        }
    }

    async fn marks(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        lock: usize,
        standing: &mut Standing,
    ) -> Result<Vec<Mark>, StoreError> {
        let listing = &standing.listings[lock];
        if listing.marks.is_empty() {
            return Ok(Vec::new());
        }
        if standing.nodes.made.is_none() {
            let own = step.get(&standing.nodes.places[0], false).await;
            let own = own.map_err(Failure::after_something)?;
            standing.nodes.made = own.map(|(_, stat)| ServerTime {
                at: server_time(stat.ctime),
                told: Instant::now(),
            });
        }
        match standing.nodes.made {
            Some(now) => step
                .marks(&claim.locks[lock], listing, now)
                .await
                .map_err(Failure::after_something),
            // Its place is gone, which is what it finds next.
            None => Ok(Vec::new()),
        }
    }

    /// Nothing where the session of its places has ended in between.
    fn hold(&self, claim: Claim<'_>, standing: Standing) -> Option<Acquired> {
        let Standing { nodes, sent, .. } = standing;
        let life = self.session.life();
        let Some(life) = life.filter(|life| life.session == nodes.session) else {
            self.session.claims().forget(claim.owner);
            return None;
        };
        let until = relied_on_until(sent, claim.ttl).min(life.until());
        let ends = Instant::now() + claim.ttl;
        let slot = nodes.slot;
        let claims = self.session.claims();
        let is_held = claims.hold(claim.owner, nodes, claim.ttl, ends, until);
        is_held.then(|| Acquired::granted(slot, until))
    }

    /// Takes a slot. That it writes to its place tells who waits behind it.
    async fn take_slot(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        mut standing: Standing,
        marks: Vec<Mark>,
    ) -> Outcome {
        let place = standing.nodes.places[0].clone();
        let name = place.rsplit('/').next().unwrap_or_default();
        while Instant::now() < step.deadline {
            let listing = &standing.listings[0];
            if listing.find(claim.owner, &marks) != Finding::Free {
                return Ok(None);
            }
            let slot = listing.free_slot(claim.owner, &marks);
            let slot_node = step.slot_node(&claim.locks[0], slot);
            let requests = [
                Request::create(&slot_node, name, NodeKind::Ephemeral, step.acl),
                Request::set(&place, &names::place_data(claim), -1),
            ];
            match step.together(&requests).await {
                Ok(Ok(())) => {
                    standing.nodes.slot = slot;
                    standing.nodes.slot_node = Some(slot_node);
                    return Ok(self.hold(claim, standing));
                }
                // Another holder was faster.
                Ok(Err((_, Code::NODE_EXISTS))) => {
                    let listed = step.list(&claim.locks[0]).await;
                    standing.listings[0] = listed.map_err(Failure::after_something)?;
                }
                Ok(Err(_)) => return Ok(None),
                Err(failure) => {
                    // It may have one now.
                    let claims = self.session.claims();
                    claims.forget(claim.owner);
                    claims.set_unanswered(claim.owner);
                    return Err(failure.after_something());
                }
            }
        }
        Err(restless())
    }

    /// Keeps its places, and has itself woken.
    async fn wait(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        standing: Standing,
        lock: usize,
        found: &Finding,
        marks: Vec<Mark>,
    ) -> Outcome {
        let claims = self.session.claims();
        let lock_node = step.lock_node(&claim.locks[lock]);
        let (watched, before) = match found {
            Finding::Busy(busy) => {
                let node = match &busy.watch {
                    Watch::All => lock_node,
                    Watch::Place(name) | Watch::Turn(name) => format!("{lock_node}/{name}"),
                };
                (Some(node), busy.before)
            }
            // What it waits for is a time.
            _ => (None, 0),
        };
        let nodes = standing.nodes;
        claims.wait(claim.owner, nodes, claim.ttl, watched.as_slice());
        if let Some(node) = watched
            && let Finding::Busy(busy) = found
        {
            let is_to_wait = match busy.watch {
                Watch::All => match step.ask(Request::list(&node, true)).await {
                    Ok(answer) => {
                        let names = children(&answer.body).map_err(Failure::from)?;
                        is_as_before(&Listing::new(&names), claim, busy, marks)
                    }
                    Err(failure) => return Err(failure.after_something()),
                },
                _ => match step.ask(Request::get(&node, true)).await {
                    // One that has a slot by now is not the one to be told by.
                    Ok(answer) => {
                        let (_, stat) = data(&answer.body).map_err(Failure::from)?;
                        stat.version == 0 || matches!(busy.watch, Watch::Place(_))
                    }
                    Err(Failure::Refused(Code::NO_NODE, _)) => false,
                    Err(failure) => return Err(failure.after_something()),
                },
            };
            if !is_to_wait {
                return Ok(None);
            }
        }
        let before = u64::try_from(before).unwrap_or(u64::MAX);
        Ok(Some(told(lock, found).queued(before)))
    }

    /// Gives its places back before it is answered.
    async fn withdraw(
        &self,
        step: &Step<'_>,
        claim: Claim<'_>,
        standing: &Standing,
        answer: Acquired,
    ) -> Outcome {
        let claims = self.session.claims();
        let nodes = &standing.nodes;
        let deleting = nodes.places.iter();
        let deleting: Vec<_> = deleting
            .map(|node| step.send(Request::delete(node)))
            .collect();
        for one in deleting {
            if super::step::was_there(one.answer().await).is_err() {
                claims.forget(claim.owner);
                claims.set_unanswered(claim.owner);
                return Ok(Some(answer.doubtful()));
            }
        }
        if nodes.slot_node.is_some() && free_slots_of(step, claim).await.is_err() {
            claims.forget(claim.owner);
            claims.set_unanswered(claim.owner);
            return Ok(Some(answer.doubtful()));
        }
        claims.forget(claim.owner);
        Ok(Some(answer))
    }
}

impl Standing {
    /// Whether its places are where they were.
    fn has_all(&self) -> bool {
        let each = self.nodes.places.iter().zip(&self.listings);
        let mut each = each.map(|(path, listing)| {
            let is_it = |place: &names::Place| path.ends_with(&place.name);
            listing.places.iter().any(is_it)
        });
        each.all(|is_there| is_there)
    }
}

/// Whether its holders have slots of their own.
pub(super) fn has_slots(claim: Claim<'_>) -> bool {
    matches!(claim.sharing(), Sharing::Permits { .. })
}

/// Whether the first to wait finds the lock as it has found it before, when nobody was watched yet.
fn is_as_before(now: &Listing, claim: Claim<'_>, before: &Busy, mut marks: Vec<Mark>) -> bool {
    marks.retain(|mark| now.marks.contains(&mark.of));
    matches!(now.find(claim.owner, &marks), Finding::Busy(busy) if busy.watch == before.watch)
}

/// What one is told who cannot have a lock.
fn told(lock: usize, found: &Finding) -> Acquired {
    match found {
        Finding::Busy(busy) => {
            let answer = Acquired::busy(lock, busy.holder.clone(), busy.ttl);
            since(answer, busy.since)
        }
        Finding::Closed(since, remaining) => {
            Acquired::busy(lock, "closed", *remaining).since(*since)
        }
        Finding::Free | Finding::Done(..) | Finding::Missing => {
            Acquired::busy(lock, "", Duration::ZERO)
        }
    }
}

fn since(answer: Acquired, since: Option<SystemTime>) -> Acquired {
    match since {
        Some(since) => answer.since(since),
        None => answer,
    }
}

pub(super) fn too_long(claim: Claim<'_>, life: Life) -> StoreError {
    StoreError::invalid(format!(
        "a ttl of {:?} is longer than the session of this client, which is {:?}: a lease lives no longer \
         than that without being renewed; give it a shorter ttl, or the client a longer one \
         (`ClientBuilder::ttl`) and the servers a `maxSessionTimeout` that allows it",
        claim.ttl, life.timeout
    ))
}

pub(super) fn too_many(bytes: usize) -> StoreError {
    StoreError::invalid(format!(
        "the places of all keys take {bytes} bytes, and ZooKeeper's servers cut off who sends a request of more than \
         1 MB, of which what is left with the keys takes half: ask for fewer keys at once, or for shorter ones"
    ))
}

/// What stands at each lock.
pub(super) fn list_all<'a>(
    step: &Step<'_>,
    claim: Claim<'_>,
) -> impl Future<Output = Result<Vec<Listing>, Failure>> + use<'a> {
    let asked = claim.locks.iter();
    let asked: Vec<_> = asked
        .map(|lock| step.send(Request::list(&step.lock_node(lock), false)))
        .collect();
    async move {
        let mut listings = Vec::with_capacity(asked.len());
        for one in asked {
            listings.push(listed(one).await?);
        }
        Ok(listings)
    }
}

/// A look of a claim that has its places.
async fn again(
    step: &Step<'_>,
    claim: Claim<'_>,
    nodes: Nodes,
    is_held: bool,
) -> Result<Standing, StoreError> {
    let sent = Instant::now();
    let listings = list_all(step, claim)
        .await
        .map_err(Failure::after_something)?;
    Ok(Standing {
        nodes,
        listings,
        sent,
        is_held,
    })
}

/// The places that were made, and when, where that was answered.
fn read_places(
    answer: &Answer,
    count: usize,
) -> Result<(Vec<String>, Option<ServerTime>), Failure> {
    if count > 1 {
        let done = super::protocol::done_together(&answer.body)?;
        return match done {
            Ok(places) => Ok((places, None)),
            Err((_, code)) => Err(Failure::Refused(code, "create nodes")),
        };
    }
    let (place, stat) = created(&answer.body)?;
    let made = ServerTime {
        at: server_time(stat.ctime),
        told: Instant::now(),
    };
    Ok((vec![place], Some(made)))
}
