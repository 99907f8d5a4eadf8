//! What is sent: one message with one statement, in a transaction of its own.
//!
//! No prepared statements, no parameters and no settings that outlive the transaction: behind a pooler the
//! next message may reach another session, and somebody else's settings. So values are written as literals,
//! and what a step depends on is set within its message.

use std::fmt::Write;
use std::time::Duration;

use crate::runtime::clock::millis;

/// A text. The form with a backslash means the same whatever `standard_conforming_strings` says.
pub(super) fn text(value: &str) -> String {
    let mut literal = String::with_capacity(value.len() + 4);
    literal.push_str("E'");
    for c in value.chars() {
        if matches!(c, '\'' | '\\') {
            literal.push(c);
        }
        literal.push(c);
    }
    literal.push('\'');
    literal
}

/// An array of texts.
pub(super) fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    array(values.into_iter().map(text), "text")
}

/// An array of values that are written as they are.
pub(super) fn array(values: impl IntoIterator<Item = impl AsRef<str>>, of: &str) -> String {
    let mut array = "ARRAY[".to_owned();
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            array.push(',');
        }
        array.push_str(value.as_ref());
    }
    let _ = write!(array, "]::{of}[]");
    array
}

pub(super) fn optional(value: Option<String>) -> String {
    value.unwrap_or_else(|| "NULL".to_owned())
}

/// The statement in a transaction that does not depend on what the session, the role or the database have
/// set. Several statements in one message are one transaction, also behind a pooler that takes no
/// others; an error ends it.
pub(super) fn step(statement: &str, timeout: Duration) -> String {
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;\
         SET LOCAL statement_timeout={};{statement}",
        millis(timeout).max(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_literal() {
        assert_eq!(text("lock:a"), "E'lock:a'");
        assert_eq!(text("it's"), "E'it''s'");
        assert_eq!(
            text(r"\'); DROP TABLE x; --"),
            r"E'\\''); DROP TABLE x; --'"
        );
        assert_eq!(texts(["a", "b'"]), "ARRAY[E'a',E'b''']::text[]");
        assert_eq!(texts([]), "ARRAY[]::text[]");
    }

    #[test]
    fn a_step_brings_its_settings_along() {
        let sent = step("SELECT 1", Duration::from_secs(1));
        assert_eq!(
            sent,
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;\
             SET LOCAL statement_timeout=1000;SELECT 1"
        );
    }
}
