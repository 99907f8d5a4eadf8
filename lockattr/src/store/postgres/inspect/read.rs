//! Reading a lock with those who wait for it.

use std::fmt::Write;
use std::time::Duration;

use super::{number, value};
use crate::error::StoreError;
use crate::owner;
use crate::store::inspect::{Listed, Shown, Waiter};
use crate::store::postgres::live::Answer;
use crate::store::postgres::sql;
use crate::store::postgres::standing::{IS_WAITING, listed, some};

/// So many of those who wait are shown.
const MOST_SHOWN: usize = 1000;

/// One lock, with its queue.
pub(super) fn one(lock: &str) -> String {
    let mut statement = some([&lock.to_owned()]);
    let _ = write!(
        statement,
        " UNION ALL (\
           SELECT 0, 'waiting', w.place, w.owner, NULL, (extract(epoch FROM w.ttl) * 1000000)::bigint, NULL, NULL, NULL \
           FROM lockattr.waiters w WHERE w.lock = {} AND {IS_WAITING} ORDER BY w.place LIMIT {MOST_SHOWN}\
         ) ORDER BY at, what, slot",
        sql::text(lock)
    );
    statement
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
