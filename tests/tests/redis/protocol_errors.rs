//! Replies that break the protocol: each is an error within its bound, and never a panic.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::fake::Fake;
use tests::seed::Random;

use crate::support::{BOUND, SLACK, job};

/// Replies that are well formed, and none of them what was asked for.
const ODD: [&[u8]; 22] = [
    b"+OK\r\n",
    b"+PONG\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b":0\r\n",
    b":1\r\n",
    b":2\r\n",
    b":-1\r\n",
    b":9223372036854775807\r\n",
    b"$0\r\n\r\n",
    b"$5\r\nhello\r\n",
    b"$4\r\n\xff\xfe\x00\x01\r\n",
    b"*1\r\n:0\r\n",
    b"*3\r\n:0\r\n$1\r\nx\r\n:-5\r\n",
    b"*3\r\n:0\r\n$1\r\nx\r\n:9223372036854775807\r\n",
    b"*2\r\n:-1\r\n$0\r\n\r\n",
    b"*2\r\n*1\r\n*0\r\n*1\r\n$-1\r\n",
    b"-\r\n",
    b"-ERR\r\n",
    b"-NOSCRIPT No matching script.\r\n",
    b"-MOVED 1234 127.0.0.1:1\r\n",
];

/// Bytes that are no reply at all.
const BROKEN: [&[u8]; 9] = [
    b"hello\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\r\n\r\n",
    b"*99999999999999999999\r\n",
    b"$-2\r\n",
    b"$9\r\nshort\r\n",
    b"*1000000\r\n:1\r\n",
    b":12x\r\n",
    b"\x00\x01\x02\xff",
];

/// A fake that lets a client log in and then answers as `answer` says.
fn after_greeting(answer: impl Fn(&[String]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Fake {
    Fake::start(move |words| match words[0].to_uppercase().as_str() {
        "CLIENT" | "SELECT" | "AUTH" => Some(b"+OK\r\n".to_vec()),
        "HELLO" => Some(b"-ERR unknown command\r\n".to_vec()),
        _ => answer(words),
    })
}

/// Whatever comes, a call ends with an error of ours in time.
async fn calls_end(fake: &Fake, what: &str) {
    let brief = Duration::from_millis(150);
    let builder = Client::builder()
        .connect_timeout(brief)
        .reply_timeout(brief);
    let start = Instant::now();
    if let Ok(client) = builder.clone().connect(fake.url()).await {
        drop(client);
    }
    let lazy = builder.connect_lazily(fake.url()).unwrap();
    for user in 0..2 {
        // A server that says OK to SET has granted the lock, whatever else it is.
        match job(&lazy, user, async {}).await {
            Ok(_)
            | Err(
                Error::Unavailable { .. }
                | Error::Foreign { .. }
                | Error::Lost { .. }
                | Error::Busy { .. },
            ) => {}
            Err(other) => panic!("{what}: {other:?}"),
        }
    }
    assert!(
        start.elapsed() < 3 * BOUND + SLACK,
        "{what}: {:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn odd_replies_are_errors() {
    for reply in ODD {
        let fake = after_greeting(move |_| Some(reply.to_vec()));
        calls_end(&fake, &String::from_utf8_lossy(reply)).await;
    }
}

#[tokio::test]
async fn broken_replies_are_errors() {
    for reply in BROKEN {
        let fake = after_greeting(move |_| Some(reply.to_vec()));
        calls_end(&fake, &String::from_utf8_lossy(reply)).await;
        // The same from the first byte on.
        let fake = Fake::start(move |_| Some(reply.to_vec()));
        calls_end(&fake, &String::from_utf8_lossy(reply)).await;
    }
}

#[tokio::test]
async fn connections_that_close_are_errors() {
    let fake = Fake::start(|_| None);
    calls_end(&fake, "closed at once").await;
    let fake = after_greeting(|_| None);
    calls_end(&fake, "closed after the greeting").await;
}

#[tokio::test]
async fn a_server_that_knows_no_script_is_not_asked_for_ever() {
    let fake = after_greeting(|words| match words[0].as_str() {
        "SET" => Some(b"$-1\r\n".to_vec()),
        _ => Some(b"-NOSCRIPT No matching script.\r\n".to_vec()),
    });
    let locks = Client::builder().connect_lazily(fake.url()).unwrap();
    let error = locks.lock("a").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(fake.asked() < 40, "{}", fake.asked());
}

/// Redis 7.2 and later say who it was that may not do something.
#[tokio::test]
async fn a_refusal_that_names_the_user_is_told_without_the_name() {
    let fake = after_greeting(|words| {
        let command = words[0].to_lowercase();
        let said = "-NOPERM User billing-7 has no permissions to run the";
        Some(format!("{said} '{command}' command\r\n").into_bytes())
    });
    let errors = [
        Client::connect(fake.url()).await.unwrap_err(),
        job(
            &Client::builder().connect_lazily(fake.url()).unwrap(),
            42,
            async {},
        )
        .await
        .unwrap_err(),
    ];
    for error in errors {
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("NOPERM this user has no permissions"),
            "{text}"
        );
        assert!(!text.contains("billing-7"), "{text}");
    }
}

#[tokio::test]
async fn any_mix_of_odd_replies_ends_each_call() {
    let random = Arc::new(Mutex::new(Random::announced("odd replies")));
    for _ in 0..30 {
        let random = Arc::clone(&random);
        let fake = after_greeting(move |_| {
            let mut random = random.lock().unwrap();
            let odd = usize::try_from(random.below(ODD.len() as u64)).unwrap();
            Some(ODD[odd].to_vec())
        });
        calls_end(&fake, "a mix").await;
    }
}

#[tokio::test]
async fn a_lease_whose_renewals_get_malformed_replies_is_lost_at_its_deadline() {
    // Grants the lock, and answers everything else with one word.
    let renewals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&renewals);
    let fake = after_greeting(move |words| {
        if words[0] == "SET" {
            return Some(b"+OK\r\n".to_vec());
        }
        count.fetch_add(1, Ordering::SeqCst);
        Some(b"$5\r\nhello\r\n".to_vec())
    });
    let locks = Client::builder().connect_lazily(fake.url()).unwrap();
    let lease = locks
        .lock("a")
        .ttl(Duration::from_secs(1))
        .acquire()
        .await
        .unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(3), lease.lost())
        .await
        .expect("in time");
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    assert!(lease.token().await.is_err());
    assert!(renewals.load(Ordering::SeqCst) >= 2);
    drop(lease.release().await);
}
