//! The referees of slots and turns, against histories that are made up.

use std::time::Duration;

use tests::record::{Entry, Event};
use tests::referee::{KILL, idle, turns};

/// `milliseconds process call event note` of one key; of a fault, the process is the one that is hurt.
fn story(lines: &[&str]) -> Vec<Entry> {
    lines
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let event: Event = words[3].parse().expect("an event");
            let of_process = event == Event::Fault;
            Entry {
                at: Duration::from_millis(words[0].parse().expect("a number")),
                process: words[1].parse().expect("a number"),
                call: words[2].parse().expect("a number"),
                event,
                key: if of_process { words[1] } else { "k" }.to_owned(),
                note: words.get(4).unwrap_or(&"-").to_string(),
            }
        })
        .collect()
}

fn used(permits: usize, lines: &[&str]) -> idle::Use {
    let rules = idle::Rules {
        permits,
        ttl: Duration::from_secs(2),
        gap: Duration::from_millis(500),
    };
    idle::judge(&story(lines), rules)
}

#[test]
fn slots_in_use_are_counted_and_every_number_is_one_of_them() {
    let lines = [
        "0 1 1 enter",
        "1 1 1 slot 0",
        "2 1 2 enter",
        "3 1 2 slot 1",
        "10 1 1 leave",
        "11 1 2 leave",
        "20 1 3 enter",
        "21 1 3 slot 1",
        "22 1 3 leave",
    ];
    let good = used(2, &lines);
    good.assert_clean();
    assert_eq!(good.most, 2);
    assert_eq!(used(1, &lines).violations.len(), 2);
}

#[test]
fn a_slot_that_stays_free_while_somebody_waits_is_seen() {
    let told = |next: u32, end: u32| {
        let (enter, end) = (format!("{next} 2 1 enter"), format!("{end} 9 9 call"));
        let lines = [
            "0 1 1 enter",
            "10 2 1 call",
            "100 1 1 leave",
            "100 1 1 outcome done",
            &enter,
            &end,
        ];
        used(1, &lines)
    };
    told(590, 700).assert_clean();
    assert_eq!(told(590, 700).longest, Duration::from_millis(490));
    assert_eq!(told(610, 700).violations.len(), 1);
    // Nobody waited for most of the time.
    used(
        1,
        &[
            "0 1 1 enter",
            "1 1 1 leave",
            "5000 2 1 call",
            "5010 2 1 enter",
        ],
    )
    .assert_clean();
    // Waiting in turn is waiting as well, and so is waiting for what never comes.
    let in_turn = [
        "0 1 1 enter",
        "1 1 1 leave",
        "5 2 1 call",
        "300 2 2 call",
        "350 2 1 outcome busy",
        "700 2 2 outcome busy",
    ];
    assert_eq!(used(1, &in_turn).violations.len(), 1);
    let never = ["0 1 1 call", "900 9 9 fault calm"];
    assert_eq!(used(1, &never).violations.len(), 1);
    // Of two slots each counts.
    let second = [
        "0 1 1 enter",
        "0 1 1 slot 0",
        "0 2 1 call",
        "400 1 1 beat",
        "900 1 1 beat",
    ];
    assert_eq!(used(2, &second).violations.len(), 1);
}

#[test]
fn a_killed_holders_slot_comes_back_after_its_ttl_and_not_before() {
    let told = |next: u32| {
        let (enter, kill) = (format!("{next} 2 1 enter"), format!("30 1 0 fault {KILL}"));
        let end = format!("{} 2 1 leave", next + 1);
        used(
            1,
            &[
                "0 1 1 enter",
                "10 2 1 call",
                "20 1 1 beat",
                &kill,
                &enter,
                &end,
            ],
        )
    };
    told(2_000).assert_clean();
    told(2_500).assert_clean();
    assert_eq!(told(2_600).violations.len(), 1);
    assert_eq!(told(1_000).violations.len(), 1);
}

#[test]
fn turns_are_counted_by_caller_and_so_is_who_went_before() {
    let found = turns::turns(&story(&[
        "0 1 1 call a",
        "0 2 1 call b",
        "0 2 2 call c",
        "10 1 1 enter",
        "11 1 1 leave",
        "12 1 2 call a",
        "20 2 1 enter",
        "30 1 2 enter",
        "40 2 2 enter",
        "50 2 2 leave",
    ]));
    assert_eq!(found.range(), (1, 2));
    assert_eq!(found.of[&(1, "a".to_owned())], 2);
    // `c` let three others go before it, of which one had its second turn.
    assert_eq!(found.passed, 3);
    assert_eq!(found.longest, Duration::from_millis(40));
    // Three callers, four turns in 30 ms.
    assert_eq!(found.fair, Duration::from_micros(22_500));
}
