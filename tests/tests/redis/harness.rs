//! The harness itself, against a plain Redis: a tool that lies makes every test lie.

use std::time::{Duration, Instant};

use redis::ConnectionLike;
use tests::checker::{FORGETS, FORGOT, KILL, Rules, check};
use tests::fake::Fake;
use tests::monitor::Seen;
use tests::proxy::{Proxy, Treatment, Way};
use tests::record::{Entry, Event, Record};
use tests::server::Server;
use tests::wait;

fn connection(url: &str) -> redis::Connection {
    let connection = redis::Client::open(url)
        .and_then(|client| client.get_connection_with_timeout(Duration::from_secs(5)))
        .expect("a connection");
    let brief = Some(Duration::from_millis(300));
    connection
        .set_read_timeout(brief)
        .expect("a timeout above zero");
    connection
}

fn ping(connection: &mut redis::Connection) -> bool {
    connection.check_connection()
}

#[test]
fn a_server_answers_counts_and_is_watched() {
    let server = Server::start();
    let mut monitor = server.monitor();
    let before = server.commands();
    let _: () = server.ask("SET k v PX 60000");
    let value: String = server
        .words(&["EVAL", "return redis.call('get', KEYS[1])", "1", "k"])
        .expect("v");
    assert_eq!(value, "v");
    let used = server.commands().since(&before);
    assert_eq!(
        (
            used.of("set"),
            used.of("eval"),
            used.of("get"),
            used.total()
        ),
        (1, 1, 1, 3)
    );
    let seen: Vec<Seen> = monitor
        .seen()
        .into_iter()
        .filter(|seen| seen.words[0] != "INFO")
        .collect();
    let word = |at: usize, word: usize| seen[at].words[word].as_str();
    assert_eq!(
        (word(0, 0), word(0, 1), seen[0].by_script),
        ("SET", "k", false)
    );
    assert_eq!(
        (word(1, 0), word(1, 1)),
        ("EVAL", "return redis.call('get', KEYS[1])")
    );
    assert_eq!((word(2, 0), seen[2].by_script), ("get", true));
    assert_eq!((server.size(), server.keys()), (1, vec!["k".to_owned()]));
}

#[test]
fn a_server_is_frozen_killed_and_started_again() {
    let server = Server::start();
    let mut conn = connection(&server.url());
    assert!(ping(&mut conn));
    server.freeze();
    assert!(!ping(&mut conn));
    server.thaw();
    let _: () = server.ask("SET k v");
    server.kill();
    assert!(
        redis::Client::open(server.url())
            .expect("a url")
            .get_connection()
            .is_err()
    );
    server.restart();
    assert_eq!(server.get("k"), None);

    let keeping = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let _: () = keeping.ask("SET k v");
    keeping.restart();
    assert_eq!(keeping.get("k").as_deref(), Some("v"));
}

#[test]
fn a_server_has_passwords_sockets_and_replicas() {
    let server = Server::with(&["--requirepass", "secret"]);
    assert_eq!(server.size(), 0);
    assert!(ping(&mut connection(&server.url_as("", "secret"))));
    assert!(
        redis::Client::open(server.url_as("", "wrong"))
            .expect("a url")
            .get_connection()
            .is_err()
    );

    let master = Server::start();
    assert!(ping(&mut connection(&master.socket_url())));
    let _: () = master.ask("SET k v");
    let replica = master.replica();
    wait::block_until("the key arrives", || replica.get("k").is_some());
    let refused = replica.try_ask::<()>("SET k w").expect_err("a replica");
    assert!(
        refused.to_string().to_lowercase().contains("readonly"),
        "{refused}"
    );
}

