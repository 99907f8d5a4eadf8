//! What a library does where it matters whether it is a lock at all.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::{TTL, ready, tell};
use crate::Locks;

/// Whether a second client is refused, and whether a release leaves what another has taken since.
pub(super) async fn play<L: Locks>(url: &str) {
    let (one, two) = (L::connect(url, TTL).await, L::connect(url, TTL).await);
    ready();
    let held = one.attempt("probe").await.expect("a free key");
    tell("refuses", f64::from(two.attempt("probe").await.is_none()));
    let mut connection = connect(url).await;
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "*probe"]).await;
    let key = &keys[0];
    ask::<()>(&mut connection, &["SET", key, "another", "PX", "60000"]).await;
    one.release(held).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let found: Option<String> = ask(&mut connection, &["GET", key]).await;
    tell("spares", f64::from(found.as_deref() == Some("another")));
}

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    connection.expect("a server")
}

async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(connection).await.expect("a reply")
}
