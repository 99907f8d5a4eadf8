//! What stands under a lock, for whoever asks without taking it.
//!
//! `status.lua` reads the lock in one step. That a lock has more slots than were asked for is seen by what
//! stands there, and then they are read as well, in a second one.
//!
//! # Rights
//! Beside those of a client: `+zcard`, to know how many wait.

use std::time::Duration;

use redis::Value;

use super::Redis;
use super::fault::Fault;
use super::reply::{integer, text};
use super::script::Form;
use super::stored::Stored;
use super::timeouts::Deadline;
use crate::reply::KeptReply;
use crate::store::{Entry, EntryKind, Listed};

impl Redis {
    pub(super) async fn standing(&self, lock: &str, permits: u32) -> Result<Listed, Fault> {
        let mut deadline = self.deadline_of_two();
        match self.standing_once(lock, permits, &mut deadline).await {
            Err(fault) if fault.is_transient() => {
                self.standing_once(lock, permits, &mut deadline).await
            }
            answer => answer,
        }
    }

    pub(super) async fn standing_once(
        &self,
        lock: &str,
        permits: u32,
        deadline: &mut Deadline<'_>,
    ) -> Result<Listed, Fault> {
        let found = self.read_standing(lock, permits, deadline).await?;
        match found.permits {
            Some(more) if more > permits => self.read_standing(lock, more, deadline).await,
            _ => Ok(found),
        }
    }

    async fn read_standing(
        &self,
        lock: &str,
        permits: u32,
        deadline: &mut Deadline<'_>,
    ) -> Result<Listed, Fault> {
        let slots = 0..permits.max(1) as usize;
        let slots: Vec<_> = slots.map(|slot| self.names.slot(lock, slot)).collect();
        let queue = (!self.without_queues).then(|| self.names.queue(lock));
        let call = |form: Form<'_>| {
            let mut command = form.call(&slots, queue.as_slice());
            command.arg(slots.len());
            command
        };
        let script = &self.scripts.status;
        let (answer, _) = script.run(&self.connections, call, deadline).await?;
        status(lock, &answer).ok_or_else(|| self.protocol_error(&answer))
    }
}

/// What `status.lua` has answered.
fn status(lock: &str, answer: &Value) -> Option<Listed> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [Value::Array(slots), waiters] = parts.as_slice() else {
        return None;
    };
    let waiters = u64::try_from(integer(waiters)?).ok()?;
    Some(listed(lock, read_slots(slots)?, waiters))
}

/// What the scripts that only read say of slots: `{i, kind, value, remaining ms}`.
pub(super) fn read_slots(slots: &[Value]) -> Option<Vec<FoundEntry>> {
    let mut in_slots = Vec::with_capacity(slots.len());
    for slot in slots {
        let Value::Array(parts) = slot else {
            return None;
        };
        let [slot, kind, value, remaining] = parts.as_slice() else {
            return None;
        };
        let slot = usize::try_from(integer(slot)?).ok()?;
        let (kind, value) = (text(kind)?, text(value)?);
        in_slots.extend(found(slot, &kind, &value, integer(remaining)?));
    }
    Some(in_slots)
}

/// What stands in a slot, and how many slots there are for its holder, where that is told.
#[derive(Debug)]
pub(super) struct FoundEntry {
    pub(super) entry: Entry,
    pub(super) permits: Option<u32>,
}

/// What is found in a slot; `None` where it has gone while it was read.
pub(super) fn found(slot: usize, kind: &str, value: &str, remaining: i64) -> Option<FoundEntry> {
    let remaining = match u64::try_from(remaining) {
        Ok(millis) => Some(Duration::from_millis(millis)),
        Err(_) if remaining == -1 => None,
        Err(_) => return None,
    };
    let reply_bytes = match Stored::read(value) {
        Stored::Done { reply, .. } => reply.and_then(|reply| KeptReply::new(reply).bytes()),
        _ => None,
    };
    let (kind, permits) = match kind {
        "none" => return None,
        "string" if remaining.is_none() => (foreign("a string without expiry"), None),
        "string" => of_string(value),
        kind => (foreign(&format!("a {kind}")), None),
    };
    Some(FoundEntry {
        entry: Entry::new(slot, kind, remaining).replied(reply_bytes),
        permits,
    })
}

fn of_string(value: &str) -> (EntryKind, Option<u32>) {
    match Stored::read(value) {
        Stored::Held {
            owner,
            since,
            permits,
        } => {
            let owner = owner.to_owned();
            (EntryKind::Held { owner, since }, permits)
        }
        Stored::Closed { origin, since } => {
            let owner = nobody(origin);
            (EntryKind::Closed { owner, since }, None)
        }
        Stored::Done { since, .. } => (EntryKind::Done { since }, None),
        Stored::Other => (foreign("a string that no lock has written"), None),
    }
}

/// The owner of a lock that was left closed.
pub(super) fn nobody(origin: &str) -> String {
    format!("{:032}@{origin}", 0)
}

/// A lock with what was found in its slots.
pub(super) fn listed(lock: &str, found: Vec<FoundEntry>, waiters: u64) -> Listed {
    let permits = found.iter().filter_map(|found| found.permits).max();
    let entries = found.into_iter().map(|found| found.entry).collect();
    Listed::new(lock, entries, waiters).permits(permits)
}

pub(super) fn foreign(found: &str) -> EntryKind {
    EntryKind::Foreign {
        found: found.to_owned(),
    }
}
