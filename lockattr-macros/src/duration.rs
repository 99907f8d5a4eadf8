//! Durations in quotes: `humantime` syntax, whole milliseconds, within the bounds of the argument.

use std::time::Duration;

use crate::suggest::nearest;

/// What an argument accepts, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// The bounds as a user would write them.
    pub(crate) rule: &'static str,
}

const DAY: u64 = 24 * 60 * 60 * 1000;

pub(crate) const TTL: Bounds = Bounds {
    least: 10,
    most: 366 * DAY,
    rule: "from \"10ms\" to \"366days\"",
};

pub(crate) const WAIT: Bounds = Bounds {
    least: 0,
    most: 366 * DAY,
    rule: "from \"0s\" to \"366days\"",
};

/// `min_hold`, `max_hold`, `once` and the grace of `on_lost = cancel(…)`.
pub(crate) const PERIOD: Bounds = Bounds {
    least: 1,
    most: 366 * DAY,
    rule: "from \"1ms\" to \"366days\"",
};

/// Why a text is not an acceptable duration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DurationError {
    pub(crate) message: String,
    /// What was probably meant. It is itself always accepted.
    pub(crate) likely: Option<String>,
}

const UNITS: [&str; 6] = ["ms", "s", "min", "h", "days", "weeks"];

/// Input:  `"1m 30s"`
/// Output: 90000
pub(crate) fn parse(text: &str, bounds: Bounds) -> Result<u64, DurationError> {
    let kind = match milliseconds(text) {
        Ok(millis) if millis < bounds.least => DurationErrorKind::Short,
        Ok(millis) if millis > bounds.most => DurationErrorKind::Long,
        Ok(millis) => return Ok(millis),
        Err(kind) => kind,
    };
    Err(DurationError {
        likely: likely(text, &kind, bounds),
        message: kind.text(),
    })
}

enum DurationErrorKind {
    Empty,
    Negative,
    NoUnit,
    Unit(String),
    Month,
    Fraction,
    Short,
    Long,
    Spelling,
}

impl DurationErrorKind {
    fn text(&self) -> String {
        match self {
            Self::Empty => "it is empty".into(),
            Self::Negative => "a duration is never negative".into(),
            Self::NoUnit => "a number needs its unit".into(),
            Self::Unit(unit) => format!("`{unit}` is not a unit"),
            Self::Month => "`M` would be a month of 30.44 days; minutes are written `m`".into(),
            Self::Fraction => "durations are counted in whole milliseconds".into(),
            Self::Short => "it is too short".into(),
            Self::Long => "it is too long".into(),
            Self::Spelling => "this is not how a duration is written".into(),
        }
    }
}

fn milliseconds(text: &str) -> Result<u64, DurationErrorKind> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(DurationErrorKind::Empty);
    }
    if trimmed.starts_with('-') {
        return Err(DurationErrorKind::Negative);
    }
    let mut sum = Duration::ZERO;
    // Term by term, because humantime's sum over a whole text can panic on overflow.
    for term in terms(trimmed) {
        if term.trim_end().ends_with('M') {
            return Err(DurationErrorKind::Month);
        }
        let span = humantime::parse_duration(term).map_err(|error| kind_of(error, term))?;
        sum = sum.checked_add(span).ok_or(DurationErrorKind::Long)?;
    }
    if !sum.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(DurationErrorKind::Fraction);
    }
    u64::try_from(sum.as_millis()).map_err(|_| DurationErrorKind::Long)
}

fn kind_of(error: humantime::DurationError, term: &str) -> DurationErrorKind {
    use humantime::DurationError as Error;
    match error {
        Error::UnknownUnit { unit, .. } if unit.is_empty() => DurationErrorKind::NoUnit,
        Error::UnknownUnit { unit, .. } => DurationErrorKind::Unit(unit),
        // humantime has one error for a number too large and for one finer than a nanosecond.
        Error::NumberOverflow if term.contains('.') => DurationErrorKind::Fraction,
        Error::NumberOverflow => DurationErrorKind::Long,
        Error::Empty => DurationErrorKind::Empty,
        Error::InvalidCharacter(_) | Error::NumberExpected(_) => DurationErrorKind::Spelling,
    }
}

