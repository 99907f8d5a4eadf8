//! What each of the locks is whose names are known, some at a time.
//!
//! A lock is read by a few commands, not in one step: nothing of them is written, and a list is of what was
//! there while it was made.

use redis::{Cmd, Value};

use super::entry::{self, FoundEntries, FoundValue};
use super::scan::MetLocks;
use super::{MOST_SHOWN, Route};
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all, both};
use crate::store::inspect::{Listed, Shown};
use crate::store::redis::names::Names;
use crate::store::redis::reply::{integer, text};

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
        let reads = met
            .iter()
            .take(AT_A_TIME)
            .map(|lock| Box::pin(read(route, names, lock)) as Boxed<'_, Result<Listed, _>>);
        let reads = all(reads.collect()).await;
        let mut reading = Self {
            locks: Vec::with_capacity(reads.len()),
            failed: None,
        };
        let mut unread = MetLocks::new();
        for read in reads {
            let Some(lock) = met.pop_first() else {
                break;
            };
            match read {
                Ok(listed) => {
                    let is_lock = !listed.entries.is_empty() || listed.waiters > 0;
                    reading.locks.extend(is_lock.then_some(listed));
                }
                Err(fault) => {
                    reading.failed = Some((lock.clone(), fault));
                    unread.insert(lock);
                }
            }
        }
        met.append(&mut unread);
        reading
    }
}

/// Reads a lock.
async fn read(route: &impl Route, names: &Names, lock: &str) -> Result<Listed, StoreError> {
    let mut count = redis::cmd("ZCARD");
    count.arg(names.queue(lock));
    let (found, waiters) = both(read_stored(route, lock), route.ask(lock, &count)).await;
    let waiters = or_other(waiters)?.and_then(|waiters| u64::try_from(integer(&waiters)?).ok());
    Ok(entry::listed(lock, found?, waiters.unwrap_or(0)))
}

/// The same with who waits, where the keys of a lock are on several nodes: not in one moment.
pub(in crate::store::redis) async fn shown_by_parts(
    route: &impl Route,
    names: &Names,
    lock: &str,
) -> Result<Shown, StoreError> {
    let found = read_stored(route, lock).await?;
    let queue = |verb: &str| {
        let mut command = redis::cmd(verb);
        command.arg(names.queue(lock));
        command
    };
    let mut range = queue("ZRANGE");
    range.arg(0).arg(MOST_SHOWN - 1);
    let waiters = or_other(route.ask(lock, &queue("ZCARD")).await)?;
    let waiters = waiters.and_then(|waiters| u64::try_from(integer(&waiters)?).ok());
    let queue = match or_other(route.ask(lock, &range).await)? {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let queue = queue
        .iter()
        .filter_map(|entry| entry::waiting(&text(entry)?));
    let listed = entry::listed(lock, found, waiters.unwrap_or(0));
    Ok(Shown::new(listed, queue.collect()))
}

async fn read_stored(route: &impl Route, lock: &str) -> Result<FoundEntries, StoreError> {
    let command = |verb: &str| {
        let mut command: Cmd = redis::cmd(verb);
        command.arg(lock);
        command
    };
    let (get, expiry) = (command("GET"), command("PTTL"));
    let (value, remaining) = both(route.ask(lock, &get), route.ask(lock, &expiry)).await;
    let remaining = integer(&remaining?).unwrap_or(-2);
    let (kind, value) = match or_other(value)? {
        Some(Value::Nil) => return Ok(FoundEntries::default()),
        Some(value) => ("string".to_owned(), FoundValue::read(&value)),
        None => {
            let kind = route.ask(lock, &command("TYPE")).await?;
            let kind = text(&kind).unwrap_or_default();
            let value = if kind == "zset" {
                let mut range = command("ZRANGE");
                range.arg(0).arg(-1).arg("WITHSCORES");
                or_other(route.ask(lock, &range).await)?
            } else {
                None
            };
            (kind, FoundValue::read(&value.unwrap_or(Value::Nil)))
        }
    };
    Ok(entry::found(&kind, &value, remaining))
}

/// `None` where something of another type is stored there.
fn or_other(answer: Result<Value, StoreError>) -> Result<Option<Value>, StoreError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.to_string().contains("WRONGTYPE") => Ok(None),
        Err(fault) => Err(fault),
    }
}
