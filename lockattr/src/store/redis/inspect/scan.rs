//! The names of all locks that are asked for, by SCAN, and the list of a single server.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Value;

use super::pattern::Filter;
use super::read::Reading;
use super::{Redis, with_rights};
use crate::store::Reply;
use crate::store::inspect::{Listing, Page};
use crate::store::redis::fault::Fault;
use crate::store::redis::reply::text;
use crate::store::redis::timeouts::Deadline;

/// How many keys the server looks at in one step, which takes it less than a millisecond.
const STEP: usize = 500;

/// How long a page of names may take, so that whoever lists can stop.
const PAGE: Duration = Duration::from_millis(100);

/// How often a scan begins again because the server was replaced, or its connection: the place that it has come
/// to is that of one process.
const MOST_BEGINNINGS: u32 = 4;

/// The locks that were met.
pub(in crate::store::redis) type MetLocks = BTreeSet<String>;

/// A scan of one server.
pub(in crate::store::redis) struct Scan {
    glob: String,
    /// Where the server goes on; `None` at the end.
    cursor: Option<String>,
    beginnings: u32,
    /// How often the server had moved when it began.
    moves: u64,
}

impl Scan {
    pub(in crate::store::redis) fn new(filter: &Filter<'_>) -> Self {
        Self {
            glob: filter.glob(),
            cursor: Some("0".to_owned()),
            beginnings: 0,
            moves: 0,
        }
    }

    pub(in crate::store::redis) fn is_over(&self) -> bool {
        self.cursor.is_none()
    }

    /// Goes on for as long as a page may take, or to the end.
    pub(in crate::store::redis) async fn go_on(
        &mut self,
        redis: &Redis,
        filter: &Filter<'_>,
        met: &mut MetLocks,
    ) -> Result<(), Fault> {
        let begun = Instant::now();
        while let Some(cursor) = self.cursor.clone() {
            let mut deadline = redis.deadline();
            match self.step(redis, &cursor, filter, met, &mut deadline).await {
                // A server that is silent would be so again.
                Err(fault)
                    if fault.is_transient()
                        && !fault.silent
                        && self.beginnings < MOST_BEGINNINGS =>
                {
                    self.begin_again();
                }
                stepped => stepped?,
            }
            if begun.elapsed() >= PAGE {
                break;
            }
        }
        Ok(())
    }

    async fn step(
        &mut self,
        redis: &Redis,
        cursor: &str,
        filter: &Filter<'_>,
        met: &mut MetLocks,
        deadline: &mut Deadline<'_>,
    ) -> Result<(), Fault> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(&self.glob);
        command.arg("COUNT").arg(STEP);
        let (answer, _) = redis.connections.ask(command, deadline).await?;
        let (next, keys) = read(&answer).ok_or_else(|| redis.protocol_error(&answer))?;
        let moves = redis.connections.server().moves();
        if cursor == "0" {
            self.moves = moves;
        } else if moves != self.moves && self.beginnings < MOST_BEGINNINGS {
            self.begin_again();
            return Ok(());
        }
        for key in keys {
            // What is no text is no lock's.
            let Value::BulkString(key) = key else {
                continue;
            };
            let named = std::str::from_utf8(key);
            let lock = named.ok().and_then(|key| filter.lock(&redis.names, key));
            if let Some(lock) = lock.filter(|lock| !met.contains(*lock)) {
                met.insert(lock.to_owned());
            }
        }
        self.cursor = (next != "0").then_some(next);
        Ok(())
    }

    fn begin_again(&mut self) {
        self.cursor = Some("0".to_owned());
        self.beginnings += 1;
    }
}

fn read(answer: &Value) -> Option<(String, &[Value])> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [next, Value::Array(keys)] = parts.as_slice() else {
        return None;
    };
    Some((text(next)?, keys))
}

/// The locks of a single server.
pub(super) struct ScannedLocks<'a> {
    redis: &'a Redis,
    filter: Filter<'a>,
    scan: Scan,
    met: MetLocks,
}

impl<'a> ScannedLocks<'a> {
    pub(super) fn new(redis: &'a Redis, filter: Filter<'a>) -> Self {
        Self {
            redis,
            scan: Scan::new(&filter),
            filter,
            met: MetLocks::new(),
        }
    }
}

impl Listing for ScannedLocks<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        Box::pin(async move {
            if !self.scan.is_over() {
                let scanned = self.scan.go_on(self.redis, &self.filter, &mut self.met);
                let scanned = scanned.await;
                scanned.map_err(|fault| with_rights(fault).told())?;
                return Ok(Some(Page::default()));
            }
            if self.met.is_empty() {
                return Ok(None);
            }
            let Reading { locks, failed } =
                Reading::some(self.redis, &self.redis.names, &mut self.met).await;
            match failed {
                // The next page tries again.
                Some((_, error)) if locks.is_empty() => Err(error),
                _ => Ok(Some(Page::new(locks))),
            }
        })
    }
}
