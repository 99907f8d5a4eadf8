//! Owners: one id an acquisition, and where it was made.
//!
//! An id is a UUID of version 7: 48 bits say when the acquisition was drawn, in milliseconds, and 74 are
//! random. Random bytes come from the operating system for many ids at a time, since asking it costs
//! about as much however many they are. Nothing else is drawn ahead: the time and the process are those
//! of the moment. What was drawn ahead is copied by whatever copies the process. A fork is known by its
//! process id, and draws anew. A snapshot of a virtual machine is not: what was drawn ahead is used
//! within a second, so that one which is started later draws anew as well, and two that read the same
//! old clock differ in their milliseconds alone.

use std::fmt;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::fmt::Simple;
use uuid::{Builder, Uuid};

use crate::runtime::process::Process;

/// Longest host part kept, so that an owner is never longer than a store's answer is read.
const MAX_HOST: usize = 64;

/// Where this process makes owners.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// `@{host}:{pid}`, which every owner ends in.
    ending: Arc<str>,
    process: Process,
    random: Arc<Random>,
}

impl Origin {
    pub(crate) fn here() -> Self {
        let host: String = gethostname::gethostname()
            .to_string_lossy()
            .chars()
            .map(|c| match c {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => c,
                _ => '-',
            })
            .take(MAX_HOST)
            .collect();
        let process = Process::here();
        Self {
            ending: format!("@{host}:{}", process.id()).into(),
            process,
            random: Arc::default(),
        }
    }

    /// The process that makes them.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// `host:pid`, as errors show it.
    pub(crate) fn shown(&self) -> String {
        self.ending[1..].to_owned()
    }

    /// A fresh id.
    pub(crate) fn new_id(&self) -> Id {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let random = self.random.bytes(self.process.id(), now);
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Id(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// The owner of one acquisition, `{id}@{host}:{pid}`.
    pub(crate) fn owner(&self, id: Id) -> String {
        let mut text = [0; Simple::LENGTH];
        let id = id.0.simple().encode_lower(&mut text);
        let mut owner = String::with_capacity(id.len() + self.ending.len());
        owner.push_str(id);
        owner.push_str(&self.ending);
        owner
    }
}

/// One acquisition among all.
#[derive(Clone, Copy, Default)]
pub(crate) struct Id(Uuid);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// Whoever knows an id can release a lock.
impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Id")
    }
}

/// The random part of an id.
type Part = [u8; 10];

/// Random bytes from the operating system.
#[derive(Default)]
struct Random(Mutex<Ahead>);

/// What was drawn ahead.
#[derive(Default)]
struct Ahead {
    parts: Vec<Part>,
    process: u32,
    /// When, since the epoch.
    at: Duration,
}

impl Random {
    fn bytes(&self, process: u32, now: Duration) -> Part {
        match self.0.try_lock() {
            Ok(mut ahead) => ahead.next(process, now),
            // Another thread draws; one that a fork has left behind does so for ever.
            Err(TryLockError::WouldBlock) => draw::<1>()[0],
            Err(TryLockError::Poisoned(ahead)) => ahead.into_inner().next(process, now),
        }
    }
}

impl Ahead {
    const AT_A_TIME: usize = 64;

    /// For so long it may be used.
    const FRESH: Duration = Duration::from_secs(1);

    fn next(&mut self, process: u32, now: Duration) -> Part {
        let age = now.checked_sub(self.at);
        let is_fresh = age.is_some_and(|age| age < Self::FRESH);
        if process != self.process || !is_fresh {
            self.parts.clear();
        }
        self.parts.pop().unwrap_or_else(|| {
            let [first, rest @ ..] = draw::<{ Self::AT_A_TIME }>();
            self.parts.extend(rest);
            (self.process, self.at) = (process, now);
            first
        })
    }
}

fn draw<const COUNT: usize>() -> [Part; COUNT] {
    let mut parts = [Part::default(); COUNT];
    getrandom::fill(parts.as_flattened_mut()).expect("the operating system has random numbers");
    parts
}

/// Whoever knows an id can release a lock.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

