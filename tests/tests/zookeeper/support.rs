//! What most of these tests begin with.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lockattr::{Client, ClientBuilder};
use tests::wait::PATIENCE;
use tests::zookeeper::{Control, Ensemble};

/// Room on top of a bound for a machine with other work.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// A server that tests share which do not break it.
pub(crate) fn shared() -> &'static Ensemble {
    static SHARED: OnceLock<Ensemble> = OnceLock::new();
    SHARED.get_or_init(Ensemble::single)
}

/// A client whose session, and whose leases, are of this length, and which waits for the answers of a machine
/// with other work.
pub(crate) async fn client(url: &str, ttl: Duration) -> Client {
    connected(
        Client::builder()
            .connect_timeout(PATIENT)
            .reply_timeout(PATIENT),
        url,
        ttl,
    )
    .await
}

/// The same with the default timeouts, where the subject is a bound that follows from them.
pub(crate) async fn prompt_client(url: &str, ttl: Duration) -> Client {
    connected(Client::builder(), url, ttl).await
}

const PATIENT: Duration = Duration::from_secs(4);

pub(crate) async fn connected(builder: ClientBuilder, url: &str, ttl: Duration) -> Client {
    let start = Instant::now();
    loop {
        match builder.clone().ttl(ttl).connect(url).await {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// A client of the shared server.
pub(crate) async fn a_client() -> Client {
    client(&shared().url(), Duration::from_secs(20)).await
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The places, slots and marks of a key, by a server.
pub(crate) fn nodes(control: &mut Control, key: &str) -> Vec<String> {
    control.children(&format!("/locks/lock:{key}"))
}

/// Waits until nothing is left of a key.
pub(crate) async fn nothing_left(control: &mut Control, key: &str, within: Duration) {
    let start = Instant::now();
    loop {
        let left = nodes(control, key);
        if left.is_empty() {
            return;
        }
        assert!(start.elapsed() < within, "left of {key}: {left:?}");
        tokio::time::sleep(millis(10)).await;
    }
}

/// Waits until so many stand in the queue of a key.
pub(crate) async fn queued(control: &mut Control, key: &str, count: usize) {
    let start = Instant::now();
    while nodes(control, key).len() != count {
        assert!(start.elapsed() < PATIENCE, "{:?}", nodes(control, key));
        tokio::time::sleep(millis(5)).await;
    }
}

/// How many hold or wait for a key.
pub(crate) fn places(control: &mut Control, key: &str) -> usize {
    let nodes = nodes(control, key);
    let is_place = |name: &&String| name.contains('+') && !name.starts_with("closed-");
    nodes.iter().filter(is_place).count()
}

#[track_caller]
pub(crate) fn is_busy<T: std::fmt::Debug>(answer: Result<T, lockattr::Error>) {
    let refused = answer.expect_err("it is busy");
    assert!(
        matches!(refused, lockattr::Error::Busy { .. }),
        "{refused:?}"
    );
}
