//! Durations as one writes them.

use std::time::Duration;

use crate::limits;

/// Milliseconds of lengths that one would choose.
const CHOICES: [u64; 33] = {
    const S: u64 = 1_000;
    const M: u64 = 60 * S;
    const H: u64 = 60 * M;
    const D: u64 = 24 * H;
    [
        10,
        20,
        50,
        100,
        200,
        300,
        500,
        S,
        2 * S,
        3 * S,
        5 * S,
        10 * S,
        15 * S,
        20 * S,
        30 * S,
        45 * S,
        M,
        90 * S,
        2 * M,
        3 * M,
        5 * M,
        10 * M,
        15 * M,
        20 * M,
        30 * M,
        45 * M,
        H,
        2 * H,
        3 * H,
        6 * H,
        12 * H,
        D,
        2 * D,
    ]
};

/// A ttl of which so much is half at most, and that one would choose.
pub(crate) fn enough(needed: Duration) -> Duration {
    let twice = needed.saturating_mul(2).min(limits::MAX);
    let choices = CHOICES.into_iter().map(Duration::from_millis);
    let whole_days = || {
        let days = twice.as_secs().div_ceil(86_400);
        Duration::from_secs(days * 86_400).min(limits::MAX)
    };
    let mut choices = choices.filter(|choice| *choice >= twice);
    choices.next().unwrap_or_else(whole_days)
}

/// As in an attribute: `1m 30s`.
pub(crate) fn readable(length: Duration) -> String {
    let units = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut left = length.as_millis();
    let mut parts = Vec::new();
    for (unit, millis) in units {
        if left >= millis {
            parts.push(format!("{}{unit}", left / millis));
            left %= millis;
        }
    }
    if parts.is_empty() {
        return format!("{length:?}");
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_much_is_enough_and_readable() {
        for (needed, ttl) in [
            (3, "10ms"),
            (26, "100ms"),
            (400, "1s"),
            (501, "2s"),
            (14_000, "30s"),
            (31_000, "1m 30s"),
            (46_000, "2m"),
            (3_600_000, "2h"),
            (30 * 3_600_000, "3d"),
            (u64::MAX / 4, "366d"),
        ] {
            let needed = Duration::from_millis(needed);
            assert_eq!(readable(enough(needed)), ttl, "{needed:?}");
        }
        assert_eq!(readable(Duration::from_micros(200)), "200µs");
        assert_eq!(readable(Duration::from_millis(61_005)), "1m 1s 5ms");
    }
}
