//! Templates within a list of keys: a placeholder there may stand for many values, each of which gives a key.

use std::fmt::Display;
use std::mem;
use std::ops::Deref;

use super::{Encoder, Key, KeyError, KeyErrorKind, KeyWriter, head};
use crate::limits;

/// The keys of one template.
#[derive(Debug)]
pub enum TemplateKeys {
    /// Of a template whose placeholders have one value each.
    One(Key),
    /// Of one with a placeholder that has many: in order, each once.
    Many(Vec<Key>),
}

/// Writes a template's texts and values, in order, into its keys.
#[derive(Debug)]
pub struct KeyListWriter {
    one: KeyWriter,
    /// In the place of the one, once a placeholder had many values.
    many: Option<Vec<String>>,
}

impl KeyListWriter {
    /// `capacity` is the length of a key that is expected, in bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            one: KeyWriter::new(capacity),
            many: None,
        }
    }

    /// Literal text of the template.
    #[must_use]
    pub fn text(mut self, literal: &'static str) -> Self {
        match &mut self.many {
            None => self.one = self.one.text(literal),
            Some(many) => many.iter_mut().for_each(|text| text.push_str(literal)),
        }
        self
    }

    /// The only value of placeholder `name`, which the template's character `next` follows.
    fn value<T: Display + ?Sized>(
        mut self,
        name: &'static str,
        next: Option<char>,
        value: &T,
    ) -> Self {
        let Some(many) = &mut self.many else {
            self.one = self.one.value(name, next, value);
            return self;
        };
        for text in many {
            if self.one.error.is_none() {
                self.one.error = Encoder::encode(text, name, next, value);
            }
        }
        self
    }

    /// Many values of placeholder `name`: each of them with each of those before.
    fn each<T: Display>(
        mut self,
        name: &'static str,
        next: Option<char>,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        if self.one.error.is_some() {
            return self;
        }
        let before = self
            .many
            .take()
            .unwrap_or_else(|| vec![mem::take(&mut self.one.text)]);
        let mut many = Vec::new();
        'values: for value in values {
            for before in &before {
                if many.len() == limits::MAX_KEYS {
                    self.one.error = Some(KeyErrorKind::TooMany);
                    break 'values;
                }
                let mut text = before.clone();
                self.one.error = Encoder::encode(&mut text, name, next, &value);
                if self.one.error.is_some() {
                    break 'values;
                }
                many.push(text);
            }
        }
        if many.is_empty() && self.one.error.is_none() {
            self.one.error = Some(KeyErrorKind::NoValues {
                placeholder: name,
                before: head(before.first().map_or("", String::as_str)),
            });
        }
        self.many = Some(many);
        self
    }

    /// The keys.
    ///
    /// # Errors
    /// The first value that rendered blank or not at all, a placeholder without values, a key of more than
    /// 1,024 bytes, or more than 1,000 keys.
    pub fn finish(self) -> Result<TemplateKeys, KeyError> {
        let Some(mut many) = self.many else {
            return self.one.finish().map(TemplateKeys::One);
        };
        if let Some(kind) = self.one.error {
            return Err(KeyError { kind });
        }
        // One set of values is one list of keys, in whatever order they come out of a hash set.
        many.sort_unstable();
        many.dedup();
        let keys: Result<_, _> = many.into_iter().map(Key::new).collect();
        keys.map(TemplateKeys::Many)
    }
}

/// What may stand in a placeholder within a list of keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in a list of keys: it has no `Display`, and no elements that have it",
    label = "this placeholder has neither one value with `Display` nor many",
    note = "a slice, a `Vec`, a set or a range stands for its elements, each of which gives a key",
    note = "the keys of a map are named by its method, as in `<rows.keys()>`",
    note = "of another type name a part that has `Display`, such as `<order.id>` or `<user.id()>`"
)]
pub trait KeyListValue: Display {}

impl<T: Display + ?Sized> KeyListValue for T {}

/// The value of a placeholder within a list, by what can be made of it: `ListValue::of(&value).__lockattr_write(…)`.
///
/// Method look-up takes the first of these types whose method fits: one value that is `Display`; elements of
/// what is borrowed, as of a `Vec`; those behind a reference or another pointer; and those of what is cheap to clone, as
/// of a range or an iterator.
#[derive(Debug)]
pub struct ListValue<'v, T: ?Sized> {
    borrowed: Borrowed<'v, T>,
}

/// A value that is not `Display`.
#[derive(Debug)]
pub struct Borrowed<'v, T: ?Sized> {
    behind: Behind<'v, T>,
}

/// One whose elements cannot be borrowed.
#[derive(Debug)]
pub struct Behind<'v, T: ?Sized> {
    cloned: Cloned<'v, T>,
}

/// One that has none behind it either.
#[derive(Debug)]
pub struct Cloned<'v, T: ?Sized> {
    neither: Neither<'v, T>,
}

/// One without elements.
#[derive(Debug)]
pub struct Neither<'v, T: ?Sized>(&'v T);

impl<'v, T: ?Sized> ListValue<'v, T> {
    /// That of a placeholder.
    pub fn of(value: &'v T) -> Self {
        let neither = Neither(value);
        let cloned = Cloned { neither };
        let behind = Behind { cloned };
        let borrowed = Borrowed { behind };
        Self { borrowed }
    }
}

/// Where method look-up goes on from each.
macro_rules! look_further {
    ($($from:ident.$field:ident: $to:ident,)*) => {$(
        impl<'v, T: ?Sized> Deref for $from<'v, T> {
            type Target = $to<'v, T>;

            fn deref(&self) -> &Self::Target {
                &self.$field
            }
        }
    )*};
}

