//! How fast the server answers, and how far its clock is from ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use crate::store::inspect::{Finding, Severity};
use crate::store::redis::reply::integer;

/// Slower answers take a part of each lease that matters.
const SLOW: Duration = Duration::from_millis(50);

/// Clocks that are further apart make what is told of ages wrong, and tokens of a server that has lost its
/// counters.
const APART: Duration = Duration::from_secs(1);

/// A question for the server's time: the answer, how long it took, and the local time when it came.
pub(super) struct TimeAsked {
    pub(super) answer: Value,
    pub(super) taken: Duration,
    pub(super) at: SystemTime,
}

pub(super) fn latency(part: &str, asked: &[TimeAsked]) -> Option<Finding> {
    let mut taken: Vec<_> = asked.iter().map(|asked| asked.taken).collect();
    taken.sort_unstable();
    let (median, longest) = (*taken.get(taken.len() / 2)?, *taken.last()?);
    let found = format!(
        "{} questions were answered in {median:.1?} by the median, in {longest:.1?} at most",
        taken.len()
    );
    let (severity, advice) = if median > SLOW {
        (
            Severity::Advice,
            "each step of a lock takes that long: keep the server near, and look for slow commands",
        )
    } else {
        (Severity::Good, "")
    };
    Some(Finding::new(part, "latency", severity, found, advice))
}

/// The server's clock is `offset` from ours, as well as the fastest answer tells.
pub(super) fn clock(part: &str, asked: &[TimeAsked]) -> Option<Finding> {
    let fastest = asked.iter().min_by_key(|asked| asked.taken)?;
    let theirs = read(&fastest.answer)?;
    let ours = fastest.at.checked_sub(fastest.taken / 2)?;
    let (apart, direction) = match theirs.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if apart <= APART {
        let found = format!("the server's clock is within {APART:?} of this machine's");
        return Some(Finding::new(part, "clock", Severity::Good, found, ""));
    }
    Some(Finding::new(
        part,
        "clock",
        Severity::Advice,
        format!("the server's clock is {apart:.1?} {direction} this machine's"),
        "have both follow a time server: ages are shown by these clocks, and tokens grow by the server's where \
         their counters are lost. Leases are timed by neither, and end in time",
    ))
}

fn read(answer: &Value) -> Option<SystemTime> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [seconds, micros] = parts.as_slice() else {
        return None;
    };
    let number = |value| u64::try_from(integer(value)?).ok();
    let since = Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?);
    UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(theirs: u64, ours: u64, taken: u64) -> TimeAsked {
        TimeAsked {
            answer: Value::Array(vec![Value::Int(theirs.cast_signed()), Value::Int(0)]),
            taken: Duration::from_millis(taken),
            at: UNIX_EPOCH + Duration::from_secs(ours),
        }
    }

    #[test]
    fn a_clock_that_is_off_is_told_by_the_fastest_answer() {
        let told = |theirs, ours| {
            let asked = [asked(theirs + 60, ours, 90), asked(theirs, ours, 1)];
            clock("", &asked).map(|finding| (finding.severity, finding.found))
        };
        let good = told(1_000, 1_000).map(|(severity, _)| severity);
        assert_eq!(good, Some(Severity::Good));
        for (theirs, words) in [(1_010, "10.0s ahead of"), (990, "10.0s behind")] {
            let (severity, found) = told(theirs, 1_000).expect("told");
            assert_eq!(severity, Severity::Advice);
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn slow_answers_are_told() {
        let of = |taken| latency("", &[asked(0, 0, taken)]).map(|finding| finding.severity);
        assert_eq!(of(1), Some(Severity::Good));
        assert_eq!(of(100), Some(Severity::Advice));
        assert!(latency("", &[]).is_none());
    }
}