#[test]
fn a_proxy_passes_delays_swallows_cuts_and_leads_elsewhere() {
    let (server, other) = (Server::start(), Server::start());
    let proxy = Proxy::before(server.address());
    let mut conn = connection(&proxy.url());
    assert!(ping(&mut conn));

    proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(100)));
    let start = Instant::now();
    assert!(ping(&mut conn));
    assert!(start.elapsed() >= Duration::from_millis(100));

    // What is asked arrives, what is answered does not; and never will on this connection.
    proxy.treat(Way::Replies, Treatment::Swallow);
    assert!(
        redis::cmd("SET")
            .arg("k")
            .arg("v")
            .query::<()>(&mut conn)
            .is_err()
    );
    assert_eq!(server.get("k").as_deref(), Some("v"));
    proxy.heal();
    assert!(!ping(&mut conn));
    let mut conn = connection(&proxy.url());
    assert!(ping(&mut conn));

    proxy.treat(Way::Requests, Treatment::Swallow);
    assert!(
        redis::cmd("SET")
            .arg("l")
            .arg("v")
            .query::<()>(&mut conn)
            .is_err()
    );
    proxy.heal();
    assert_eq!(server.get("l"), None);

    let mut conn = connection(&proxy.url());
    proxy.retarget(other.address());
    assert!(ping(&mut conn));
    proxy.cut();
    assert!(!ping(&mut conn));
    let _: () = redis::cmd("SET")
        .arg("m")
        .arg("v")
        .query(&mut connection(&proxy.url()))
        .expect("the other");
    assert_eq!(other.get("m").as_deref(), Some("v"));

    proxy.refuse();
    assert!(
        redis::Client::open(proxy.url())
            .expect("a url")
            .get_connection()
            .is_err()
    );
    proxy.heal();
    assert!(ping(&mut connection(&proxy.url())));
    assert_eq!(proxy.accepted(), 6);
}

#[test]
fn a_proxy_swallows_subscriptions_and_no_other_connection() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let (mut first, mut second) = (connection(&proxy.url()), connection(&proxy.url()));
    let mut other = connection(&proxy.url());
    let mut listener = first.as_pubsub();
    listener.subscribe("c").expect("subscribed");
    assert_eq!(server.subscribers(), 1);
    assert_eq!(server.ask::<usize>("PUBLISH c one"), 1);
    assert!(listener.get_message().is_ok());
    proxy.swallow_subscriptions();
    // The server knows nothing of it.
    assert_eq!(server.ask::<usize>("PUBLISH c two"), 1);
    assert!(listener.get_message().is_err());
    assert!(second.as_pubsub().subscribe("c").is_err());
    assert_eq!(server.subscribers(), 1);
    assert!(ping(&mut other));
    proxy.heal();
    assert!(connection(&proxy.url()).as_pubsub().subscribe("c").is_ok());
}

#[test]
fn a_fake_server_answers_what_it_is_told() {
    let fake = Fake::start(|words| match words[0].as_str() {
        "PING" => Some(b"+PONG\r\n".to_vec()),
        "GET" => None,
        _ => Some(b"+OK\r\n".to_vec()),
    });
    let mut conn = connection(&fake.url());
    assert!(ping(&mut conn));
    assert!(redis::cmd("GET").arg("k").query::<()>(&mut conn).is_err());
    assert!(fake.asked() >= 2);
}

const RULES: Rules = Rules {
    ttl: Duration::from_secs(1),
    longest_call: Duration::from_secs(10),
};

/// `process call event note`, one millisecond after the other on one key.
fn story(lines: &[&str]) -> Vec<Entry> {
    lines
        .iter()
        .zip(1..)
        .map(|(line, millis)| {
            let words: Vec<&str> = line.split(' ').collect();
            let fault = words[2] == "fault";
            Entry {
                at: Duration::from_millis(millis),
                process: words[0].parse().expect("a number"),
                call: words[1].parse().expect("a number"),
                event: words[2].parse().expect("an event"),
                key: if fault { words[0] } else { "k" }.to_owned(),
                note: words.get(3).unwrap_or(&"-").to_string(),
            }
        })
        .collect()
}

fn violations(lines: &[&str]) -> Vec<String> {
    check(&story(lines), RULES).violations
}

