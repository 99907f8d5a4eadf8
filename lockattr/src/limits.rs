//! The bounds of durations and numbers, and what is said to whoever leaves them.

use std::time::Duration;

/// The shortest ttl: below it the drift margin and one round trip leave nothing to rely on.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(10);

/// The longest ttl and wait, well inside what a server takes for an expiry.
pub(crate) const MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A ttl as the store takes it, in whole milliseconds.
pub(crate) fn ttl(ttl: Duration) -> Result<Duration, String> {
    let whole = Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    if (MIN_TTL..=MAX).contains(&whole) {
        Ok(whole)
    } else {
        Err(format!(
            "a ttl is at least 10ms and at most 366 days, not {ttl:?}"
        ))
    }
}

/// A wait.
pub(crate) fn wait(wait: Duration) -> Result<Duration, String> {
    if wait <= MAX {
        Ok(wait)
    } else {
        Err(format!("a wait is at most 366 days, not {wait:?}"))
    }
}

/// A length that is counted in whole milliseconds: `min_hold`, `max_hold`, `once`, a grace.
pub(crate) fn length(what: &str, length: Duration) -> Result<Duration, String> {
    let whole = Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    if (Duration::from_millis(1)..=MAX).contains(&whole) {
        Ok(whole)
    } else {
        Err(format!(
            "{what} is at least 1ms and at most 366 days, not {length:?}"
        ))
    }
}

/// The most permits that a key may have. They cost nothing: what is stored grows with the holders.
pub(crate) const MAX_PERMITS: u32 = 1_000_000;

/// The most keys of one call. They are taken in one step, and for as long nobody else is answered by
/// the server: a few milliseconds.
pub(crate) const MAX_KEYS: usize = 1000;

/// A number of permits.
pub(crate) fn permits(permits: u32) -> Result<u32, String> {
    if (1..=MAX_PERMITS).contains(&permits) {
        Ok(permits)
    } else {
        Err(format!(
            "a key has at least 1 and at most {MAX_PERMITS} permits, not {permits}"
        ))
    }
}

/// How many of a key's permits a holder has.
pub(crate) fn weight(weight: u32, permits: u32) -> Result<u32, String> {
    if (1..=permits).contains(&weight) {
        Ok(weight)
    } else {
        Err(format!(
            "a weight is at least 1 and at most the key's permits, of which there are {permits}, not {weight}"
        ))
    }
}

/// The fewest bytes of a key of hashes, as many as cannot be tried out.
pub(crate) const MIN_REDACT_KEY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_are_whole_milliseconds_within_bounds() {
        assert_eq!(
            ttl(Duration::from_micros(1_500_900)),
            Ok(Duration::from_millis(1500))
        );
        assert_eq!(ttl(MIN_TTL), Ok(MIN_TTL));
        assert_eq!(ttl(MAX), Ok(MAX));
        for bad in [
            Duration::ZERO,
            Duration::from_micros(9_999),
            MAX + MIN_TTL,
            Duration::MAX,
        ] {
            assert!(ttl(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn waits_may_be_nothing() {
        assert_eq!(wait(Duration::ZERO), Ok(Duration::ZERO));
        assert!(wait(Duration::MAX).is_err());
    }
}
