use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::super::losses::KeepsAll;
use super::super::wire::Wire;
use super::*;

/// A connection on the runtime of the test, and the server's end of it.
fn connection() -> (Arc<Batcher>, DuplexStream) {
    let (near, far) = duplex(4096);
    let (ends, _) = oneshot::channel();
    let wire = Wire::new(Box::new(near));
    (Batcher::new(wire, &Handle::current(), ends), far)
}

fn keys() -> [TrackedKey; 1] {
    let key = RenewedKey {
        name: "lock:a",
        owner: "owner",
        ttl: SHORTEST,
        shortens: false,
        alone: true,
    };
    // What others hold as well changes with each of them.
    let beside = RenewedKey {
        alone: false,
        ..key
    };
    assert!(TrackedKey::of(&beside).is_none());
    [TrackedKey::of(&key).expect("a long ttl")]
}

/// Has the keys read, with these answers; which commands were sent for that.
async fn read(
    tracking: &Tracking,
    connection: &Arc<Batcher>,
    far: &mut DuplexStream,
    answers: &str,
) -> String {
    let mut sent = vec![0; 4096];
    let keys = keys();
    let reading = tracking.read(connection, &keys);
    let answering = async {
        let count = far.read(&mut sent).await.unwrap();
        far.write_all(answers.as_bytes()).await.unwrap();
        count
    };
    let (_, count) = tokio::join!(reading, answering);
    String::from_utf8_lossy(&sent[..count]).into_owned()
}

const ON: &str = "%0\r\n+OK\r\n+OK\r\n*1\r\n$5\r\nowner\r\n";

#[tokio::test]
async fn a_read_that_is_given_up_has_switched_nothing_on() {
    let (tracking, (connection, mut far)) = (Tracking::default(), connection());
    {
        // It is dropped before the connection gets round to it.
        let keys = keys();
        let mut reading = pin!(tracking.read(&connection, &keys));
        let polled = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    let sent = read(&tracking, &connection, &mut far, ON).await;
    assert!(sent.contains("HELLO"), "{sent}");
    assert!(tracking.is_possible());
}

#[tokio::test]
async fn a_server_that_is_busy_for_now_is_asked_again() {
    let (tracking, (connection, mut far)) = (Tracking::default(), connection());
    let busy =
        "%0\r\n-BUSY Redis is busy running a script.\r\n-BUSY Redis is busy\r\n-BUSY Redis\r\n";
    read(&tracking, &connection, &mut far, busy).await;
    assert!(tracking.is_possible());
    let sent = read(&tracking, &connection, &mut far, ON).await;
    assert!(sent.contains("TRACKING"), "{sent}");
    let sent = read(
        &tracking,
        &connection,
        &mut far,
        "+OK\r\n*1\r\n$5\r\nowner\r\n",
    )
    .await;
    assert!(!sent.contains("TRACKING"), "{sent}");
}

#[tokio::test]
async fn a_server_that_does_not_know_it_is_asked_once() {
    let refused = [
        "-ERR unknown subcommand",
        "-NOPERM this user has no permissions",
        "-NOPROTO",
    ];
    for refused in refused {
        let (tracking, (connection, mut far)) = (Tracking::default(), connection());
        let answers = format!("%0\r\n{refused}\r\n{refused}\r\n*1\r\n$5\r\nowner\r\n");
        read(&tracking, &connection, &mut far, &answers).await;
        assert!(!tracking.is_possible(), "{refused}");
    }
}

/// Once may be chance.
#[tokio::test]
async fn connections_that_are_closed_switch_it_off_for_a_while() {
    let tracking = Tracking::default();
    for is_possible in [true, false] {
        let (connection, far) = connection();
        drop(far);
        let keys = keys();
        assert!(tracking.read(&connection, &keys).await.is_none());
        assert_eq!(tracking.is_possible(), is_possible);
    }
}

/// The thread that does this renews every lease.
#[test]
fn many_changed_keys_of_many_leases_are_looked_for_in_no_time() {
    const MANY: usize = 5_000;
    let tracking = Tracking::default();
    tracking.changed((0..MANY).map(|number| format!("lock:{number}")));
    let changed = mem::take(&mut *tracking.changes());
    let begun = Instant::now();
    for number in MANY / 2..MANY * 3 / 2 {
        let locks = [format!("lock:{number}")];
        let claim = Claim::new(&locks, "owner", SHORTEST);
        assert_eq!(changed.has(&claim, &KeepsAll), number < MANY);
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
}
