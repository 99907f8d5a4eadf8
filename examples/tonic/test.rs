//! The program as people run it, with and without a server.

use std::process::{Command, Stdio};

fn one_of_two_calls_is_aborted(program: &mut Command) {
    let output = program
        .env_remove("REDIS_URL")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers: Vec<_> = text.lines().skip(1).collect();
    answers.sort_unstable();
    let aborted = "account 7: Aborted, another call holds the lock that this one needs";
    let expected = ["account 7: 7 rows", aborted, "account 8: 7 rows"];
    assert_eq!(answers, expected);
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_with-tonic"))
}

#[test]
fn a_second_call_for_the_same_account_is_aborted() {
    one_of_two_calls_is_aborted(&mut program());
}

#[test]
fn a_second_call_for_the_same_account_is_aborted_where_there_is_no_server() {
    one_of_two_calls_is_aborted(program().env("PATH", ""));
}
