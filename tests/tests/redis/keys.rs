//! What is locked: distinct arguments, missing values, values that change, and keys that are in use
//! for something else. (Slips in the template do not compile; `ui/` has them.)

use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tests::server::Server;
use tests::wait;

use crate::support::{job, nap, pair, timed};

#[distributed_lock(key = "sync:<a>:<b>", on_busy = error, client = locks)]
async fn two(locks: &Client, a: &str, b: &str, server: &Server) -> Result<Vec<String>, Error> {
    let keys = server.keys();
    nap(100).await;
    Ok(keys)
}

#[tokio::test]
async fn field_01_separators_in_values_do_not_make_two_keys_one() {
    let (server, locks) = pair().await;
    let (first, second) = tokio::join!(
        two(&locks, "x:y", "z", &server),
        two(&locks, "x", "y:z", &server)
    );
    // Both ran, at the same time.
    first.unwrap();
    assert_eq!(second.unwrap(), ["lock:sync:x%3Ay:z", "lock:sync:x:y%3Az"]);
    // The same arguments do make one key.
    let (first, second) = tokio::join!(
        two(&locks, "x:y", "z", &server),
        two(&locks, "x:y", "z", &server)
    );
    first.unwrap();
    assert!(matches!(second, Err(Error::Busy { .. })));
}

#[tokio::test]
async fn keys_of_hostile_values_stay_apart_and_in_their_place() {
    let (server, locks) = pair().await;
    let values = [
        "a",
        "A",
        "a ",
        " a",
        "a%20",
        "a\u{a0}",
        "{a}",
        "a}",
        "a\n",
        "a\0",
        "%",
        "%25",
        "a%",
        "*",
        "a\r\nDEL lock:sync:1",
        "é",
        "e\u{301}",
        "..",
        "../a",
        "a'b\"c",
        "🦀",
        "a:b",
        "a::b",
    ];
    let mut leases = Vec::new();
    for value in values {
        // All held at once: each has a key of its own.
        let lock = hold(&locks, value).await.unwrap();
        leases.push((value, lock));
    }
    let keys = server.keys();
    assert_eq!(keys.len(), values.len(), "{keys:?}");
    for key in &keys {
        assert!(key.starts_with("lock:one:"), "{key:?}");
        let rest = &key["lock:one:".len()..];
        let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"{}:".contains(c);
        assert!(rest.chars().all(plain), "{key:?}");
    }
}

