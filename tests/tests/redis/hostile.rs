//! Every public function with nothing, too much, and what was never meant: errors, no panics, and
//! nothing that reaches the server.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Key, Memory};
use tests::server::Server;
use tests::{log, wait};

use crate::support::{SLACK, client, pair};

const ODD_TIMES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::MAX,
    Duration::from_secs(u64::MAX / 2),
];

#[tokio::test]
async fn keys_by_hand_are_refused_before_the_server_is_asked() {
    let (server, locks) = pair().await;
    let before = server.commands();
    let long = "x".repeat(1_025);
    let huge = "é".repeat(10_000_000);
    for key in ["", " ", "\t\r\n", "a{b}", "}", &long, &huge] {
        let error = locks.lock(key).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Key(_)), "{error:?}");
        assert!(error.to_string().len() < 400, "{}", error.to_string().len());
        assert!(Key::new(key).is_err());
    }
    assert_eq!(server.commands().since(&before).total(), 0);
    let longest = "x".repeat(1_024);
    locks
        .lock(&longest)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn keys_by_hand_cannot_become_another_command() {
    let (server, locks) = pair().await;
    let _: () = server.ask("SET precious v");
    for key in [
        "a\r\nDEL precious\r\n",
        "a' .. redis.call('DEL','precious') .. '",
        "a\0b",
        "*",
        "🦀",
        "--",
    ] {
        let lease = locks.lock(key).acquire().await.unwrap();
        assert!(matches!(
            locks.lock(key).acquire().await,
            Err(Error::Busy { .. })
        ));
        lease.token().await.unwrap();
        assert_eq!(
            server.get(&format!("lock:{key}")).as_deref(),
            Some(lease.owner())
        );
        lease.release().await.unwrap();
        assert_eq!(server.get(&format!("lock:{key}")), None);
    }
    assert_eq!(server.get("precious").as_deref(), Some("v"));
}

/// One line whatever the key holds, in what is shown; the store and the error have it as it is.
#[tokio::test]
async fn keys_by_hand_cannot_break_a_line() {
    log::listen();
    let (server, locks) = pair().await;
    for key in [
        "nightly\nERROR forged",
        "nightly\r\u{1b}[2K",
        "nightly\u{2028}forged",
        "nightly\u{85}forged",
        "nightly\u{202e}forged",
    ] {
        let lease = locks.lock(key).acquire().await.unwrap();
        assert_eq!(lease.key(), key);
        assert!(server.get(&format!("lock:{key}")).is_some());
        let busy = locks.lock(key).acquire().await.unwrap_err();
        let Error::Busy { key: told, .. } = &busy else {
            panic!("{busy:?}")
        };
        assert_eq!(told, key);
        let invalid = locks.lock(key).ttl(Duration::ZERO).acquire().await;
        let both = locks.lock_all([key, "other"]).acquire().await.unwrap_err();
        let _: () = server.words(&["DEL", &format!("lock:{key}")]).unwrap();
        let lost = lease.extend(Duration::from_secs(9)).await.unwrap_err();
        let _: () = server
            .words(&["HSET", &format!("lock:{key}"), "f", "v"])
            .unwrap();
        let foreign = locks.lock(key).acquire().await.unwrap_err();
        for error in [busy, invalid.unwrap_err(), both, lost, foreign] {
            one_line(&error.to_string());
            one_line(&format!("{error:?}"));
        }
    }
    // What a store of one's own says stands in the same line.
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    memory.refuse(Some("out of\norder"));
    let error = locks.lock("a").acquire().await.unwrap_err();
    one_line(&error.to_string());
    assert!(error.to_string().contains("out of"), "{error}");
    let Error::Unavailable { source, .. } = error else {
        panic!("{error:?}")
    };
    one_line(&source.to_string());
    for told in log::about("nightly") {
        one_line(&told.text);
    }
}

fn one_line(text: &str) {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202e}');
    assert!(!text.contains(breaks), "{text:?}");
}

#[tokio::test]
async fn a_call_has_a_thousand_keys_at_most() {
    let (server, locks) = pair().await;
    let keys = |count: usize| (0..count).map(|row| format!("row:{row}"));
    let before = server.commands();
    let start = Instant::now();
    for count in [1_001, 40_000] {
        let error = locks.lock_all(keys(count)).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Key(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("1000 keys") && text.len() < 300, "{text}");
    }
    // It does not even go on to count them.
    let endless = locks.lock_all(std::iter::repeat("a")).acquire().await;
    assert!(matches!(endless, Err(Error::Key(_))), "{endless:?}");
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    assert_eq!(server.commands().since(&before).total(), 0);

    // The longest list works, and what is told of it fits into a line.
    let lease = locks.lock_all(keys(1_000)).acquire().await.unwrap();
    assert_eq!(server.size(), 1_000);
    let label = "row:0 + row:1 + row:2 + 997 more";
    assert_eq!(lease.key(), label);
    let other = client(&server).await;
    let busy = other.lock_all(keys(1_000)).acquire().await.unwrap_err();
    assert!(busy.to_string().len() < 300, "{busy}");
    let invalid = locks
        .lock_all(keys(1_000))
        .ttl(Duration::ZERO)
        .acquire()
        .await;
    let invalid = invalid.unwrap_err().to_string();
    assert!(invalid.contains(label), "{invalid}");
    lease.release().await.unwrap();
    assert_eq!(server.size(), 0);
    // A few are all named, and equal ones count once.
    let few = locks.lock_all(["b", "a", "b", "c", "a", "d"]);
    assert_eq!(few.acquire().await.unwrap().key(), "b + a + c + d");
}

