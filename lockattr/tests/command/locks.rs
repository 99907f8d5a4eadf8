//! `lockattr list`, `show` and `watch`: who holds what, and why nothing runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tests::cluster::Cluster;
use tests::sentinel::Sentinels;
use tests::server::Server;
use tests::wait;

use crate::schema;
use crate::support::{Running, code, ends, hold, lockattr, run};

/// One of each kind of lock, and what holds or waits for them.
fn furnished(server: &Server) -> Vec<Running> {
    let for_long = &["sleep", "60"];
    let mut running = vec![Running::start(&mut run(server, &["held"], for_long))];
    wait::block_until("it is held", || server.get("lock:held").is_some());
    running.push(Running::start(&mut run(
        server,
        &["held", "--wait", "1m"],
        for_long,
    )));
    for taken in 1..=2 {
        running.push(Running::start(&mut run(
            server,
            &["slots", "--permits", "3"],
            for_long,
        )));
        let taken_now = || server.holders("lock:slots").len();
        wait::block_until("a slot is taken", || taken_now() == taken);
    }
    assert_eq!(
        code(&mut run(server, &["done", "--once", "1h"], &["true"])),
        0
    );
    assert_eq!(
        code(&mut run(server, &["closed", "--min-hold", "1h"], &["true"])),
        0
    );
    let _: String = server.words(&["SET", "lock:foreign", "x"]).unwrap();
    let _: String = server.words(&["SET", "other", "x"]).unwrap();
    wait::block_until("somebody waits", || server.waiters("lock:held") == 1);
    running
}

#[test]
fn field_store_31_each_kind_is_listed_with_its_age() {
    let server = Server::start();
    let _running = furnished(&server);
    let (code, table, told) = ends(lockattr(&server).arg("list"));
    assert_eq!((code, told.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "KEY",
            "STATE",
            "HOLDER",
            "SINCE",
            "REMAINING",
            "WAITERS",
            "PERMITS"
        ]
    );
    let named: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(
        named,
        [
            ("closed", "closed"),
            ("done", "done"),
            ("foreign", "foreign"),
            ("held", "held"),
            ("slots", "held")
        ]
    );
    assert!(table.contains("2/3"), "{table}");

    let (_, list, _) = ends(lockattr(&server).args(["list", "--json"]));
    let mut locks: Vec<Value> = list
        .lines()
        .map(|line| schema::checked("list", line))
        .collect();
    locks.sort_by_key(|lock| lock["key"].as_str().map(str::to_owned));
    let held = &locks[3];
    assert_eq!(
        (held["key"].as_str(), held["waiters"].as_u64()),
        (Some("held"), Some(1))
    );
    for lock in locks.iter().filter(|lock| lock["state"] != "foreign") {
        let age = lock["entries"][0]["age_ms"].as_u64();
        assert!(age.is_some_and(|age| age < 60_000), "{lock}");
    }
    // Whoever knows the whole owner can end the hold.
    assert!(!list.contains('@'), "{list}");
}

#[test]
fn what_is_listed_can_be_chosen_and_sorted() {
    let server = Server::start();
    let _running = furnished(&server);
    let keys = |arguments: &[&str]| {
        let (code, table, _) = ends(lockattr(&server).arg("list").args(arguments));
        let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let keys: Vec<_> = table.lines().skip(1).map(key).collect();
        (code, keys.join(" "))
    };
    let told = |code, keys: &str| (code, keys.to_owned());
    assert_eq!(keys(&["*o*"]), told(0, "closed done foreign slots"));
    assert_eq!(keys(&["????"]), told(0, "done held"));
    assert_eq!(keys(&["--state", "done,closed"]), told(0, "closed done"));
    assert_eq!(keys(&["--waiting"]), told(0, "held"));
    assert_eq!(
        keys(&["--state", "held", "--sort", "age"]),
        told(0, "held slots")
    );
    assert_eq!(
        keys(&["--sort", "waiters"]).1.split(' ').next(),
        Some("held")
    );
    // Nothing is found, and nothing is printed, as with grep.
    assert_eq!(keys(&["nothing:*"]), told(1, ""));
    // What is a pattern to the server is text here.
    assert_eq!(keys(&["[hd]*"]), told(1, ""));
}