/// Takes `one:<value>` and leaves it taken: the body hands its lease's owner out and never ends.
async fn hold(locks: &Client, value: &str) -> Result<tokio::task::JoinHandle<()>, Error> {
    #[distributed_lock(key = "one:<value>", client = locks)]
    async fn run(
        locks: Client,
        value: String,
        entered: tokio::sync::oneshot::Sender<()>,
    ) -> Result<(), Error> {
        entered.send(()).unwrap();
        std::future::pending().await
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let task = tokio::spawn({
        let (locks, value) = (locks.clone(), value.to_owned());
        async move { run(locks, value, sender).await.unwrap() }
    });
    receiver.await.expect("the body runs");
    Ok(task)
}

#[distributed_lock(key = "sync:<name>", client = locks)]
async fn named(locks: &Client, name: &str) -> Result<(), Error> {
    panic!("the body ran for {name:?}");
}

#[tokio::test]
async fn field_02_missing_values_are_refused_before_the_server_is_asked() {
    let (server, locks) = pair().await;
    let before = server.commands();
    for name in ["", " ", "   ", "\t", "\n", "\u{2003}"] {
        let error = named(&locks, name).await.unwrap_err();
        assert!(matches!(error, Error::Key(_)), "{name:?}: {error:?}");
        assert!(error.to_string().contains("<name>"), "{error}");
    }
    // Nor is the second of a line the server gets to see.
    let long = "x".repeat(1_025);
    let error = named(&locks, &long).await.unwrap_err();
    assert!(matches!(error, Error::Key(_)), "{error:?}");
    assert!(error.to_string().len() < 300, "{error}");
    assert_eq!(server.commands().since(&before).total(), 0);
}

/// Shows another number each time.
struct Changing(AtomicU32);

impl Display for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[distributed_lock(key = "sync:<value>:<name>", ttl = "600ms", client = locks)]
async fn changing(
    locks: &Client,
    value: &Changing,
    mut name: String,
    server: &Server,
) -> Result<String, Error> {
    name.push_str(" has changed");
    drop(name);
    nap(1_500).await;
    Ok(server.keys().join(" "))
}

#[tokio::test]
async fn field_04_a_key_is_rendered_once() {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    let value = Changing(AtomicU32::new(7));
    let keys = changing(&locks, &value, "ann".to_owned(), &server)
        .await
        .unwrap();
    assert_eq!(keys, "lock:sync:7:ann");
    assert_eq!(value.0.load(Ordering::Relaxed), 8);
    assert!(locks.stats().renewed >= 2);
    assert_eq!(server.size(), 0);
    // Acquire, renewals and release named the same bytes.
    let known = ["lock:sync:7:ann", "lock:wait:{lock:sync:7:ann}"];
    for seen in monitor.seen() {
        let mut names = seen.words.iter().filter(|word| word.starts_with("lock:"));
        assert!(names.all(|word| known.contains(&word.as_str())), "{seen:?}");
    }
}

#[tokio::test]
async fn field_05_a_hash_or_a_string_without_expiry_is_told_and_left_alone() {
    let (server, locks) = pair().await;
    let _: () = server.ask("HSET lock:sync:42 f v");
    let _: () = server.ask("SET lock:sync:43 x");
    let _: () = server.ask("RPUSH lock:sync:44 x");
    for (user, kind) in [(42, "hash"), (43, "string"), (44, "list")] {
        // job() skips what is busy; this is not busy.
        let error = job(&locks, user, async { panic!("the body ran") })
            .await
            .map(drop)
            .unwrap_err();
        let Error::Foreign { key, found } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(key, &format!("sync:{user}"));
        assert!(found.contains(kind), "{found}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("sync:{user}")) && text.contains(kind),
            "{text}"
        );
        // Waiting does not help either, and is not what happens.
        let waiting = locks
            .lock(format!("sync:{user}"))
            .wait(Duration::from_secs(30))
            .acquire();
        let waited = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        assert!(
            matches!(waited, Ok(Err(Error::Foreign { .. }))),
            "{waited:?}"
        );
    }
    assert_eq!(server.ask::<String>("HGET lock:sync:42 f"), "v");
    assert_eq!(server.get("lock:sync:43").as_deref(), Some("x"));
    assert_eq!(server.pttl("lock:sync:43"), -1);
    assert_eq!(server.ask::<u64>("LLEN lock:sync:44"), 1);
}

#[tokio::test]
async fn field_05_a_lock_made_persistent_gets_its_ttl_back_at_the_next_renewal() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_millis(1_500);
    timed(&locks, 42, ttl, async {
        let _: () = server.ask("PERSIST lock:sync:42");
        assert_eq!(server.pttl("lock:sync:42"), -1);
        wait::within("the ttl is back", ttl, || server.pttl("lock:sync:42") > 0).await;
        assert!(server.pttl("lock:sync:42") <= 1_500);
    })
    .await
    .unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_renewal_or_release_that_finds_something_else_leaves_it() {
    let (server, locks) = pair().await;
    let body = async {
        let _: () = server.ask("DEL lock:sync:42");
        let _: () = server.ask("HSET lock:sync:42 f v");
        nap(5_000).await;
    };
    let lost = timed(&locks, 42, Duration::from_millis(900), body)
        .await
        .unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    assert_eq!(server.ask::<String>("HGET lock:sync:42 f"), "v");
    assert_eq!(server.pttl("lock:sync:42"), -1);
}

#[test]
fn lists_from_arguments_are_taken_together_in_any_order() {
    #[distributed_lock(key = ["row:<ids>"], wait = "20s", client = locks, blocking)]
    fn rows(server: &Server, locks: &Client, ids: &[u32]) -> Result<usize, Error> {
        let held = server.keys();
        let is_held = |id: &&u32| held.contains(&format!("lock:row:{id}"));
        Ok(ids.iter().filter(is_held).count())
    }
    let server = Server::start();
    let clients = [(); 2].map(|()| Client::connect_blocking(server.url()).unwrap());
    thread::scope(|scope| {
        for (caller, locks) in (0..20).zip(clients.iter().cycle()) {
            let server = &server;
            scope.spawn(move || {
                let ids = [[caller % 5, 7, caller % 3], [7, caller % 3, caller % 5]];
                let ids = ids[usize::from(caller > 10)];
                assert_eq!(rows(server, locks, &ids).unwrap(), 3);
            });
        }
    });
    wait::block_until("all are given back", || {
        server.keys().iter().all(|key| !key.starts_with("lock:row"))
    });
}
