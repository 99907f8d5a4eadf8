//! The program as people run it, with and without a server.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

fn no_user_has_two_jobs_at_a_time(program: &mut Command) {
    let output = program
        .env_remove("REDIS_URL")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut running, mut done) = (BTreeMap::new(), BTreeSet::new());
    let mut workers = BTreeSet::new();
    for line in text.lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["job", job, "begins:", "user", user, "at", "worker", worker] => {
                let other = running.insert(user, job);
                assert_eq!(other, None, "{line}\n{text}");
                workers.insert(worker);
            }
            ["job", job, "ends:", "user", user] => {
                assert_eq!(running.remove(user), Some(job), "{line}\n{text}");
                done.insert(job);
            }
            _ => panic!("{line}\n{text}"),
        }
    }
    assert_eq!((done.len(), workers.len()), (8, 2), "{text}");
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_with-apalis"))
}

#[test]
fn jobs_of_one_user_run_one_after_the_other() {
    no_user_has_two_jobs_at_a_time(&mut program());
}

#[test]
fn jobs_of_one_user_run_one_after_the_other_where_there_is_no_server() {
    no_user_has_two_jobs_at_a_time(program().env("PATH", ""));
}
