//! A program that listens to no log: what it must not miss stands on stderr.
#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::process::Command;

use lockattr::distributed_lock;

#[distributed_lock(key = "tick", on_busy = skip)]
async fn tick() {
    panic!("no client is installed");
}

#[tokio::test]
#[ignore = "it is run by the other test, in a process of its own"]
async fn calls_without_a_client() {
    for _ in 0..3 {
        tick().await;
    }
}

#[test]
fn a_call_without_a_client_is_told_once_where_nobody_reads_the_log() {
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program)
        .args([
            "--ignored",
            "--exact",
            "calls_without_a_client",
            "--nocapture",
        ])
        .env_remove("LOCKATTR_DISABLED")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let text = String::from_utf8(run.stderr).unwrap();
    let told: Vec<_> = text
        .lines()
        .filter(|line| line.contains("no client"))
        .collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].starts_with("lockattr: "), "{told:?}");
    assert!(told[0].contains("did not run"), "{told:?}");
}