/// Input:  `"1m 30s"`
/// Output: `["1m ", "30s"]`
fn terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut after_unit = false;
    for (at, c) in text.char_indices() {
        if c.is_ascii_digit() && after_unit {
            terms.push(&text[start..at]);
            start = at;
        }
        if !c.is_whitespace() {
            after_unit = c.is_alphabetic();
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The first of several corrections that makes the text an acceptable duration.
fn likely(text: &str, kind: &DurationErrorKind, bounds: Bounds) -> Option<String> {
    match kind {
        DurationErrorKind::Short => return Some(format!("{}ms", bounds.least)),
        DurationErrorKind::Long => return Some("366days".into()),
        _ => {}
    }
    let plain = text
        .trim()
        .trim_start_matches('-')
        .replace(',', ".")
        .replace('_', "");
    let small = plain.to_lowercase();
    let rounded = round_up(&plain).map_or(String::new(), |millis| {
        format!("{}ms", millis.max(bounds.least))
    });
    let mut tries = vec![
        plain.clone(),
        small.clone(),
        small.replace(' ', ""),
        format!("{plain}s"),
        rounded,
    ];
    if let DurationErrorKind::Unit(unit) = kind {
        let meant = nearest(unit, UNITS).or_else(|| nearest(unit, ["seconds", "minutes", "hours"]));
        if let Some(meant) = meant {
            tries.push(plain.replace(unit.as_str(), meant));
        }
    }
    tries.into_iter().find(|text| {
        milliseconds(text).is_ok_and(|millis| (bounds.least..=bounds.most).contains(&millis))
    })
}

fn round_up(text: &str) -> Option<u64> {
    let exact = humantime::parse_duration(terms(text).first()?).ok()?;
    u64::try_from(exact.as_nanos().div_ceil(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_accepted() {
        for (text, millis) in [
            ("10ms", 10),
            ("30s", 30_000),
            ("30 s", 30_000),
            ("1.5s", 1500),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            (" 2h ", 7_200_000),
            ("0.5min", 30_000),
            ("1 000 ms", 1000),
            ("500ms 500ms", 1000),
            ("2000us 9ms", 11),
            ("366days", 366 * DAY),
        ] {
            assert_eq!(parse(text, TTL), Ok(millis), "{text}");
        }
        assert_eq!(parse("0s", WAIT), Ok(0));
    }

    #[test]
    fn what_is_refused_and_what_was_meant() {
        for (text, message, likely) in [
            ("", "it is empty", None),
            ("  ", "it is empty", None),
            ("30", "a number needs its unit", Some("30s")),
            ("30 S", "`S` is not a unit", Some("30 s")),
            ("30SEC", "`SEC` is not a unit", Some("30sec")),
            ("5 minuts", "`minuts` is not a unit", Some("5 minutes")),
            ("-1s", "a duration is never negative", Some("1s")),
            ("0s", "it is too short", Some("10ms")),
            ("9ms", "it is too short", Some("10ms")),
            (
                "0.4ms",
                "durations are counted in whole milliseconds",
                Some("10ms"),
            ),
            (
                "10.5ms",
                "durations are counted in whole milliseconds",
                Some("11ms"),
            ),
            ("999999999999s", "it is too long", Some("366days")),
            (
                "99999999999999999999999s",
                "it is too long",
                Some("366days"),
            ),
            ("367days", "it is too long", Some("366days")),
            (
                "1,5s",
                "this is not how a duration is written",
                Some("1.5s"),
            ),
            (
                "1_000ms",
                "this is not how a duration is written",
                Some("1000ms"),
            ),
            ("1h30", "a number needs its unit", Some("1h30s")),
            (
                "5M",
                "`M` would be a month of 30.44 days; minutes are written `m`",
                Some("5m"),
            ),
            ("forever", "this is not how a duration is written", None),
        ] {
            let error = DurationError {
                message: message.into(),
                likely: likely.map(Into::into),
            };
            assert_eq!(parse(text, TTL), Err(error), "{text}");
        }
    }

    #[test]
    fn the_largest_sum_is_only_too_long() {
        let text = "18446744073709551615s 1000000000ns";
        assert_eq!(parse(text, TTL).unwrap_err().message, "it is too long");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            let _ = parse(&text, TTL);
        }

        #[test]
        fn any_near_miss_is_answered(text in "[-0-9.,_ a-zA-Zµ]{0,40}") {
            if let Err(error) = parse(&text, TTL)
                && let Some(likely) = error.likely
            {
                prop_assert!(parse(&likely, TTL).is_ok(), "{likely}");
            }
        }

        #[test]
        fn a_written_number_keeps_its_value(millis in 10..366 * DAY) {
            prop_assert_eq!(parse(&format!("{millis}ms"), TTL), Ok(millis));
        }
    }
}
