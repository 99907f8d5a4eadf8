//! Reading locks, with what stands in their slots and who waits.

use std::fmt::Write;
use std::time::Duration;

use super::{moment, number, unexpected, value};
use crate::error::StoreError;
use crate::owner;
use crate::store::inspect::{Entry, EntryKind, Listed, Shown, Waiter};
use crate::store::postgres::live::Answer;
use crate::store::postgres::sql;

/// So many of those who wait are shown.
const MOST_SHOWN: usize = 1000;

/// Some locks; each row is of the lock at its place.
pub(super) fn some<'a>(locks: impl IntoIterator<Item = &'a String>) -> String {
    let locks = sql::texts(locks.into_iter().map(String::as_str));
    // Names of slots go from `{lock}0` to `{lock}9…`, and `:` comes next.
    format!(
        "WITH asked AS MATERIALIZED (\
           SELECT a.lock, a.at - 1 AS at FROM unnest({locks}) WITH ORDINALITY AS a (lock, at)\
         ), named AS MATERIALIZED (\
           SELECT a.at, 0 AS slot, l.* FROM asked a JOIN lockattr.locks l ON l.name = a.lock \
           UNION ALL \
           SELECT a.at, substr(l.name, char_length(a.lock) + 3)::integer, l.* \
           FROM asked a JOIN lockattr.locks l \
             ON l.name > '{{' || a.lock || '}}' AND l.name < '{{' || a.lock || '}}:' \
           WHERE substr(l.name, char_length(a.lock) + 3) ~ '^[0-9]{{1,4}}$'\
         ) SELECT n.at, n.state AS what, n.slot::bigint, n.owner, lockattr.micros(n.since), \
           lockattr.micros(n.until) - lockattr.micros(statement_timestamp()), greatest(n.permits, 0), \
           CASE n.state WHEN 'done' THEN (\
             SELECT octet_length(r.reply) - position(' ' IN r.reply) FROM lockattr.replies r \
             WHERE r.name = n.name AND r.since = n.since AND r.reply ~ '^(json|error) '\
           ) END \
         FROM named n WHERE n.until > statement_timestamp() \
         UNION ALL \
         SELECT a.at, 'waiters', count(*), NULL, NULL, NULL, NULL, NULL \
         FROM asked a JOIN lockattr.waiters w ON w.lock = a.lock WHERE {IS_WAITING} GROUP BY a.at"
    )
}

/// Others have not asked for two minutes.
const IS_WAITING: &str =
    "abs(lockattr.micros(statement_timestamp()) - lockattr.micros(w.seen)) <= 120000000";

/// One lock, with its queue.
pub(super) fn one(lock: &str) -> String {
    let mut statement = some([&lock.to_owned()]);
    let _ = write!(
        statement,
        " UNION ALL (\
           SELECT 0, 'waiting', w.place, w.owner, NULL, (extract(epoch FROM w.ttl) * 1000000)::bigint, NULL, NULL \
           FROM lockattr.waiters w WHERE w.lock = {} AND {IS_WAITING} ORDER BY w.place LIMIT {MOST_SHOWN}\
         ) ORDER BY at, what, slot",
        sql::text(lock)
    );
    statement
}

/// The locks of which something stands there or somebody waits.
pub(super) fn listed(locks: &[String], answer: &Answer) -> Result<Vec<Listed>, StoreError> {
    let none = |lock: &String| Listed::new(lock, Vec::new(), 0);
    let mut listed: Vec<_> = locks.iter().map(none).collect();
    for row in &answer.rows {
        let at: usize = number(value(row, 0)?)?;
        let lock = listed
            .get_mut(at)
            .ok_or_else(|| unexpected("another lock"))?;
        let (what, slot) = (value(row, 1)?, value(row, 2)?);
        if what == "waiters" {
            lock.waiters = number(slot)?;
            continue;
        }
        let owner = value(row, 3)?.to_owned();
        let micros = |column| -> Result<Duration, StoreError> {
            Ok(Duration::from_micros(number(value(row, column)?)?))
        };
        let kind = match what {
            "held" => EntryKind::Held {
                owner,
                since: Some(moment(number(value(row, 4)?)?)),
            },
            "closed" => EntryKind::Closed {
                owner,
                since: Some(moment(number(value(row, 4)?)?)),
            },
            "done" => EntryKind::Done {
                since: moment(number(value(row, 4)?)?),
            },
            _ => continue,
        };
        let entry = Entry::new(number(slot)?, kind, Some(micros(5)?));
        lock.entries
            .push(entry.replied(value(row, 7)?.parse().ok()));
        let permits: u32 = number(value(row, 6)?)?;
        lock.permits = lock.permits.max(Some(permits)).filter(|all| *all > 1);
    }
    listed.retain(|lock| !lock.entries.is_empty() || lock.waiters > 0);
    for lock in &mut listed {
        lock.entries.sort_by_key(|entry| entry.slot);
    }
    Ok(listed)
}

/// One lock, also where nothing stands there.
pub(super) fn shown(lock: &str, answer: &Answer) -> Result<Shown, StoreError> {
    let listed = listed(&[lock.to_owned()], answer)?.into_iter().next();
    let mut queue = Vec::new();
    for row in &answer.rows {
        if value(row, 1)? == "waiting" {
            let (owner, ttl) = (value(row, 3)?, number(value(row, 5)?)?);
            let ttl = Some(Duration::from_micros(ttl));
            queue.push(Waiter::new(owner, owner::since(owner), ttl));
        }
    }
    let listed = listed.unwrap_or_else(|| Listed::new(lock, Vec::new(), 0));
    Ok(Shown::new(listed, queue))
}
