//! `fail_fast`: one call finds out that the store is away, and the others are told.

use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;

use crate::support::{BOUND, SLACK, nap, nothing_left};

/// Longer than any of these tests.
pub(crate) const LENGTH: Duration = Duration::from_secs(600);

/// Far more calls than could each wait for a bound of theirs.
const CALLS: usize = 200;

async fn client(url: &str, length: Duration) -> Client {
    let builder = Client::builder().fail_fast(length);
    builder.connect(url).await.unwrap()
}

pub(crate) async fn ask(locks: &Client, key: &str) -> Error {
    let asked = locks.lock(key).acquire().await;
    asked.expect_err("the store is away")
}

pub(crate) fn is_told(error: &Error) -> bool {
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    error
        .to_string()
        .contains("not asked, since the store was away")
}

async fn all_are_told_at_once(locks: &Client) {
    let start = Instant::now();
    for call in 0..CALLS {
        let error = ask(locks, &format!("key:{call}")).await;
        assert!(is_told(&error), "{error}");
    }
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

async fn until_granted(locks: &Client) {
    let start = Instant::now();
    while let Err(error) = locks.lock("again").acquire().await {
        assert!(is_told(&error), "{error}");
        assert!(start.elapsed() < BOUND, "{error}");
        nap(10).await;
    }
}

#[tokio::test]
async fn after_one_call_has_waited_the_others_are_told_until_the_server_answers() {
    let server = Server::start();
    let locks = client(&server.url(), LENGTH).await;
    server.freeze();
    let first = ask(&locks, "first").await;
    assert!(!is_told(&first), "{first}");
    all_are_told_at_once(&locks).await;
    let told = ask(&locks, "next").await.to_string();
    assert!(
        told.contains("`next`") && told.contains(" within 1s"),
        "{told}"
    );
    server.thaw();
    until_granted(&locks).await;
    // Nothing is left of the call that was not answered, nor of what has asked in the background.
    nothing_left(&server).await;
    assert!(locks.lock("first").acquire().await.is_ok());
}

#[tokio::test]
async fn a_server_that_is_gone_is_not_connected_to_by_each_call() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = client(&proxy.url(), LENGTH).await;
    proxy.refuse();
    let first = ask(&locks, "first").await;
    assert!(!is_told(&first), "{first}");
    let before = proxy.accepted();
    all_are_told_at_once(&locks).await;
    // The background's tries, and the renewals' of none.
    let tries = proxy.accepted() - before;
    assert!(tries < CALLS / 4, "{tries} connections");
    proxy.heal();
    until_granted(&locks).await;
}

#[tokio::test]
async fn what_is_held_is_renewed_and_released_all_the_while() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = client(&proxy.url(), LENGTH).await;
    let renewed = locks.lock("renewed").ttl(Duration::from_secs(6));
    let renewed = renewed.acquire().await.unwrap();
    let released = locks.lock("released").acquire().await.unwrap();
    proxy.swallow_all();
    assert!(!is_told(&ask(&locks, "first").await));
    drop(released);
    assert!(is_told(&ask(&locks, "next").await));
    proxy.heal();
    // Without a call that asks: the release is tried again by itself.
    wait::until("it is released", || server.get("lock:released").is_none()).await;
    nap(6_500).await;
    assert!(renewed.release().await.is_ok());
}

#[tokio::test]
async fn what_the_server_refuses_is_no_outage() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let locks = client(&server.url(), LENGTH).await;
    server.ask::<()>("CONFIG SET maxmemory 1");
    for _ in 0..3 {
        let refused = ask(&locks, "refused").await;
        assert!(
            !is_told(&refused) && refused.to_string().contains("OOM"),
            "{refused}"
        );
    }
    server.ask::<()>("CONFIG SET maxmemory 0");
    assert!(locks.lock("refused").acquire().await.is_ok());
}

#[tokio::test]
async fn when_its_time_is_over_a_call_finds_out_for_itself() {
    let server = Server::start();
    let locks = client(&server.url(), Duration::from_millis(100)).await;
    server.freeze();
    for _ in 0..2 {
        assert!(!is_told(&ask(&locks, "late").await));
        nap(300).await;
    }
    server.thaw();
}

#[tokio::test]
async fn without_it_each_call_finds_out_for_itself() {
    let server = Server::start();
    let locks = Client::connect(server.url()).await.unwrap();
    server.freeze();
    for key in ["first", "next"] {
        let start = Instant::now();
        assert!(!is_told(&ask(&locks, key).await));
        assert!(start.elapsed() < BOUND + SLACK);
    }
    server.thaw();
}

#[tokio::test]
async fn fallbacks_run_at_once() {
    let server = Server::start();
    let locks = client(&server.url(), LENGTH).await;
    server.freeze();
    assert!(!is_told(&ask(&locks, "first").await));
    let start = Instant::now();
    for id in 0..20 {
        assert_eq!(runs(&locks, id).await.unwrap(), id);
    }
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    server.thaw();
}

#[lockattr::distributed_lock(key = "run:<id>", on_unavailable = run, client = locks)]
async fn runs(locks: &Client, id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[tokio::test]
async fn a_length_out_of_bounds_is_refused() {
    for length in [Duration::ZERO, Duration::from_secs(3_601)] {
        let builder = Client::builder().fail_fast(length);
        let refused = builder.connect("memory:").await.unwrap_err().to_string();
        assert!(
            refused.contains("fail_fast is at least 1ms and at most an hour"),
            "{refused}"
        );
    }
}
