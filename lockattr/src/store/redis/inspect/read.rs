//! What each of the locks is whose names are known, some at a time.
//!
//! A lock is read by a few commands, not in one step: nothing of them is written, and a list is of what was
//! there while it was made.

use redis::{Cmd, Value};

use super::Route;
use super::entry::{self, FoundEntry};
use super::scan::MetLocks;
use crate::error::StoreError;
use crate::store::inspect::Listed;
use crate::store::redis::names::Names;
use crate::store::redis::reply::{integer, text};
use crate::store::redis::together::{Boxed, all, both};

/// So many locks are read at the same time, and make a page.
const AT_A_TIME: usize = 64;

/// What came of reading some locks.
pub(in crate::store::redis) struct Reading {
    pub(in crate::store::redis) locks: Vec<Listed>,
    /// A lock that is not among them, and why.
    pub(in crate::store::redis) failed: Option<(String, StoreError)>,
}

impl Reading {
    /// Reads the next locks, and takes those out of `met` that were answered.
    pub(in crate::store::redis) async fn some(
        route: &impl Route,
        names: &Names,
        met: &mut MetLocks,
    ) -> Self {
        let reads = met.iter().take(AT_A_TIME).map(|(lock, slots)| {
            let slots = std::iter::once(0).chain(slots.iter().copied());
            Box::pin(read(route, names, lock, slots.collect())) as Boxed<'_, Result<Listed, _>>
        });
        let reads = all(reads.collect()).await;
        let mut reading = Self {
            locks: Vec::with_capacity(reads.len()),
            failed: None,
        };
        let mut unread = MetLocks::new();
        for read in reads {
            let Some((lock, slots)) = met.pop_first() else {
                break;
            };
            match read {
                Ok(listed) => {
                    let is_lock = !listed.entries.is_empty() || listed.waiters > 0;
                    reading.locks.extend(is_lock.then_some(listed));
                }
                Err(fault) => {
                    reading.failed = Some((lock.clone(), fault));
                    unread.insert(lock, slots);
                }
            }
        }
        met.append(&mut unread);
        reading
    }
}

/// Reads a lock with these slots.
pub(in crate::store::redis) async fn read(
    route: &impl Route,
    names: &Names,
    lock: &str,
    slots: Vec<usize>,
) -> Result<Listed, StoreError> {
    let slots = slots.into_iter().map(|slot| {
        Box::pin(read_slot(route, names, lock, slot))
            as Boxed<'_, Result<Option<FoundEntry>, StoreError>>
    });
    let slots = all(slots.collect());
    let mut count = redis::cmd("ZCARD");
    count.arg(names.queue(lock));
    // Sent before the others are awaited.
    let waiters = async { or_other(route.ask(lock, &count).await) };
    let (entries, waiters) = both(slots, waiters).await;
    let entries: Result<Vec<_>, _> = entries.into_iter().collect();
    let waiters = waiters?.and_then(|waiters| u64::try_from(integer(&waiters)?).ok());
    let found = entries?.into_iter().flatten().collect();
    Ok(entry::listed(lock, found, waiters.unwrap_or(0)))
}

async fn read_slot(
    route: &impl Route,
    names: &Names,
    lock: &str,
    slot: usize,
) -> Result<Option<FoundEntry>, StoreError> {
    let name = names.slot(lock, slot);
    let command = |verb: &str| {
        let mut command: Cmd = redis::cmd(verb);
        command.arg(&name);
        command
    };
    let (get, expiry) = (command("GET"), command("PTTL"));
    let (value, remaining) = both(route.ask(lock, &get), route.ask(lock, &expiry)).await;
    let remaining = integer(&remaining?).unwrap_or(-2);
    let (kind, value) = match or_other(value)? {
        Some(Value::Nil) => return Ok(None),
        Some(value) => ("string".to_owned(), text(&value).unwrap_or_default()),
        None => {
            let kind = route.ask(lock, &command("TYPE")).await?;
            (text(&kind).unwrap_or_default(), String::new())
        }
    };
    Ok(entry::found(slot, &kind, &value, remaining))
}

/// `None` where something of another type is stored there.
fn or_other(answer: Result<Value, StoreError>) -> Result<Option<Value>, StoreError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.to_string().contains("WRONGTYPE") => Ok(None),
        Err(fault) => Err(fault),
    }
}
