//! `--json`: what is told has the form that `docs/schema` describes.

use std::time::Duration;

use tests::server::Server;

use crate::schema;
use crate::support::{ends, hold, lockattr, run};

#[test]
fn errors_have_the_documented_form() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(60));
    let _: String = server.ask("SET lock:foreign something");
    let error = |options: &[&str], expected: (&str, i32)| {
        let (code, _, told) = ends(&mut run(
            &server,
            &[options, &["--json"]].concat(),
            &["true"],
        ));
        let error = schema::checked("error", &told);
        assert_eq!(
            (error["error"].as_str(), code),
            (Some(expected.0), expected.1),
            "{error}"
        );
        assert_eq!(error["exit"], code);
        error
    };
    let busy = error(&["k"], ("busy", 75));
    assert_eq!(busy["holder"], "elsewhere:4242");
    assert!(busy["remaining_ms"].as_u64().expect("a number") > 50_000);
    error(&["k", "--skip-code", "5"], ("busy", 5));
    error(&["k", "--wait", "50ms"], ("waited", 124));
    ends(&mut run(&server, &["d", "--once", "1h"], &["true"]));
    let done = error(&["d", "--once", "1h"], ("done", 75));
    assert!(done["since_ms"].as_u64().expect("a number") > 1_600_000_000_000);
    error(&["foreign"], ("data", 65));
    error(&["{"], ("data", 65));
    error(&["k", "--permits", "0"], ("usage", 64));
    let (_, _, told) = ends(&mut run(&server, &["free", "--json"], &["no-such-command"]));
    assert_eq!(schema::checked("error", &told)["error"], "not-found");
    error(&["k", "--nonsense"], ("usage", 64));
    server.kill();
    error(&["k"], ("unavailable", 69));
}

#[test]
fn the_log_has_the_documented_form() {
    let server = Server::start();
    let mut disabled = run(&server, &["k", "--json", "-vv"], &["true"]);
    let (_, _, told) = ends(disabled.env("LOCKATTR_DISABLED", "1"));
    for line in told.lines() {
        schema::checked("log", line);
    }
    assert!(!told.is_empty());
}

#[test]
fn a_benchmark_has_the_documented_form_and_leaves_nothing() {
    let server = Server::start();
    let words = [
        "bench",
        "--seconds",
        "1",
        "--tasks",
        "4",
        "--keys",
        "2",
        "--json",
    ];
    let (code, stdout, told) = ends(lockattr(&server).args(words));
    assert_eq!((code, told.as_str()), (0, ""));
    let result = schema::checked("bench", &stdout);
    assert!(result["pairs"].as_u64().expect("a number") > 10);
    assert_eq!(result["keys"], 2);
    assert_eq!(server.keys(), Vec::<String>::new());
    let (code, stdout, _) = ends(lockattr(&server).args(["bench", "--seconds", "1"]));
    assert_eq!(code, 0);
    for word in ["p50", "acquire", "release", "refused", "a second"] {
        assert!(stdout.contains(word), "{stdout}");
    }
}
