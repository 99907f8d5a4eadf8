//! `lockattr release`: what was shown is ended, and nothing else.

use std::time::Duration;

use tests::server::Server;
use tests::wait;

use crate::schema;
use crate::support::{Running, content, ends, hold, lockattr, run, run_script};

fn release(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    ends(lockattr(server).arg("release").args(arguments))
}

#[test]
fn field_store_32_the_holder_loses_it_and_the_next_is_in_at_once() {
    let server = Server::start();
    let mut holder = Running::start(&mut run(&server, &["k", "--ttl", "3s"], &["sleep", "60"]));
    wait::block_until("it is held", || server.get("lock:k").is_some());
    let waits = ["k", "--wait", "1m"];
    let mut next = Running::start(&mut run_script(&server, &waits, "echo in > next"));
    wait::block_until("somebody waits", || server.waiters("lock:k") == 1);

    let (code, said, told) = release(&server, &["k", "--yes"]);
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(said.starts_with("k was released: "), "{said}");
    assert_eq!(next.code(), 0);
    assert_eq!(content(&server, "next"), "in\n");
    // Lost.
    assert_eq!(holder.code(), 79);
}

#[test]
fn field_store_32_only_who_was_named_is_ended() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(600));
    let (code, said, _) = release(&server, &["k", "--owner", "web-1:1", "--yes"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("is not web-1:1's: held by elsewhere:4242"),
        "{said}"
    );
    assert!(server.get("lock:k").is_some());
    let (code, json, _) = release(
        &server,
        &["k", "--owner", "elsewhere:4242", "--yes", "--json"],
    );
    assert_eq!(code, 0);
    let json = schema::checked("release", &json);
    assert_eq!(
        (json["result"].as_str(), json["entry"]["state"].as_str()),
        (Some("released"), Some("held"))
    );
    assert_eq!(server.keys(), Vec::<String>::new());
    let (code, said, _) = release(&server, &["k", "--yes"]);
    assert_eq!(
        (code, said.as_str()),
        (1, "k is free: there is nothing to release\n")
    );
}

#[test]
fn field_store_32_nobody_is_asked_where_there_is_no_terminal() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(600));
    let (code, said, told) = release(&server, &["k"]);
    assert_eq!((code, said.as_str()), (64, ""));
    assert!(told.contains("--yes"), "{told}");
    assert!(server.get("lock:k").is_some());
}

#[test]
fn field_store_32_slots_marks_and_what_is_foreign() {
    let server = Server::start();
    let for_long = &["sleep", "60"];
    let slots = || server.holders("lock:geo").len();
    let _running = [1, 2].map(|taken| {
        let running = Running::start(&mut run(&server, &["geo", "--permits", "3"], for_long));
        wait::block_until("a slot is taken", || slots() == taken);
        running
    });
    let (code, _, told) = release(&server, &["geo", "--yes"]);
    assert_eq!(code, 65);
    assert!(told.contains("2 holders: name one by --slot"), "{told}");
    assert_eq!(release(&server, &["geo", "--slot", "1", "--yes"]).0, 0);
    assert_eq!(slots(), 1);

    assert_eq!(
        ends(&mut run(&server, &["daily", "--once", "1h"], &["true"])).0,
        0
    );
    assert_eq!(release(&server, &["daily", "--yes"]).0, 0);
    // It may run again.
    assert_eq!(
        ends(&mut run(&server, &["daily", "--once", "1h"], &["true"])).0,
        0
    );

    let _: String = server.words(&["SET", "lock:odd", "x"]).unwrap();
    let (code, _, told) = release(&server, &["odd", "--yes"]);
    assert_eq!(code, 65);
    assert!(told.contains("that is not a lock"), "{told}");
    assert_eq!(server.get("lock:odd").as_deref(), Some("x"));
}
