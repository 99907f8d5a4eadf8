//! Keys: rendering a template's values into one string that no other values render to.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt::{self, Display, Write};
use std::iter;

use crate::limits;

pub(crate) mod list;

use list::TemplateKeys;

/// The longest key, in bytes, without the client's prefix.
pub(crate) const MAX_KEY: usize = 1024;

/// Kept free in a rendered key's buffer for the client's prefix, which is known later.
const ROOM: usize = 16;

/// A lock key, without the client's prefix: not blank, at most 1,024 bytes, no braces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// A key from text that is used as it is.
    ///
    /// Values that come from outside belong into an attribute's placeholders, which encode them.
    ///
    /// # Errors
    /// Blank text, more than 1,024 bytes, or braces, on which the names of helper keys rely.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        let refused = |kind| Err(KeyError { kind });
        if text.trim().is_empty() {
            return refused(KeyErrorKind::BlankKey);
        }
        if text.len() > MAX_KEY {
            return refused(KeyErrorKind::TooLong {
                starts: head(&text),
            });
        }
        if text.contains(['{', '}']) {
            return refused(KeyErrorKind::Braces {
                starts: head(&text),
            });
        }
        Ok(Self(text))
    }

    /// The same from borrowed text, with room for a prefix.
    pub(crate) fn with_room(text: &str, room: usize) -> Result<Self, KeyError> {
        let mut roomy = String::with_capacity(text.len() + room);
        roomy.push_str(text);
        Self::new(roomy)
    }

    /// The whole lock key, in the key's own buffer where that has room.
    pub(crate) fn prefixed(self, prefix: &str) -> String {
        let mut lock = self.0;
        lock.insert_str(0, prefix);
        lock
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys of one call: one, or several that are taken together.
#[derive(Clone, Debug)]
pub struct Keys {
    first: Key,
    /// Nothing in most calls, and then no allocation either.
    more: Vec<Key>,
}

impl Keys {
    /// Several keys; those that are equal are taken once.
    ///
    /// # Errors
    /// The error of the first key that could not be made, or of a call that names none or more than
    /// 1,000.
    pub fn all(keys: impl IntoIterator<Item = Result<Key, KeyError>>) -> Result<Self, KeyError> {
        let refused = |kind| Err(KeyError { kind });
        let mut all = Vec::new();
        for key in keys {
            if all.len() == limits::MAX_KEYS {
                return refused(KeyErrorKind::TooMany);
            }
            all.push(key?);
        }
        let mut known = HashSet::with_capacity(all.len());
        let is_new: Vec<_> = all.iter().map(|key| known.insert(key)).collect();
        let mut is_new = is_new.into_iter();
        all.retain(|_| is_new.next().unwrap_or_default());
        let mut distinct = all.into_iter();
        let Some(first) = distinct.next() else {
            return refused(KeyErrorKind::NoKeys);
        };
        let more = distinct.collect();
        Ok(Self { first, more })
    }

    /// The keys of a list of templates.
    ///
    /// # Errors
    /// As for [`all`](Self::all).
    pub fn of_templates<const N: usize>(
        templates: [Result<TemplateKeys, KeyError>; N],
    ) -> Result<Self, KeyError> {
        let is_one = matches!(templates[..], [Ok(TemplateKeys::One(_))]);
        let keys = templates.into_iter().flat_map(|keys| {
            let (one, many) = match keys {
                Ok(TemplateKeys::One(key)) => (Some(Ok(key)), Vec::new()),
                Ok(TemplateKeys::Many(keys)) => (None, keys),
                Err(error) => (Some(Err(error)), Vec::new()),
            };
            one.into_iter().chain(many.into_iter().map(Ok))
        });
        if is_one {
            // Without a list, for one.
            let mut keys = keys;
            return keys
                .next()
                .map_or_else(|| Self::all([]), |key| key.map(Self::from));
        }
        Self::all(keys)
    }

    pub(crate) fn are_several(&self) -> bool {
        !self.more.is_empty()
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = Key> {
        iter::once(self.first).chain(self.more)
    }
}

impl From<Key> for Keys {
    fn from(first: Key) -> Self {
        Self {
            first,
            more: Vec::new(),
        }
    }
}

/// So many keys are named in full in an error or a log: a few, and no list that fills the log.
const NAMED: usize = 4;

/// Several keys as an error or a log names them: `a + b + c + 997 more`.
pub(crate) fn label(keys: &[&str]) -> String {
    if keys.len() <= NAMED {
        return keys.join(" + ");
    }
    let (named, more) = keys.split_at(NAMED - 1);
    format!("{} + {} more", named.join(" + "), more.len())
}

/// Why no key could be made. The store was not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    kind: KeyErrorKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyErrorKind {
    BlankValue {
        placeholder: &'static str,
        before: String,
    },
    Unprintable {
        placeholder: &'static str,
        before: String,
    },
    NoValues {
        placeholder: &'static str,
        before: String,
    },
    BlankKey,
    NoKeys,
    TooMany,
    TooLong {
        starts: String,
    },
    Braces {
        starts: String,
    },
}

impl Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            KeyErrorKind::BlankValue {
                placeholder,
                before,
            } => write!(
                f,
                "no lock key: `<{placeholder}>` after `{before}` is empty or blank, and would \
                 lock for everybody whose value is missing"
            ),
            KeyErrorKind::Unprintable {
                placeholder,
                before,
            } => write!(
                f,
                "no lock key: the `Display` of `<{placeholder}>` after `{before}` returned an error"
            ),
            KeyErrorKind::NoValues {
                placeholder,
                before,
            } => write!(
                f,
                "no lock key: the list `<{placeholder}>` after `{before}` is empty, and nothing would be locked"
            ),
            KeyErrorKind::BlankKey => f.write_str("no lock key: the key is empty or blank"),
            KeyErrorKind::NoKeys => f.write_str("no lock key: the list of keys is empty"),
            KeyErrorKind::TooMany => write!(
                f,
                "no lock key: a call has at most {} keys; lock fewer at a time, or one key that \
                 stands for all of them",
                limits::MAX_KEYS
            ),
            KeyErrorKind::TooLong { starts } => write!(
                f,
                "no lock key: the key that starts with `{starts}` is longer than {MAX_KEY} bytes; \
                 use an id or a hash instead of the whole value"
            ),
            KeyErrorKind::Braces { starts } => write!(
                f,
                "no lock key: the key that starts with `{starts}` has braces, which lock keys may \
                 not have"
            ),
        }
    }
}