look_further! {
    ListValue.borrowed: Borrowed,
    Borrowed.behind: Behind,
    Behind.cloned: Cloned,
    Cloned.neither: Neither,
}

impl<T: Display + ?Sized> ListValue<'_, T> {
    /// Writes the one value that it is.
    #[must_use]
    pub fn __lockattr_write(
        &self,
        writer: KeyListWriter,
        name: &'static str,
        next: Option<char>,
    ) -> KeyListWriter {
        writer.value(name, next, self.borrowed.behind.cloned.neither.0)
    }
}

impl<'v, T: ?Sized> Borrowed<'v, T>
where
    &'v T: IntoIterator<Item: Display>,
{
    /// Writes each element.
    #[must_use]
    pub fn __lockattr_write(
        &self,
        writer: KeyListWriter,
        name: &'static str,
        next: Option<char>,
    ) -> KeyListWriter {
        writer.each(name, next, self.behind.cloned.neither.0)
    }
}

impl<'v, T: Deref> Behind<'v, T>
where
    &'v T::Target: IntoIterator<Item: Display>,
{
    /// Writes each element.
    #[must_use]
    pub fn __lockattr_write(
        &self,
        writer: KeyListWriter,
        name: &'static str,
        next: Option<char>,
    ) -> KeyListWriter {
        writer.each(name, next, &**self.cloned.neither.0)
    }
}

impl<T: IntoIterator<Item: Display> + Clone> Cloned<'_, T> {
    /// Writes each element.
    #[must_use]
    pub fn __lockattr_write(
        &self,
        writer: KeyListWriter,
        name: &'static str,
        next: Option<char>,
    ) -> KeyListWriter {
        writer.each(name, next, self.neither.0.clone())
    }
}

impl<T: ?Sized> Neither<'_, T> {
    /// Asks for one that fits.
    #[must_use]
    pub fn __lockattr_write(
        &self,
        writer: KeyListWriter,
        name: &'static str,
        next: Option<char>,
    ) -> KeyListWriter
    where
        T: KeyListValue,
    {
        writer.value(name, next, self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::key::Keys;

    /// The keys of `row:<…>/<end>`.
    macro_rules! keys_of {
        ($value:expr) => {{
            let value = $value;
            let writer = KeyListWriter::new(8).text("row:");
            let writer = ListValue::of(&value).__lockattr_write(writer, "ids", Some('/'));
            let writer = writer.text("/");
            let writer = ListValue::of("a/b").__lockattr_write(writer, "end", None);
            Keys::of_templates([writer.finish()])
        }};
    }

    fn texts(keys: Result<Keys, KeyError>) -> Vec<String> {
        let keys = keys.unwrap().into_iter();
        keys.map(|key| key.as_str().to_owned()).collect()
    }

    #[test]
    fn each_element_gives_a_key() {
        let both = ["row:1/a/b", "row:2/a/b"];
        let shared = std::sync::Arc::new(vec![1, 2]);
        assert_eq!(texts(keys_of!(vec![2, 1, 2])), both);
        assert_eq!(texts(keys_of!([2_u64, 1])), both);
        assert_eq!(texts(keys_of!(&[1_u8, 2][..])), both);
        assert_eq!(texts(keys_of!(&vec!["1", "2"])), both);
        assert_eq!(texts(keys_of!(["1".to_owned(), "2".to_owned()])), both);
        assert_eq!(texts(keys_of!(HashSet::from([1, 2]))), both);
        assert_eq!(texts(keys_of!(1..=2)), both);
        assert_eq!(texts(keys_of!(shared.iter())), both);
        assert_eq!(texts(keys_of!(shared)), both);
        assert_eq!(texts(keys_of!(&mut [1, 2][..])), both);
        assert_eq!(texts(keys_of!(3)), ["row:3/a/b"]);
        assert_eq!(texts(keys_of!("1,2")), ["row:1,2/a/b"]);
        assert_eq!(texts(keys_of!(["1/2"])), ["row:1%2F2/a/b"]);
    }

    #[test]
    fn two_lists_are_each_with_each() {
        let writer = KeyListWriter::new(8);
        let writer = ListValue::of(&[1, 2]).__lockattr_write(writer, "a", Some(':'));
        let writer = ListValue::of(&["x", "y"]).__lockattr_write(writer.text(":"), "b", None);
        let keys = texts(Keys::of_templates([writer.finish()]));
        assert_eq!(keys, ["1:x", "1:y", "2:x", "2:y"]);
    }

    #[test]
    fn what_no_keys_can_be_made_of() {
        let error = |keys: Result<Keys, KeyError>| keys.unwrap_err().to_string();
        let empty = error(keys_of!(Vec::<u8>::new()));
        assert!(empty.contains("`<ids>` after `row:` is empty"), "{empty}");
        let blank = error(keys_of!(vec!["1", " "]));
        assert!(
            blank.contains("`<ids>` after `row:` is empty or blank"),
            "{blank}"
        );
        let endless = error(keys_of!(0_u64..));
        assert!(endless.contains("at most 1000 keys"), "{endless}");
        assert_eq!(texts(keys_of!(0_u64..1000)).len(), 1000);
        let long = error(keys_of!(["x".repeat(1100)]));
        assert!(long.contains("longer than 1024 bytes"), "{long}");
    }

    #[test]
    fn several_templates_are_one_list() {
        let rows = KeyListWriter::new(8).text("row:");
        let rows = ListValue::of(&[2, 1]).__lockattr_write(rows, "ids", None);
        let table = KeyListWriter::new(8).text("table");
        let again = KeyListWriter::new(8).text("row:1");
        let keys = Keys::of_templates([table.finish(), rows.finish(), again.finish()]);
        assert_eq!(texts(keys), ["table", "row:1", "row:2"]);
    }
}
