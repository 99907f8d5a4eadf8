//! Passwords, certificates, and what of them is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockattr::{Client, Credentials, Error};
use tests::postgres::Postgres;
use tests::wait;

use crate::support::{connected, taken};

const BY_PASSWORD: (&str, &str) = (
    "pg_hba.conf",
    "host all jobs all scram-sha-256\nhost all all all trust\n",
);

#[tokio::test]
async fn whoever_provides_passwords_is_asked_for_each_session() {
    let server = Postgres::with_files(&[], &[BY_PASSWORD]);
    server.rows("CREATE ROLE jobs LOGIN SUPERUSER PASSWORD 'one'");
    let url = format!("postgres://{}/postgres", server.address());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let builder = Client::builder().credentials(move || {
        let times = counted.fetch_add(1, Ordering::SeqCst);
        let password = if times < 2 { "one" } else { "two" };
        async move { Ok::<_, std::io::Error>(Credentials::user("jobs", password)) }
    });
    let locks = connected(builder.clone(), &server, &url).await;
    taken(&locks, "a").await.release().await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    // It changes, and the next sessions begin with the new one.
    server.rows("ALTER ROLE jobs PASSWORD 'two'");
    assert_eq!(server.end_sessions("true"), 2);
    wait::until("they have ended", || server.sessions() == 0).await;
    taken(&locks, "a").await.release().await.unwrap();

    let both = builder.connect(server.url()).await.unwrap_err();
    assert!(matches!(both, Error::Config(_)), "{both:?}");
    let wrong = format!("postgres://jobs:s3cret@{}/postgres", server.address());
    let patient = Client::builder().connect_timeout(std::time::Duration::from_secs(5));
    let error = patient.connect(&wrong).await.unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(told.contains("password authentication failed"), "{told}");
    assert!(!told.contains("s3cret"), "{told}");
}

#[tokio::test]
async fn settings_for_other_servers_are_refused() {
    let url = "postgres://me@127.0.0.1/postgres";
    let timeout = std::time::Duration::from_secs(1);
    for (builder, says) in [
        (Client::builder().replicas(1, timeout), "`replicas`"),
        (Client::builder().addresses(|_, _| None), "`addresses`"),
        (
            Client::builder().delayed_restart(timeout),
            "`delayed_restart`",
        ),
    ] {
        let error = builder.connect_lazily(url).unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[cfg(feature = "tls")]
mod encrypted {
    use tests::tls::Authority;

    use super::*;

    fn server(authority: &Authority, name: &str) -> Postgres {
        let (certificate, key) = authority.certificate(name);
        let files = [
            ("server.crt", certificate.as_str()),
            ("server.key", key.as_str()),
            ("ca.crt", authority.pem()),
            (
                "pg_hba.conf",
                "hostssl all shown all cert\nhost all all all trust\n",
            ),
        ];
        Postgres::with_files(&["ssl=on", "ssl_ca_file=ca.crt"], &files)
    }

    fn encrypted_sessions(server: &Postgres) -> String {
        server.ask(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE ssl AND application_name = 'lockattr'",
        )
    }

    #[tokio::test]
    async fn a_mode_that_requires_encryption_verifies_the_server() {
        let (known, unknown) = (Authority::new(), Authority::new());
        let server = server(&known, "127.0.0.1");
        let url = format!("{}?sslmode=require", server.url());
        let builder = Client::builder().root_certificates(known.pem());
        let locks = connected(builder, &server, &url).await;
        taken(&locks, "a").await.release().await.unwrap();
        assert_eq!(encrypted_sessions(&server), "2");

        let builder = Client::builder().root_certificates(unknown.pem());
        let error = builder.clone().connect(&url).await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
        // Whoever says how to verify wants that, also where the URL does not.
        let error = builder.connect(server.url()).await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
        let other_name = url.replace("127.0.0.1", "localhost");
        let builder = Client::builder().root_certificates(known.pem());
        let error = builder.connect(&other_name).await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");

        let plain = format!("{}?sslmode=disable", server.url());
        let builder = Client::builder().root_certificates(known.pem());
        let error = builder.connect_lazily(&plain).unwrap_err().to_string();
        assert!(error.contains("`root_certificates`"), "{error}");
    }

    #[tokio::test]
    async fn a_client_shows_its_certificate_and_without_a_mode_goes_on_without_encryption() {
        let authority = Authority::new();
        let server = server(&authority, "127.0.0.1");
        let trusting = Client::builder();
        let locks = connected(trusting, &server, &server.url()).await;
        taken(&locks, "a").await.release().await.unwrap();
        assert_eq!(encrypted_sessions(&server), "0");
        drop(locks);

        server.rows("CREATE ROLE shown LOGIN SUPERUSER");
        let (certificate, key) = authority.certificate("shown");
        let builder = Client::builder().root_certificates(authority.pem());
        let builder = builder.client_certificate(certificate, key);
        let url = format!("{}?sslmode=require", server.url_as("shown"));
        let locks = connected(builder, &server, &url).await;
        taken(&locks, "a").await.release().await.unwrap();
        assert_eq!(encrypted_sessions(&server), "2");
    }
}
