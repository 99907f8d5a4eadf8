//! Credentials that the application provides at each connection.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fmt, io};

use lockattr::{Client, ClientBuilder, Credentials, Error};
use tests::server::Server;
use tests::wait;

use crate::support::{BOUND, SLACK, nap};

/// What is valid now, and how often that was asked for.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    fn with(password: &str) -> Self {
        let vault = Self::default();
        vault.set(password);
        vault
    }

    fn set(&self, password: &str) {
        password.clone_into(&mut self.password.lock().unwrap());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn builder(&self, user: Option<&'static str>) -> ClientBuilder {
        let vault = self.clone();
        Client::builder().credentials(move || {
            let vault = vault.clone();
            async move {
                tokio::task::yield_now().await;
                vault.asked.fetch_add(1, Ordering::SeqCst);
                let password = vault.password.lock().unwrap().clone();
                Ok::<_, io::Error>(match user {
                    Some(user) => Credentials::user(user, password),
                    None => Credentials::password(password),
                })
            }
        })
    }
}

fn worker(server: &Server, password: &str) {
    let rights = format!("reset on >{password} allcommands allkeys allchannels");
    server.set_user("worker", &rights);
}

#[tokio::test]
async fn each_connection_logs_in_with_what_is_valid_then() {
    let server = Server::start();
    worker(&server, "first");
    let vault = Vault::with("first");
    let locks = vault
        .builder(Some("worker"))
        .connect(server.url())
        .await
        .unwrap();
    let other = vault
        .builder(Some("worker"))
        .connect(server.url())
        .await
        .unwrap();
    let held = locks
        .lock("held")
        .ttl(Duration::from_secs(3))
        .acquire()
        .await
        .unwrap();
    let waiter = other.lock("held").wait(Duration::from_secs(60)).acquire();
    let waiter = tokio::spawn(waiter);
    wait::until("it waits", || server.waiters("lock:held") == 1).await;
    let before = vault.asked();
    // The old password is gone, and with it every connection.
    worker(&server, "second");
    vault.set("second");
    server.ask::<()>("CLIENT KILL USER worker");
    assert!(locks.lock("another").acquire().await.is_ok());
    // The watchdog's connection is a new one as well, and so is that of the wake-ups.
    nap(4_000).await;
    assert!(vault.asked() >= before + 3, "{}", vault.asked());
    held.release().await.unwrap();
    assert!(waiter.await.unwrap().is_ok());
}

#[tokio::test]
async fn the_default_user_has_a_password_alone() {
    let server = Server::with(&["--requirepass", "secret"]);
    let vault = Vault::with("secret");
    let locks = vault.builder(None).connect(server.url()).await.unwrap();
    assert!(locks.lock("key").acquire().await.is_ok());
}

#[tokio::test]
async fn what_is_not_valid_any_more_is_asked_for_at_the_next_connection() {
    let server = Server::start();
    worker(&server, "new");
    let vault = Vault::with("old");
    let refused = vault.builder(Some("worker")).connect(server.url()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("authentication failed") && !refused.contains("old"),
        "{refused}"
    );
    let lazy = vault
        .builder(Some("worker"))
        .connect_lazily(server.url())
        .unwrap();
    assert!(lazy.lock("key").acquire().await.is_err());
    vault.set("new");
    assert!(lazy.lock("key").acquire().await.is_ok());
}

/// An outage of what provides them, in the words that it has for that.
#[derive(Debug)]
struct VaultIsSealed;

impl fmt::Display for VaultIsSealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the vault is sealed")
    }
}

impl std::error::Error for VaultIsSealed {}

#[tokio::test]
async fn a_provider_that_fails_is_the_cause_that_is_told() {
    let server = Server::start();
    let builder = Client::builder().credentials(|| async { Err::<Credentials, _>(VaultIsSealed) });
    let error = builder.connect(server.url()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let told = error.to_string();
    assert!(
        told.contains("could not be had") && told.contains("the vault is sealed"),
        "{told}"
    );
}

#[tokio::test]
async fn a_provider_that_panics_spoils_no_later_connection() {
    let server = Server::start();
    let calls = Arc::new(AtomicUsize::new(0));
    let builder = Client::builder().credentials(move || {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        assert!(call % 2 == 1, "the provider's own panic");
        async { Ok::<_, io::Error>(Credentials::user("worker", "pw")) }
    });
    worker(&server, "pw");
    let locks = builder.connect_lazily(server.url()).unwrap();
    let error = locks.lock("key").acquire().await.unwrap_err().to_string();
    assert!(error.contains("panicked"), "{error}");
    assert!(locks.lock("key").acquire().await.is_ok());
    // On the caller's runtime, and not over the client's thread.
    assert_eq!(server.clients(), 1);
}

#[tokio::test]
async fn a_provider_that_hangs_is_bounded() {
    let server = Server::start();
    let builder = Client::builder().credentials(pending::<io::Result<Credentials>>);
    let locks = builder.connect_lazily(server.url()).unwrap();
    let start = Instant::now();
    let error = locks.lock("key").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
}

#[tokio::test]
async fn one_place_says_who_logs_in() {
    let vault = Vault::with("tr0ub4dor");
    for url in ["redis://:pw@127.0.0.1/", "redis://ann:pw@127.0.0.1/"] {
        let refused = vault.builder(None).connect_lazily(url).unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused:?}");
        assert!(
            refused.to_string().contains("leave one of them out"),
            "{refused}"
        );
    }
    let refused = vault.builder(None).connect_lazily("memory:").unwrap_err();
    assert!(
        refused.to_string().contains("`credentials` is for Redis"),
        "{refused}"
    );
    let shown = format!(
        "{:?} {:?}",
        vault.builder(None),
        Credentials::user("ann", "tr0ub4dor")
    );
    assert!(!shown.contains("tr0ub4dor"), "{shown}");
}
