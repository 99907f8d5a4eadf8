//! What all subcommands share: help, usage, colours, completions, manual pages, secrets, closed pipes.

use std::fs::{self, File};
use std::io::{Read, pipe};
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::server::Server;

use crate::support::{ends, file, hold, lockattr, run};

const SUBCOMMANDS: [&str; 4] = ["run", "bench", "completions", "man"];

#[test]
fn help_has_examples_and_exit_codes() {
    let server = Server::start();
    let (code, stdout, _) = ends(lockattr(&server).arg("--help"));
    assert_eq!(code, 0);
    for subcommand in SUBCOMMANDS {
        assert!(stdout.contains(&format!("\n  {subcommand} ")), "{stdout}");
        let (code, help, _) = ends(lockattr(&server).args([subcommand, "--help"]));
        assert_eq!(code, 0);
        assert!(help.contains("Examples:\n  "), "{help}");
        assert!(!help.contains("__guard"), "{help}");
    }
    let (_, help, _) = ends(lockattr(&server).args(["run", "--help"]));
    for code in [
        "64", "65", "69", "70", "75", "79", "124", "126", "127", "128+n",
    ] {
        assert!(help.contains(&format!("\n  {code:<7} ")), "{code}: {help}");
    }
    let (code, stdout, _) = ends(lockattr(&server).arg("--version"));
    assert_eq!(
        (code, stdout),
        (0, format!("lockattr {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn the_documentation_has_the_same_exit_codes_as_the_help() {
    let server = Server::start();
    let documented = include_str!("../../../docs/command.md");
    let (_, help, _) = ends(lockattr(&server).args(["run", "--help"]));
    let (_, codes) = help.split_once("Exit codes:\n").expect("a list");
    let codes = codes.lines().take_while(|line| line.starts_with("  "));
    let mut count = 0;
    for line in codes {
        let (code, meaning) = line.trim().split_once(' ').expect("a code and a meaning");
        let row = format!("| {code} | {} |", meaning.trim());
        assert!(
            documented.contains(&row),
            "missing in docs/command.md: {row}"
        );
        count += 1;
    }
    assert_eq!(count, 11);
}

#[test]
fn slips_are_told_as_usage() {
    let server = Server::start();
    for words in [
        &[][..],
        &["rum"],
        &["run", "k", "--tll", "1s"],
        &["--nonsense"],
        &["__guard"],
    ] {
        let (code, stdout, told) = ends(lockattr(&server).args(words));
        let expected = if words == ["__guard"] { 70 } else { 64 };
        assert_eq!((code, stdout.as_str()), (expected, ""), "{words:?}");
        assert!(!told.is_empty(), "{words:?}");
    }
    let (_, _, told) = ends(lockattr(&server).args(["run", "k", "--tll", "1s", "--", "true"]));
    assert!(told.contains("'--ttl'"), "{told}");
}

#[test]
fn completions_know_every_subcommand() {
    let server = Server::start();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, script, _) = ends(lockattr(&server).args(["completions", shell]));
        assert_eq!(code, 0);
        for word in SUBCOMMANDS.into_iter().chain(["skip-code", "min-hold"]) {
            assert!(script.contains(word), "{word} is missing for {shell}");
        }
        assert!(!script.contains("__guard"), "{shell}");
    }
}

#[test]
fn manual_pages_render() {
    let server = Server::start();
    let (code, _, told) = ends(lockattr(&server).args(["man", "pages"]));
    assert_eq!(code, 0, "{told}");
    let pages = file(&server, "pages");
    let subcommands = SUBCOMMANDS.map(|name| format!("lockattr-{name}.1"));
    for name in subcommands.iter().map(String::as_str).chain(["lockattr.1"]) {
        let page = fs::read_to_string(pages.join(name)).expect("it is written");
        assert!(
            page.contains("\n.TH ") && page.contains("\n.SH NAME"),
            "{page}"
        );
        // Debian's images without documentation have a `man` that only says so.
        let rendered = Command::new("man")
            .arg("-l")
            .arg(pages.join(name))
            .env("MANPAGER", "cat")
            .output();
        if let Ok(rendered) = rendered
            && rendered.status.success()
            && !rendered
                .stdout
                .starts_with(b"This system has been minimized")
        {
            let text = String::from_utf8_lossy(&rendered.stdout);
            assert!(text.contains("lockattr"), "{text}");
        }
    }
    let (code, page, _) = ends(lockattr(&server).arg("man"));
    assert_eq!(code, 0);
    assert_eq!(
        page,
        fs::read_to_string(pages.join("lockattr.1")).expect("it is written")
    );
    let (code, _, told) = ends(lockattr(&server).args(["man", "/proc/nowhere"]));
    assert_eq!(code, 70);
    assert!(told.contains("`/proc/nowhere`"), "{told}");
}

#[test]
fn colours_are_for_terminals_and_on_request() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(60));
    let is_coloured = |options: &[&str], no_color: bool| {
        let mut busy = run(&server, &[&["k"], options].concat(), &["true"]);
        let mut usage = lockattr(&server);
        usage.args(options).arg("--nonsense");
        let coloured = [&mut busy, &mut usage].map(|command| {
            if no_color {
                command.env("NO_COLOR", "1");
            }
            ends(command).2.contains('\x1b')
        });
        assert_eq!(coloured[0], coloured[1], "{options:?}");
        coloured[0]
    };
    assert!(!is_coloured(&[], false));
    assert!(!is_coloured(&["--color", "never"], false));
    assert!(is_coloured(&["--color", "always"], false));
    assert!(is_coloured(&["--color=always"], true));
}

#[test]
fn passwords_are_shown_nowhere() {
    let server = Server::with(&["--requirepass", "right"]);
    let url = server.url_as("someone", "s3cret");
    let told = |command: &mut Command| {
        let output = command
            .env("LOCKATTR_URL", &url)
            .output()
            .expect("it is there");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(!told.contains("s3cret"), "{told}");
        (output.status.code(), told)
    };
    let (code, words) = told(&mut run(&server, &["k"], &["true"]));
    assert_eq!(code, Some(69), "{words}");
    told(&mut run(&server, &["k", "-vv", "--json"], &["true"]));
    told(lockattr(&server).args(["bench", "--seconds", "1"]));
    told(lockattr(&server).args(["run", "--help"]));
    let (code, _) =
        told(lockattr(&server).args(["run", "k", "--url", "redis//:s3cret@h", "--", "true"]));
    assert_eq!(code, Some(64));
}

#[test]
fn whoever_reads_no_further_has_what_they_wanted() {
    let server = Server::start();
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let mut command = lockattr(&server);
    let child = command
        .arg("man")
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = child
        .expect("it is there")
        .wait_with_output()
        .expect("it ends");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    // A disk that is full is another matter.
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux");
    let child = lockattr(&server)
        .arg("man")
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("it is there");
    let mut told = String::new();
    child
        .stderr
        .take()
        .expect("asked for")
        .read_to_string(&mut told)
        .expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(70));
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn the_library_is_heard_in_plain_lines() {
    let server = Server::start();
    let (_, _, told) = ends(&mut run(&server, &["k", "-vv"], &["true"]));
    assert!(
        told.lines().all(|line| line.starts_with("lockattr: ")),
        "{told}"
    );
    let (_, _, told) = ends(run(&server, &["k"], &["true"]).env("LOCKATTR_DISABLED", "1"));
    assert!(told.starts_with("lockattr: "), "{told}");
}
