//! Keys that hold personal data are in no error, no `Debug` and no log, and can be followed all the same.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::time::Duration;

use lockattr::{Client, ClientBuilder, Error, distributed_lock};
use tests::server::Server;
use tests::{log, wait};

use crate::support::nap;

/// What is in a key, and nowhere else.
const PERSON: &str = "ann.personal@example.com";

const KEY: &str = "mail:ann.personal@example.com";

const FLEET: &str = "sixteen bytes, or more of them";

fn fleet() -> ClientBuilder {
    Client::builder().redact_key(FLEET)
}

fn discreet(what: &str, text: &str) {
    assert!(!text.contains("personal"), "{what}: {text}");
}

/// Neither the error nor what it is made of says whom the key names.
fn told(what: &str, error: &Error) -> String {
    discreet(what, &format!("{error:?} {error:#?}"));
    let mut next: Option<&dyn StdError> = Some(error);
    while let Some(error) = next {
        discreet(what, &error.to_string());
        next = error.source();
    }
    error.to_string()
}

fn hashed(what: &str, error: &Error, hash: &str) {
    let text = told(what, error);
    assert!(text.contains(hash), "{what}: {text}");
}

#[distributed_lock(key = "mail:<person>", ttl = "600ms", redact = true, client = locks)]
async fn mail<T: Send>(
    locks: &Client,
    person: &str,
    body: impl Future<Output = T> + Send,
) -> Result<T, Error> {
    Ok(body.await)
}

#[distributed_lock(key = "mail:<person>", on_busy = skip, on_unavailable = run, redact = true, client = locks)]
async fn mail_unlocked(locks: &Client, person: &str) {}

