//! Every event of the documentation's table is really told, with its level and its fields. That each has
//! the fields of the table, and that there is no other, is looked at wherever a test reads the log.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::time::Duration;

use lockattr::{Client, Error, Memory, distributed_lock};
use tests::server::Server;
use tests::version::has_channel_rights;
use tests::{log, wait};
use tracing::Level;

use crate::faulty_stores::{Fault, Faulty};

use crate::support::{behind_a_proxy, client, nap};

/// What the test has seen, by level and message.
#[derive(Default)]
struct Seen(BTreeSet<(String, String)>);

impl Seen {
    /// An event about `part` with this level and such a message has come, or comes soon.
    async fn expect(&mut self, level: Level, message: &str, part: &str) {
        let found = || {
            let mut about = log::about(part).into_iter();
            about.find(|told| told.level == level && told.message.contains(message))
        };
        let what = format!("`{message}` is told of {part}");
        wait::until(&what, || found().is_some()).await;
        let told = found().expect("it was found before");
        self.0.insert((level.to_string(), told.message));
    }
}

type Answer = Result<(), Error>;

#[distributed_lock(key = "table:<id>", ttl = "600ms", client = locks)]
async fn plain(locks: &Client, id: u8, body: impl Future<Output = Answer> + Send) -> Answer {
    body.await
}

#[distributed_lock(key = "table:<id>", ttl = "600ms", on_busy = skip, client = locks)]
async fn quiet(locks: &Client, id: u8, body: impl Future<Output = ()> + Send) {
    body.await;
}

#[distributed_lock(key = "table:<id>", ttl = "600ms", once = "1h", client = locks)]
async fn once(locks: &Client, id: u8, body: impl Future<Output = ()> + Send) -> Answer {
    body.await;
    Ok(())
}

#[distributed_lock(key = "table:<id>", ttl = "600ms", on_lost = continue, client = locks)]
async fn goes_on(locks: &Client, id: u8, body: impl Future<Output = ()> + Send) -> Answer {
    body.await;
    Ok(())
}

#[distributed_lock(key = "table:<id>", on_busy = skip, on_unavailable = run, client = locks)]
async fn unguarded(locks: &Client, id: u8) {}

#[distributed_lock(key = "table:<id>", on_busy = skip, on_unavailable = local, client = locks)]
async fn local(locks: &Client, id: u8) {}

#[distributed_lock(key = "table:<id>", once = "1h", on_done = replay, client = locks)]
async fn replays(locks: &Client, id: u8) -> Result<String, Error> {
    Ok("x".repeat(70_000))
}

#[distributed_lock(key = "table:<id>", once = "1h", on_busy = skip, on_done = replay, client = locks)]
async fn replays_quietly(locks: &Client, id: u8) {}

#[distributed_lock(key = "tight", ttl = "200ms", renew = false, on_busy = skip, client = locks)]
async fn tight(locks: &Client) {
    tokio::time::sleep(Duration::from_millis(110)).await;
}

#[tokio::test]
async fn every_event_of_the_table_is_told() {
    log::listen();
    let mut seen = Seen::default();
    calls(&mut seen).await;
    leases(&mut seen).await;
    clients(&mut seen).await;
    for (level, message) in log::documented() {
        // It takes a server that goes away between a message and what follows from it.
        let hardly = message.starts_with("a lock that came too late");
        // Other tests fill the queue to that thread, put a right away and back, and answer requests.
        let elsewhere = message.starts_with("events were dropped")
            || message.contains("woken again")
            || message.starts_with("a request was answered");
        let known = (level.to_string(), message.to_owned());
        assert!(
            hardly || elsewhere || seen.0.contains(&known),
            "{level} {message}"
        );
    }
}