impl KeyError {
    /// Whether other values would have made a key.
    #[cfg(feature = "axum")]
    pub(crate) fn is_of_input(&self) -> bool {
        !matches!(self.kind, KeyErrorKind::Unprintable { .. })
    }

    /// The same without any text of the key.
    pub(crate) fn without_text(mut self) -> Self {
        match &mut self.kind {
            KeyErrorKind::BlankValue { before: text, .. }
            | KeyErrorKind::Unprintable { before: text, .. }
            | KeyErrorKind::NoValues { before: text, .. }
            | KeyErrorKind::TooLong { starts: text }
            | KeyErrorKind::Braces { starts: text } => "…".clone_into(text),
            KeyErrorKind::BlankKey | KeyErrorKind::NoKeys | KeyErrorKind::TooMany => {}
        }
        self
    }
}

impl StdError for KeyError {}

/// The start of a text that may be long or hostile, fit for one line of a log.
pub(crate) fn head(text: &str) -> String {
    text.chars()
        .take(40)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// What may stand in a key's placeholder: everything that is `Display`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in a lock key: it does not implement `Display`",
    label = "this placeholder's value has no `Display`",
    note = "name a part of it that has, such as `<order.id>` or `<user.id()>`",
    note = "of a slice, a `Vec` or a set each element gives a key in a list: `key = [\"row:<ids>\"]`",
    note = "an `Option` has no text of its own: unwrap it before the call, so that a missing value \
            is not locked under one key for everybody"
)]
pub trait KeyValue: Display {}