#[distributed_lock(key = "mail:<person>", once = "1h", on_done = error, redact = true, client = locks)]
async fn mail_once(locks: &Client, person: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = ["mail:<person>", "mail:<other>"], redact = true, client = locks)]
async fn mail_both(locks: &Client, person: &str, other: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_redacted_key_is_in_no_error_no_debug_and_no_log() {
    log::listen();
    let server = Server::start();
    let locks = fleet().connect(server.url()).await.unwrap();
    let other = fleet().connect(server.url()).await.unwrap();
    let hash = locks.redacted(KEY);

    let held = other.lock(KEY).redact(true).acquire().await.unwrap();
    discreet("lease", &format!("{held:?}"));
    assert_eq!(held.key(), KEY);
    assert!(
        server.keys().contains(&format!("lock:{KEY}")),
        "as it is in the store"
    );
    let request = locks.lock(KEY).redact(true);
    discreet("request", &format!("{request:?}"));
    hashed("busy by hand", &request.acquire().await.unwrap_err(), &hash);
    hashed(
        "busy",
        &mail(&locks, PERSON, async {}).await.unwrap_err(),
        &hash,
    );
    let both = mail_both(&locks, PERSON, "bob.personal").await.unwrap_err();
    hashed("busy with one of two", &both, &hash);
    let invalid = locks.lock(KEY).redact(true).ttl(Duration::ZERO);
    hashed("invalid", &invalid.acquire().await.unwrap_err(), &hash);
    let extended = held.extend(Duration::ZERO).await.unwrap_err();
    hashed("invalid extension", &extended, &hash);
    // The leases of the calls around are named, which were taken without `redact`.
    let within = locks.lock("around:personal").acquire().await.unwrap();
    let around = around(&locks, "personal", || mail(&locks, PERSON, async {}));
    let around = around.await.unwrap_err();
    hashed("busy within another", &around, &hash);
    hashed(
        "busy within another",
        &around,
        &locks.redacted("outer:personal"),
    );
    within.release().await.unwrap();

    let lost = async {
        let _: () = server.ask(&format!("DEL lock:{KEY}"));
        nap(5_000).await;
    };
    held.release().await.unwrap();
    hashed(
        "lost",
        &mail(&locks, PERSON, lost).await.unwrap_err(),
        &hash,
    );
    let gone = locks.lock(KEY).redact(true).acquire().await.unwrap();
    let _: () = server.ask(&format!("DEL lock:{KEY}"));
    hashed("no token", &gone.token().await.unwrap_err(), &hash);
    hashed("gone", &gone.release().await.unwrap_err(), &hash);
    drop(locks.lock(KEY).redact(true).acquire().await.unwrap());
    mail_once(&locks, PERSON).await.unwrap();
    hashed("done", &mail_once(&locks, PERSON).await.unwrap_err(), &hash);
    let _: () = server.ask(&format!("DEL lock:{KEY}"));
    let _: () = server.ask(&format!("HSET lock:{KEY} field value"));
    hashed(
        "foreign",
        &mail(&locks, PERSON, async {}).await.unwrap_err(),
        &hash,
    );
    let _: () = server.ask(&format!("DEL lock:{KEY}"));

    let kept = locks.lock(KEY).redact(true).acquire().await.unwrap();
    server.kill();
    kept.release().await.unwrap();
    hashed(
        "down",
        &mail(&locks, PERSON, async {}).await.unwrap_err(),
        &hash,
    );
    mail_unlocked(&locks, PERSON).await;
    wait::until("all is told", || log::about(&hash).len() >= 8).await;
    let seen = log::about(PERSON);
    assert!(seen.is_empty(), "{seen:#?}");
}

#[distributed_lock(key = "outer:<id>", client = locks)]
async fn around<T: Send, F: Future<Output = Result<T, Error>> + Send>(
    locks: &Client,
    id: &str,
    inner: impl FnOnce() -> F + Send,
) -> Result<T, Error> {
    inner().await
}

#[tokio::test]
async fn a_key_that_cannot_be_made_is_not_shown_in_part() {
    let locks = fleet().redact(true).connect("memory:").await.unwrap();
    let blank = mail_both(&locks, PERSON, " ").await.unwrap_err();
    let text = told("blank", &blank);
    assert!(text.contains("`<other>`"), "{text}");
    let long = format!("{PERSON}{}", "x".repeat(2_000));
    told(
        "too long",
        &mail(&locks, &long, async {}).await.unwrap_err(),
    );
    for bad in [long, format!("{PERSON}{{}}")] {
        let request = locks.lock(&bad);
        discreet("request", &format!("{request:?}"));
        told("by hand", &request.acquire().await.unwrap_err());
    }
}

#[tokio::test]
async fn what_an_inspector_is_refused_names_no_key() {
    let server = Server::start();
    let locks = fleet().redact(true).connect(server.url()).await.unwrap();
    let hash = locks.redacted(KEY);
    let inspector = locks.inspect().unwrap();
    let braces = inspector.show(&format!("{PERSON}{{}}")).await.unwrap_err();
    told("braces", &braces);
    let _: () = server.ask(&format!("HSET lock:{KEY} field value"));
    let shown = inspector.show(KEY).await.unwrap();
    assert_eq!(shown.listed.lock, KEY);
    let foreign = &shown.listed.entries[0];
    hashed(
        "foreign",
        &inspector.end(KEY, foreign).await.unwrap_err(),
        &hash,
    );
    let _: () = server.ask(&format!("DEL lock:{KEY}"));
    let _held = locks.lock(KEY).acquire().await.unwrap();
    let held = inspector.show(KEY).await.unwrap();
    server.kill();
    hashed("show", &inspector.show(KEY).await.unwrap_err(), &hash);
    let end = inspector.end(KEY, &held.listed.entries[0]).await;
    hashed("end", &end.unwrap_err(), &hash);
}

#[tokio::test]
async fn the_hash_of_a_key_is_the_same_in_a_fleet_and_for_nobody_else() {
    let all = fleet().redact(true).connect("memory:").await.unwrap();
    let one = fleet().connect("memory:").await.unwrap();
    let hash = one.redacted(KEY);
    assert_eq!(all.redacted(KEY), hash);
    assert_eq!(hash.len(), "redacted:".len() + 16);
    assert_ne!(all.redacted("mail:bob"), hash);
    let without_a_key = || Client::builder().redact(true);
    let [a, b] = [without_a_key(), without_a_key()]
        .map(|builder| builder.connect_lazily("memory:").unwrap());
    assert_eq!(a.redacted(KEY), a.clone().redacted(KEY));
    assert_ne!(a.redacted(KEY), b.redacted(KEY));
    assert_ne!(a.redacted(KEY), hash);
    for (key, redactor) in [("short", false), ("just 16 bytes...", true)] {
        let client = Client::builder().redact_key(key).connect("memory:").await;
        assert_eq!(client.is_ok(), redactor, "{client:?}");
    }
    let shown: [&dyn Debug; 2] = [&fleet(), &all];
    assert!(!format!("{shown:?}").contains("sixteen"), "{shown:?}");
}

#[tokio::test]
async fn what_a_call_says_goes_before_what_its_client_says() {
    #[distributed_lock(key = "mail:<person>", redact = false, client = locks)]
    async fn plainly(locks: &Client, person: &str) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "mail:<person>", client = locks)]
    async fn as_ever(locks: &Client, person: &str) -> Result<(), Error> {
        Ok(())
    }

    let locks = fleet().redact(true).connect("memory:").await.unwrap();
    let _held = locks.lock("mail:bob").acquire().await.unwrap();
    let error = plainly(&locks, "bob").await.unwrap_err().to_string();
    assert!(error.contains("`mail:bob`"), "{error}");
    let error = as_ever(&locks, "bob").await.unwrap_err().to_string();
    assert!(error.contains(&locks.redacted("mail:bob")), "{error}");
    let request = locks.lock("mail:bob").redact(false);
    let error = request.acquire().await.unwrap_err().to_string();
    assert!(error.contains("`mail:bob`"), "{error}");
}
