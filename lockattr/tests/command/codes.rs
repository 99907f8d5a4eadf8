//! What `lockattr run` ends with: a table that scripts rely on.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use tests::server::Server;

use crate::support::{Running, code, ends, file, hold, ids, lockattr, run, run_script, written};

#[test]
fn field_store_30_the_commands_own_codes_pass_through() {
    let server = Server::start();
    for expected in [0, 1, 2, 64, 75, 124, 126, 127, 255] {
        let script = format!("exit {expected}");
        let (code, stdout, stderr) = ends(&mut run_script(&server, &["k"], &script));
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (expected, "", ""));
    }
    for (name, signal) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("HUP", 1)] {
        let script = format!("ulimit -c 0; kill -{name} $$");
        assert_eq!(
            code(&mut run_script(&server, &["k"], &script)),
            128 + signal
        );
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn field_store_30_a_command_that_cannot_be_started() {
    let server = Server::start();
    let (code, _, told) = ends(&mut run(&server, &["k"], &["no-such-command"]));
    assert_eq!(code, 127);
    assert!(
        told.contains("`no-such-command` could not be started: No such file"),
        "{told}"
    );
    let (code, _, told) = ends(&mut run(&server, &["k"], &["./"]));
    assert_eq!(code, 126);
    assert!(
        told.contains("`./` could not be started: Permission denied"),
        "{told}"
    );
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn field_store_30_busy_and_done_and_waited() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(60));
    let never = &["sh", "-c", "echo it runs"];
    let (code, stdout, told) = ends(&mut run(&server, &["k"], never));
    assert_eq!((code, stdout.as_str()), (75, ""));
    assert_eq!(told.lines().count(), 1, "{told}");
    for part in ["lockattr: `k` is busy", "elsewhere:4242", "for another 59."] {
        assert!(told.contains(part), "{told}");
    }
    let (code, stdout, told) = ends(&mut run(&server, &["k", "--wait", "100ms"], never));
    assert_eq!((code, stdout.as_str()), (124, ""));
    assert_eq!(told.lines().count(), 1, "{told}");

    let (code, _, told) = ends(&mut run(&server, &["k", "--skip-code", "3"], never));
    assert_eq!((code, told.is_empty()), (3, false));
    let (code, _, told) = ends(&mut run(
        &server,
        &["k", "--skip-code", "3", "--quiet"],
        never,
    ));
    assert_eq!((code, told.as_str()), (3, ""));
    for wait in ["0s", "100ms"] {
        let options = ["k", "--skip-code", "0", "--wait", wait];
        let told = ends(&mut run(&server, &options, never));
        assert_eq!(told, (0, String::new(), String::new()), "{wait}");
    }
}

#[test]
fn field_store_30_once_runs_again_after_a_failure_alone() {
    let server = Server::start();
    let options = ["daily", "--once", "1h"];
    assert_eq!(code(&mut run(&server, &options, &["false"])), 1);
    assert_eq!(code(&mut run(&server, &options, &["true"])), 0);
    let (code, _, told) = ends(&mut run(&server, &options, &["true"]));
    assert_eq!(code, 75);
    assert!(told.contains("`daily` was done "), "{told}");
    let silent = ["daily", "--once", "1h", "--skip-code", "0"];
    let told = ends(&mut run(&server, &silent, &["true"]));
    assert_eq!(told, (0, String::new(), String::new()));
}

