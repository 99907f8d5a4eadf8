//! What stands under a lock, for whoever asks without taking it.
//!
//! `status.lua` reads the lock in one step.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::Redis;
use super::fault::Fault;
use super::reply::{integer, text};
use super::script::Form;
use super::stored::{Beside, Stored};
use super::timeouts::Deadline;
use crate::reply::KeptReply;
use crate::store::{Entry, EntryKind, Listed};

impl Redis {
    pub(super) async fn standing(&self, lock: &str) -> Result<Listed, Fault> {
        let mut deadline = self.deadline_of_two();
        match self.standing_once(lock, &mut deadline).await {
            Err(fault) if fault.is_transient() => self.standing_once(lock, &mut deadline).await,
            answer => answer,
        }
    }

    pub(super) async fn standing_once(
        &self,
        lock: &str,
        deadline: &mut Deadline<'_>,
    ) -> Result<Listed, Fault> {
        let queue = (!self.without_queues).then(|| self.names.queue(lock));
        let call = |form: Form<'_>| form.call(&[lock], queue.as_slice());
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
    let [stands, waiters] = parts.as_slice() else {
        return None;
    };
    let waiters = u64::try_from(integer(waiters)?).ok()?;
    Some(listed(lock, read_lock(stands)?, waiters))
}

/// What the scripts that only read say of a lock: `{kind, value, remaining ms}`, or nothing.
pub(super) fn read_lock(stands: &Value) -> Option<FoundEntries> {
    let Value::Array(parts) = stands else {
        return None;
    };
    match parts.as_slice() {
        [] => Some(FoundEntries::default()),
        [kind, value, remaining] => Some(found(
            &text(kind)?,
            &FoundValue::read(value),
            integer(remaining)?,
        )),
        _ => None,
    }
}

/// What stands under a lock.
#[derive(Debug, Default)]
pub(super) struct FoundEntries {
    pub(super) entries: Vec<Entry>,
    pub(super) permits: Option<u32>,
    pub(super) shared: bool,
}

/// What a key holds: the text of a string, or the members of a sorted set with their scores, in that order.
pub(super) enum FoundValue {
    Text(String),
    Members(Vec<(String, f64)>),
    Other,
}

impl FoundValue {
    /// Scores come as texts, or as numbers.
    pub(super) fn read(value: &Value) -> Self {
        let Value::Array(members) = value else {
            return text(value).map_or(Self::Other, Self::Text);
        };
        let score = |value: &Value| match value {
            Value::Double(score) => Some(*score),
            value => text(value)?.parse().ok(),
        };
        let members = members.chunks_exact(2);
        let members = members.map(|pair| Some((text(&pair[0])?, score(&pair[1])?)));
        members
            .collect::<Option<_>>()
            .map_or(Self::Other, Self::Members)
    }
}

/// What is found under a lock; nothing where it has gone while it was read.
pub(super) fn found(kind: &str, value: &FoundValue, remaining: i64) -> FoundEntries {
    let one = |entry| FoundEntries {
        entries: vec![entry],
        ..FoundEntries::default()
    };
    let other = |found: &str, remaining| one(Entry::new(0, foreign(found), remaining));
    let remaining = match u64::try_from(remaining) {
        Ok(millis) => Some(Duration::from_millis(millis)),
        Err(_) if remaining == -1 => None,
        Err(_) => return FoundEntries::default(),
    };
    match (kind, value, remaining) {
        ("none", ..) => FoundEntries::default(),
        ("string", _, None) => other("a string without expiry", None),
        ("string", FoundValue::Text(text), remaining) => one(of_string(text, remaining)),
        ("zset", FoundValue::Members(members), Some(left)) => match together(members, left) {
            Some(found) => found,
            None => other("a zset", remaining),
        },
        (kind, ..) => other(&format!("a {kind}"), remaining),
    }
}

/// Those who hold a lock together, the last of whom does so for this long yet.
fn together(members: &[(String, f64)], left: Duration) -> Option<FoundEntries> {
    let (_, last) = members.last()?;
    let is = |name: &str| members.iter().any(|(member, _)| member == name);
    let mut found = FoundEntries {
        shared: is("shared"),
        ..FoundEntries::default()
    };
    if !found.shared && !is("permits") {
        return None;
    }
    let until: HashMap<_, _> = members
        .iter()
        .filter(|(_, score)| *score > 0.0)
        .map(|(owner, until)| (owner.as_str(), *until))
        .collect();
    for (said, _) in members {
        let owner = said.split(' ').next().unwrap_or_default();
        let (Some(beside), Some(until)) = (Beside::read(said), until.get(owner)) else {
            continue;
        };
        if owner == said {
            continue;
        }
        let before = Duration::try_from_secs_f64((last - until).max(0.0) / 1000.0);
        found.permits = found.permits.max(beside.permits);
        // Where it is over, nobody has asked since then.
        if let Some(remaining) = left.checked_sub(before.unwrap_or_default()) {
            let entry = Entry::new(beside.slot, of(&beside.stored), Some(remaining));
            found.entries.push(entry.weight(beside.weight));
        }
    }
    found.entries.sort_by_key(|entry| entry.slot);
    Some(found)
}

fn of_string(value: &str, remaining: Option<Duration>) -> Entry {
    let stored = Stored::read(value);
    let reply_bytes = match stored {
        Stored::Done { reply, .. } => reply.and_then(|reply| KeptReply::new(reply).bytes()),
        _ => None,
    };
    Entry::new(0, of(&stored), remaining).replied(reply_bytes)
}

fn of(stored: &Stored<'_>) -> EntryKind {
    match *stored {
        Stored::Held { owner, since } => {
            let owner = owner.to_owned();
            EntryKind::Held { owner, since }
        }
        Stored::Closed { owner, since } => {
            let owner = owner.to_owned();
            EntryKind::Closed { owner, since }
        }
        Stored::Done { since, .. } => EntryKind::Done { since },
        Stored::Other => foreign("a string that no lock has written"),
    }
}

/// A lock with what was found under it.
pub(super) fn listed(lock: &str, found: FoundEntries, waiters: u64) -> Listed {
    Listed::new(lock, found.entries, waiters)
        .permits(found.permits)
        .shared(found.shared)
}

pub(super) fn foreign(found: &str) -> EntryKind {
    EntryKind::Foreign {
        found: found.to_owned(),
    }
}
