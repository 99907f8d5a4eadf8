//! Byte ranges of a string literal: underlined in a message, and mapped to its source text.

use std::ops::Range;

/// The widest underlined text. A longer one is cut around its range.
const WIDTH: usize = 64;

/// Input:  `"sync:<usr_id>", 6..12`
/// Output: `"    sync:<usr_id>\n          ^^^^^^"`
pub(crate) fn underlined(text: &str, range: &Range<usize>) -> String {
    let cells: Vec<(usize, String)> = text
        .char_indices()
        .map(|(at, c)| (at, visible(c)))
        .collect();
    let width = |cells: &[(usize, String)]| -> usize {
        cells.iter().map(|(_, shown)| shown.chars().count()).sum()
    };
    let first = cells.partition_point(|(at, _)| *at < range.start);
    let last = cells.partition_point(|(at, _)| *at < range.end);
    let (mut from, mut to) = (0, cells.len());
    if width(&cells) > WIDTH {
        from = first.saturating_sub(WIDTH / 2);
        to = cells.len().min(from + WIDTH);
    }
    let last = last.min(to);
    let cut = |cut: bool| if cut { "…" } else { "" };
    let shown: String = cells[from..to].iter().map(|(_, shown)| &**shown).collect();
    let indent = width(&cells[from..first]) + usize::from(from > 0);
    let carets = width(&cells[first..last]).max(1);
    format!(
        "    {}{shown}{}\n    {}{}",
        cut(from > 0),
        cut(to < cells.len()),
        " ".repeat(indent),
        "^".repeat(carets),
    )
}

fn visible(c: char) -> String {
    if c.is_control() {
        c.escape_default().to_string()
    } else {
        c.into()
    }
}

/// The bytes of a literal's source text that make the given bytes of its value. `None` where the
/// source text does not decode to the value.
///
/// Input:  `r#""a\n<b>""#, "a\n<b>", 3..4`
/// Output: 5..6
pub(crate) fn in_source(source: &str, value: &str, range: &Range<usize>) -> Option<Range<usize>> {
    let map = if source.starts_with('r') {
        raw(source, value)?
    } else {
        escaped(source, value)?
    };
    Some(*map.get(range.start)?..*map.get(range.end)?)
}

/// The offset in the source of each byte of the value, and of its end.
fn raw(source: &str, value: &str) -> Option<Vec<usize>> {
    let open = source.find('"')? + 1;
    source[open..].starts_with(value).then_some(())?;
    Some((open..=open + value.len()).collect())
}

fn escaped(source: &str, value: &str) -> Option<Vec<usize>> {
    let inner = source.strip_prefix('"')?.strip_suffix('"')?;
    let mut map = Vec::new();
    let mut decoded = String::new();
    let mut rest = inner;
    while let Some(c) = rest.chars().next() {
        let at = 1 + inner.len() - rest.len();
        let (made, length) = if c == '\\' {
            escape(rest)?
        } else {
            (Some(c), c.len_utf8())
        };
        rest = &rest[length..];
        if let Some(made) = made {
            decoded.push(made);
            map.resize(decoded.len(), at);
        }
    }
    map.push(1 + inner.len());
    (decoded == value).then_some(map)
}

/// Input:  `"\\n…"`
/// Output: the character it makes, if it makes one, and the length of the escape
fn escape(text: &str) -> Option<(Option<char>, usize)> {
    let kind = text[1..].chars().next()?;
    let simple = |c| Some((Some(c), 2));
    match kind {
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        '0' => simple('\0'),
        '\\' | '\'' | '"' => simple(kind),
        'x' => {
            let code = u8::from_str_radix(text.get(2..4)?, 16).ok()?;
            Some((Some(code.into()), 4))
        }
        'u' => {
            let end = text.find('}')?;
            let digits = text.get(3..end)?.replace('_', "");
            let c = char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?;
            Some((Some(c), end + 1))
        }
        '\n' => {
            let skipped = text[1..].trim_start_matches([' ', '\t', '\n', '\r']);
            Some((None, text.len() - skipped.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_underlined() {
        assert_eq!(
            underlined("sync:<usr_id>", &(6..12)),
            "    sync:<usr_id>\n          ^^^^^^"
        );
        assert_eq!(underlined("a\nb", &(1..2)), "    a\\nb\n     ^^");
        assert_eq!(underlined("é<", &(2..3)), "    é<\n     ^");
        assert_eq!(underlined("", &(0..0)), "    \n    ^");
        let long = format!("{}<b>", "x".repeat(100));
        assert_eq!(
            underlined(&long, &(101..102)),
            format!("    …{}<b>\n    {}^", "x".repeat(31), " ".repeat(33))
        );
    }

    #[test]
    fn a_range_is_found_in_the_source() {
        for (source, value, range, found) in [
            (r#""a<b>""#, "a<b>", 2..3, Some(3..4)),
            (r##"r#"a<b>"#"##, "a<b>", 2..3, Some(5..6)),
            (r#""\u{e9}<b>""#, "é<b>", 3..4, Some(8..9)),
            (r#""\x41\\<b>""#, "A\\<b>", 3..4, Some(8..9)),
            ("\"a\\\n   <b>\"", "a<b>", 2..3, Some(8..9)),
            (r#""a<b>""#, "other", 2..3, None),
            ("other", "a<b>", 2..3, None),
        ] {
            assert_eq!(in_source(source, value, &range), found, "{source}");
        }
    }

    proptest! {
        #[test]
        fn any_range_is_underlined(text in any::<String>(), a in any::<usize>(), b in any::<usize>()) {
            let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (a, b) = (bounds[a % bounds.len()], bounds[b % bounds.len()]);
            underlined(&text, &(a.min(b)..a.max(b)));
        }

        #[test]
        fn any_literal_maps_back(value in any::<String>()) {
            let source = proc_macro2::Literal::string(&value).to_string();
            let whole = in_source(&source, &value, &(0..value.len()));
            prop_assert_eq!(whole, Some(1..source.len() - 1));
        }

        #[test]
        fn any_source_is_answered(source in any::<String>(), escapes in r#"["\\xu{}0a-f\n ]{0,12}"#) {
            let _ = in_source(&source, "a", &(0..1));
            let _ = in_source(&format!("\"{escapes}\""), "a", &(0..1));
        }
    }
}