#[test]
fn field_store_30_min_hold_and_permits() {
    let server = Server::start();
    let options = ["tick", "--min-hold", "1h"];
    assert_eq!(code(&mut run(&server, &options, &["true"])), 0);
    assert_eq!(code(&mut run(&server, &options, &["true"])), 75);

    let options = ["pool", "--permits", "2"];
    let go_on = "echo $$ >> ids; until [ -e go ]; do sleep 0.02; done";
    let mut holders = [(); 2].map(|()| Running::start(&mut run_script(&server, &options, go_on)));
    ids(&server, "ids", 2);
    assert_eq!(code(&mut run(&server, &options, &["true"])), 75);
    std::fs::write(file(&server, "go"), "").expect("a file of our own");
    for holder in &mut holders {
        assert_eq!(holder.code(), 0);
    }

    std::fs::remove_file(file(&server, "go")).expect("it is there");
    let reads = ["doc", "--shared"];
    let mut reader = Running::start(&mut run_script(&server, &reads, go_on));
    ids(&server, "ids", 3);
    assert_eq!(code(&mut run(&server, &reads, &["true"])), 0);
    assert_eq!(code(&mut run(&server, &["doc"], &["true"])), 75);
    let heavy = ["units", "--permits", "3", "--weight", "2"];
    let mut holder = Running::start(&mut run_script(&server, &heavy, go_on));
    ids(&server, "ids", 4);
    assert_eq!(code(&mut run(&server, &heavy, &["true"])), 75);
    assert_eq!(code(&mut run(&server, &heavy[..3], &["true"])), 0);
    let too_heavy = ["units", "--permits", "3", "--weight", "4"];
    assert_eq!(code(&mut run(&server, &too_heavy, &["true"])), 64);
    std::fs::write(file(&server, "go"), "").expect("a file of our own");
    assert_eq!((reader.code(), holder.code()), (0, 0));
}

#[test]
fn field_store_30_usage_and_data_and_outage() {
    let server = Server::start();
    let usage = |options: &[&str]| {
        let mut words = vec!["run"];
        words.extend(options);
        let (code, stdout, told) = ends(lockattr(&server).args(words));
        assert_eq!((code, stdout.as_str()), (64, ""), "{options:?}: {told}");
        assert!(!told.is_empty(), "{options:?}");
    };
    usage(&[]);
    usage(&["k"]);
    usage(&["k", "true"]);
    usage(&["k", "--"]);
    usage(&["k", "--nonsense", "--", "true"]);
    usage(&["k", "--ttl", "5", "--", "true"]);
    usage(&["k", "--ttl", "1ms", "--", "true"]);
    usage(&["k", "--ttl", "9000days", "--", "true"]);
    usage(&["k", "--permits", "0", "--", "true"]);
    usage(&["k", "--skip-code", "256", "--", "true"]);
    usage(&["k", "--min-hold", "2s", "--max-hold", "1s", "--", "true"]);
    usage(&["k", "--url", "http://127.0.0.1/", "--", "true"]);
    usage(&["k", "--url", "memory:", "--", "true"]);
    usage(&["k", "--prefix", "{", "--", "true"]);
    usage(&["k", "--connect-timeout", "0s", "--", "true"]);

    let data = |key: &OsStr| {
        let (code, _, told) = ends(lockattr(&server).arg("run").arg(key).args(["--", "true"]));
        assert_eq!((code, told.lines().count()), (65, 1), "{key:?}: {told}");
    };
    data(OsStr::new(""));
    data(OsStr::new("{k}"));
    data(OsStr::new(&"k".repeat(1025)));
    data(OsStr::from_bytes(b"k\xff"));
    let _: String = server.ask("SET lock:foreign something");
    data(OsStr::new("foreign"));

    server.kill();
    let (code, _, told) = ends(&mut run(&server, &["k"], &["true"]));
    assert_eq!((code, told.lines().count()), (69, 1), "{told}");
}

#[test]
fn field_store_30_a_lease_that_was_lost_before_the_command_ended() {
    let server = Server::start();
    // Renewals are far away: the loss is found when the key is given back.
    for (end, expected) in [(0, 79), (3, 3)] {
        let script = format!("echo $$ > id; until [ -e go{end} ]; do sleep 0.02; done; exit {end}");
        let mut run = Running::start(&mut run_script(&server, &["k", "--ttl", "1h"], &script));
        written(&server, "id");
        let _: u64 = server.ask("DEL lock:k");
        std::fs::write(file(&server, &format!("go{end}")), "").expect("a file of our own");
        assert_eq!(run.code(), expected);
        assert_eq!(run.told().is_empty(), end != 0);
        std::fs::remove_file(file(&server, "id")).expect("it was written");
    }
}