async fn calls(seen: &mut Seen) {
    let (memory, dead) = (Memory::new(), Memory::new());
    let on = |memory: &Memory| Client::builder().store(memory.clone()).unwrap();
    let (locks, down) = (on(&memory), on(&dead));
    dead.refuse(Some("out of order"));
    let expiring = |id: u8| {
        let memory = memory.clone();
        move || memory.expire(&format!("lock:table:{id}"))
    };

    let held = locks.lock("table:1").acquire().await.unwrap();
    quiet(&locks, 1, async {}).await;
    seen.expect(Level::DEBUG, "key is busy", "`table:1`").await;
    drop(held);
    for _ in 0..2 {
        once(&locks, 2, async {}).await.unwrap();
    }
    seen.expect(Level::DEBUG, "work is done", "table:2").await;
    replays(&locks, 12).await.unwrap();
    seen.expect(Level::ERROR, "was not kept", "table:12").await;
    replays(&locks, 12).await.unwrap_err();
    seen.expect(Level::WARN, "no reply of it", "table:12").await;
    replays_quietly(&locks, 12).await;
    seen.expect(Level::ERROR, "no reply of it", "table:12")
        .await;
    plain(&down, 3, async { Ok(()) }).await.unwrap_err();
    seen.expect(Level::WARN, "did not run", "table:3").await;
    quiet(&down, 4, async {}).await;
    seen.expect(Level::ERROR, "did not run", "table:4").await;
    let lost = expiring(5);
    plain(&locks, 5, async {
        lost();
        pending().await
    })
    .await
    .unwrap_err();
    seen.expect(Level::WARN, "was stopped", "table:5").await;
    let lost = expiring(6);
    quiet(&locks, 6, async {
        lost();
        pending::<()>().await;
    })
    .await;
    seen.expect(Level::ERROR, "was stopped", "table:6").await;
    let lost = expiring(7);
    goes_on(&locks, 7, async {
        lost();
        nap(400).await;
    })
    .await
    .unwrap();
    seen.expect(Level::WARN, "went on", "table:7").await;
    let lost = expiring(8);
    plain(&locks, 8, async {
        lost();
        Err(Error::NotInstalled)
    })
    .await
    .unwrap_err();
    seen.expect(Level::WARN, "that failed", "table:8").await;
    unguarded(&down, 9).await;
    seen.expect(Level::WARN, "without a lock", "table:9").await;
    local(&down, 10).await;
    seen.expect(Level::WARN, "of this process alone", "table:10")
        .await;
}

async fn leases(seen: &mut Seen) {
    let (server, proxy, locks) = behind_a_proxy().await;
    let take = async |key: &str, ttl| {
        let lock = locks.lock(key).ttl(Duration::from_millis(ttl));
        lock.acquire().await.unwrap()
    };
    let old = take("table:old", 150).await;
    seen.expect(Level::WARN, "held for very long", "table:old")
        .await;
    old.release().await.unwrap();

    let gone = take("table:gone", 60_000).await;
    let _: () = server.ask("DEL lock:table:gone");
    drop(gone);
    seen.expect(Level::WARN, "was gone", "table:gone").await;

    let renewed = take("table:renewed", 3_000).await;
    let kept = take("table:kept", 60_000).await;
    once(&locks, 11, async { proxy.refuse() }).await.unwrap();
    drop(kept);
    seen.expect(Level::WARN, "could not be given back", "table:kept")
        .await;
    // Nothing about them names a key: only a test that is alone with its process could tell them apart.
    seen.expect(Level::WARN, "could not be renewed", "leases=")
        .await;
    wait::until("it has run out", || server.get("lock:table:11").is_none()).await;
    let other = client(&server).await;
    let _taken = other.lock("table:11").acquire().await.unwrap();
    proxy.heal();
    seen.expect(Level::INFO, "renewed again", "leases=").await;
    seen.expect(Level::ERROR, "mark could not be written", "table:11")
        .await;
    drop(renewed);

    let store = Faulty::new(Fault::ReleasePanicsAtOnce);
    let locks = Client::builder().store(store).unwrap();
    drop(locks.lock("table:panics").acquire().await.unwrap());
    seen.expect(Level::ERROR, "the store panicked", "panicked as")
        .await;
    let locks = Client::connect("memory:").await.unwrap();
    // It is told after twenty runs; some may be too slow on a busy machine, and are lost.
    for _ in 0..25 {
        tight(&locks).await;
    }
    seen.expect(
        Level::WARN,
        "is held for more than half",
        "event_table::tight",
    )
    .await;
}

async fn clients(seen: &mut Seen) {
    let channels = ["--acl-pubsub-default", "allchannels"];
    let needed = has_channel_rights();
    let server = Server::with(if needed { &channels } else { &[] });
    for (user, missing, message) in [
        (
            "mute",
            "publish",
            "what this client gives back cannot be woken",
        ),
        ("deaf", "subscribe", "wait for a lock cannot be woken"),
    ] {
        let rights = format!("ACL SETUSER {user} on >{user} ~* +@all -{missing}");
        let _: () = server.ask(&rights);
        let prefix = format!("lock:{user}:");
        let locks = Client::builder().prefix(&prefix);
        let _locks = locks.connect(server.url_as(user, user)).await.unwrap();
        let channel = format!("{prefix}wake:");
        seen.expect(Level::WARN, message, &channel).await;
    }

    let others = [Server::start(), Server::start()];
    others[1].kill();
    let quorum = [&server, &others[0], &others[1]].map(Server::url);
    let _quorum = Client::builder().quorum(quorum).await.unwrap();
    let port = others[1].address().port().to_string();
    seen.expect(Level::WARN, "node of a quorum", &port).await;

    let _ = Client::disabled().unwrap();
    seen.expect(Level::ERROR, "LOCKS ARE DISABLED", "DISABLED")
        .await;
}
