//! What must never be seen: passwords, and the whole owner of somebody else's lock.

use std::fmt::Debug;

use lockattr::{Client, Error};
use tests::log;
use tests::server::Server;

use crate::support::job;

const SECRET: &str = "tr0ub4dor-and-3";

fn discreet(what: &str, value: &(impl Debug + ?Sized)) {
    let text = format!("{value:?} {value:#?}");
    nothing_of_it(what, &text);
}

/// Neither the secret, nor so much of it that the rest can be guessed.
fn nothing_of_it(what: &str, text: &str) {
    for start in 0..SECRET.len() - 5 {
        let part = &SECRET[start..start + 6];
        assert!(!text.contains(part), "{what}: {text}");
    }
}

fn told(what: &str, error: &Error) {
    discreet(what, error);
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        discreet(what, error);
        nothing_of_it(what, &error.to_string());
        next = error.source();
    }
}

#[tokio::test]
async fn passwords_are_in_no_error_no_debug_and_no_log() {
    log::listen();
    let server = Server::with(&["--requirepass", SECRET]);
    let locks = Client::connect(server.url_as("", SECRET)).await.unwrap();
    discreet("client", &locks);
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    discreet("lease", &lease);
    told("busy", &locks.lock("sync:42").acquire().await.unwrap_err());
    server.kill();
    drop(lease);
    told("down", &job(&locks, 42, async {}).await.unwrap_err());

    let port = server.address().port();
    let urls = [
        format!("redis://:{SECRET}@127.0.0.1:{port}/"),
        format!("redis://ann:{SECRET}@127.0.0.1:{port}/"),
        format!("redis://ann:{SECRET}@no-such-host.invalid/"),
        format!("redis://ann:{SECRET}@127.0.0.1:{port}/not-a-database"),
        format!("redis://ann:{SECRET}@127.0.0.1:99999/"),
        format!("redis://ann:{SECRET}@[::1/"),
        format!("rediss://ann:{SECRET}@127.0.0.1:{port}/"),
        format!("unix:///nowhere?user=ann&pass={SECRET}"),
        format!("unix://{SECRET}"),
        format!("http://ann:{SECRET}@127.0.0.1/"),
        format!("http:{SECRET}"),
        format!("redis:{SECRET}"),
        format!("memory:{SECRET}"),
        SECRET.to_owned(),
        format!("{SECRET}@127.0.0.1"),
        format!("ann:{SECRET}@127.0.0.1:{port}"),
        format!("ab:{SECRET}@127.0.0.1:{port}"),
        format!("//:{SECRET}@127.0.0.1"),
        format!("://{SECRET}@127.0.0.1"),
        format!("{SECRET}://127.0.0.1"),
        // Passwords with characters that end the host.
        format!("redis://{SECRET}/x@127.0.0.1/"),
        format!("redis://{SECRET}#x@127.0.0.1/"),
        format!("redis://{SECRET}?x@127.0.0.1/"),
        format!("redis://ann:12/{SECRET}@127.0.0.1/"),
        format!("redis://127.0.0.1:1/#{SECRET}"),
        format!("redis://127.0.0.1:1/?protocol={SECRET}"),
    ];
    for url in &urls {
        let builder = Client::builder();
        discreet("builder", &builder);
        match builder.connect(url).await {
            Err(error) => told(&url.replace(SECRET, "…"), &error),
            Ok(_) => panic!("{} works", url.replace(SECRET, "…")),
        }
        if let Ok(lazy) = Client::builder().connect_lazily(url) {
            discreet("lazy client", &lazy);
            told("lazy", &job(&lazy, 42, async {}).await.unwrap_err());
        }
    }
    let seen = log::about(SECRET);
    assert!(seen.is_empty(), "{seen:#?}");
}

#[tokio::test]
async fn a_wrong_password_is_not_repeated() {
    let server = Server::with(&["--requirepass", "another"]);
    let error = Client::connect(server.url_as("", SECRET))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    told("wrong", &error);
}

#[tokio::test]
async fn owners_are_in_no_error_no_debug_and_no_log() {
    log::listen();
    let server = Server::start();
    let locks = crate::support::client(&server).await;
    let lease = locks.lock("sync:7007").acquire().await.unwrap();
    let (id, _) = lease.owner().split_once('@').unwrap();
    let busy = locks.lock("sync:7007").acquire().await.unwrap_err();
    for text in [
        format!("{lease:?}"),
        format!("{locks:?}"),
        format!("{busy:?}"),
        busy.to_string(),
    ] {
        assert!(!text.contains(id), "{text}");
    }
    let _: () = server.ask("DEL lock:sync:7007");
    let lost = lease
        .extend(std::time::Duration::from_secs(9))
        .await
        .unwrap_err();
    assert!(!format!("{lost:?} {lost}").contains(id), "{lost:?}");
    assert!(log::about(id).is_empty());
}

#[tokio::test]
async fn a_foreign_value_under_a_lock_is_not_repeated() {
    let server = Server::start();
    let locks = crate::support::client(&server).await;
    let _: () = server.ask(&format!("SET lock:sync:42 {SECRET}"));
    told(
        "foreign",
        &locks.lock("sync:42").acquire().await.unwrap_err(),
    );
    // With an expiry it looks busy, of somebody whose form we do not know.
    let _: () = server.ask(&format!("SET lock:sync:42 {SECRET} PX 60000"));
    let busy = locks.lock("sync:42").acquire().await.unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy:?}");
    told("busy", &busy);
}
