//! `--json`: what is told has the form that `docs/schema` describes.

use std::time::Duration;

use serde_json::Value;
use tests::server::Server;

use crate::support::{ends, hold, lockattr, run};

const ERROR: &str = include_str!("../../../docs/schema/error.json");
const BENCH: &str = include_str!("../../../docs/schema/bench.json");
const LOG: &str = include_str!("../../../docs/schema/log.json");

/// Checks a value against the part of JSON Schema that our schemas use; another word of it is a fault.
fn check(schema: &Value, value: &Value) {
    for (word, rule) in schema.as_object().expect("an object") {
        match word.as_str() {
            "$schema" | "title" | "description" => {}
            "type" => {
                let kind = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(number) if number.is_u64() => "integer",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                };
                let fits = rule == kind || (rule == "number" && kind == "integer");
                assert!(fits, "{value} is no {rule}");
            }
            "enum" => assert!(
                rule.as_array().expect("a list").contains(value),
                "{value} is none of {rule}"
            ),
            "required" => {
                for name in rule.as_array().expect("a list") {
                    let name = name.as_str().expect("a name");
                    assert!(value.get(name).is_some(), "{name} is missing in {value}");
                }
            }
            "properties" => {
                for (name, value) in value.as_object().expect("an object") {
                    let schema = rule.get(name);
                    check(
                        schema.unwrap_or_else(|| panic!("`{name}` is not described: {value}")),
                        value,
                    );
                }
            }
            "additionalProperties" => assert_eq!(rule, &Value::Bool(false)),
            other => panic!("`{other}` is not checked here"),
        }
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

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
        let error = parsed(&told);
        check(&parsed(ERROR), &error);
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
    assert_eq!(parsed(&told)["error"], "not-found");
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
        check(&parsed(LOG), &parsed(line));
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
    let result = parsed(&stdout);
    check(&parsed(BENCH), &result);
    assert!(result["pairs"].as_u64().expect("a number") > 10);
    assert_eq!(result["keys"], 2);
    assert_eq!(server.keys(), Vec::<String>::new());
    let (code, stdout, _) = ends(lockattr(&server).args(["bench", "--seconds", "1"]));
    assert_eq!(code, 0);
    for word in ["p50", "acquire", "release", "refused", "a second"] {
        assert!(stdout.contains(word), "{stdout}");
    }
}
