//! What stands under locks, for whoever asks without taking them: one statement, in one snapshot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::acquire::{can_be_stored, number};
use super::live::{Answer, unexpected, value};
use super::{Postgres, sql};
use crate::error::StoreError;
use crate::store::{Entry, EntryKind, Listed};

impl Postgres {
    pub(super) async fn standing(&self, lock: &str) -> Result<Listed, StoreError> {
        can_be_stored(&[lock])?;
        let locks = [lock.to_owned()];
        let (answer, _) = self.step(&some(&locks), None).await?;
        let listed = listed(&locks, &answer)?.pop();
        Ok(listed.unwrap_or_else(|| Listed::new(lock, Vec::new(), 0)))
    }
}

/// Some locks; each row is of the lock at its place.
pub(super) fn some<'a>(locks: impl IntoIterator<Item = &'a String>) -> String {
    let locks = sql::texts(locks.into_iter().map(String::as_str));
    format!(
        "WITH asked AS MATERIALIZED (\
           SELECT a.lock, a.at - 1 AS at FROM unnest({locks}) WITH ORDINALITY AS a (lock, at)\
         ), named AS MATERIALIZED (\
           SELECT a.at, 0 AS slot, 1 AS permits, 1 AS weight, l.name, l.owner, l.state, l.since, l.until \
           FROM asked a JOIN lockattr.locks l ON l.name = a.lock AND l.owner <> '*' \
           UNION ALL \
           SELECT a.at, h.slot, h.permits, h.weight, h.lock, h.owner, h.state, h.since, h.until \
           FROM asked a JOIN lockattr.locks l ON l.name = a.lock AND l.owner = '*' \
           JOIN lockattr.holders h ON h.lock = a.lock\
         ) SELECT n.at, n.state AS what, n.slot::bigint, n.owner, lockattr.micros(n.since), \
           lockattr.micros(n.until) - lockattr.micros(statement_timestamp()), greatest(n.permits, 0), \
           greatest(n.weight, 1), CASE n.state WHEN 'done' THEN (\
             SELECT octet_length(r.reply) - position(' ' IN r.reply) FROM lockattr.replies r \
             WHERE r.name = n.name AND r.since = n.since AND r.reply ~ '^(json|error) '\
           ) END \
         FROM named n WHERE n.until > statement_timestamp() \
         UNION ALL \
         SELECT a.at, 'waiters', count(*), NULL, NULL, NULL, NULL, NULL, NULL \
         FROM asked a JOIN lockattr.waiters w ON w.lock = a.lock WHERE {IS_WAITING} GROUP BY a.at"
    )
}

/// Others have not asked for two minutes.
pub(super) const IS_WAITING: &str =
    "abs(lockattr.micros(statement_timestamp()) - lockattr.micros(w.seen)) <= 120000000";

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
        let entry = entry.weight(number(value(row, 7)?)?);
        lock.entries
            .push(entry.replied(value(row, 8)?.parse().ok()));
        let permits: u32 = number(value(row, 6)?)?;
        lock.shared |= permits == 0;
        lock.permits = lock.permits.max(Some(permits)).filter(|all| *all > 1);
    }
    listed.retain(|lock| !lock.entries.is_empty() || lock.waiters > 0);
    for lock in &mut listed {
        lock.entries.sort_by_key(|entry| entry.slot);
    }
    Ok(listed)
}

/// A moment that the server has told.
pub(in crate::store::postgres) fn moment(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}
