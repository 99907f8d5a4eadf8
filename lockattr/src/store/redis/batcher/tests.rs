use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// A batcher on the runtime of the test, and the server's end of its connection.
fn pair() -> (Arc<Batcher>, DuplexStream) {
    let (near, far) = duplex(1024);
    let (ends, _) = oneshot::channel();
    let wire = Wire::new(Box::new(near));
    (Batcher::new(wire, &Handle::current(), ends), far)
}

/// The runtime does not get round to the connection before the command is given to it.
#[tokio::test]
async fn what_came_unasked_answers_no_command() {
    for unasked in ["-ERR idle for too long\r\n", "+OK\r\n", "$5\r\nhe"] {
        let (batcher, mut far) = pair();
        tokio::task::yield_now().await;
        far.write_all(unasked.as_bytes()).await.unwrap();
        let sending = batcher.send(redis::cmd("PING"), false);
        if unasked.ends_with("he") {
            drop(far);
        }
        let fault = sending.await.unwrap_err();
        assert!(!fault.error.is_in_doubt(), "{unasked:?}: {fault:?}");
    }
}

#[tokio::test]
async fn a_command_is_not_sent_on_a_connection_that_has_ended() {
    let (batcher, far) = pair();
    tokio::task::yield_now().await;
    let sending = batcher.send(redis::cmd("PING"), false);
    drop(far);
    let fault = sending.await.unwrap_err();
    assert!(!fault.error.is_in_doubt(), "{fault:?}");
}

#[tokio::test]
async fn who_was_answered_is_told_so_also_where_nothing_can_be_written_any_more() {
    const COUNT: usize = 200;
    let (batcher, mut far) = pair();
    let commands = (0..COUNT).map(|_| redis::cmd("X")).collect();
    let sending = batcher.send_all(commands);
    let mut read = vec![0; COUNT * "*1\r\n$1\r\nX\r\n".len()];
    far.read_exact(&mut read).await.unwrap();
    let replies = ":1\r\n".repeat(COUNT);
    far.write_all(replies.as_bytes()).await.unwrap();
    drop(far);
    let late = Arc::clone(&batcher).send(redis::cmd("X"), false);
    for (number, one) in sending.into_iter().enumerate() {
        let answer = one.await;
        assert!(answer.is_ok(), "{number}: {answer:?}");
    }
    assert!(late.await.is_err());
}
