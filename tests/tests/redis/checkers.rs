//! The checkers against histories that are made up.

use std::time::Duration;

use tests::checker::left::LOOK;
use tests::checker::{Findings, KILL, Rules, check, idle, turns};
use tests::record::{Entry, Event};

/// `milliseconds process call event note`, and another key than `k`, which `@` comes before; in a note, `_`
/// is a space. Of a fault, the process is the one that is hurt.
pub(crate) fn story(lines: &[&str]) -> Vec<Entry> {
    lines
        .iter()
        .map(|line| {
            let (line, key) = line.split_once(" @").unwrap_or((line, "k"));
            let words: Vec<&str> = line.split(' ').collect();
            let event: Event = words[3].parse().expect("an event");
            let of_process = event == Event::Fault;
            Entry {
                at: Duration::from_millis(words[0].parse().expect("a number")),
                process: words[1].parse().expect("a number"),
                call: words[2].parse().expect("a number"),
                event,
                key: if of_process { words[1] } else { key }.to_owned(),
                note: words.get(4).unwrap_or(&"-").replace('_', " "),
            }
        })
        .collect()
}

pub(crate) fn checked(lines: &[&str]) -> Findings {
    let rules = Rules {
        ttl: Duration::from_secs(2),
        longest_call: Duration::from_secs(60),
    };
    check(&story(lines), rules)
}

/// The one thing that is against the rules.
#[track_caller]
fn violation(lines: &[&str]) -> String {
    let violations = checked(lines).violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    violations.concat()
}

#[track_caller]
fn is_clean(lines: &[&str]) {
    checked(lines).assert_clean();
}

fn used(permits: usize, lines: &[&str]) -> idle::Use {
    let rules = idle::Rules {
        permits,
        ttl: Duration::from_secs(2),
        gap: Duration::from_millis(500),
    };
    idle::check(&story(lines), rules)
}

#[test]
fn readers_may_be_together_and_writers_alone() {
    let beside = |first: &'static str, second: &'static str| {
        [
            "0 1 1 enter",
            first,
            "5 2 1 enter",
            second,
            "10 1 1 leave",
            "11 1 1 outcome done",
            "15 2 1 leave",
            "16 2 1 outcome done",
        ]
    };
    is_clean(&beside("1 1 1 beside shared", "6 2 1 beside shared"));
    violation(&beside("1 1 1 beside shared", "6 2 1 beat"));
    violation(&beside("1 1 1 beat", "6 2 1 beside shared"));
}

#[test]
fn permits_are_added_up() {
    let beside = |first: &'static str, second: &'static str| {
        [
            "0 1 1 enter",
            "1 1 1 slot 0",
            first,
            "5 2 1 enter",
            "6 2 1 slot 1",
            second,
            "10 1 1 leave",
            "11 1 1 outcome done",
            "15 2 1 leave",
            "16 2 1 outcome done",
        ]
    };
    is_clean(&beside("1 1 1 beside 4/10", "6 2 1 beside 6/10"));
    violation(&beside("1 1 1 beside 4/10", "6 2 1 beside 7/10"));
    // Whoever counts more may have more.
    is_clean(&beside("1 1 1 beside 4/10", "6 2 1 beside 7/11"));
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
    let told = |last: &str, next: u32| {
        let (enter, kill) = (format!("{next} 2 1 enter"), format!("30 1 0 fault {KILL}"));
        let end = format!("{} 2 1 leave", next + 1);
        used(
            1,
            &[
                "0 1 1 enter",
                "10 2 1 call",
                &format!("20 1 1 {last}"),
                &kill,
                &enter,
                &end,
            ],
        )
    };
    told("beat", 2_000).assert_clean();
    told("beat", 2_500).assert_clean();
    assert_eq!(told("beat", 2_600).violations.len(), 1);
    assert_eq!(told("beat", 1_000).violations.len(), 1);
    // Its body was over, and it may have given the slot back.
    told("leave", 1_000).assert_clean();
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

/// Two bodies at once, of processes of their own or of one, the first of which has `words` more to say.
fn at_once<'a>(process: &'a [String; 3], words: &'a str) -> [&'a str; 9] {
    [
        "0 1 1 call",
        "1 1 1 enter",
        words,
        &process[0],
        &process[1],
        "40 1 1 leave",
        "41 1 1 outcome done",
        &process[2],
        "90 9 9 fault calm",
    ]
}

