//! The program that sells tickets, on a real server.

use std::process::Command;

use tests::postgres::Postgres;

#[test]
fn what_is_committed_inside_the_locked_function_is_read_by_the_next_holder() {
    let server = Postgres::start();
    let output = Command::new(env!("CARGO_BIN_EXE_commit"))
        .env("DATABASE_URL", server.url())
        .env_remove("REDIS_URL")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let left = |place: &str| -> u32 {
        let beginning = format!("committed {place} the locked function: ");
        let line = text.lines().find_map(|line| line.strip_prefix(&*beginning));
        let (left, _) = line.unwrap().split_once(' ').unwrap();
        left.parse().unwrap()
    };
    assert_eq!(left("inside"), 0, "{text}");
    // Which is why it has to be inside.
    assert!(left("after") > 0, "{text}");
}