/// The id of an owner and where it was made, `host:pid`; nothing where it is of another form.
pub(crate) fn parts(owner: &str) -> Option<(&str, &str)> {
    let (id, origin) = owner.split_once('@')?;
    let is_id = id.len() == Simple::LENGTH && id.bytes().all(|b| b.is_ascii_hexdigit());
    (is_id && !origin.is_empty()).then_some((id, origin))
}

/// The part of an owner that may be shown: `host:pid`.
pub(crate) fn shown(owner: &str) -> String {
    match parts(owner) {
        Some((_, origin)) => origin.escape_debug().to_string(),
        None => "unknown".to_owned(),
    }
}

/// When an owner's id was drawn, by the clock of where that was; nothing where the id does not say it.
pub(crate) fn since(owner: &str) -> Option<SystemTime> {
    let (id, _) = parts(owner)?;
    let id = Uuid::try_parse(id).ok()?;
    if id.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_says_since_when_and_where() {
        let origin = Origin::here();
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let [a, b] = [(); 2].map(|()| origin.owner(origin.new_id()));
        let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert_ne!(a, b);
        let (id, rest) = parts(&a).unwrap();
        let id = Uuid::try_parse(id).unwrap();
        assert_eq!(id.get_version_num(), 7);
        let since = since(&a).unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert!((before.as_millis()..=after.as_millis()).contains(&since.as_millis()));
        assert!(
            rest.ends_with(&format!(":{}", std::process::id())),
            "{rest}"
        );
        assert_eq!(shown(&a), rest);
        assert_eq!(origin.shown(), rest);
    }

    #[test]
    fn ids_are_never_used_twice() {
        let origin = Origin::here();
        let ids = (0..10 * Ahead::AT_A_TIME).map(|_| origin.clone().new_id().to_string());
        let distinct: std::collections::HashSet<_> = ids.collect();
        assert_eq!(distinct.len(), 10 * Ahead::AT_A_TIME);
    }

    #[test]
    fn what_was_drawn_ahead_is_used_by_its_process_and_soon() {
        let second = Duration::from_secs(1);
        let now = 1_000 * second;
        let mut ahead = Ahead::default();
        ahead.next(7, now);
        let drawn = ahead.parts.clone();
        assert_eq!(drawn.len(), Ahead::AT_A_TIME - 1);
        ahead.next(7, now + second / 2);
        assert_eq!(ahead.parts, drawn[..drawn.len() - 1]);
        for (process, at) in [(8, now), (7, now + second), (7, 999 * second)] {
            let mut copy = Ahead {
                parts: drawn.clone(),
                process: 7,
                at: now,
            };
            let part = copy.next(process, at);
            assert!(!drawn.contains(&part), "{process} {at:?}");
            assert!(copy.parts.iter().all(|part| !drawn.contains(part)));
        }
    }

    /// As a fork leaves it in the child.
    #[test]
    fn ids_are_drawn_also_while_another_thread_would_be_drawing() {
        let origin = Origin::here();
        let drawing = origin.random.0.lock().unwrap();
        assert_ne!(origin.new_id().to_string(), origin.new_id().to_string());
        drop(drawing);
    }

    #[test]
    fn ids_of_every_version_are_shown_by_their_origin_and_some_say_since_when() {
        let drawn = UNIX_EPOCH + Duration::from_millis(0x019a_d5b1_f9c0);
        for (id, expected) in [
            ("3c8698528e804726a3196da9559ced2b", None),
            ("019ad5b1f9c07c3f9d0a1b2c3d4e5f60", Some(drawn)),
            ("00000000000000000000000000000000", None),
        ] {
            let owner = format!("{id}@web-7:42");
            assert_eq!(shown(&owner), "web-7:42");
            assert_eq!(since(&owner), expected);
        }
    }

    #[test]
    fn values_of_another_form_are_not_shown() {
        for value in ["", "x", "secret-token", "abc@host:1", "@host:1"] {
            assert_eq!(shown(value), "unknown");
            assert_eq!(since(value), None);
        }
    }
}