fn of_process(process: u32) -> [String; 3] {
    [
        format!("20 {process} 2 call"),
        format!("21 {process} 2 enter"),
        format!("50 {process} 2 outcome failed"),
    ]
}

#[test]
fn bodies_at_once_are_seen() {
    for process in [1, 2] {
        let told = violation(&at_once(&of_process(process), "2 1 1 beat"));
        assert!(told.contains("on k: call 1 of process 1"), "{told}");
    }
}

#[test]
fn a_body_that_was_told_that_it_has_no_lock_may_run_beside_others() {
    for process in [1, 2] {
        is_clean(&at_once(&of_process(process), "2 1 1 fallback run"));
    }
}

#[test]
fn a_body_on_a_lock_of_its_process_excludes_those_of_its_process_alone() {
    is_clean(&at_once(&of_process(2), "2 1 1 fallback local"));
    violation(&at_once(&of_process(1), "2 1 1 fallback local"));
}

#[test]
fn several_keys_are_each_held() {
    let both = |other: &str| {
        let (call, enter) = (
            format!("2 2 1 call @{other}"),
            format!("3 2 1 enter @{other}"),
        );
        let end = format!("5 2 1 outcome failed @{other}");
        checked(&[
            "0 1 1 call @a+b",
            "1 1 1 enter @a+b",
            &call,
            &enter,
            "4 1 1 leave @a+b",
            &end,
            "6 1 1 outcome done @-",
        ])
    };
    both("c").assert_clean();
    for other in ["a", "b", "b+c"] {
        assert_eq!(both(other).violations.len(), 1, "{other}");
    }
    // Once for each key that both of them hold.
    assert_eq!(both("b+a").violations.len(), 2);
}

/// `around` is the call around the second of two within the first.
fn within(around: &str) -> Findings {
    let around = format!("11 1 3 within {around}");
    checked(&[
        "0 1 1 call @a+b",
        "1 1 1 enter @a+b",
        "2 1 2 call @a",
        "3 1 2 within 1 @a",
        "4 1 2 enter @a",
        "10 1 3 call @a",
        &format!("{around} @a"),
        "12 1 3 enter @a",
        "14 1 3 leave @a",
        "15 1 3 outcome done",
        "16 1 2 leave @a",
        "17 1 2 outcome done",
        "20 1 1 leave @a+b",
        "21 1 1 outcome done",
    ])
}

#[test]
fn calls_within_others_do_not_overlap_with_those_around_them() {
    within("2").assert_clean();
    assert_eq!(within("2").within, 2);
}

#[test]
fn calls_side_by_side_within_another_exclude_each_other() {
    assert_eq!(within("1").violations.len(), 1);
}

#[test]
fn a_call_within_another_excludes_other_processes() {
    violation(&[
        "0 1 1 call @a+b",
        "1 1 1 enter @a+b",
        "2 1 2 call @a",
        "3 1 2 within 1 @a",
        "4 1 2 enter @a",
        "5 2 1 call @a",
        "6 2 1 enter @a",
        "7 1 2 leave @a",
        "8 1 2 outcome done",
        "9 1 1 outcome lost",
        "10 2 1 outcome failed",
    ]);
}

/// A success that leaves a mark on `key`, and at `asked` a call of `k` that was skipped.
fn skipped(leaves: &str, key: &str, asked: u32) -> Findings {
    let of_key = |line: &str| format!("{line} @{key}");
    let (call, outcome) = (
        format!("{asked} 2 1 call"),
        format!("{} 2 1 outcome skipped", asked + 5),
    );
    checked(&[
        &of_key("0 1 1 call"),
        &of_key(&format!("1 1 1 leaves {leaves}")),
        &of_key("2 1 1 enter"),
        &of_key("3 1 1 leave"),
        &of_key("4 1 1 outcome done"),
        &call,
        &outcome,
    ])
}

#[test]
fn a_call_that_was_skipped_has_had_a_success_before_it_on_a_key_of_its_own() {
    skipped("done_1000", "k", 10).assert_clean();
    skipped("done_1000", "a+k", 10).assert_clean();
    skipped("done_1000", "k", 4_000).assert_clean();
    for (leaves, key, asked) in [
        // Another key, another mark, or long ago.
        ("done_1000", "a+b", 10),
        ("closed_1000", "k", 10),
        ("done_1000", "k", 5_000),
    ] {
        let found = skipped(leaves, key, asked).violations;
        assert_eq!(found.len(), 1, "{leaves} {key} {asked}: {found:?}");
    }
    // A body that failed leaves none, and one that ran was not skipped.
    violation(&[
        "0 1 1 call",
        "1 1 1 leaves done_1000",
        "2 1 1 enter",
        "4 1 1 outcome failed",
        "5 2 1 call",
        "6 2 1 outcome skipped",
    ]);
    let told = violation(&[
        "0 1 1 call",
        "1 1 1 leaves done_1000",
        "2 1 1 enter",
        "3 1 1 leave",
        "4 1 1 outcome skipped",
    ]);
    assert!(told.contains("ran its body"), "{told}");
}

