//! A program that listens to no log: what it must not miss stands on stderr.
#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::process::Command;

use lockattr::{Client, distributed_lock};

#[distributed_lock(key = "tick", on_busy = skip)]
async fn tick() {
    panic!("there is no lock");
}

#[tokio::test]
#[ignore = "it is run by the other test, in a process of its own"]
async fn calls_without_a_client() {
    for _ in 0..3 {
        tick().await;
    }
}

#[tokio::test]
#[ignore = "it is run by the other test, in a process of its own"]
async fn calls_while_the_store_is_away() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let client = Client::builder().connect_lazily(format!("redis://{address}/"));
    let client = client.unwrap();
    for _ in 0..3 {
        client.scope(tick()).await;
    }
}

/// What is told on stderr by one of the tests above.
fn told_by(calls: &str, about: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program)
        .args(["--ignored", "--exact", calls, "--nocapture"])
        .env_remove("LOCKATTR_DISABLED")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let text = String::from_utf8(run.stderr).unwrap();
    let told: Vec<_> = text.lines().filter(|line| line.contains(about)).collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].starts_with("lockattr: "), "{told:?}");
    assert!(told[0].contains("did not run"), "{told:?}");
    told[0].to_owned()
}

#[test]
fn a_call_without_a_client_is_told_once_where_nobody_reads_the_log() {
    told_by("calls_without_a_client", "no client");
}

#[test]
fn an_outage_is_told_once_where_nobody_reads_the_log() {
    let told = told_by("calls_while_the_store_is_away", "could not be asked");
    assert!(told.contains("`tracing`"), "{told}");
}
