//! The key template: parses its text to pieces, or to errors with byte ranges.

use std::ops::Range;

use crate::foreign::foreign;
use crate::placeholder::{self, Placeholder, is_path, leading_path, trailing_path};
use crate::template_error::{TemplateError, TemplateErrorKind};

/// The longest key that is sent to a store. A longer template could never be a key.
pub(crate) const LONGEST: usize = 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Literal text: `<<` and `>>` are single brackets here, and `<'$id'>` is without its quotes.
    Text(String),
    Value(Placeholder),
}

/// Input:  `"sync:<order.id>"`, and a function from a path to its correction: the path itself where
///         it starts with an argument, or else a path that does
/// Output: `[Text("sync:"), Value(order, [Field(id)])]` and no errors. Where there are errors, the
///         pieces are those that could be parsed
pub(crate) fn parse(
    text: &str,
    meant: impl Fn(&str) -> Option<String>,
) -> (Vec<Piece>, Vec<TemplateError>) {
    if text.trim().is_empty() {
        return (
            Vec::new(),
            vec![TemplateError::new(0..0, TemplateErrorKind::Blank)],
        );
    }
    if text.len() > LONGEST {
        let kind = TemplateErrorKind::TooLong(text.len());
        return (Vec::new(), vec![TemplateError::new(0..0, kind)]);
    }
    let mut scanner = Scanner {
        text,
        meant,
        at: 0,
        after_value: None,
        pieces: Vec::new(),
        errors: Vec::new(),
    };
    while let Some(c) = scanner.peek() {
        scanner.step(c);
    }
    (scanner.pieces, scanner.errors)
}

struct Scanner<'a, M> {
    text: &'a str,
    meant: M,
    at: usize,
    /// The start of the placeholder that ends at `at`, if one does.
    after_value: Option<usize>,
    pieces: Vec<Piece>,
    errors: Vec<TemplateError>,
}

