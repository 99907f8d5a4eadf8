//! Encrypted connections: the server's certificate is verified, always.

use std::time::Duration;

use lockattr::{Client, Error};
use tests::server::Server;
use tests::tls::Authority;
use tests::wait;

use crate::support::{job, nap, timed};

fn refused(client: Result<Client, Error>, word: &str) {
    let error = client.expect_err("verified");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().to_lowercase().contains(word), "{error}");
}

#[tokio::test]
async fn a_server_of_a_known_authority_works() {
    let authority = Authority::new();
    let (server, url) = authority.server("127.0.0.1");
    let locks = Client::builder()
        .root_certificates(authority.pem())
        .connect(&url)
        .await
        .unwrap();
    timed(&locks, 42, Duration::from_millis(600), async {
        nap(900).await;
        assert!(server.get("lock:sync:42").is_some());
    })
    .await
    .unwrap();
    // Also the next connection.
    assert!(server.drop_clients() > 0);
    job(&locks, 42, async {}).await.unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_refused() {
    let (known, unknown) = (Authority::new(), Authority::new());
    let (_server, url) = unknown.server("127.0.0.1");
    // By the machine's authorities, and by another of ours.
    refused(Client::connect(&url).await, "certificate");
    let builder = Client::builder().root_certificates(known.pem());
    refused(builder.connect(&url).await, "certificate");
}

#[tokio::test]
async fn a_server_with_the_name_of_another_is_refused() {
    let authority = Authority::new();
    let (_server, url) = authority.server("other.example");
    let builder = Client::builder().root_certificates(authority.pem());
    refused(builder.connect(&url).await, "certificate");
}

#[tokio::test]
async fn a_url_cannot_switch_verification_off_unnoticed() {
    let authority = Authority::new();
    let (server, url) = authority.server("127.0.0.1");
    let error = Client::connect(format!("{url}#insecure"))
        .await
        .expect_err("verified");
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    assert_eq!(server.commands().of("set"), 0);
}

#[tokio::test]
async fn plain_and_encrypted_do_not_meet() {
    let authority = Authority::new();
    let (server, url) = authority.server("127.0.0.1");
    // Plain words to the encrypted port, and encrypted ones to the plain port.
    let plain = url.replace("rediss://", "redis://");
    one_line(
        &Client::connect(&plain).await,
        &["no Redis answers", "TLS", "rediss://"],
    );
    let encrypted = server.url().replace("redis://", "rediss://");
    let builder = Client::builder().root_certificates(authority.pem());
    let client = builder.connect(&encrypted).await;
    one_line(&client, &["without TLS", "redis://"]);
    // The same with a password, which is not sent in the clear.
    let locked = Server::with(&["--requirepass", "mainpass"]);
    let encrypted = locked
        .url_as("", "mainpass")
        .replace("redis://", "rediss://");
    one_line(
        &Client::connect(&encrypted).await,
        &["without TLS", "redis://"],
    );
}

fn one_line(client: &Result<Client, Error>, words: &[&str]) {
    let Err(error @ Error::Unavailable { .. }) = client else {
        panic!("{client:?}")
    };
    let text = error.to_string();
    assert!(!text.contains(char::is_control), "{text:?}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
}

#[tokio::test]
async fn root_certificates_without_tls_are_refused() {
    let authority = Authority::new();
    let server = Server::start();
    for url in [
        server.url(),
        server.url().replace("redis://", "valkey://"),
        server.socket_url(),
    ] {
        let builder = Client::builder().root_certificates(authority.pem());
        let lazy = builder.clone().connect_lazily(&url);
        assert!(matches!(lazy, Err(Error::Config(_))), "{url}: {lazy:?}");
        let error = builder.connect(&url).await.expect_err("refused");
        assert!(matches!(error, Error::Config(_)), "{url}: {error:?}");
        assert!(error.to_string().contains("root_certificates"), "{error}");
    }
}

#[tokio::test]
async fn certificates_that_are_none_are_refused() {
    for pem in [
        "",
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let lazy = Client::builder()
            .root_certificates(pem)
            .connect_lazily("rediss://127.0.0.1:1/");
        match lazy {
            Err(Error::Config(_)) => {}
            // An empty list trusts nobody, which is found when connecting.
            other => {
                let error = other.unwrap().lock("a").acquire().await.unwrap_err();
                assert!(
                    matches!(error, Error::Unavailable { .. }),
                    "{pem:?}: {error:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_verifies_its_clients_is_shown_a_certificate() {
    let authority = Authority::new();
    let (server, url) = authority.server_that_verifies("127.0.0.1");
    let trusting = || Client::builder().root_certificates(authority.pem());
    let (certificate, key) = authority.certificate("worker.example");
    let known = || trusting().client_certificate(certificate.as_str(), key.as_str());
    let locks = known().connect(&url).await.unwrap();
    let holder = known().connect(&url).await.unwrap();
    // On every connection: renewals and wake-ups have their own.
    let held = holder.lock("sync:42").ttl(Duration::from_millis(900));
    let held = held.acquire().await.unwrap();
    let waiter = tokio::spawn(
        locks
            .lock("sync:42")
            .wait(Duration::from_secs(60))
            .acquire(),
    );
    wait::until("it waits", || server.waiters("lock:sync:42") == 1).await;
    wait::until("a renewal", || holder.stats().renewed > 1).await;
    held.release().await.unwrap();
    assert!(waiter.await.unwrap().is_ok());
    // Without one, and with one of another authority.
    refused(trusting().connect(&url).await, "certificate");
    let (certificate, key) = Authority::new().certificate("worker.example");
    let unknown = trusting().client_certificate(certificate, key);
    assert!(unknown.connect(&url).await.is_err());
}

#[tokio::test]
async fn a_client_certificate_that_cannot_be_used_says_why() {
    let authority = Authority::new();
    let (certificate, key) = authority.certificate("worker.example");
    let (_, other) = authority.certificate("other.example");
    let url = "rediss://127.0.0.1/";
    for (url, certificate, key, word) in [
        (url, "", key.as_str(), "there is none in the PEM text"),
        (url, certificate.as_str(), "", "its key"),
        (
            url,
            certificate.as_str(),
            other.as_str(),
            "client certificate",
        ),
        (
            "redis://127.0.0.1/",
            certificate.as_str(),
            key.as_str(),
            "has none",
        ),
        (
            "memory:",
            certificate.as_str(),
            key.as_str(),
            "is for Redis servers",
        ),
    ] {
        let builder = Client::builder().root_certificates(authority.pem());
        let builder = if url == "memory:" {
            Client::builder()
        } else {
            builder
        };
        let refused = builder
            .client_certificate(certificate, key)
            .connect_lazily(url);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused:?}");
        if url != "redis://127.0.0.1/" {
            assert!(refused.to_string().contains(word), "{refused}");
        }
    }
}
