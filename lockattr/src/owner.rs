//! Owners: one random id an acquisition, and where it was made.

use uuid::Uuid;

/// Longest host part kept, so that an owner is never longer than a store's answer is read.
const MAX_HOST: usize = 64;

/// The second half of every owner this process makes, `@{host}:{pid}`.
#[derive(Clone, Debug)]
pub(crate) struct Origin(String);

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
        Self(format!("@{host}:{}", std::process::id()))
    }

    /// `host:pid`, as errors show it.
    pub(crate) fn shown(&self) -> String {
        self.0.trim_start_matches('@').to_owned()
    }

    /// The owner of one acquisition: a fresh random id, and this origin.
    pub(crate) fn new_owner(&self) -> String {
        let mut owner = String::with_capacity(32 + self.0.len());
        owner.push_str(
            Uuid::new_v4()
                .simple()
                .encode_lower(&mut Uuid::encode_buffer()),
        );
        owner.push_str(&self.0);
        owner
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
        let (a, b) = (origin.new_owner(), origin.new_owner());
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
    fn values_of_another_form_are_not_shown() {
        for value in ["", "x", "secret-token", "abc@host:1", "@host:1"] {
            assert_eq!(shown(value), "unknown");
        }
    }
}
