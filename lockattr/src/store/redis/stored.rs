//! What is stored under a lock that one holds alone, and who may know that: this file and the scripts. Those who
//! hold a lock together are stored as `holders.lua` has it.
//!
//! | value | written by | says |
//! |---|---|---|
//! | `{owner}` | the uncontended `SET` | held since the owner's id was drawn, by its caller's clock |
//! | `{owner} {ms}` | a script; `SET`, where the id is not new | held since then, in ms since 1970: by the server's clock, or by that of who has sent the `SET` |
//! | `{zeros}@{host}:{pid}…` | a release that leaves a lock closed | closed since then; the forms are those of an owner |
//! | `done@{ms}` | a release that leaves a mark | done since then |
//! | `done@{ms} {reply}` | the same with a reply | the same; the forms of a reply are those of `reply.rs` |
//!
//! Whether a value is an owner's is equality first, and then the owner and a space. A claim that waits for who has
//! stored its owner alone has the value say since when: where it does not, nobody waits, or whoever does has not looked
//! since the last holder's ttl has ended, and a release deletes it and looks no further.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::owner;
use crate::store::Claim;

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    Held {
        owner: &'a str,
        /// Nothing where the owner alone is stored, and its id does not say it.
        since: Option<SystemTime>,
    },
    /// Held by nobody, and not to be taken yet.
    Closed {
        /// Nobody, and `@host:pid` of its last holder.
        owner: &'a str,
        since: Option<SystemTime>,
    },
    /// The mark of work that is done.
    Done {
        since: SystemTime,
        /// What was left with it.
        reply: Option<&'a str>,
    },
    /// No value of this library's.
    Other,
}

impl<'a> Stored<'a> {
    pub(super) fn read(value: &'a str) -> Self {
        Self::known(value).unwrap_or(Self::Other)
    }

    fn known(value: &'a str) -> Option<Self> {
        if let Some(done) = value.strip_prefix("done@") {
            let (ms, reply) = match done.split_once(' ') {
                Some((ms, reply)) => (ms, Some(reply)),
                None => (done, None),
            };
            let since = moment(ms)?;
            return Some(Self::Done { since, reply });
        }
        let mut words = value.split(' ');
        let owner = words.next()?;
        let (id, _) = owner::parts(owner)?;
        let since = match words.next() {
            Some(ms) => Some(moment(ms)?),
            None => owner::since(owner),
        };
        if words.next().is_some() {
            return None;
        }
        Some(if is_nobodys(id) {
            Self::Closed { owner, since }
        } else {
            Self::Held { owner, since }
        })
    }
}

/// What is said of one that holds a lock together with others: `{owner} {ms}` of a reader, and with
/// `{slot} {weight} {permits}` behind that of a holder of permits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Beside<'a> {
    /// Held or closed.
    pub(super) stored: Stored<'a>,
    pub(super) slot: usize,
    pub(super) weight: u32,
    /// Nothing of a reader.
    pub(super) permits: Option<u32>,
}

impl<'a> Beside<'a> {
    pub(super) fn read(said: &'a str) -> Option<Self> {
        let end = said
            .match_indices(' ')
            .nth(1)
            .map_or(said.len(), |(at, _)| at);
        let (first, rest) = said.split_at(end);
        let stored = Stored::read(first);
        if !matches!(stored, Stored::Held { .. } | Stored::Closed { .. }) {
            return None;
        }
        let numbers: Option<Vec<_>> = rest.split_whitespace().map(number).collect();
        let (slot, weight, permits) = match numbers?[..] {
            [] => (0, 1, None),
            [slot, weight, permits] => (slot, weight, Some(u32::try_from(permits).ok()?)),
            _ => return None,
        };
        Some(Self {
            stored,
            slot: slot.try_into().ok()?,
            weight: weight.try_into().ok()?,
            permits,
        })
    }
}

/// Whether a value is this owner's, whatever else it says.
pub(super) fn is_of(value: &[u8], owner: &str) -> bool {
    let rest = value.strip_prefix(owner.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b" "))
}

/// What an uncontended `SET` writes for a claim. Its owner alone is enough where it says to the second since
/// when: of a claim that has waited, for a vote or for a connection, it does not.
pub(super) fn uncontended<'a>(claim: &Claim<'a>, now: SystemTime) -> Cow<'a, str> {
    const NEW: Duration = Duration::from_secs(1);
    let Claim { owner, .. } = *claim;
    let age = owner::since(owner).map(|drawn| now.duration_since(drawn).unwrap_or_default());
    if age.is_some_and(|age| age < NEW) {
        return owner.into();
    }
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = since.as_millis();
    Cow::Owned(format!("{owner} {since}"))
}

/// Whether an id is of no lease: none is drawn in 1970.
fn is_nobodys(id: &str) -> bool {
    id.starts_with("000000000000")
}

fn moment(ms: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(number(ms)?))
}

/// Digits alone.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-3.example:4711";
    const DRAWN: u64 = 0x019a_d5b1_f9c0;

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn held(since: u64) -> Stored<'static> {
        Stored::Held {
            owner: OWNER,
            since: Some(at(since)),
        }
    }

    #[test]
    fn a_value_says_whose_it_is_and_since_when() {
        assert_eq!(Stored::read(OWNER), held(DRAWN));
        let value = format!("{OWNER} 1764516000123");
        assert_eq!(Stored::read(&value), held(1_764_516_000_123));
        // Of another version, an id says nothing.
        let owner = "3c8698528e804726a3196da9559ced2b@web-3:4711";
        let expected = Stored::Held { owner, since: None };
        assert_eq!(Stored::read(owner), expected);
    }

    #[test]
    fn a_lock_that_is_nobodys_says_since_when() {
        let nobody = format!("{:032}@web-3:4711", 0);
        let owner = nobody.as_str();
        let closed = |since| Stored::Closed { owner, since };
        assert_eq!(Stored::read(&nobody), closed(None));
        let value = format!("{nobody} 7");
        assert_eq!(Stored::read(&value), closed(Some(at(7))));
        for (value, reply) in [
            ("done@7", None),
            ("done@7 json [1, 2]", Some("json [1, 2]")),
            ("done@7 8", Some("8")),
        ] {
            let since = at(7);
            assert_eq!(Stored::read(value), Stored::Done { since, reply });
        }
    }

    #[test]
    fn what_is_of_no_such_form_is_none_of_ours() {
        let mut others = vec!["", " ", "x", "done@", "done@x", "done@-7", "done@x 8"];
        others.extend(["abc@host:1", "@host:1", "done@99999999999999999999"]);
        for rest in [" ", " x", " -7", " +7", " 7 ", " 7 x", " 7 3", "  7"] {
            others.push(Box::leak(format!("{OWNER}{rest}").into_boxed_str()));
        }
        for value in others {
            assert_eq!(Stored::read(value), Stored::Other, "{value:?}");
        }
    }

    #[test]
    fn what_is_set_says_since_when_to_the_second() {
        let locks = ["lock:a".to_owned()];
        let claim = Claim::new(&locks, OWNER, Duration::from_secs(1));
        // The clock may have been set back.
        for now in [DRAWN, DRAWN + 999, DRAWN - 5_000] {
            assert_eq!(uncontended(&claim, at(now)), OWNER);
        }
        let value = uncontended(&claim, at(DRAWN + 1_000));
        assert_eq!(Stored::read(&value), held(DRAWN + 1_000));
        let claim = Claim::new(&locks, "of another form", Duration::from_secs(1));
        assert_eq!(uncontended(&claim, at(7)), "of another form 7");
    }
}
