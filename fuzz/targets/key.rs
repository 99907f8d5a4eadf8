//! Two different pairs of values never give one key.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use lockattr::__private::KeyWriter;

/// The literal text between two placeholders. Its first character decides what is encoded.
const SEPARATORS: [&str; 14] = [
    ":", "-", "/", "::", ":%", "-%3A", " ", "a", "A", "3", "→", "é:", "<", "\u{301}",
];

#[derive(Arbitrary, Debug)]
struct Input {
    separator: u8,
    one: (String, String),
    other: (String, String),
}

fuzz_target!(|input: Input| {
    let separator = SEPARATORS[usize::from(input.separator) % SEPARATORS.len()];
    let (a, b) = &input.one;
    let (c, d) = &input.other;
    differ(separator, (a, b), (c, d));
    // The same text, divided at one separator and at the next.
    let joined_start = format!("{a}{separator}{b}");
    let joined_end = format!("{b}{separator}{c}");
    differ(separator, (&joined_start, c), (a, &joined_end));
    // Values, and others that look like what those are encoded to.
    if let Some(encoded) = render(separator, (a, b)) {
        let parts = encoded.split_once(separator).expect("the template's text");
        differ(separator, (a, b), parts);
    }
});

fn differ(separator: &'static str, one: (&str, &str), other: (&str, &str)) {
    if one == other {
        return;
    }
    if let (Some(first), Some(second)) = (render(separator, one), render(separator, other)) {
        assert_ne!(first, second, "{one:?} and {other:?}");
    }
}

/// The key that an expansion of `key = "<a>…<b>"` makes, or `None` where it makes none.
fn render(separator: &'static str, values: (&str, &str)) -> Option<String> {
    let key = KeyWriter::new(0)
        .value("a", separator.chars().next(), values.0)
        .text(separator)
        .value("b", None, values.1)
        .finish();
    key.ok().map(|key| key.to_string())
}
