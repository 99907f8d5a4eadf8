//! The claims of this client: what each holds or waits for, who is to be woken, and what is to be done
//! for them at which time.
//!
//! A lease runs at the server for as long as its session does. Its own ttl is kept here: the node of one
//! that is not renewed is deleted when its ttl is over, and so is the node of a waiter that does not go on
//! when its turn has come.
//!
//! No waker is woken or dropped under the lock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::WeakUnboundedSender;

use super::protocol::Happened;
use super::session::Event;
use super::step::ServerTime;
use crate::runtime::waker;
use crate::store::{HeldLeases, WakeUp};

/// The nodes of a lease are watched once it is as old as this: most locks are given back before, and
/// spare the request.
const WATCHED_AFTER: Duration = Duration::from_millis(400);

/// Marks that stand for longer, and more than so many, are left to whoever finds them.
const LONGEST_SWEPT: Duration = Duration::from_secs(3600);
const MOST_SWEPT: usize = 10_000;

/// For clocks that run at different speeds.
const LATER_BY: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Claims {
    table: Mutex<Table>,
    /// The session's task, which does what is due.
    task: OnceLock<WeakUnboundedSender<Event>>,
    /// Whom owners are told whose leases may have ended.
    leases: OnceLock<HeldLeases>,
}

#[derive(Default)]
struct Table {
    claims: HashMap<String, Entry>,
    /// Which claims are told of what happens to a node.
    watches: HashMap<String, Vec<String>>,
    due: BTreeSet<(Instant, String)>,
    /// Marks that are to be removed, and what is left of leases of which one place has gone.
    marks: BTreeSet<(Instant, String)>,
    /// When the session's task looks next.
    looks_at: Option<Instant>,
    inboxes: HashMap<String, Inbox>,
    /// To be woken once the table is let go.
    to_wake: Vec<Waker>,
    /// Owners whose request to create a node was not answered.
    unanswered: HashSet<String>,
    /// Owners of leases that may have ended, to be told then as well.
    ended: Vec<String>,
}

/// What a claim has at the servers.
#[derive(Clone)]
pub(super) struct Nodes {
    /// The session in which they were made.
    pub(super) session: i64,
    /// Its place in the queue of each lock.
    pub(super) places: Vec<String>,
    /// Its slot, and the node of that where the lock has several.
    pub(super) slot: usize,
    pub(super) slot_node: Option<String>,
    /// When they were made, by the leader's clock, if that is known.
    pub(super) made: Option<ServerTime>,
}

impl Nodes {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.places.iter().chain(&self.slot_node)
    }
}

struct Entry {
    nodes: Nodes,
    ttl: Duration,
    standing: Standing,
    watched: Vec<String>,
    due: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Standing {
    Held {
        ends: Instant,
        /// Until when it may be relied on, as was answered last.
        until: Instant,
        /// When its nodes are to be watched, if they are not.
        watch_at: Option<Instant>,
    },
    /// Its nodes are deleted at that time, if it was told that its turn may have come.
    Waits { ends: Option<Instant> },
}

/// Where a claim's wake-ups go.
#[derive(Default)]
struct Inbox {
    is_woken: bool,
    waker: Option<Waker>,
}

/// What is to be done now.
pub(super) enum Due {
    Watch(String),
    /// A place, whose name nobody else ever has, or a place and the slot that goes with it.
    Delete(Vec<String>),
}

impl Entry {
    fn next_due(&self) -> Option<Instant> {
        match self.standing {
            Standing::Held { ends, watch_at, .. } => Some(watch_at.map_or(ends, |at| at.min(ends))),
            Standing::Waits { ends } => ends,
        }
    }
}

impl Claims {
    /// The claim, which has its places, holds its locks; its nodes are deleted at that time unless it is
    /// renewed. Says whether it has its places yet: its session may have ended in between.
    pub(super) fn hold(
        &self,
        owner: &str,
        nodes: Nodes,
        ttl: Duration,
        ends: Instant,
        until: Instant,
    ) -> bool {
        self.change(|table| {
            let known = table.claims.get(owner);
            if known.is_none_or(|entry| entry.nodes.session != nodes.session) {
                return false;
            }
            let watch_at = Some(Instant::now() + WATCHED_AFTER);
            let standing = Standing::Held {
                ends,
                until,
                watch_at,
            };
            table.put(owner, nodes, ttl, standing, &[]);
            true
        })
    }

    /// The claim waits, and is woken by what happens to these nodes.
    pub(super) fn wait(&self, owner: &str, nodes: Nodes, ttl: Duration, watched: &[String]) {
        self.change(|table| table.put(owner, nodes, ttl, Standing::Waits { ends: None }, watched));
    }

    /// What it has, and whether it holds its locks.
    pub(super) fn get(&self, owner: &str) -> Option<(Nodes, bool)> {
        let table = self.table();
        let entry = table.claims.get(owner)?;
        let is_held = matches!(entry.standing, Standing::Held { .. });
        Some((entry.nodes.clone(), is_held))
    }

    pub(super) fn forget(&self, owner: &str) {
        self.change(|table| {
            table.take(owner);
            table.unanswered.remove(owner);
        });
    }

