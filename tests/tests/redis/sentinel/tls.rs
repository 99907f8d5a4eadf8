//! TLS to the sentinels and to the Redis servers: the certificate of each is verified, also where the
//! server is announced by an address that the certificate does not name.

use std::time::Instant;

use lockattr::{Client, ClientBuilder, Error};
use tests::sentinel::{SERVICE, Sentinels, Setup};
use tests::tls::Authority;
use tests::wait;

use crate::support::job;

/// Servers and sentinels with certificates for that name.
fn certified(authority: &Authority, name: &str) -> Sentinels {
    let setup = Setup {
        tls: Some(&|| authority.options(name)),
        ..Setup::default()
    };
    setup.start()
}

/// The URL of the sentinels' TLS ports.
fn url(all: &Sentinels, host: &str) -> String {
    let ports = &all.tls_ports[all.servers.len()..];
    let hosts: Vec<_> = ports.iter().map(|port| format!("{host}:{port}")).collect();
    format!("rediss+sentinel://{}/{SERVICE}", hosts.join(","))
}

/// A client that reaches the servers at their TLS ports, by that name.
fn builder(all: &Sentinels, authority: &Authority, host: &'static str) -> ClientBuilder {
    let plain = all.servers.iter().map(|server| server.address().port());
    let ports: Vec<_> = plain.zip(all.tls_ports.clone()).collect();
    Client::builder()
        .root_certificates(authority.pem())
        .addresses(move |_, announced| {
            let (_, port) = ports.iter().find(|(plain, _)| *plain == announced)?;
            Some((host.to_owned(), *port))
        })
}

#[tokio::test]
async fn both_kinds_are_verified_and_followed() {
    let authority = Authority::new();
    for host in ["127.0.0.1", "localhost"] {
        let all = certified(&authority, host);
        let builder = builder(&all, &authority, host);
        let locks = builder.connect(url(&all, host)).await.unwrap();
        job(&locks, 42, async {}).await.unwrap();
        let primary = all.fail_over(&[0, 1, 2]);
        let start = Instant::now();
        let lease = loop {
            assert!(start.elapsed() < wait::PATIENCE, "not followed");
            let lease = locks.lock("a").acquire().await;
            if let Ok(lease) = lease
                && all.servers[primary].get("lock:a").is_some()
            {
                break lease;
            }
        };
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_or_of_another_authority_is_refused() {
    let (known, unknown) = (Authority::new(), Authority::new());
    let all = certified(&known, "localhost");
    let refused = async |builder: ClientBuilder, host, kind: &str| {
        let error = builder.connect(url(&all, host)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(kind) && text.contains("certificate"),
            "{text}"
        );
        assert!(!text.contains(char::is_control), "{text:?}");
    };
    let of_unknown = builder(&all, &unknown, "localhost");
    refused(of_unknown, "localhost", "the sentinel at localhost:").await;
    let named = builder(&all, &known, "localhost");
    refused(named, "127.0.0.1", "the sentinel at 127.0.0.1:").await;
    // The sentinels' are right, and the servers' not.
    let misnamed = builder(&all, &known, "127.0.0.1");
    refused(misnamed, "localhost", "the Redis server at 127.0.0.1:").await;
    // Announced without TLS, which is no TLS port at all.
    let unmapped = Client::builder().root_certificates(known.pem());
    let error = unmapped.connect(url(&all, "localhost")).await.unwrap_err();
    assert!(error.to_string().contains("the Redis server at"), "{error}");
}
