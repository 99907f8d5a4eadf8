//! What stands under locks, for whoever asks without taking them; of many, read at the same time.

use std::collections::HashMap;
use std::time::SystemTime;

use super::fault::Failure;
use super::listing::{Listing, Mark, server_time};
use super::names::{MarkName, Place};
use super::protocol::{Code, Request, data};
use super::session::Pending;
use super::step::{Step, TRIES, listed};
use super::{ZooKeeper, names};
use crate::owner;
use crate::reply::KeptReply;
use crate::store::{Entry, EntryKind, Listed, Sharing};

/// Who has left a lock closed, which is not stored.
const CLOSED: &str = "closed@its last holder";

/// Whose time says what remains of a mark.
pub(super) trait Clock {
    fn now(&mut self, step: &Step<'_>) -> impl Future<Output = Result<SystemTime, Failure>> + Send;
}

/// This machine's time, which costs no server a step.
struct Here;

impl Clock for Here {
    async fn now(&mut self, _: &Step<'_>) -> Result<SystemTime, Failure> {
        Ok(SystemTime::now())
    }
}

impl ZooKeeper {
    pub(super) async fn standing(&self, lock: &str) -> Result<Listed, Failure> {
        Ok(read_now(&self.step(), lock, &mut Here).await?.listed)
    }
}

/// Reads one lock as it is now, or was a moment ago.
pub(super) async fn read_now(
    step: &Step<'_>,
    lock: &str,
    clock: &mut impl Clock,
) -> Result<Read, Failure> {
    // The server that is asked has everything then that was decided before, and answers in order.
    let synced = step.send(Request::sync());
    let lock = [lock.to_owned()];
    let mut tries = TRIES;
    let read = loop {
        tries -= 1;
        let read = read(step, &lock, clock).await?;
        match read.into_iter().next() {
            Some(read) if !read.has_changed || tries == 0 => break read,
            _ => {}
        }
    };
    synced.answer().await?;
    Ok(read)
}

/// What was read of a lock.
pub(super) struct Read {
    pub(super) listed: Listed,
    /// Those who wait, in their order, each with its ttl.
    #[cfg(feature = "inspect")]
    pub(super) queue: Vec<(String, std::time::Duration)>,
    /// Whether something of it has gone while it was read.
    pub(super) has_changed: bool,
}

/// What a node below that of a lock is read for.
enum Of {
    /// The place of a holder that has no slot, by its position.
    Place(usize),
    Slot(usize),
    Mark(MarkName),
}

/// Reads locks, all at the same time.
pub(super) async fn read(
    step: &Step<'_>,
    locks: &[String],
    clock: &mut impl Clock,
) -> Result<Vec<Read>, Failure> {
    let asked: Vec<_> = locks
        .iter()
        .map(|lock| step.send(Request::list(&step.lock_node(lock), false)))
        .collect();
    let mut listings = Vec::with_capacity(locks.len());
    for (lock, asked) in locks.iter().zip(asked) {
        let listing = listed(asked).await?;
        let details = ask_details(step, lock, &listing);
        listings.push((lock, listing, details));
    }
    let mut all = Vec::with_capacity(locks.len());
    for (lock, listing, details) in listings {
        let mut stored = Stored::default();
        for (of, pending) in details {
            match pending.answer().await {
                Ok(answer) => {
                    let (text, stat) = data(&answer.body)?;
                    match of {
                        Of::Place(position) => {
                            stored.held_since.insert(position, server_time(stat.ctime));
                        }
                        Of::Slot(slot) => {
                            stored.slots.insert(text, (slot, server_time(stat.ctime)));
                        }
                        Of::Mark(of) => {
                            let now = clock.now(step).await?;
                            let since = server_time(stat.mtime);
                            let (length, reply) = names::read_mark(&text);
                            let remaining = (since + length).duration_since(now);
                            stored.marks.extend(remaining.ok().map(|remaining| Mark {
                                of,
                                since,
                                remaining,
                                reply,
                            }));
                        }
                    }
                }
                Err(Failure::Refused(Code::NO_NODE, _)) => stored.has_changed = true,
                Err(failure) => return Err(failure),
            }
        }
        all.push(stored.read(lock, listing));
    }
    Ok(all)
}

fn ask_details(step: &Step<'_>, lock: &str, listing: &Listing) -> Vec<(Of, Pending)> {
    let node = step.lock_node(lock);
    // As many as hold it at most: what is left of others is not known yet.
    let places = listing.places[..listing.held(&[])].iter().enumerate();
    let places = places.filter(|(_, place)| !has_slot(place) && place.since.is_none());
    let places = places.map(|(position, place)| (Of::Place(position), place.name.clone()));
    let slots = listing.slots.iter();
    let slots = slots.map(|slot| (Of::Slot(*slot), format!("{}{slot}", names::SLOT)));
    let marks = listing.marks.iter();
    let marks = marks.map(|mark| (Of::Mark(mark.clone()), mark.name.clone()));
    let all = places.chain(slots).chain(marks);
    all.map(|(of, name)| {
        let request = Request::get(&format!("{node}/{name}"), false);
        (of, step.send(request))
    })
    .collect()
}

fn has_slot(place: &Place) -> bool {
    matches!(place.sharing, Sharing::Permits { .. })
}

/// What the nodes of a lock have said.
#[derive(Default)]
struct Stored {
    /// Since when the places of holders that have no slot are there.
    held_since: HashMap<usize, SystemTime>,
    /// By the names of places, the slots that are held, and since when.
    slots: HashMap<String, (usize, SystemTime)>,
    marks: Vec<Mark>,
    has_changed: bool,
}

impl Stored {
    fn read(self, lock: &str, listing: Listing) -> Read {
        let mut entries = Vec::new();
        #[cfg(feature = "inspect")]
        let mut queue = Vec::new();
        let mut how = Vec::new();
        let mut waiters = 0;
        let held = listing.held(&self.marks);
        for (position, place) in listing.places.into_iter().enumerate() {
            let slot = self.slots.get(&place.name);
            let held = match slot {
                Some((slot, since)) => Some((*slot, Some(*since))),
                None if position < held && !has_slot(&place) => {
                    Some((0, self.held_since.get(&position).copied()))
                }
                None => None,
            };
            let owner = place.owner;
            if let Some((slot, since)) = held {
                let since = place.since.or(since).or_else(|| owner::since(&owner));
                let kind = EntryKind::Held { owner, since };
                let entry = Entry::new(slot, kind, Some(place.ttl));
                entries.push(entry.weight(place.sharing.weight()));
                how.push(place.sharing);
            } else {
                waiters += 1;
                #[cfg(feature = "inspect")]
                queue.push((owner, place.ttl));
            }
        }
        for mark in self.marks {
            let since = mark.since;
            let sharing = mark.of.part.map(|(sharing, _)| sharing).unwrap_or_default();
            let kind = if mark.of.is_done {
                EntryKind::Done { since }
            } else {
                EntryKind::Closed {
                    owner: CLOSED.to_owned(),
                    since: Some(since),
                }
            };
            let reply = mark.reply.as_ref().and_then(KeptReply::bytes);
            let entry = Entry::new(mark.of.slot, kind, Some(mark.remaining));
            entries.push(entry.weight(sharing.weight()).replied(reply));
            how.push(sharing);
        }
        if let Some(name) = listing.foreign {
            let found = format!("a node `{name}`");
            entries.push(Entry::new(0, EntryKind::Foreign { found }, None));
        }
        entries.sort_by_key(|entry| entry.slot);
        let permits = how.iter().filter_map(|sharing| match sharing {
            Sharing::Permits { permits, .. } => Some(*permits),
            Sharing::Alone | Sharing::Readers => None,
        });
        let listed = Listed::new(lock, entries, waiters)
            .permits(permits.max())
            .shared(how.contains(&Sharing::Readers));
        Read {
            listed,
            #[cfg(feature = "inspect")]
            queue,
            has_changed: self.has_changed,
        }
    }
}
