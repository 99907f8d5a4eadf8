//! Owners: one random id an acquisition, and where it was made.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::{Builder, Uuid};

/// Longest host part kept, so that an owner is never longer than a store's answer is read.
const MAX_HOST: usize = 64;

/// Where this process makes owners.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The second half of every owner, `@{host}:{pid}`.
    place: Arc<str>,
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
        Self {
            place: format!("@{host}:{}", std::process::id()).into(),
            random: Arc::default(),
        }
    }

    /// `host:pid`, as errors show it.
    pub(crate) fn shown(&self) -> String {
        self.place.trim_start_matches('@').to_owned()
    }

    /// A fresh random id.
    pub(crate) fn new_id(&self) -> Id {
        Id(self.random.id())
    }

    /// The owner of one acquisition: its id, and this origin.
    pub(crate) fn owner(&self, id: Id) -> String {
        let mut owner = String::with_capacity(32 + self.place.len());
        owner.push_str(id.0.simple().encode_lower(&mut Uuid::encode_buffer()));
        owner.push_str(&self.place);
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

/// Random ids from the operating system, fetched many at a time: asking it costs about as much
/// however many they are.
#[derive(Default)]
struct Random(Mutex<Vec<[u8; 16]>>);

impl Random {
    const AT_A_TIME: usize = 64;

    fn id(&self) -> Uuid {
        let mut fetched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = fetched.pop().unwrap_or_else(|| {
            let mut more = [[0; 16]; Self::AT_A_TIME];
            getrandom::fill(more.as_flattened_mut())
                .expect("the operating system has random numbers");
            let [first, rest @ ..] = more;
            fetched.extend(rest);
            first
        });
        Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// Whoever knows an id can release a lock.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

/// The part of an owner that may be shown: `host:pid`.
pub(crate) fn shown(owner: &str) -> String {
    match owner.split_once('@') {
        Some((id, origin))
            if id.len() == 32
                && id.bytes().all(|b| b.is_ascii_hexdigit())
                && !origin.is_empty() =>
        {
            origin.escape_debug().to_string()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_a_random_id_and_its_origin() {
        let origin = Origin::here();
        let [a, b] = [(); 2].map(|()| origin.owner(origin.new_id()));
        assert_ne!(a, b);
        let (id, rest) = a.split_once('@').unwrap();
        let id = Uuid::try_parse(id).unwrap();
        assert_eq!(id.get_version_num(), 4);
        assert!(
            rest.ends_with(&format!(":{}", std::process::id())),
            "{rest}"
        );
        assert_eq!(shown(&a), rest);
    }

    #[test]
    fn ids_are_never_used_twice() {
        let origin = Origin::here();
        let ids = (0..10 * Random::AT_A_TIME).map(|_| origin.clone().new_id().to_string());
        let distinct: std::collections::HashSet<_> = ids.collect();
        assert_eq!(distinct.len(), 10 * Random::AT_A_TIME);
    }

    #[test]
    fn values_of_another_form_are_not_shown() {
        for value in ["", "x", "secret-token", "abc@host:1", "@host:1"] {
            assert_eq!(shown(value), "unknown");
        }
    }
}