    /// Moves the end of a lease, to an earlier time only where it is to be shortened, and until when it may be
    /// relied on. Says whether that is later than before; nothing where it is not held.
    pub(super) fn renew(
        &self,
        owner: &str,
        new_end: Instant,
        shortens: bool,
        new_until: Instant,
    ) -> Option<bool> {
        self.change(|table| {
            let entry = table.claims.get_mut(owner)?;
            let Standing::Held { ends, until, .. } = &mut entry.standing else {
                return None;
            };
            if shortens || *ends < new_end {
                *ends = new_end;
            }
            let is_later = *until < new_until;
            *until = new_until;
            table.plan(owner);
            Some(is_later)
        })
    }

    /// A node may be made for the owner that is not known yet.
    pub(super) fn set_unanswered(&self, owner: &str) {
        self.table().unanswered.insert(owner.to_owned());
    }

    pub(super) fn set_answered(&self, owner: &str) {
        self.table().unanswered.remove(owner);
    }

    pub(super) fn is_unanswered(&self, owner: &str) -> bool {
        self.table().unanswered.contains(owner)
    }

    /// Whether nobody holds or waits for anything.
    pub(super) fn is_empty(&self) -> bool {
        self.table().claims.is_empty()
    }

    /// Whether anything is held: leases that were handed off are, as far as is known here.
    pub(super) fn holds_any(&self) -> bool {
        let is_held = |entry: &Entry| matches!(entry.standing, Standing::Held { .. });
        self.table().claims.values().any(is_held)
    }

    /// Has the session's task told when it has to look sooner than it has planned.
    pub(super) fn set_task(&self, task: WeakUnboundedSender<Event>) {
        let _ = self.task.set(task);
    }

    /// The session's task looks again at that time, or when something is due before. Says when that is.
    pub(super) fn plan_look(&self, at: Instant) -> Instant {
        let mut table = self.table();
        let at = table.first_due().map_or(at, |due| due.min(at));
        table.looks_at = Some(at);
        at
    }

    /// A mark was left for so long. It is removed when it is over.
    pub(super) fn sweep(&self, mark: String, length: Duration) {
        if length > LONGEST_SWEPT {
            return;
        }
        let at = Instant::now() + length + length / 100 + LATER_BY;
        self.change(|table| {
            if table.marks.len() < MOST_SWEPT {
                table.marks.insert((at, mark));
            }
        });
    }

    /// What is to be done by now. What is deleted is forgotten before that is asked for: a renewal
    /// that comes later finds it gone.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Due> {
        self.change(|table| {
            let mut todo = Vec::new();
            while table.marks.first().is_some_and(|(at, _)| *at <= now) {
                let mark = table.marks.pop_first();
                todo.extend(mark.map(|(_, mark)| Due::Delete(vec![mark])));
            }
            while let Some((at, owner)) = table.due.first().cloned()
                && at <= now
            {
                let Some(entry) = table.claims.get_mut(&owner) else {
                    table.due.pop_first();
                    continue;
                };
                match &mut entry.standing {
                    Standing::Held { ends, watch_at, .. } if now < *ends => {
                        *watch_at = None;
                        let nodes: Vec<_> = entry.nodes.all().cloned().collect();
                        entry.watched.clone_from(&nodes);
                        for node in &nodes {
                            table.watch(node, &owner);
                        }
                        table.plan(&owner);
                        todo.extend(nodes.into_iter().map(Due::Watch));
                    }
                    _ => {
                        if let Some(entry) = table.take(&owner) {
                            let Nodes {
                                places, slot_node, ..
                            } = entry.nodes;
                            if let Some(slot) = slot_node {
                                let both = places.into_iter().chain([slot]);
                                todo.push(Due::Delete(both.collect()));
                            } else {
                                let each = places.into_iter();
                                todo.extend(each.map(|place| Due::Delete(vec![place])));
                            }
                        }
                        table.wake(&owner);
                    }
                }
            }
            todo
        })
    }

    /// Something has happened to a node that is watched, once.
    pub(super) fn happened(&self, node: &str, what: Happened) {
        let now = Instant::now();
        self.change(|table| {
            for owner in table.watches.remove(node).unwrap_or_default() {
                let Some(entry) = table.claims.get_mut(&owner) else {
                    continue;
                };
                entry.watched.retain(|watched| watched != node);
                let ttl = entry.ttl;
                match &mut entry.standing {
                    Standing::Held { ends, .. } if what == Happened::Deleted => {
                        let ends = *ends;
                        let places = table.take(&owner).map(|entry| entry.nodes.places);
                        // Who holds it gives back the others, unless it was handed off.
                        let others = places.into_iter().flatten().filter(|place| place != node);
                        table.marks.extend(others.map(|place| (ends, place)));
                        table.ended.push(owner);
                        continue;
                    }
                    Standing::Held { watch_at, .. } => *watch_at = Some(now + WATCHED_AFTER),
                    Standing::Waits { ends } => {
                        ends.get_or_insert(now + ttl);
                        table.wake(&owner);
                    }
                }
                table.plan(&owner);
            }
        });
    }

