//! `lockattr doctor`: what harms locks, and the exit code that says how bad it is.

use serde_json::Value;
use tests::server::Server;

use crate::schema;
use crate::support::{ends, lockattr};

fn topics(findings: &Value, severity: &str) -> Vec<String> {
    let findings = findings["findings"].as_array().unwrap();
    let bad = findings
        .iter()
        .filter(|finding| finding["severity"] == severity);
    bad.map(|finding| finding["topic"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_evicting_server_is_a_warning_with_its_advice() {
    let server = Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]);
    let (code, text, told) = ends(lockattr(&server).arg("doctor"));
    assert_eq!((code, told.as_str()), (1, ""));
    assert!(text.contains("warning eviction"), "{text}");
    assert!(text.contains("noeviction"), "{text}");
    let (code, json, _) = ends(lockattr(&server).args(["doctor", "--json"]));
    let json = schema::checked("doctor", &json);
    assert_eq!((code, json["worst"].as_str()), (1, Some("warning")));
    assert_eq!(topics(&json, "warning"), ["eviction"]);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_right_that_is_missing_is_a_fault() {
    let server = Server::start();
    server.set_user("jobs", "on >secret ~* &* +@all -eval -evalsha");
    let url = server.url_as("jobs", "secret");
    let (code, text, _) = ends(lockattr(&server).args(["doctor", &url]));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("eval"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_server_that_is_away_is_told() {
    let server = Server::start();
    server.kill();
    let (code, text, told) = ends(lockattr(&server).arg("doctor"));
    assert!(code == 2 || code == 69, "{code} {text} {told}");
    let address = server.address().to_string();
    assert!(format!("{text}{told}").contains(&address), "{text}{told}");
}
