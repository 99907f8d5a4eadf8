//! The program as people run it, on a real `redis-server`.

use std::fs;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;

/// What the program prints, run in a temporary directory of its own.
fn run(command: &mut Command) -> Vec<String> {
    let output = command.env_remove("REDIS_URL").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}", output.status);
    text.lines().map(ToOwned::to_owned).collect()
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fencing"))
}

#[test]
fn the_late_write_is_refused_and_the_newer_one_stands() {
    let lines = run(&mut program());
    let rest = |beginning: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(beginning));
        found.unwrap_or_else(|| panic!("no `{beginning}` in {lines:#?}"))
    };
    let token = |beginning: &str| -> i64 {
        let (token, _) = rest(beginning).split_once(',').unwrap();
        token.parse().unwrap()
    };

    let (late, next) = (token("late writer: token "), token("next writer: token "));
    assert!(late < next, "{lines:#?}");
    let changed = rest("next writer: token ").rsplit_once(": ").unwrap().1;
    assert_eq!(changed, "1", "{lines:#?}");
    assert!(
        lines.contains(&"next writer: written".to_owned()),
        "{lines:#?}"
    );
    assert_eq!(
        rest("late writer: thawed, writes 100 cents, rows changed: "),
        "0"
    );
    assert!(rest("late writer: lost: ").contains("was lost after"));

    // Not what the program says of the database, but the database.
    let file = Path::new(rest("database: "));
    let row: (i64, i64) = Connection::open(file)
        .unwrap()
        .query_row("SELECT cents, fence FROM account", (), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(row, (200, next));
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn without_a_server_it_says_so_in_one_line() {
    let lines = run(program().env("PATH", ""));
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].starts_with("no REDIS_URL and no redis-server"));
}
