//! Placeholders of other template languages. As literal text they would be one key for all values.

use crate::placeholder::{in_word, leading_path};

/// A placeholder of another language.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign<'a> {
    /// The whole placeholder.
    pub(crate) written: &'a str,
    /// The path inside, if there is one.
    pub(crate) path: Option<&'a str>,
}

/// Input:  `"$id:more"`
/// Output: `Foreign { written: "$id", path: "id" }`
///
/// A form that ordinary text does not have, such as `$id` and `%s`, is always found. A form that
/// ordinary text has as well, such as `@id` and `[id]`, is found only where it names an argument.
pub(crate) fn foreign<'a>(
    before: Option<char>,
    text: &'a str,
    is_argument: impl Fn(&str) -> bool,
) -> Option<Foreign<'a>> {
    let found = |length: usize, path: &'a str| Foreign {
        written: &text[..length],
        path: (!path.is_empty()).then_some(path),
    };
    let first = text.chars().next()?;
    let rest = &text[first.len_utf8()..];
    let path = leading_path(rest).trim_end_matches('.');
    match first {
        '$' if !path.is_empty() => return Some(found(1 + path.len(), path)),
        '$' => {
            if let Some(path) = enclosed(rest, '(', ')') {
                return Some(found(path.len() + 3, path));
            }
        }
        ':' if before == Some('/')
            && path.starts_with(|c: char| !c.is_ascii_digit() && c != '.') =>
        {
            return Some(found(1 + path.len(), path));
        }
        '%' => {
            if let Some(length) = conversion(rest) {
                let path = enclosed(rest, '(', ')').unwrap_or_default();
                return Some(found(1 + length, path));
            }
        }
        _ => {}
    }
    let (length, path) = match first {
        '@' | '#' => (1 + path.len(), path),
        '%' if rest[path.len()..].starts_with('%') => (2 + path.len(), path),
        '[' => (text.find(']')? + 1, enclosed(text, '[', ']')?),
        '(' => (text.find(')')? + 1, enclosed(text, '(', ')')?),
        _ => return None,
    };
    is_argument(path).then(|| found(length, path))
}

/// Input:  `"(id)s"`
/// Output: `"id"`
fn enclosed(text: &str, open: char, close: char) -> Option<&str> {
    let inside = text.strip_prefix(open)?;
    let inside = &inside[..inside.find(close)?];
    (!inside.is_empty() && leading_path(inside) == inside).then_some(inside)
}

/// The length of a conversion after its `%`: `s`, `05d`, `.2f`, `lu`, `(name)s`, `@`, and
/// the `Y` of a date.
fn conversion(text: &str) -> Option<usize> {
    let name = enclosed(text, '(', ')').map_or(0, |name| name.len() + 2);
    let rest = &text[name..];
    let flags = rest.len()
        - rest
            .trim_start_matches(|c: char| "+-.#0123456789".contains(c))
            .len();
    let rest = &rest[flags..];
    let letters = rest.len() - rest.trim_start_matches(in_word).len();
    let is_one = match &rest[..letters] {
        // `%2F`, a character in a URL.
        letters if flags == 1 && letters.starts_with(|c| matches!(c, 'A'..='F')) => false,
        "" => rest.starts_with('@'),
        letters => {
            let letter = letters.trim_start_matches(['l', 'z', 'h']);
            letters.is_ascii() && letter.len() <= 1 && !letters.starts_with('_')
        }
    };
    is_one.then(|| name + flags + letters.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(&str, Option<&str>)> {
        let sign = text.find(|c: char| !in_word(c) && c != '/');
        let from = sign.unwrap_or(text.len());
        let before = text[..from].chars().next_back();
        let foreign = foreign(before, &text[from..], |path| path == "id")?;
        Some((foreign.written, foreign.path))
    }

    #[test]
    fn what_is_nothing_else() {
        for (text, written, path) in [
            ("$id", "$id", Some("id")),
            ("a$other.name:", "$other.name", Some("other.name")),
            ("$1", "$1", Some("1")),
            ("$(id)", "$(id)", Some("id")),
            ("/:id", ":id", Some("id")),
            ("/:other/x", ":other", Some("other")),
            ("%s", "%s", None),
            ("a%d:b", "%d", None),
            ("%05d", "%05d", None),
            ("%.2f", "%.2f", None),
            ("%llu", "%llu", None),
            ("%@", "%@", None),
            ("%(id)s", "%(id)s", Some("id")),
            ("%Y-%m-%d", "%Y", None),
        ] {
            assert_eq!(found(text), Some((written, path)), "{text}");
        }
    }

    #[test]
    fn what_names_an_argument() {
        for (text, written) in [
            ("@id", "@id"),
            ("#id", "#id"),
            ("%id%", "%id%"),
            ("[id]", "[id]"),
            ("(id)", "(id)"),
        ] {
            assert_eq!(found(text), Some((written, Some("id"))), "{text}");
            let other = text.replace("id", "other");
            assert_eq!(found(&other), None, "{other}");
        }
    }

    #[test]
    fn what_is_text() {
        for text in [
            "$", "100$", "$:a", "a:id", "/a", "/:", "/:/", "100%", "% of", "%sure", "%_", "%2F",
            "%3A:", "/:80", "a@b", "#1", "[]", "(", "(a", "é%",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
