//! The checkers of windows and of progress against histories that are made up.

use std::time::Duration;

use tests::checker::progress;
use tests::checker::windows::after_promotion;

use crate::checkers::checked;

/// The longest ttl of the histories.
const TTL: Duration = Duration::from_secs(2);

/// Process 1 is at work from the first moment on, process 2 from the second one, and both to the last: how many
/// overlaps are in the window of a promotion, and how many are violations.
fn judged(first: u64, second: u64, last: u64) -> (usize, usize) {
    let lines = [
        "1000 9 0 fault loses".to_owned(),
        "3000 9 0 fault promoted".to_owned(),
        format!("{first} 1 1 enter"),
        format!("{second} 2 1 enter"),
        format!("{last} 1 1 leave"),
        format!("{last} 2 1 leave"),
        format!("{last} 1 1 outcome done"),
        format!("{last} 2 1 outcome done"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let findings = checked(&lines);
    (findings.windows.overlaps.len(), findings.violations.len())
}

#[test]
fn an_overlap_is_counted_from_the_fault_on_until_all_have_followed() {
    let over = 3_000 + u64::try_from(after_promotion(TTL).as_millis()).unwrap();
    assert_eq!(judged(0, 1_001, 2_000), (1, 0));
    assert_eq!(judged(3_100, 3_200, over), (1, 0));
    // Before the fault, beyond the end, and after it.
    assert_eq!(judged(0, 999, 2_000), (0, 1));
    assert_eq!(judged(3_100, 3_200, over + 1), (0, 1));
    assert_eq!(judged(over, over + 10, over + 20), (0, 1));
}

#[test]
fn windows_are_measured() {
    let lines = [
        "1000 9 0 fault loses",
        "3000 9 0 fault promoted",
        "2000 1 1 enter",
        "3100 2 1 enter",
        "3500 1 1 leave",
        "3600 2 1 leave",
        "3600 1 1 outcome done",
        "3600 2 1 outcome done",
    ];
    let windows = checked(&lines).windows;
    assert_eq!(windows.overlaps, [Duration::from_millis(400)]);
    assert_eq!(windows.latest, Duration::from_millis(500));
    assert_eq!(
        windows.lengths().collect::<Vec<_>>(),
        [Duration::from_secs(2)]
    );
}

/// How many violations there are where a call is refused in the second half of a calm, and another call, of
/// which a line says more, enters and ends.
fn refused_beside(enters: u64, ends: u64, more: &str) -> usize {
    let length = u64::try_from(progress::LENGTH.as_millis()).unwrap();
    let half = 1_000 + length / 2;
    let lines = [
        format!("1000 9 0 fault {}", progress::CALM),
        format!("{} 9 0 fault {}", 1_000 + length, progress::CALMED),
        format!("{half} 1 1 call"),
        format!("{} 1 1 outcome busy", half + 100),
        format!("{enters} 2 1 call"),
        format!("{enters} 2 1 {more}"),
        format!("{enters} 2 1 enter"),
        format!("{ends} 2 1 leave"),
        format!("{ends} 2 1 outcome done"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    checked(&lines).violations.len()
}

#[test]
fn nobody_is_refused_in_the_second_half_of_a_calm_but_for_a_body() {
    let half = 1_000 + u64::try_from(progress::LENGTH.as_millis()).unwrap() / 2;
    assert_eq!(refused_beside(half + 10, half + 20, "beat"), 0);
    assert_eq!(refused_beside(half - 10, half + 20, "beat"), 0);
    // Whoever is refused after a body is over is refused for no reason.
    assert_eq!(refused_beside(half - 20, half - 10, "beat"), 1);
    // What needs no grant is no reason either.
    assert_eq!(refused_beside(half + 10, half + 20, "fallback local"), 1);
    assert_eq!(refused_beside(half + 10, half + 20, "within 7"), 1);
}