#[test]
fn each_kind_is_shown_with_what_it_means() {
    let server = Server::start();
    let _running = furnished(&server);
    let show = |key: &str| ends(lockattr(&server).args(["show", key]));
    let shown = |key: &str, parts: &[&str]| {
        let (code, text, told) = show(key);
        assert_eq!((code, told.as_str()), (0, ""), "{key}");
        for part in parts {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let (_, json, _) = ends(lockattr(&server).args(["show", "--json", key]));
        schema::checked("show", &json)
    };
    let held = shown(
        "held",
        &["is held by ", "remaining ", "waiting    1", "1. "],
    );
    assert_eq!(held["queue"].as_array().map(Vec::len), Some(1));
    assert_eq!(held["queue"][0]["ttl_ms"], 30_000);
    let slots = shown(
        "slots",
        &[
            "2 of 3 slots taken",
            "slot 0 is held by",
            "slot 1 is held by",
        ],
    );
    assert_eq!(slots["permits"], 3);
    shown("done", &["is done, since ", "answered as done"]);
    shown(
        "closed",
        &["is closed", "min_hold", "nobody is granted it before"],
    );
    shown(
        "foreign",
        &[
            "a string without expiry that is not a lock",
            "every call of this key fails",
        ],
    );
    let (code, text, _) = show("free");
    assert_eq!(
        (code, text.as_str()),
        (
            1,
            "free is free: nobody holds it, and nobody waits for it\n"
        )
    );
    let (code, _, told) = show("a{b}");
    assert_eq!(code, 65, "{told}");
}

#[test]
fn a_store_that_is_away_is_an_outage() {
    let server = Server::start();
    server.kill();
    for arguments in [
        &["list"][..],
        &["show", "k"],
        &["watch", "--looks", "1"],
        &["release", "k", "--yes"],
    ] {
        let (code, printed, told) = ends(lockattr(&server).args(arguments));
        assert_eq!((code, printed.as_str()), (69, ""), "{arguments:?}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

/// As with `lockattr list | head -1`.
#[test]
fn field_store_31_whoever_reads_no_further_hears_nothing() {
    let server = Server::start();
    for number in 0..5_000 {
        hold(&server, &format!("k:{number}"), Duration::from_secs(600));
    }
    for json in [&["list"][..], &["list", "--json"]] {
        let mut command = lockattr(&server);
        let mut child = command
            .args(json)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        assert!(!first.is_empty());
        let status = child.wait().unwrap();
        let mut told = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        assert_eq!((status.code(), told.as_str()), (Some(0), ""), "{json:?}");
    }
    let (code, list, _) = ends(lockattr(&server).args(["list", "--json", "k:*"]));
    let mut keys: Vec<_> = list.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((code, keys.len()), (0, 5_000));
}

#[test]
fn field_store_31_a_part_that_is_missing_is_told() {
    let cluster = Cluster::start(3, 0);
    let keys = [0, 1, 2].map(|primary| cluster.key_at(primary, 1));
    for (primary, key) in keys.iter().enumerate() {
        hold(cluster.primary(primary), key, Duration::from_secs(600));
    }
    let list = |json: &[&str]| {
        let mut command = lockattr(cluster.primary(0));
        ends(
            command
                .env("LOCKATTR_URL", cluster.url())
                .arg("list")
                .args(json),
        )
    };
    let (code, table, _) = list(&[]);
    assert_eq!((code, table.lines().count()), (0, 4), "{table}");

    cluster.kill(2);
    let (code, table, told) = list(&[]);
    assert_eq!((code, table.lines().count()), (3, 3), "{table}");
    let address = cluster.primary(2).address().to_string();
    assert!(told.contains(&address), "{told}");
    let (code, lines, _) = list(&["--json"]);
    assert_eq!(code, 3);
    let lines: Vec<_> = lines
        .lines()
        .map(|line| schema::checked("list", line))
        .collect();
    assert!(
        lines.iter().any(|line| line["missing"]["part"] == address),
        "{lines:?}"
    );
}

#[test]
fn a_service_of_sentinels_and_a_quorum_are_listed() {
    let sentinels = Sentinels::start();
    let nodes = [(); 3].map(|()| Server::start());
    let addresses = [0, 1, 2].map(|node| nodes[node].address().to_string());
    let quorum = format!("redis+quorum://{}", addresses.join(","));
    for url in [sentinels.url(), quorum] {
        let mut holds = run(&nodes[0], &["k"], &["sleep", "60"]);
        let _running = Running::start(holds.env("LOCKATTR_URL", &url));
        let show = |key: &str| {
            let mut command = lockattr(&nodes[0]);
            ends(command.env("LOCKATTR_URL", &url).args(["show", key]))
        };
        wait::block_until("it is held", || show("k").0 == 0);
        let (code, table, told) = ends(lockattr(&nodes[0]).env("LOCKATTR_URL", &url).arg("list"));
        assert_eq!((code, told.as_str()), (0, ""), "{url}");
        assert_eq!(table.lines().count(), 2, "{table}");
        if url.contains("quorum") {
            let (_, text, _) = show("k");
            for address in &addresses {
                assert!(text.contains(address), "{text}");
            }
        }
    }
}

/// The servers that do not answer may be those that have it: nothing is called free then.
#[test]
fn a_lock_of_a_quorum_is_free_only_where_that_is_known() {
    let nodes = [(); 3].map(|()| Server::start());
    let addresses = [0, 1, 2].map(|node| nodes[node].address().to_string());
    let url = format!("redis+quorum://{}", addresses.join(","));
    let lockattr = |arguments: &[&str]| {
        let mut command = lockattr(&nodes[0]);
        ends(command.env("LOCKATTR_URL", &url).args(arguments))
    };
    for node in &nodes[1..] {
        hold(node, "k", Duration::from_secs(600));
    }
    nodes[2].kill();
    // Held by two of three, one of which is away.
    let (code, text, _) = lockattr(&["show", "k"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.starts_with("k may be held: "), "{text}");
    let (_, json, _) = lockattr(&["show", "k", "--json"]);
    assert_eq!(schema::checked("show", &json)["state"], "unknown");
    let (code, printed, told) = lockattr(&["release", "k", "--yes"]);
    assert_eq!((code, printed.as_str()), (69, ""));
    assert!(told.contains("was not released"), "{told}");
    // Whatever the one that is away has, it is no majority.
    let (code, text, _) = lockattr(&["show", "other"]);
    assert_eq!(code, 1, "{text}");
    nodes[1].kill();
    let (code, text, _) = lockattr(&["show", "other"]);
    assert_eq!(code, 3, "{text}");
}

#[test]
fn watching_into_a_file_is_a_look_after_the_other() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(600));
    let watch = ["watch", "--looks", "2", "--interval", "100ms"];
    let (code, looks, _) = ends(lockattr(&server).args(watch));
    assert_eq!(code, 0);
    assert_eq!(looks.matches("1 held").count(), 2, "{looks}");
    assert!(!looks.contains('\x1b'), "{looks:?}");
    let (_, looks, _) = ends(lockattr(&server).args(watch).arg("--json"));
    let looks: Vec<_> = looks
        .lines()
        .map(|line| schema::checked("watch", line))
        .collect();
    assert_eq!(looks.len(), 2);
    assert_eq!(looks[1]["locks"][0]["key"], "k");
    let (code, _, told) = ends(lockattr(&server).args(["watch", "--interval", "1ms"]));
    assert_eq!(code, 64);
    assert!(told.contains("100ms or more"), "{told}");
    // It would never end.
    let (code, _, told) = ends(lockattr(&server).args(["watch", "--looks", "0"]));
    assert_eq!(code, 64, "{told}");
}
