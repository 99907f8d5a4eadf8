//! What the locks of a database look like to people, and how they are ended.
//!
//! Names are gone through in the order of an index, a part at a time, and the locks that they belong to are
//! read by one statement, in one snapshot. A lock is met by its own name, and by those who wait for it: the names
//! of those that were listed are in memory until the end of the list.
//!
//! # Rights
//! Those of every client.

use std::collections::HashSet;
use std::fmt::Write;
use std::mem;
use std::time::{SystemTime, UNIX_EPOCH};

use super::acquire::{can_be_stored, number};
use super::live::{unexpected, value};
use super::target::Address;
use super::{Postgres, sql, standing};
use crate::error::StoreError;
use crate::store::Reply;
use crate::store::inspect::{
    Ended, Entry, EntryKind, Finding, Inspect, Listing, Page, Shown, matches,
};

mod doctor;
mod read;

/// So many names are gone through for a page.
const NAMES: usize = 1000;

impl Inspect for Postgres {
    fn part(&self) -> String {
        let hosts = self.commands.server.target.hosts.iter();
        let hosts: Vec<_> = hosts.map(Address::shown).collect();
        hosts.join(",")
    }

    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a> {
        Box::new(Names {
            postgres: self,
            prefix,
            pattern,
            places: vec![Place::Waiters, Place::Locks],
            last: String::new(),
            listed: HashSet::new(),
        })
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        Box::pin(async move {
            can_be_stored(&[lock])?;
            let (answer, _) = self.step(&read::one(lock), None).await?;
            read::shown(lock, &answer)
        })
    }

    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        Box::pin(async move {
            can_be_stored(&[lock])?;
            let statement = ending(lock, entry)?;
            let (answer, lost) = self.step(&statement, None).await?;
            self.wake(answer.text(1)?).await;
            match answer.text(0)? {
                "ours" => Ok(Ended::Ended),
                // The request before, which was not answered, has done it.
                "nothing" if lost => Ok(Ended::Ended),
                "nothing" => Ok(Ended::Gone),
                "another" => Ok(Ended::Changed),
                _ => Err(unexpected("another answer")),
            }
        })
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        Box::pin(self.diagnosed())
    }
}

/// Releases what stands there if it is what was shown: nobody else takes or frees it between the look and the
/// release, which are one transaction. A holder is known by its owner, and what is nobody's by since when.
fn ending(lock: &str, entry: &Entry) -> Result<String, StoreError> {
    let (state, owner, since) = match &entry.kind {
        EntryKind::Held { owner, .. } => ("held", Some(owner), None),
        EntryKind::Closed { owner, since } => ("closed", Some(owner), *since),
        EntryKind::Done { since } => ("done", None, Some(*since)),
        EntryKind::Foreign { .. } => {
            return Err(StoreError::invalid(
                "what is not a lock's is not ended: delete its row",
            ));
        }
    };
    let mut same = format!("o.state = {}", sql::text(state));
    if let Some(owner) = owner {
        let _ = write!(same, " AND o.owner = {}", sql::text(owner));
    }
    if let Some(since) = since {
        let _ = write!(same, " AND lockattr.micros(o.since) = {}", micros(since));
    }
    let (lock, locks, slot) = (sql::text(lock), sql::texts([lock]), entry.slot);
    // Of one that is held together the row is in nobody's hands.
    let stands = format!(
        "SELECT l.owner, l.state, l.since, false AS beside FROM lockattr.locks l \
         WHERE l.name = {lock} AND l.owner <> '*' AND l.until > pg_catalog.clock_timestamp() AND {slot} = 0 \
         UNION ALL SELECT h.owner, h.state, h.since, true FROM lockattr.holders h \
         WHERE h.lock = {lock} AND h.slot = {slot} AND h.until > pg_catalog.clock_timestamp()"
    );
    Ok(format!(
        "SET LOCAL lock_timeout=200;SELECT lockattr.enter({locks});\
         WITH there AS MATERIALIZED ({stands}), same AS MATERIALIZED (\
           SELECT o.owner, o.beside FROM there o WHERE {same}\
         ) SELECT r.answer, r.wakes FROM same o, LATERAL lockattr.release(\
           {locks},o.owner,false,ARRAY[]::text[],ARRAY[]::bigint[],false,false\
         ) AS r WHERE NOT o.beside \
         UNION ALL SELECT r.answer, r.wakes FROM same o, LATERAL lockattr.release_beside(\
           {lock},o.owner,false,false,0,false\
         ) AS r WHERE o.beside \
         UNION ALL SELECT CASE WHEN EXISTS (SELECT FROM there) THEN 'another' ELSE 'nothing' END, '' \
         WHERE NOT EXISTS (SELECT FROM same)"
    ))
}