impl<M: Fn(&str) -> Option<String>> Scanner<'_, M> {
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn step(&mut self, c: char) {
        let at = self.at;
        match c {
            '<' | '>' if self.rest()[1..].starts_with(c) => {
                self.literal(c);
                self.at += 1;
            }
            '<' => self.placeholder(),
            '>' => {
                let word = trailing_path(&self.text[..at]);
                let start = at - word.len();
                let kind = TemplateErrorKind::Stray(self.path(word));
                self.error(start..at + 1, kind);
                self.literal(c);
            }
            '{' | '}' => self.brace(),
            c => self.text(c),
        }
    }

    /// A character of the text, or a placeholder of another template language.
    fn text(&mut self, c: char) {
        let before = self.text[..self.at].chars().next_back();
        let is_argument = |path: &str| (self.meant)(path).is_some_and(|meant| meant == path);
        let opens_braces = "$#%".contains(c) && self.rest()[1..].starts_with('{');
        if self.after_value.is_some() && c == '%' {
            self.plain(c);
        } else if opens_braces {
            self.braces(1);
        } else if let Some(found) = foreign(before, self.rest(), is_argument) {
            let path = found.path.and_then(|path| self.path(path));
            let kind = TemplateErrorKind::Foreign(found.written.to_owned(), path);
            let range = self.at..self.at + found.written.len();
            self.at = range.end;
            self.error(range, kind);
            self.after_value = None;
        } else {
            self.plain(c);
        }
    }

    /// A literal character, which may still be one that a key must not contain.
    fn plain(&mut self, c: char) {
        let at = self.at;
        match c {
            c if c.is_control() => {
                self.error(at..at + c.len_utf8(), TemplateErrorKind::Control(c));
                self.literal(c);
            }
            '%' if self.after_value.is_some() => {
                self.error(at..at + 1, TemplateErrorKind::Percent);
                self.literal(c);
            }
            c => self.literal(c),
        }
    }

    fn error(&mut self, range: Range<usize>, kind: TemplateErrorKind) {
        self.errors.push(TemplateError::new(range, kind));
    }

    fn literal(&mut self, c: char) {
        self.at += c.len_utf8();
        self.after_value = None;
        if let Some(Piece::Text(text)) = self.pieces.last_mut() {
            text.push(c);
        } else {
            self.pieces.push(Piece::Text(c.into()));
        }
    }

    /// The correction of a path that was written without brackets.
    fn path(&self, written: &str) -> Option<String> {
        is_path(written).then(|| (self.meant)(written))?
    }

    fn brace(&mut self) {
        self.braces(0);
    }

    /// `{user_id}`, `${user_id}` and `{{ user_id }}` are one error each, not one for each brace.
    fn braces(&mut self, sign: usize) {
        let rest = &self.rest()[sign..];
        let open = rest.len() - rest.trim_start_matches('{').len();
        let inside = &rest[open..];
        let end = inside.find(['{', '}', '<', '>']).unwrap_or(inside.len());
        let after = &inside[end..];
        let close = after.len() - after.trim_start_matches('}').len();
        let (length, path) = if open > 0 && close > 0 {
            let path = self.path(inside[..end].trim());
            (sign + open + end + open.min(close), path)
        } else {
            (sign + 1, None)
        };
        self.error(self.at..self.at + length, TemplateErrorKind::Brace(path));
        self.at += length;
        self.after_value = None;
    }

    /// Input:  `<'$id'>`
    /// Output: the text between the quotes, taken literally
    fn quoted(&mut self, length: usize) {
        let start = self.at;
        if length == 0 {
            self.error(start..start + 4, TemplateErrorKind::Empty);
        }
        self.at += 2;
        let end = self.at + length;
        while self.at < end
            && let Some(c) = self.peek()
        {
            if c == '{' || c == '}' {
                self.error(self.at..self.at + 1, TemplateErrorKind::Brace(None));
            }
            self.plain(c);
        }
        self.at += 2;
    }

    fn placeholder(&mut self) {
        let start = self.at;
        let inside = start + 1;
        let rest = &self.text[inside..];
        if let Some(text) = rest.strip_prefix('\'')
            && let Some(length) = text.find("'>")
        {
            self.quoted(length);
            return;
        }
        let Some(end) = rest
            .find(['<', '>'])
            .filter(|end| rest[*end..].starts_with('>'))
        else {
            let word = leading_path(rest);
            let kind = TemplateErrorKind::Unclosed(self.path(word));
            self.error(start..inside + word.len(), kind);
            self.at = inside + word.len();
            self.after_value = None;
            return;
        };
        let end = inside + end;
        match placeholder::parse(&self.text[inside..end], inside) {
            Ok(value) => {
                if let Some(before) = self.after_value {
                    self.error(before..end + 1, TemplateErrorKind::Adjacent);
                }
                self.pieces.push(Piece::Value(value));
            }
            Err(error) => self.errors.push(error),
        }
        self.at = end + 1;
        self.after_value = Some(start);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placeholder::Step;

    /// Every path starts with an argument.
    fn parse(text: &str) -> (Vec<Piece>, Vec<TemplateError>) {
        super::parse(text, |path| Some(path.to_owned()))
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.into())
    }

    fn value(written: &str, at: usize, root: &str, steps: Vec<Step>) -> Piece {
        Piece::Value(Placeholder {
            written: written.into(),
            range: at..at + written.len(),
            root: root.into(),
            steps,
        })
    }

    #[test]
    fn what_is_accepted() {
        use Step::{Call, Field, Index};
        for (template, pieces) in [
            ("nightly", vec![text("nightly")]),
            ("<id>", vec![value("id", 1, "id", vec![])]),
            (
                "sync:<user_id>",
                vec![text("sync:"), value("user_id", 6, "user_id", vec![])],
            ),
            (
                "<a>:<b>!",
                vec![
                    value("a", 1, "a", vec![]),
                    text(":"),
                    value("b", 5, "b", vec![]),
                    text("!"),
                ],
            ),
            (
                "<self.pair.0.1.id().x>",
                vec![value(
                    "self.pair.0.1.id().x",
                    1,
                    "self",
                    vec![
                        Field("pair".into()),
                        Index(0),
                        Index(1),
                        Call("id".into()),
                        Field("x".into()),
                    ],
                )],
            ),
            (
                "<r#type>-<a.r#fn>",
                vec![
                    value("r#type", 1, "type", vec![]),
                    text("-"),
                    value("a.r#fn", 10, "a", vec![Field("fn".into())]),
                ],
            ),
            ("a<<b>>c", vec![text("a<b>c")]),
            (
                "<<<a>>>",
                vec![text("<"), value("a", 3, "a", vec![]), text(">")],
            ),
            ("<é>ü", vec![value("é", 1, "é", vec![]), text("ü")]),
            ("<हिन्दी>", vec![value("हिन्दी", 1, "हिन्दी", vec![])]),
            (
                "<'$id'>:<a>",
                vec![text("$id:"), value("a", 9, "a", vec![])],
            ),
            ("a:<'/:b<c>'>d", vec![text("a:/:b<c>d")]),
            ("cost:5$", vec![text("cost:5$")]),
            (
                "100% of <a>",
                vec![text("100% of "), value("a", 9, "a", vec![])],
            ),
        ] {
            assert_eq!(parse(template), (pieces, vec![]), "{template}");
        }
    }

    #[test]
    fn what_is_refused_and_where() {
        use TemplateErrorKind::{
            Adjacent, Await, Blank, Brace, Called, Control, Dot, Empty, Foreign, Format, Indexed,
            MethodArguments, NotAName, Path, Percent, Reference, Spaces, Stray, TooLong, Unclosed,
            Underscore,
        };
        for (template, range, kind) in [
            ("", 0..0, Blank),
            ("  ", 0..0, Blank),
            ("a:<user_id", 2..10, Unclosed(Some("user_id".into()))),
            ("a:<user_id:x", 2..10, Unclosed(Some("user_id".into()))),
            ("a:<", 2..3, Unclosed(None)),
            ("<a<b>", 0..2, Unclosed(Some("a".into()))),
            ("a:user_id>", 2..10, Stray(Some("user_id".into()))),
            ("a=>b", 2..3, Stray(None)),
            ("a:<>", 2..4, Empty),
            ("a:< >", 2..5, Empty),
            ("a:< b >", 3..6, Spaces("b".into())),
            ("a:<a.>", 3..5, Dot),
            ("a:<.a>", 3..5, Dot),
            ("a:<a..b>", 3..7, Dot),
            ("a:<_>", 3..4, Underscore),
            ("a:<b._>", 5..6, Underscore),
            ("a:<b c>", 3..6, NotAName("b c".into())),
            ("a:<0>", 3..4, NotAName("0".into())),
            ("a:<b.01>", 5..7, NotAName("01".into())),
            ("a:<b.0()>", 5..8, NotAName("0()".into())),
            ("a:<b?>", 3..5, NotAName("b?".into())),
            ("a:<b()>", 3..6, Called("b".into())),
            ("a:<b.f(1.5)>", 6..11, MethodArguments),
            ("a:<b[0]>", 4..7, Indexed),
            ("a:<B::c>", 3..7, Path),
            ("a:<b:?>", 4..6, Format),
            ("a:<&b>", 3..5, Reference("b".into())),
            ("a:<b.await>", 5..10, Await),
            ("a:{user_id}", 2..11, Brace(Some("user_id".into()))),
            ("a:{}", 2..4, Brace(None)),
            ("a:}", 2..3, Brace(None)),
            ("a:{b", 2..3, Brace(None)),
            ("a:${b}", 2..6, Brace(Some("b".into()))),
            ("a:#{b}", 2..6, Brace(Some("b".into()))),
            ("a:%{b}", 2..6, Brace(Some("b".into()))),
            ("a:{{b}}:c", 2..7, Brace(Some("b".into()))),
            ("a:{{ b.c }}", 2..11, Brace(Some("b.c".into()))),
            ("a:$b", 2..4, Foreign("$b".into(), Some("b".into()))),
            ("a:$b.c.", 2..6, Foreign("$b.c".into(), Some("b.c".into()))),
            ("a:$1", 2..4, Foreign("$1".into(), None)),
            ("/a/:b/c", 3..5, Foreign(":b".into(), Some("b".into()))),
            ("a:%s", 2..4, Foreign("%s".into(), None)),
            ("a:[b]", 2..5, Foreign("[b]".into(), Some("b".into()))),
            ("a:<''>", 2..6, Empty),
            ("a:<'{'>", 4..5, Brace(None)),
            ("<a><'%s'>", 5..6, Percent),
            ("<a><b>", 0..6, Adjacent),
            ("<a>%", 3..4, Percent),
            ("a\nb", 1..2, Control('\n')),
            ("a\u{85}b", 1..3, Control('\u{85}')),
            (&"x".repeat(1025), 0..0, TooLong(1025)),
        ] {
            let errors = vec![TemplateError::new(range, kind)];
            assert_eq!(parse(template).1, errors, "{template}");
        }
    }

    #[test]
    fn all_flaws_are_found_at_once() {
        let (pieces, errors) = parse("{a}:<>:<b:<c>");
        let ranges: Vec<_> = errors.into_iter().map(|error| error.range).collect();
        assert_eq!(ranges, [0..3, 4..6, 7..9]);
        assert_eq!(pieces.last(), Some(&value("c", 11, "c", vec![])));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            check(&text)?;
        }

        #[test]
        fn any_near_miss_is_answered(text in r"[<>{}%$'/@a_.:()\[\] é0&*?#r\n-]{0,24}") {
            check(&text)?;
        }

        /// What is accepted means one thing: writing the pieces out again gives the template.
        #[test]
        fn pieces_are_the_whole_template(text in r"[<>%a_.()é0:#r-]{0,24}") {
            let (pieces, errors) = parse(&text);
            if errors.is_empty() {
                let again: String = pieces
                    .iter()
                    .map(|piece| match piece {
                        Piece::Text(text) => text.replace('<', "<<").replace('>', ">>"),
                        Piece::Value(value) => format!("<{}>", value.written),
                    })
                    .collect();
                prop_assert_eq!(again, text);
            }
        }
    }

    fn check(text: &str) -> Result<(), TestCaseError> {
        let (pieces, errors) = parse(text);
        let side_by_side = pieces
            .windows(2)
            .any(|pair| matches!(pair, [Piece::Value(_), Piece::Value(_)]));
        prop_assert!(!pieces.is_empty() || !errors.is_empty());
        prop_assert!(!side_by_side || !errors.is_empty());
        for error in errors {
            prop_assert!(text.get(error.range.clone()).is_some(), "{:?}", error);
        }
        Ok(())
    }
}