impl<T: Display + ?Sized> KeyValue for T {}

/// Writes a template's texts and values, in order, into a [`Key`].
#[derive(Debug)]
pub struct KeyWriter {
    text: String,
    error: Option<KeyErrorKind>,
}

impl KeyWriter {
    /// `capacity` is the length that is expected, in bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            text: String::with_capacity(capacity.min(MAX_KEY) + ROOM),
            error: None,
        }
    }

    /// Literal text of the template.
    #[must_use]
    pub fn text(mut self, literal: &'static str) -> Self {
        self.text.push_str(literal);
        self
    }

    /// The value of placeholder `name`, which the template's character `next` follows.
    #[must_use]
    pub fn value<T: KeyValue + ?Sized>(
        mut self,
        name: &'static str,
        next: Option<char>,
        value: &T,
    ) -> Self {
        if self.error.is_none() {
            self.error = Encoder::encode(&mut self.text, name, next, value);
        }
        self
    }

    /// The key.
    ///
    /// # Errors
    /// The first value that rendered blank or not at all, or a key of more than 1,024 bytes.
    pub fn finish(self) -> Result<Key, KeyError> {
        match self.error {
            Some(kind) => Err(KeyError { kind }),
            None => Key::new(self.text),
        }
    }
}

/// Percent-encodes what would let two different values render alike.
///
/// A value ends where its placeholder's next literal character stands unencoded; that character,
/// and `%` itself, never stand so inside a value, hence the text can be read back in one way only.
struct Encoder<'a> {
    out: &'a mut String,
    next: Option<char>,
    blank: bool,
    full: bool,
}

impl<'a> Encoder<'a> {
    /// Writes a value; the answer is what is wrong with it.
    fn encode<T: Display + ?Sized>(
        out: &'a mut String,
        placeholder: &'static str,
        next: Option<char>,
        value: &T,
    ) -> Option<KeyErrorKind> {
        let start = out.len();
        let mut encoder = Self::new(out, next);
        let written = write!(encoder, "{value}");
        encoder.verdict(written, placeholder, start)
    }

    fn new(out: &'a mut String, next: Option<char>) -> Self {
        Self {
            out,
            next,
            blank: true,
            full: false,
        }
    }

    fn verdict(
        self,
        written: fmt::Result,
        placeholder: &'static str,
        start: usize,
    ) -> Option<KeyErrorKind> {
        if self.full {
            return Some(KeyErrorKind::TooLong {
                starts: head(self.out),
            });
        }
        let before = || head(&self.out[..start]);
        if written.is_err() {
            return Some(KeyErrorKind::Unprintable {
                placeholder,
                before: before(),
            });
        }
        self.blank.then(|| KeyErrorKind::BlankValue {
            placeholder,
            before: before(),
        })
    }

    fn stands_for_itself(&self, c: char) -> bool {
        !(matches!(c, '%' | ':' | '{' | '}')
            || c.is_whitespace()
            || c.is_control()
            || Some(c) == self.next)
    }
}

