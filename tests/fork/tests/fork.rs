//! What becomes of a client, and of a lease, in a process that was forked off.

#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tests::checker::left::LOOK;
use tests::record::Record;
use tests::seed::Random;
use tests::server::Server;
use tests::worker::Worker;

/// Runs a story to its end; what was printed, line by line.
fn play(story: &str) -> Vec<String> {
    let server = Server::start();
    let output = Command::new(env!("CARGO_BIN_EXE_fork"))
        .args([story, &server.url()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{story}: {}\n{told}",
        output.status
    );
    assert!(!told.contains("panicked"), "{story}: {told}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]

fn a_client_is_refused_in_a_child() {
    play("refused");
}

#[test]

fn a_client_that_was_not_used_before_is_refused_as_well() {
    play("refused-unused");
}

#[test]

fn a_locked_function_is_refused_in_a_child() {
    play("refused-attribute");
}

#[test]

fn a_child_falls_back_on_nothing() {
    play("refused-fallback");
}

#[test]

fn a_lease_is_refused_in_a_child() {
    play("refused-lease");
}

#[test]

fn a_lease_has_ended_for_a_child() {
    play("ended-lease");
}

#[test]
fn a_lease_that_a_child_drops_stays_its_parents() {
    play("dropped");
}

#[test]
fn a_child_that_ends_at_once_changes_nothing() {
    play("forgotten");
}

#[test]

fn a_child_that_shuts_down_shuts_down_nothing() {
    play("shut-down");
}

#[test]

fn a_child_of_a_runtime_leaves_its_connection_alone() {
    play("within-runtime");
}

#[test]

fn a_child_that_comes_back_from_a_body_gives_nothing_back() {
    play("within-body");
}

#[cfg(feature = "metrics")]
#[test]
fn a_child_that_drops_its_copies_has_nothing_in_its_gauges() {
    play("gauges");
}

#[test]
fn field_29_a_client_made_in_a_child_works() {
    play("anew");
}

#[test]
fn a_client_made_in_a_child_may_be_installed() {
    play("installed-anew");
}

#[test]
fn owners_of_parents_and_children_never_meet() {
    let owners = play("ids");
    assert_eq!(owners.len(), 300);
    assert_eq!(owners.iter().collect::<HashSet<_>>().len(), 300);
}

#[test]
fn a_child_may_drop_a_call_on_its_way_while_other_threads_call() {
    play("while-others-call");
}

/// One of these, all of them as likely.
fn one_of<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    let count = u64::try_from(words.len()).expect("few");
    words[usize::try_from(random.below(count)).expect("below the count")]
}

fn step(random: &mut Random) -> String {
    if random.below(3) == 0 {
        let deeds = ["exit", "drop", "release", "extend", "call", "shutdown"];
        return format!("fork {}", one_of(random, &deeds));
    }
    let deed = one_of(random, &["take", "take", "give", "drop", "begin", "wait"]);
    format!("{deed} {} {}", random.below(2), random.below(3))
}

/// Leases, waiters and calls on their way, and children that do something with them at any moment: the
/// parent keeps what it has, and when it has given that back, nothing is left of anybody.
#[test]
fn children_change_nothing_at_any_moment() {
    let mut random = Random::announced("histories with forks");
    let server = Server::start();
    for _ in 0..5 {
        let steps: Vec<String> = (0..20).map(|_| step(&mut random)).collect();
        let words: Vec<&str> = steps.iter().map(String::as_str).collect();
        let (program, record) = (env!("CARGO_BIN_EXE_fork"), Record::new());
        let program = Path::new(program);
        let mut process = Worker::start_program(program, "history", &server.url(), &record, &words);
        process.says("rest");
        let begun = Instant::now();
        loop {
            let mut left = server.keys();
            left.retain(|key| !key.starts_with("lock:token:"));
            if left.is_empty() {
                break;
            }
            assert!(begun.elapsed() < LOOK, "{left:?} after {steps:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        process.close();
        assert!(process.finish().success(), "{steps:?}");
    }
}