#[test]
fn a_mark_under_a_key_that_no_call_has_named_is_seen() {
    // The call around names both, and leaves no mark; the one within it leaves one on its own key.
    let found = |leaves: &str, key: &str, mark: &str, at: u32| {
        let mark = format!("{at} 9 0 mark {mark} @{key}");
        checked(&[
            "0 1 1 call @a+b",
            "1 1 1 enter @a+b",
            "2 1 2 call @a",
            "3 1 2 within 1 @a",
            &format!("3 1 2 leaves {leaves} @a"),
            "4 1 2 enter @a",
            "5 1 2 leave @a",
            "6 1 2 outcome done",
            "7 1 1 leave @a+b",
            "8 1 1 outcome done",
            &mark,
        ])
        .violations
    };
    for mark in ["done", "closed"] {
        let leaves = format!("{mark}_1000");
        assert_eq!(found(&leaves, "a", mark, 900), [""; 0]);
        assert_eq!(found(&leaves, "b", mark, 900).len(), 1);
        assert_eq!(found(&leaves, "a", mark, 9_000).len(), 1);
    }
    assert_eq!(found("done_1000", "a", "closed", 900).len(), 1);
    assert_eq!(found("closed_1000", "a", "done", 900).len(), 1);
}

/// What is found after a look, of a process whose one call has ended 10 ms before.
fn left(what: &str, more: &[&str]) -> Findings {
    let at = LOOK.as_millis() + 110;
    let found = format!("{at} 9 0 left {what}");
    let mut lines = vec!["0 1 1 call", "100 1 1 outcome unavailable"];
    lines.extend(more);
    lines.push(&found);
    checked(&lines)
}

#[test]
fn what_is_left_of_a_call_that_is_gone_is_seen() {
    assert_eq!(left("held_1", &[]).violations.len(), 1);
    assert_eq!(left("queued_1", &[]).violations.len(), 1);
    // Of another key's call, of another process, or of nobody in the record.
    assert_eq!(
        left("held_1", &["110 1 2 call @b", "1600 1 2 outcome busy"])
            .violations
            .len(),
        1
    );
    assert_eq!(
        left("held_1", &["110 2 1 call", "1600 2 1 outcome busy"])
            .violations
            .len(),
        1
    );
    assert_eq!(left("held_7", &[]).violations.len(), 1);
}

#[test]
fn what_is_held_by_a_call_that_goes_on_or_has_just_ended_is_not_left() {
    left("held_1", &["110 1 2 call", "120 1 2 outcome busy"]).assert_clean();
    left("queued_1", &["110 1 2 call @a+k", "120 1 2 outcome busy"]).assert_clean();
}

#[test]
fn what_a_killed_process_had_may_stand_for_a_ttl() {
    let story = |at: u32| {
        let found = format!("{at} 9 0 left held_1");
        checked(&["0 1 1 call", "100 1 0 fault kill", &found])
    };
    let bound = u32::try_from(LOOK.as_millis()).unwrap() + 2_000 + 100;
    story(bound - 1).assert_clean();
    assert_eq!(story(bound + 1).violations.len(), 1);
}

#[test]
fn a_call_ends_in_a_documented_way_or_with_its_process() {
    for outcome in ["busy", "done", "unavailable", "lost", "failed", "skipped"] {
        assert!(tests::checker::OUTCOMES.contains(&outcome), "{outcome}");
    }
    violation(&["0 1 1 call", "1 1 1 outcome undocumented"]);
    violation(&["0 1 1 call"]);
    is_clean(&["0 1 1 call", "1 1 0 fault kill"]);
    violation(&["0 1 1 call", "61000 1 1 outcome busy"]);
    violation(&["0 1 1 call", "1 1 1 outcome done"]);
    for outcome in ["busy", "unavailable"] {
        let end = format!("3 1 1 outcome {outcome}");
        violation(&["0 1 1 call", "1 1 1 enter", &end]);
    }
}
