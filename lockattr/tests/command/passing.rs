//! What the command gets from whoever has called, and what it gets from nobody.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tests::server::Server;

use crate::support::{Running, code, content, ends, ids, live, run, run_script};

#[test]
fn field_store_30_arguments_arrive_byte_for_byte() {
    let server = Server::start();
    let odd: [&[u8]; 9] = [
        b"",
        b" ",
        b"--",
        b"-x",
        b"--json",
        b"two\nlines",
        b"\xff\xfe",
        b"'\"$HOME*\\",
        b"{}",
    ];
    let mut run = run(
        &server,
        &["k"],
        &["sh", "-c", "cat /proc/$$/cmdline; exit", "sh"],
    );
    run.args(odd.map(OsStr::from_bytes));
    let output = run.output().expect("the program is there");
    let mut expected = b"sh\0-c\0cat /proc/$$/cmdline; exit\0sh\0".to_vec();
    for argument in odd {
        expected.extend(argument);
        expected.push(0);
    }
    assert_eq!(
        output.stdout.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

#[test]
fn field_store_30_the_environment_arrives_byte_for_byte() {
    let server = Server::start();
    let odd: [(&[u8], &[u8]); 4] = [
        (b"ODD", b"\xff\n=\t"),
        (b"EMPTY", b""),
        (b"LOCKATTR_TOKEN", b"that of another"),
        (b"lower.and dots", b" "),
    ];
    let environment = |options: &[&str]| {
        let mut run = run_script(&server, options, "cat /proc/$$/environ; exit");
        run.env_clear()
            .env("PATH", std::env::var_os("PATH").expect("one"))
            .env("LOCKATTR_URL", server.url());
        run.envs(odd.map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))));
        let output = run.output().expect("the program is there");
        let all = output.stdout.split(|byte| *byte == 0);
        let mut all: Vec<OsString> = all
            .filter(|one| !one.is_empty())
            .map(|one| OsStr::from_bytes(one).to_owned())
            .collect();
        all.sort();
        all
    };
    let path = std::env::var("PATH").expect("text");
    let mut expected: Vec<OsString> = vec![
        format!("PATH={path}").into(),
        format!("LOCKATTR_URL={}", server.url()).into(),
        "LOCKATTR_KEY=a key".into(),
    ];
    for (name, value) in odd {
        if name != b"LOCKATTR_TOKEN" {
            expected.push(OsStr::from_bytes(&[name, b"=", value].concat()).to_owned());
        }
    }
    expected.sort();
    assert_eq!(environment(&["a key"]), expected);

    let token = |environment: Vec<OsString>| -> u64 {
        let mut tokens = environment
            .into_iter()
            .filter_map(|one| one.to_str()?.strip_prefix("LOCKATTR_TOKEN=")?.parse().ok());
        tokens.next().expect("a token")
    };
    let (first, second) = (
        environment(&["t", "--token"]),
        environment(&["t", "--token"]),
    );
    assert!(token(first) < token(second));
}

#[test]
fn field_store_30_standard_streams_are_the_commands() {
    let server = Server::start();
    let mut run = run_script(&server, &["k"], "cat; echo problem >&2");
    run.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = run.spawn().expect("the program is there");
    let mut stdin = child.stdin.take().expect("asked for");
    stdin.write_all(b"from outside\xff").expect("it is read");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        (&*output.stdout, &*output.stderr),
        (&b"from outside\xff"[..], &b"problem\n"[..])
    );
}

#[test]
fn field_store_29_nothing_of_ours_is_inherited() {
    let server = Server::start();
    // The directory that the shell reads for this is open in that moment alone. It reads its signals by
    // itself: while it starts a program, it blocks all of them.
    let script = "for open in /proc/$$/fd/*; do [ -e \"$open\" ] && echo \"${open##*/}\"; done; \
                  ls -l /proc/$$/fd >&2; while read -r name value; do case $name in \
                  SigBlk:|SigIgn:) echo $name $value; esac; done < /proc/self/status; exit";
    let (_, stdout, told) = ends(&mut run_script(&server, &["k"], script));
    // This process may itself have inherited more.
    let mut bare = Command::new("sh");
    let (_, expected, _) = ends(bare.args(["-c", script]).stdin(Stdio::null()));
    assert_eq!(stdout, expected, "{told}");
}

#[test]
fn field_store_29_what_is_ignored_stays_ignored() {
    let server = Server::start();
    // As under `nohup`.
    let ignored = |before: &str| {
        let script = format!("trap '' HUP INT; exec {before} grep SigIgn /proc/self/status");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .env("LOCKATTR_URL", server.url());
        ends(&mut shell)
    };
    let program = env!("CARGO_BIN_EXE_lockattr");
    let (code, stdout, _) = ignored(&format!("{program} run k --"));
    assert_eq!((code, stdout), (0, ignored("").1));
}

#[test]
fn field_store_29_what_is_left_in_the_background_is_not_waited_for() {
    let server = Server::start();
    // It has the pipe of standard output open, and is in the group of the command.
    let script = "sleep 600 & echo $! > id; exit 5";
    let start = Instant::now();
    let mut run = Running::start(&mut run_script(&server, &["k"], script));
    assert_eq!(run.code(), 5);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(server.keys(), Vec::<String>::new());
    let left = ids(&server, "id", 1);
    assert!(live(&left), "it is not ours to end");
    kill_process(left[0], Signal::KILL).expect("it lives");
}

#[test]
fn field_store_29_a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let server = Server::start();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; echo $i >> ticks; done";
    assert_eq!(
        code(&mut run_script(&server, &["k", "--ttl", "700ms"], script)),
        0
    );
    assert_eq!(content(&server, "ticks").lines().count(), 10);
}