impl Write for Encoder<'_> {
    fn write_str(&mut self, mut part: &str) -> fmt::Result {
        while !part.is_empty() {
            // Most values are letters and digits.
            let next = self.next;
            let plain = |b: u8| b.is_ascii_alphanumeric() && Some(char::from(b)) != next;
            let end = part.bytes().position(|b| !plain(b));
            let (run, rest) = part.split_at(end.unwrap_or(part.len()));
            self.out.push_str(run);
            self.blank &= run.is_empty();
            let mut rest = rest.chars();
            if let Some(c) = rest.next() {
                self.blank &= c.is_whitespace();
                if self.stands_for_itself(c) {
                    self.out.push(c);
                } else {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        write!(self.out, "%{byte:02X}")?;
                    }
                }
            }
            if self.out.len() > MAX_KEY {
                self.full = true;
                return Err(fmt::Error);
            }
            part = rest.as_str();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(a: &str, between: &'static str, b: &str) -> String {
        KeyWriter::new(16)
            .value("a", between.chars().next(), a)
            .text(between)
            .value("b", None, b)
            .finish()
            .unwrap()
            .to_string()
    }

    #[test]
    fn ordinary_ids_stay_as_they_are() {
        let key = KeyWriter::new(8)
            .text("sync:")
            .value("user_id", None, &42_u64)
            .finish()
            .unwrap();
        assert_eq!(key.as_str(), "sync:42");
        for id in [
            "a-b_c.d",
            "user@example.com",
            "Zoë",
            "550e8400-e29b",
            "a/b?c=d&e",
        ] {
            let key = KeyWriter::new(8).value("id", None, id).finish().unwrap();
            assert_eq!(key.as_str(), id);
        }
    }

    #[test]
    fn separators_inside_values_are_encoded() {
        assert_eq!(pair("x:y", ":", "z"), "x%3Ay:z");
        assert_eq!(pair("x", ":", "y:z"), "x:y%3Az");
        assert_eq!(pair("a-b", "-", "c-d"), "a%2Db-c-d");
        assert_eq!(pair("a→b", "→", "c"), "a%E2%86%92b→c");
        assert_eq!(
            pair("{%}", ":", "a b\n\u{2003}"),
            "%7B%25%7D:a%20b%0A%E2%80%83"
        );
    }

    #[test]
    fn a_colon_is_encoded_also_where_none_follows() {
        let key = KeyWriter::new(8).value("id", None, "a:b").finish().unwrap();
        assert_eq!(key.as_str(), "a%3Ab");
    }

    #[test]
    fn blank_values_name_the_placeholder() {
        for blank in ["", "   ", "\t\n", "\u{a0}"] {
            let error = KeyWriter::new(8)
                .text("sync:")
                .value("user.name()", None, blank)
                .finish()
                .unwrap_err()
                .to_string();
            assert!(error.contains("`<user.name()>`"), "{error}");
            assert!(error.contains("sync:"), "{error}");
        }
    }

    #[test]
    fn the_limit_is_1024_bytes_of_the_rendered_key() {
        let fits = "x".repeat(MAX_KEY);
        assert!(KeyWriter::new(0).value("v", None, &fits).finish().is_ok());
        assert!(
            KeyWriter::new(0)
                .text("k")
                .value("v", None, &fits)
                .finish()
                .is_err()
        );
        assert!(
            KeyWriter::new(0)
                .value("v", None, &":".repeat(342))
                .finish()
                .is_err()
        );
        assert!(Key::new(fits.clone()).is_ok());
        assert!(Key::new(fits + "x").is_err());
    }

    #[test]
    fn an_endless_display_is_cut_off_and_a_failing_one_is_told() {
        struct Endless;
        impl Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("x")?;
                }
            }
        }
        struct Failing;
        impl Display for Failing {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                Err(fmt::Error)
            }
        }
        let text = |error: KeyError| error.to_string();
        let error = text(
            KeyWriter::new(0)
                .value("v", None, &Endless)
                .finish()
                .unwrap_err(),
        );
        assert!(error.contains("longer than 1024 bytes"), "{error}");
        let error = text(
            KeyWriter::new(0)
                .value("v", None, &Failing)
                .finish()
                .unwrap_err(),
        );
        assert!(
            error.contains("`<v>`") && error.contains("Display"),
            "{error}"
        );
    }

    #[test]
    fn keys_by_hand_are_checked() {
        assert_eq!(Key::new("sync:42").unwrap().as_str(), "sync:42");
        for bad in ["", " ", "a{b}", "}"] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
    }
}