fn micros(moment: SystemTime) -> u128 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros()
}

/// Where names stand.
#[derive(Clone, Copy, Debug)]
enum Place {
    Locks,
    Waiters,
}

/// A list of all locks.
struct Names<'a> {
    postgres: &'a Postgres,
    prefix: &'a str,
    pattern: &'a str,
    /// Those that are left, the next one last.
    places: Vec<Place>,
    /// The last name in this place that was met.
    last: String,
    listed: HashSet<String>,
}

impl Listing for Names<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        Box::pin(async move {
            let Some(place) = self.places.last() else {
                return Ok(None);
            };
            let statement = names(*place, self.prefix, &self.last);
            let (answer, _) = self.postgres.step(&statement, None).await?;
            let mut met = Vec::new();
            let mut last = String::new();
            for row in &answer.rows {
                value(row, 0)?.clone_into(&mut last);
                let lock = last.as_str();
                let key = lock.strip_prefix(self.prefix);
                if key.is_some_and(|key| matches(self.pattern, key))
                    && !self.listed.contains(lock)
                    && met.last().is_none_or(|met| met != lock)
                {
                    met.push(lock.to_owned());
                }
            }
            met.sort_unstable();
            met.dedup();
            let locks = if met.is_empty() {
                Vec::new()
            } else {
                let (answer, _) = self.postgres.step(&standing::some(&met), None).await?;
                standing::listed(&met, &answer)?
            };
            let listed = locks.iter().map(|listed| listed.lock.clone());
            self.listed.extend(listed);
            self.last = last;
            if answer.rows.len() < NAMES {
                self.places.pop();
                mem::take(&mut self.last);
            }
            Ok(Some(Page::new(locks)))
        })
    }
}

/// The next names in one place. `LIKE` with a text that begins the names goes by the index.
fn names(place: Place, prefix: &str, last: &str) -> String {
    let (what, table) = match place {
        Place::Locks => ("name", "locks"),
        Place::Waiters => ("DISTINCT lock", "waiters"),
    };
    let column = what.trim_start_matches("DISTINCT ");
    let mut like = String::new();
    for c in prefix.chars() {
        if matches!(c, '%' | '_' | '\\') {
            like.push('\\');
        }
        like.push(c);
    }
    like.push('%');
    format!(
        "SELECT {what} FROM lockattr.{table} WHERE {column} LIKE {} AND {column} > {} \
         ORDER BY {column} LIMIT {NAMES}",
        sql::text(&like),
        sql::text(last)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_locks_and_of_whom_somebody_waits_for() {
        assert_eq!(
            names(Place::Locks, "a_b:", ""),
            "SELECT name FROM lockattr.locks WHERE name LIKE E'a\\\\_b:%' AND name > E'' \
             ORDER BY name LIMIT 1000"
        );
        assert_eq!(
            names(Place::Waiters, "lock:", "lock:a"),
            "SELECT DISTINCT lock FROM lockattr.waiters WHERE lock LIKE E'lock:%' AND lock > E'lock:a' \
             ORDER BY lock LIMIT 1000"
        );
    }

    #[test]
    fn what_is_not_a_locks_is_not_ended() {
        let found = "a hash".to_owned();
        let entry = Entry::new(0, EntryKind::Foreign { found }, None);
        assert!(ending("a", &entry).is_err());
    }
}
