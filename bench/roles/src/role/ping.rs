//! Bare round trips, to compare with: one after another, and with a pause before each as long as
//! the bodies of the table of hand-overs.
//!
//! Words: the milliseconds, and those of a pause.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{Words, ready, tell};

pub(super) async fn play(url: &str, words: &Words) {
    let length = Duration::from_millis(words.number(3));
    let pause = Duration::from_millis(words.number(4));
    let client = redis::Client::open(url).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("a server");
    for _ in 0..200 {
        ping(&mut connection).await;
    }
    ready();
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::time::sleep(pause).await;
        let time = ping(&mut connection).await;
        tell("paused", time);
        for _ in 0..10 {
            let time = ping(&mut connection).await;
            tell("at-once", time);
        }
    }
}

async fn ping(connection: &mut MultiplexedConnection) -> f64 {
    let start = Instant::now();
    let answer: String = redis::cmd("PING")
        .query_async(connection)
        .await
        .expect("a reply");
    assert_eq!(answer, "PONG");
    start.elapsed().as_secs_f64()
}