#[tokio::test]
async fn odd_ttls_and_waits_are_refused_before_the_server_is_asked() {
    let (server, locks) = pair().await;
    let before = server.commands();
    for ttl in ODD_TIMES {
        let error = locks.lock("a").ttl(ttl).acquire().await.unwrap_err();
        assert!(
            matches!(&error, Error::Invalid { key, .. } if key == "a"),
            "{error:?}"
        );
    }
    for wait in &ODD_TIMES[2..] {
        let error = locks.lock("a").wait(*wait).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
    assert_eq!(server.commands().since(&before).total(), 0);
    let lease = locks.lock("a").acquire().await.unwrap();
    let before = server.commands();
    for ttl in ODD_TIMES {
        let error = lease.extend(ttl).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
    assert_eq!(server.commands().since(&before).total(), 0);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn the_longest_and_the_shortest_ttl_work() {
    let (server, locks) = pair().await;
    let year = Duration::from_secs(366 * 24 * 60 * 60);
    let lease = locks
        .lock("long")
        .ttl(year)
        .wait(year)
        .acquire()
        .await
        .unwrap();
    assert!(server.pttl("lock:long") > 365 * 24 * 60 * 60 * 1_000);
    lease.extend(Duration::from_millis(10)).await.unwrap();
    drop(lease);
    // On a busy machine ten milliseconds may be over before anybody looks; it must be told then.
    match locks
        .lock("short")
        .ttl(Duration::from_millis(10))
        .acquire()
        .await
    {
        Ok(lease) => drop(lease.release().await),
        Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error:?}"),
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_the_builder() {
    let server = Server::start();
    let url = server.url();
    let builder = Client::builder;
    let mut bad = vec![
        builder().prefix("{a}:"),
        builder().prefix("x".repeat(100_000)),
        builder().name("two words"),
        builder().name("x".repeat(100_000)),
        builder().name("line\nbreak"),
        builder().name(""),
    ];
    for time in ODD_TIMES {
        bad.push(builder().ttl(time));
        bad.push(builder().connect_timeout(time));
        bad.push(builder().reply_timeout(time));
    }
    for builder in bad {
        let lazy = builder.clone().connect_lazily(&url);
        assert!(matches!(lazy, Err(Error::Config(_))), "{builder:?}");
        let error = builder.connect(&url).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        assert!(error.to_string().len() < 300, "{:.400}", error.to_string());
    }
    // An empty prefix is a choice.
    let locks = builder().prefix("").connect(&url).await.unwrap();
    let lease = locks.lock("a").acquire().await.unwrap();
    assert_eq!(server.keys(), ["a"]);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn urls_that_cannot_be_used_are_refused() {
    let endless = format!("redis://{}/", "x".repeat(1_000_000));
    let urls = [
        "",
        " ",
        "redis",
        "redis:",
        "redis://",
        "://",
        "redis://127.0.0.1:0x10/",
        "redis://:::/",
        "http://127.0.0.1/",
        "redis://127.0.0.1/-1",
        "redis://127.0.0.1/99999999999999999999",
        "redis://127.0.0.1:65536/",
        "unix:",
        "unix://",
        "memory",
        "memory://",
        "MEMORY:",
        "\0",
        "redis://\0/",
        &endless,
    ];
    for url in urls {
        let error = match Client::builder().connect_lazily(url) {
            Err(error) => error,
            // Some are odd and yet an address; then nobody is there.
            Ok(lazy) => lazy.lock("a").acquire().await.unwrap_err(),
        };
        let expected = matches!(error, Error::Config(_) | Error::Unavailable { .. });
        assert!(expected, "{url:.60}: {error:?}");
    }
}

#[tokio::test]
async fn a_url_for_tls_says_what_is_missing() {
    let server = Server::start();
    let url = server.url().replace("redis://", "rediss://");
    let error = Client::connect(&url).await.unwrap_err();
    // Without the feature it is named; with it, a server without TLS is not talked to in the clear.
    match &error {
        Error::Config(text) => assert!(text.contains("`tls`"), "{text}"),
        Error::Unavailable { .. } => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_second_release_and_a_late_use_are_told() {
    let (server, locks) = pair().await;
    let lease = locks
        .lock("a")
        .ttl(Duration::from_secs(1))
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(5), lease.lost())
        .await
        .expect("in time");
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(matches!(
        lease.extend(Duration::from_secs(9)).await,
        Err(Error::Lost { .. })
    ));
    assert!(matches!(lease.token().await, Err(Error::Lost { .. })));
    assert!(matches!(lease.release().await, Err(Error::Lost { .. })));
    wait::until("the key is gone", || server.size() == 0).await;
}
