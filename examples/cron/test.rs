//! The program as people run it, with and without a server.

use std::process::{Command, Stdio};

fn each_tick_is_run_once(program: &mut Command) {
    let output = program
        .env_remove("REDIS_URL")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let ticks: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("tick "))
        .collect();
    assert!(ticks.len() >= 3, "{text}");
    for line in &ticks {
        let is_one = |replica| line.contains(&format!("[{replica}]"));
        assert!((1..=4).any(is_one), "{text}");
    }
    assert!(
        ticks.iter().any(|line| line.ends_with("skipped by 3")),
        "{text}"
    );
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_with-cron"))
}

#[test]
fn one_of_four_processes_runs_each_tick() {
    each_tick_is_run_once(&mut program());
}

#[test]
fn one_of_four_tasks_runs_each_tick_where_there_is_no_server() {
    each_tick_is_run_once(program().env("PATH", ""));
}
