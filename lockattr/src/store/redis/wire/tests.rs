use std::future::poll_fn;
use std::sync::mpsc;
use std::task::{Context, Waker};

use redis::{PushKind, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::{FULL, Wire};

/// A wire, and its other end.
fn pair() -> (Wire, DuplexStream) {
    let (near, far) = duplex(64 * 1024);
    (Wire::new(Box::new(near)), far)
}

async fn reply(wire: &mut Wire) -> redis::RedisResult<Value> {
    poll_fn(|cx| wire.poll_reply(cx)).await
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// The forms of RESP2 as its specification has them, and what each means.
fn replies() -> Vec<(&'static str, Value)> {
    vec![
        ("+OK\r\n", Value::Okay),
        (":42\r\n", Value::Int(42)),
        (":-7\r\n", Value::Int(-7)),
        ("+PONG\r\n", Value::SimpleString("PONG".to_owned())),
        (
            "*2\r\n+OK\r\n:3\r\n",
            Value::Array(vec![Value::Okay, Value::Int(3)]),
        ),
        ("$7\r\n:1\r\n+OK\r\n", text(":1\r\n+OK")),
        ("$5\r\na\r\nbc\r\n", text("a\r\nbc")),
        ("$-1\r\n", Value::Nil),
        ("*2\r\n:1\r\n*1\r\n$0\r\n\r\n", {
            let inner = Value::Array(vec![text("")]);
            Value::Array(vec![Value::Int(1), inner])
        }),
    ]
}

#[tokio::test]
async fn replies_are_read_wherever_they_are_cut() {
    let all: String = replies().iter().map(|(bytes, _)| *bytes).collect();
    for cut in 0..=all.len() {
        let (mut wire, mut far) = pair();
        let (first, rest) = all.as_bytes().split_at(cut);
        far.write_all(first).await.unwrap();
        let rest = rest.to_vec();
        let writing = tokio::spawn(async move {
            tokio::task::yield_now().await;
            far.write_all(&rest).await.unwrap();
            far
        });
        for (bytes, expected) in replies() {
            assert_eq!(
                reply(&mut wire).await.unwrap(),
                expected,
                "{bytes:?}, {cut}"
            );
        }
        drop(writing.await);
        assert!(reply(&mut wire).await.unwrap_err().is_io_error());
    }
}

#[tokio::test]
async fn replies_are_read_byte_by_byte() {
    let (mut wire, mut far) = pair();
    let writing = tokio::spawn(async move {
        for (bytes, _) in replies() {
            for byte in bytes.bytes() {
                far.write_u8(byte).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
        far
    });
    for (_, expected) in replies() {
        assert_eq!(reply(&mut wire).await.unwrap(), expected);
    }
    drop(writing);
}

#[tokio::test]
async fn a_large_reply_is_read() {
    let (mut wire, mut far) = pair();
    let large = "x".repeat(1_000_000);
    let bytes = format!("$1000000\r\n{large}\r\n:7\r\n");
    let writing = tokio::spawn(async move { far.write_all(bytes.as_bytes()).await });
    assert_eq!(reply(&mut wire).await.unwrap(), text(&large));
    assert_eq!(reply(&mut wire).await.unwrap(), Value::Int(7));
    writing.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_no_reply_is_an_error_of_the_parser() {
    let (mut wire, mut far) = pair();
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .unwrap();
    let error = reply(&mut wire).await.unwrap_err();
    assert_eq!(error.kind(), redis::ErrorKind::Parse);
}

#[tokio::test]
async fn a_server_that_says_why_before_it_closes_is_heard() {
    let (mut wire, mut far) = pair();
    far.write_all(b"-ERR max number of clients reached\r\n")
        .await
        .unwrap();
    drop(far);
    let commands = [redis::cmd("TIME"), redis::cmd("PING")];
    let error = wire.ask(&commands).await.unwrap_err();
    assert!(error.to_string().contains("max number"), "{error}");
}

#[tokio::test]
async fn a_connection_that_is_cut_within_a_reply_has_ended() {
    let (mut wire, mut far) = pair();
    far.write_all(b"$5\r\nab").await.unwrap();
    drop(far);
    assert!(reply(&mut wire).await.unwrap_err().is_io_error());
}

#[tokio::test]
async fn commands_are_written_in_their_order_and_no_more_than_there_is_room_for() {
    let (mut wire, mut far) = pair();
    let mut count = 0;
    while wire.has_room() {
        wire.add(redis::cmd("ECHO").arg(count));
        count += 1;
    }
    let echo = |number: i32| {
        let digits = number.to_string();
        let length = digits.len();
        format!("*2\r\n$4\r\nECHO\r\n${length}\r\n{digits}\r\n")
    };
    let expected: String = (0..count).map(echo).collect();
    let mut read = vec![0; expected.len()];
    let reading = tokio::spawn(async move {
        far.read_exact(&mut read).await.unwrap();
        (far, read)
    });
    poll_fn(|cx| wire.poll_write(cx)).await.unwrap();
    assert!(wire.has_room());
    assert_eq!(reading.await.unwrap().1, expected.as_bytes());
}

#[tokio::test]
async fn what_is_told_unasked_is_taken_in_wherever_it_is_cut() {
    let told = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    for cut in 0..=told.len() {
        for is_asked in [false, true] {
            let (mut wire, mut far) = pair();
            let (tell, heard) = mpsc::channel();
            wire.tell(Box::new(move |kind, data| {
                assert_eq!(*kind, PushKind::Invalidate);
                let _ = tell.send(data.to_vec());
            }));
            let idle = |wire: &mut Wire| {
                let mut context = Context::from_waker(Waker::noop());
                assert!(wire.poll_reply(&mut context).is_pending());
            };
            let (first, rest) = told.split_at(cut);
            far.write_all(first).await.unwrap();
            idle(&mut wire);
            far.write_all(rest).await.unwrap();
            if !is_asked {
                idle(&mut wire);
                assert_eq!(heard.try_iter().count(), 1, "{cut}");
            }
            far.write_all(b":7\r\n").await.unwrap();
            assert_eq!(reply(&mut wire).await.unwrap(), Value::Int(7), "{cut}");
            let heard: Vec<_> = heard.try_iter().collect();
            assert_eq!(heard.len(), usize::from(is_asked), "{cut}");
            if let Some(data) = heard.first() {
                assert_eq!(data[0], Value::Array(vec![text("a")]));
            }
        }
    }
}

/// A peer that is slower than the callers for as long as they go on: there is never nothing left to write.
#[tokio::test]
async fn what_was_written_takes_no_room() {
    let (mut wire, mut far) = pair();
    let word = "x".repeat(1000);
    let mut read = vec![0; 4 * 1024];
    for _ in 0..1000 {
        while wire.has_room() {
            wire.add(redis::cmd("ECHO").arg(&word));
        }
        let written = poll_fn(|cx| std::task::Poll::Ready(wire.poll_write(cx))).await;
        assert!(written.is_pending());
        far.read_exact(&mut read).await.unwrap();
    }
    let capacity = wire.unwritten.capacity();
    assert!(capacity <= 4 * FULL, "{capacity}");
}
