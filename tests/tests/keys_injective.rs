//! Different values never share a key: rendering over arbitrary separators and strings.

use lockattr::__private::KeyWriter;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What an expansion of `key = "<a>…<b>…<c>"` does; nothing where no key can be made.
fn render(separator: &'static str, values: &[String]) -> Option<String> {
    let mut writer = KeyWriter::new(0);
    for (at, value) in values.iter().enumerate() {
        let last = at + 1 == values.len();
        let next = if last { None } else { separator.chars().next() };
        writer = writer.value("value", next, value);
        if !last {
            writer = writer.text(separator);
        }
    }
    writer.finish().ok().map(|key| key.to_string())
}

/// The values that a key was rendered from.
fn read(separator: &str, key: &str, values: usize) -> Vec<String> {
    let mut rest = key;
    let mut found = Vec::new();
    for at in 1..=values {
        let next = separator.chars().next().filter(|_| at < values);
        let mut bytes = Vec::new();
        while let Some(c) = rest.chars().next().filter(|c| Some(*c) != next) {
            if c == '%' {
                bytes.push(u8::from_str_radix(&rest[1..3], 16).unwrap());
                rest = &rest[3..];
            } else {
                bytes.extend(c.to_string().bytes());
                rest = &rest[c.len_utf8()..];
            }
        }
        if at < values {
            rest = rest.strip_prefix(separator).unwrap();
        }
        found.push(String::from_utf8(bytes).unwrap());
    }
    assert_eq!(rest, "");
    found
}

/// What a template may have between two placeholders.
///
/// `KeyWriter` takes a program's literals, so the few bytes of each are never freed.
fn separator() -> impl Strategy<Value = &'static str> {
    let usual = select(vec![":", "-", "/", "::", ":-", " ", "a", "3", "→", "é:"]);
    prop_oneof![usual.prop_map(ToOwned::to_owned), "[^{}<>%][^{}<>]{0,3}"]
        .prop_map(|text| -> &'static str { text.leak() })
}

/// Any text, and text made of what separators and escapes are made of.
fn value(separator: &'static str) -> impl Strategy<Value = String> {
    let first: String = separator.chars().take(1).collect();
    let part = select(vec![
        separator.to_owned(),
        first,
        ":".to_owned(),
        "%".to_owned(),
        "%3A".to_owned(),
        "3A".to_owned(),
        "a".to_owned(),
        "{".to_owned(),
        " ".to_owned(),
    ]);
    prop_oneof![
        any::<String>(),
        vec(part, 1..6).prop_map(|parts| parts.concat()),
    ]
}

fn values(separator: &'static str) -> impl Strategy<Value = Vec<String>> {
    vec(value(separator), 2..=3)
}

/// A separator and values to render with it.
fn one() -> impl Strategy<Value = (&'static str, Vec<String>)> {
    separator().prop_flat_map(|separator| (Just(separator), values(separator)))
}

/// A separator and two tuples of as many values.
fn two() -> impl Strategy<Value = (&'static str, Vec<String>, Vec<String>)> {
    one().prop_flat_map(|(separator, values)| {
        let others = vec(value(separator), values.len());
        (Just(separator), Just(values), others)
    })
}

/// A separator and two tuples that are the same text, divided at different separators.
fn divided() -> impl Strategy<Value = (&'static str, Vec<String>, Vec<String>)> {
    let pieces = separator().prop_flat_map(|separator| {
        let pieces = vec(value(separator), 3..6);
        (Just(separator), pieces, 2..=3_usize)
    });
    let cuts = || vec(any::<Index>(), 2);
    (pieces, cuts(), cuts()).prop_map(|((separator, pieces, values), one, other)| {
        let divide = |cuts: &[Index]| {
            let mut groups = pieces.clone();
            for cut in cuts.iter().cycle() {
                if groups.len() == values {
                    break;
                }
                let at = cut.index(groups.len() - 1);
                let joined = groups[at..=at + 1].join(separator);
                groups.splice(at..=at + 1, [joined]);
            }
            groups
        };
        let tuples = (divide(&one), divide(&other));
        (separator, tuples.0, tuples.1)
    })
}

fn differ(separator: &'static str, one: &[String], other: &[String]) -> Result<(), TestCaseError> {
    prop_assume!(one != other);
    let keys = (render(separator, one), render(separator, other));
    if let (Some(first), Some(second)) = keys {
        prop_assert_ne!(first, second, "{:?} and {:?}", one, other);
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_two_tuples((separator, one, other) in two()) {
        differ(separator, &one, &other)?;
    }

    #[test]
    fn one_text_divided_in_two_ways((separator, one, other) in divided()) {
        differ(separator, &one, &other)?;
    }

    /// Values that look like what other values are encoded to.
    #[test]
    fn values_and_their_encoded_forms((separator, values) in one()) {
        let encoded = values.iter().map(|value| {
            let next = separator.chars().next();
            let key = KeyWriter::new(0).value("value", next, value).finish();
            key.map(|key| key.to_string())
        });
        if let Ok(encoded) = encoded.collect::<Result<Vec<_>, _>>() {
            differ(separator, &values, &encoded)?;
        }
    }

    /// More than the others need: the key itself tells its values.
    #[test]
    fn a_key_can_be_read_back((separator, values) in one()) {
        if let Some(key) = render(separator, &values) {
            prop_assert_eq!(read(separator, &key, values.len()), values, "{:?}", key);
        }
    }
}