    /// Nothing is watched any more, since the connection is another.
    pub(super) fn watches_are_lost(&self) {
        let now = Instant::now();
        self.change(|table| {
            table.watches.clear();
            let owners: Vec<_> = table.claims.keys().cloned().collect();
            for owner in owners {
                if let Some(entry) = table.claims.get_mut(&owner) {
                    entry.watched.clear();
                    match &mut entry.standing {
                        Standing::Held { watch_at, .. } => *watch_at = Some(now),
                        Standing::Waits { .. } => table.wake(&owner),
                    }
                }
                table.plan(&owner);
            }
        });
    }

    /// The session is over, and with it everything that was held or waited for.
    pub(super) fn session_is_lost(&self) {
        self.change(|table| {
            table.watches.clear();
            table.due.clear();
            for (owner, entry) in mem::take(&mut table.claims) {
                match entry.standing {
                    Standing::Held { .. } => table.ended.push(owner),
                    Standing::Waits { .. } => table.wake(&owner),
                }
            }
        });
    }

    /// Has leases renewed at once that may have ended.
    pub(super) fn tell_ended(&self, leases: HeldLeases) {
        // There is one client of a store.
        let _ = self.leases.set(leases);
    }

    pub(super) fn listen(&self, owner: &str) {
        let before = self
            .table()
            .inboxes
            .insert(owner.to_owned(), Inbox::default());
        drop(before);
    }

    pub(super) fn close_inbox(&self, owner: &str) {
        let inbox = self.table().inboxes.remove(owner);
        // Its waker may be the last handle of a task, whose end may come back here.
        drop(inbox);
    }

    pub(super) fn next_wakeup(&self, owner: &str, cx: &Context<'_>) -> Poll<WakeUp> {
        let mut table = self.table();
        let Some(inbox) = table.inboxes.get_mut(owner) else {
            return Poll::Pending;
        };
        if mem::take(&mut inbox.is_woken) {
            return Poll::Ready(WakeUp::Look);
        }
        let before = waker::replace(&mut inbox.waker, cx.waker());
        drop(table);
        drop(before);
        Poll::Pending
    }

    /// One change, and then those are woken whom it concerns.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let was_empty = table.claims.is_empty();
        let result = change(&mut table);
        let due = table.first_due();
        let is_sooner = due.is_some_and(|due| table.looks_at.is_some_and(|at| due < at));
        // One who holds or waits for something has the session say more often that it lives.
        let looks = is_sooner || was_empty && !table.claims.is_empty();
        if looks {
            table.looks_at = None;
        }
        let wakers = mem::take(&mut table.to_wake);
        let ended = mem::take(&mut table.ended);
        drop(table);
        if looks && let Some(task) = self.task.get().and_then(WeakUnboundedSender::upgrade) {
            // A session that has ended has nothing to do.
            let _ = task.send(Event::Look);
        }
        wakers.into_iter().for_each(Waker::wake);
        if let Some(leases) = self.leases.get()
            && !ended.is_empty()
        {
            leases.renew(|claim| ended.iter().any(|owner| owner == claim.owner));
        }
        result
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No change can panic half way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn put(
        &mut self,
        owner: &str,
        nodes: Nodes,
        ttl: Duration,
        standing: Standing,
        watched: &[String],
    ) {
        self.take(owner);
        for node in watched {
            self.watch(node, owner);
        }
        let entry = Entry {
            nodes,
            ttl,
            standing,
            watched: watched.to_vec(),
            due: None,
        };
        self.unanswered.remove(owner);
        self.claims.insert(owner.to_owned(), entry);
        self.plan(owner);
    }

    fn take(&mut self, owner: &str) -> Option<Entry> {
        let entry = self.claims.remove(owner)?;
        for node in &entry.watched {
            if let Some(owners) = self.watches.get_mut(node) {
                owners.retain(|other| other != owner);
                if owners.is_empty() {
                    self.watches.remove(node);
                }
            }
        }
        if let Some(at) = entry.due {
            self.due.remove(&(at, owner.to_owned()));
        }
        Some(entry)
    }

    fn watch(&mut self, node: &str, owner: &str) {
        let owners = self.watches.entry(node.to_owned()).or_default();
        owners.push(owner.to_owned());
    }

    fn first_due(&self) -> Option<Instant> {
        let claim = self.due.first().map(|(at, _)| *at);
        let mark = self.marks.first().map(|(at, _)| *at);
        claim.into_iter().chain(mark).min()
    }

    fn plan(&mut self, owner: &str) {
        let Some(entry) = self.claims.get_mut(owner) else {
            return;
        };
        let next = entry.next_due();
        let before = mem::replace(&mut entry.due, next);
        if before != next {
            if let Some(at) = before {
                self.due.remove(&(at, owner.to_owned()));
            }
            if let Some(at) = next {
                self.due.insert((at, owner.to_owned()));
            }
        }
    }

    fn wake(&mut self, owner: &str) {
        if let Some(inbox) = self.inboxes.get_mut(owner) {
            inbox.is_woken = true;
            self.to_wake.extend(inbox.waker.take());
        }
    }
}
