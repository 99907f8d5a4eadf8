//! Every public function with nothing, too much, and what was never meant: errors, no panics, and
//! nothing that reaches the server.

use std::time::Duration;

use lockattr::{Client, Error, Key};
use tests::server::Server;
use tests::wait;

use crate::support::pair;

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