#[test]
fn the_checker_lets_good_histories_pass() {
    let findings = check(
        &story(&[
            "1 1 call",
            "1 1 enter",
            "2 1 call",
            "1 1 token 7",
            "2 1 outcome busy",
            "1 1 leave",
            "2 2 call",
            "2 2 enter",
            "1 1 outcome done",
            "2 2 token 8",
            "2 2 beat",
            "2 2 outcome lost",
            // Killed in its body: its interval ends with its last sign of life.
            "3 1 call",
            "3 1 enter",
            "3 1 fault kill",
            "1 2 call",
            "1 2 enter",
            "1 2 leave",
            "1 2 outcome done",
        ]),
        RULES,
    );
    findings.assert_clean();
    assert_eq!((findings.bodies, findings.excused), (4, 0));
    assert_eq!(findings.outcomes.get("done"), Some(&2));
}

#[test]
fn the_checker_sees_every_kind_of_violation() {
    let overlap = [
        "1 1 enter",
        "2 1 enter",
        "1 1 beat",
        "1 1 outcome done",
        "2 1 outcome done",
    ];
    assert_eq!(violations(&overlap).len(), 1);
    // Also where a third is between the two, and ended before the second began.
    let hidden = [
        "1 1 enter",
        "1 1 beat",
        "2 1 enter",
        "2 1 leave",
        "3 1 enter",
        "1 1 leave",
        "1 1 outcome done",
        "2 1 outcome done",
        "3 1 outcome done",
    ];
    assert_eq!(violations(&hidden).len(), 2);
    let token = [
        "1 1 enter",
        "1 1 token 7",
        "1 1 leave",
        "1 1 outcome done",
        "2 1 enter",
        "2 1 token 7",
        "2 1 leave",
        "2 1 outcome done",
    ];
    assert_eq!(violations(&token).len(), 1);
    assert_eq!(violations(&["1 1 call", "1 1 enter", "1 1 leave"]).len(), 1);
    assert_eq!(violations(&["1 1 call", "1 1 outcome odd"]).len(), 1);
    assert_eq!(
        violations(&["1 1 call", "1 1 enter", "1 1 outcome busy"]).len(),
        1
    );
    assert_eq!(violations(&["1 1 call", "1 1 outcome done"]).len(), 1);
}

#[test]
fn the_checker_excuses_a_store_that_forgot_and_nothing_else() {
    let told = |before: &str, after: &str| {
        let (before, after) = (format!("9 9 fault {before}"), format!("9 9 fault {after}"));
        let lines = [
            "1 1 enter",
            &before,
            // Granted once the keys are gone, and before anybody could write that down.
            "2 1 enter",
            &after,
            "1 1 beat",
            "1 1 outcome lost",
            "2 1 outcome done",
        ];
        check(&story(&lines), RULES)
    };
    assert_eq!(told(FORGETS, FORGOT).excused, 1);
    told(FORGETS, FORGOT).assert_clean();
    assert_eq!(told(KILL, KILL).violations.len(), 1);
    // Not where it was over before the earlier holder was granted its lease.
    let earlier = [
        "9 9 fault forgets",
        "9 9 fault forgot",
        "1 1 enter",
        "2 1 enter",
        "1 1 beat",
        "1 1 outcome done",
        "2 1 outcome done",
    ];
    assert_eq!(violations(&earlier).len(), 1);
    // Nor for longer than a ttl.
    let mut late = story(&[
        "1 1 enter",
        "9 9 fault forgets",
        "9 9 fault forgot",
        "2 1 enter",
        "1 1 outcome lost",
        "2 1 outcome done",
        "1 1 beat",
    ]);
    late[6].at = RULES.ttl + Duration::from_millis(50);
    assert_eq!(check(&late, RULES).violations.len(), 1);
}

#[test]
fn a_record_takes_lines_from_many_threads() {
    let record = Record::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let pen = record.pen();
            scope.spawn(move || {
                for call in 0..250 {
                    pen.write(call, Event::Beat, &format!("key-{writer}"), "a note");
                }
            });
        }
    });
    let entries = record.entries();
    assert_eq!(entries.len(), 1000);
    assert!(entries.is_sorted_by_key(|entry| entry.at));
    assert_eq!(record.count(Event::Beat), 1000);
}
