//! Logins whose tokens end, and what a user may do (15, 18).

use std::fs;
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::etcd::Etcd;

use crate::support::{BOUND, Callers, SLACK, client_at, nap, nothing_left, take};

/// A cluster that keeps users: `root`, and `jobs` with the documented role.
fn with_users(options: &[&str]) -> Etcd {
    let cluster = Etcd::with(1, options);
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"root"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("user/add", r#"{"name":"jobs","password":"p@ss:word"}"#),
        ("role/add", r#"{"name":"locks"}"#),
        // `lock:` and all that begins so: the end is `lock;`.
        (
            "role/grant",
            r#"{"name":"locks","perm":{"permType":"READWRITE","key":"bG9jazo=","range_end":"bG9jazs="}}"#,
        ),
        ("user/grant", r#"{"user":"jobs","role":"locks"}"#),
        ("enable", "{}"),
    ] {
        cluster.ask(&format!("/v3/auth/{path}"), body);
    }
    cluster.log_in("root", "root");
    cluster
}

fn url(cluster: &Etcd) -> String {
    cluster.url_as("jobs", "p%40ss%3Aword")
}

/// Tokens that end after two seconds, whatever is asked for with them.
fn with_short_tokens() -> (Etcd, tempfile::Secret) {
    let secret = tempfile::Secret::new();
    let token = format!("jwt,priv-key={},sign-method=HS256,ttl=2s", secret.path());
    (with_users(&["--auth-token", &token]), secret)
}

/// A file with a secret.
mod tempfile {
    use super::fs;

    pub(super) struct Secret(std::path::PathBuf);

    impl Secret {
        pub(super) fn new() -> Self {
            let name = format!(
                "lockattr-secret-{}-{:?}",
                std::process::id(),
                std::thread::current().id()
            );
            let path = std::env::temp_dir().join(name);
            fs::write(&path, "a secret of the tests' own").expect("a file");
            Self(path)
        }

        pub(super) fn path(&self) -> String {
            self.0.display().to_string()
        }
    }

    impl Drop for Secret {
        fn drop(&mut self) {
            drop(fs::remove_file(&self.0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_15_tokens_that_end_are_renewed_for_idle_holding_and_waiting_clients() {
    let (cluster, _secret) = with_short_tokens();
    let (idle, holder, waiter) = (
        client_at(&url(&cluster)).await,
        client_at(&url(&cluster)).await,
        client_at(&url(&cluster)).await,
    );
    let lease = take(&holder, "k").await;
    let mut callers = Callers::of("k");
    callers.arrive(&cluster, &waiter).await;
    nap(6_000).await;
    assert!(lease.remaining() > Duration::ZERO, "it is renewed");
    let start = Instant::now();
    take(&idle, "other").await.release().await.unwrap();
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    lease.release().await.unwrap();
    callers.within(SLACK, 1).await;
    callers.end().await;
    nothing_left(&cluster).await;
}

/// Whenever users or roles change, tokens that were made before are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_15_tokens_from_before_a_change_of_users_are_renewed() {
    let (cluster, _secret) = with_short_tokens();
    let locks = client_at(&url(&cluster)).await;
    let lease = take(&locks, "k").await;
    for number in 0..5 {
        let body = format!(r#"{{"name":"user{number}","password":"x"}}"#);
        cluster.ask("/v3/auth/user/add", &body);
        take(&locks, "other").await.release().await.unwrap();
    }
    nap(1_500).await;
    assert!(lease.remaining() > Duration::ZERO, "it is renewed");
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

/// Simple tokens are known to the process that has given them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_15_simple_tokens_end_with_the_server() {
    let cluster = with_users(&[]);
    let locks = client_at(&url(&cluster)).await;
    let lease = take(&locks, "k").await;
    cluster.restart(0);
    cluster.wait_until_serving();
    nap(3_500).await;
    assert!(lease.remaining() > Duration::ZERO, "it is renewed");
    take(&locks, "other").await.release().await.unwrap();
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_15_a_password_that_has_changed_is_told_and_is_no_loop() {
    let cluster = with_users(&[]);
    let locks = client_at(&url(&cluster)).await;
    take(&locks, "k").await.release().await.unwrap();
    let body = r#"{"name":"jobs","password":"another"}"#;
    cluster.ask("/v3/auth/user/changepw", body);
    let before = cluster.received("Authenticate");
    let start = Instant::now();
    let told = locks.lock("k").acquire().await;
    match told {
        Err(Error::Unavailable { source, .. }) => {
            let told = source.to_string();
            assert!(told.contains("authentication failed"), "{told}");
            assert!(!told.contains("p@ss"), "{told}");
        }
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() < BOUND + SLACK);
    let tries = cluster.received("Authenticate") - before;
    assert!(tries <= 5, "{tries} logins");
    let right = Client::connect(cluster.url_as("jobs", "another"))
        .await
        .unwrap();
    take(&right, "k").await.release().await.unwrap();
}

async fn refused(url: &str) -> String {
    match Client::connect(url).await {
        Err(Error::Unavailable { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_18_what_a_user_may_not_do_is_told_when_connecting() {
    let cluster = with_users(&[]);
    let nobody = refused(&cluster.url()).await;
    assert!(nobody.contains("user"), "{nobody}");
    let wrong = refused(&cluster.url_as("jobs", "wrong")).await;
    assert!(wrong.contains("authentication failed"), "{wrong}");
    // Another prefix than that of the role.
    let other = Client::builder()
        .prefix("other:")
        .connect(url(&cluster))
        .await;
    match other {
        Err(Error::Unavailable { source, .. }) => {
            let told = source.to_string();
            assert!(
                told.contains("permission denied") && told.contains("grant-permission"),
                "{told}"
            );
        }
        other => panic!("{other:?}"),
    }
    client_at(&url(&cluster)).await;
    nothing_left(&cluster).await;
    assert_eq!(cluster.keys("other:"), []);
}

/// A server that keeps no users takes everybody, also one that would log in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_may_be_introduced_while_a_client_lives() {
    let cluster = Etcd::start(1);
    let locks = client_at(&cluster.url_as("root", "root")).await;
    take(&locks, "k").await.release().await.unwrap();
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"root"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        cluster.ask(&format!("/v3/auth/{path}"), body);
    }
    cluster.log_in("root", "root");
    take(&locks, "k").await.release().await.unwrap();
    nothing_left(&cluster).await;
}
