//! What `connect` finds out: a node of a cluster, something between us and the server, something else
//! at the address; and how few round trips it takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use redis::Value;
use tests::fake::Fake;
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::{log, wait};

use crate::support::{BOUND, SLACK, behind_a_proxy, job, nap, timed};

/// The one line that a refused client is told.
async fn refused(url: &str) -> String {
    let start = Instant::now();
    let error = Client::connect(url).await.expect_err("refused");
    assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(text.len() < 600, "{text}");
    text
}

fn contains_all(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
}

/// A server that is a whole cluster by itself, or the part of one that has these slots.
fn node(slots: &[RangeInclusive<u16>]) -> Server {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    for range in slots {
        let slots: Vec<String> = range.clone().map(|slot| slot.to_string()).collect();
        let _: () = server.ask(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
    }
    let state = if *slots == [0..=16_383] { "ok" } else { "fail" };
    wait::block_until("the cluster knows its state", || {
        let info: String = server.ask("CLUSTER INFO");
        info.contains(&format!("cluster_state:{state}"))
    });
    server
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused_when_connecting() {
    for slots in [&[0..=16_383][..], &[0..=8_000], &[]] {
        let server = node(slots);
        let text = refused(&server.url()).await;
        contains_all(&text, &["Redis Cluster", "write redis+cluster://"]);
        if *slots == [0..=16_383] {
            assert_eq!(server.size(), 0, "{:?}", server.keys());
        }
        // One that connects later is told as well what is the matter.
        if slots.is_empty() {
            let lazy = Client::builder().connect_lazily(server.url()).unwrap();
            let error = lazy.lock("a").acquire().await.unwrap_err();
            contains_all(&error.to_string(), &["CLUSTERDOWN", "Redis Cluster"]);
        }
    }
}

/// Managed servers and careful operators rename commands; within a script the server does not say which
/// one it does not know.
#[tokio::test]
async fn a_server_without_one_of_the_commands_is_refused_when_connecting() {
    for missing in [
        "set",
        "get",
        "mget",
        "del",
        "pexpire",
        "pttl",
        "type",
        "time",
        "eval",
        "evalsha",
        "zadd",
        "zpopmin",
        "zrem",
        "zrank",
        "zrange",
        "zrangebyscore",
        "zscore",
        "zcard",
        "pexpireat",
    ] {
        let server = Server::with(&["--rename-command", missing, ""]);
        let text = refused(&server.url()).await;
        contains_all(
            &text,
            &["needs a server of Redis 6", &format!(" {missing} ")],
        );
    }
}

#[tokio::test]
async fn a_node_that_sends_elsewhere_is_refused_when_connecting() {
    for answer in ["MOVED 1234 127.0.0.1:1", "ASK 1234 127.0.0.1:1"] {
        let fake = Fake::start(move |words| {
            Some(match words[0].as_str() {
                "CLIENT" => b"+OK\r\n".to_vec(),
                _ => format!("-{answer}\r\n").into_bytes(),
            })
        });
        contains_all(&refused(&fake.url()).await, &["Redis Cluster"]);
    }
}

#[tokio::test]
async fn what_a_server_says_is_told_in_a_line_that_can_be_read() {
    let words = "x".repeat(100_000);
    let fake = Fake::start(move |_| Some(format!("-ERR {words}\r\n").into_bytes()));
    let text = refused(&fake.url()).await;
    contains_all(&text, &["ERR xxx"]);
    // Words in which the probe would find another server, said by one that speaks the protocol.
    let fake = Fake::start(|_| Some(b"-ERR 220 ready\r\n".to_vec()));
    contains_all(&refused(&fake.url()).await, &["ERR 220 ready"]);
}

#[tokio::test]
async fn a_connection_that_breaks_while_it_checks_is_replaced() {
    let server = Arc::new(Server::start());
    for at in ["EVAL", "SET", "EVALSHA", "DEL", "PUBLISH"] {
        let broken = AtomicBool::new(false);
        let behind = Arc::clone(&server);
        let fake = Fake::start(move |words| {
            let breaks = words[0] == at && !broken.swap(true, Ordering::SeqCst);
            (!breaks).then(|| bytes(&forward(&behind, words)))
        });
        Client::connect(fake.url()).await.unwrap();
        assert_eq!(server.keys(), [""; 0], "{at}");
    }
}

/// A proxy that knows not all commands, or answers in a form of its own, before a real server.
fn stand_in(
    server: Server,
    change: impl Fn(&[String], Value) -> Value + Send + Sync + 'static,
) -> Fake {
    Fake::start(move |words| Some(bytes(&change(words, forward(&server, words)))))
}

/// What a server answers; to a subscription, what it would. It does not know RESP3.
fn forward(server: &Server, words: &[String]) -> Value {
    if words[0] == "HELLO" {
        return failed("ERR unknown command 'HELLO'");
    }
    if words[0].eq_ignore_ascii_case("SUBSCRIBE") {
        return Value::Array(vec![
            Value::BulkString(b"subscribe".to_vec()),
            Value::BulkString(words[1].clone().into_bytes()),
            Value::Int(1),
        ]);
    }
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match server.words(&words) {
        Ok(answer) => answer,
        Err(error) => failed(&format!(
            "{} {}",
            error.code().unwrap_or("ERR"),
            error.detail().unwrap_or_default()
        )),
    }
}

/// An error, kept as the text that it is sent as.
fn failed(text: &str) -> Value {
    Value::SimpleString(format!("\0{text}"))
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Nil => b"$-1\r\n".to_vec(),
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::Okay => b"+OK\r\n".to_vec(),
        Value::SimpleString(text) => match text.strip_prefix('\0') {
            Some(error) => format!("-{error}\r\n").into_bytes(),
            None => format!("+{text}\r\n").into_bytes(),
        },
        Value::BulkString(text) => {
            let mut bytes = format!("${}\r\n", text.len()).into_bytes();
            bytes.extend(text);
            bytes.extend(b"\r\n");
            bytes
        }
        Value::Array(parts) => {
            let mut all = format!("*{}\r\n", parts.len()).into_bytes();
            all.extend(parts.iter().flat_map(bytes));
            all
        }
        other => panic!("no such answer in these tests: {other:?}"),
    }
}

#[tokio::test]
async fn a_proxy_without_a_command_is_found_when_connecting() {
    log::listen();
    for missing in ["SET", "EVAL", "EVALSHA"] {
        let proxy = stand_in(Server::start(), move |words, answer| {
            if words[0].eq_ignore_ascii_case(missing) {
                return failed(&format!("ERR unknown command '{missing}'"));
            }
            answer
        });
        let text = refused(&proxy.url()).await;
        contains_all(&text, &[&format!("'{missing}'"), "Sentinel", "proxy"]);
    }
    // It does its work without these two, and says what is the matter.
    for missing in ["SUBSCRIBE", "PUBLISH"] {
        let proxy = stand_in(Server::start(), move |words, answer| {
            if words[0].eq_ignore_ascii_case(missing) {
                return failed(&format!("ERR unknown command '{missing}' of this proxy"));
            }
            answer
        });
        let locks = Client::connect(proxy.url()).await.unwrap();
        let told = log::about(&format!("'{missing}' of this proxy"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].text.contains("cannot be woken"), "{told:?}");
        assert_eq!(job(&locks, 42, async {}).await.unwrap(), Some(()));
    }
}

/// Strings of digits, as some stand-in servers have them: simple strings, or numbers.
fn digits(value: Value, form: fn(String) -> Value) -> Value {
    match value {
        Value::BulkString(text) if !text.is_empty() && text.iter().all(u8::is_ascii_digit) => {
            form(String::from_utf8(text).unwrap())
        }
        Value::Array(parts) => {
            Value::Array(parts.into_iter().map(|part| digits(part, form)).collect())
        }
        other => other,
    }
}

fn all_simple(value: Value) -> Value {
    match value {
        Value::BulkString(text) => Value::SimpleString(String::from_utf8(text).unwrap()),
        Value::Int(number) => Value::SimpleString(number.to_string()),
        Value::Array(parts) => Value::Array(parts.into_iter().map(all_simple).collect()),
        other => other,
    }
}

#[tokio::test]
async fn field_32_stand_in_servers_may_answer_in_a_form_of_their_own() {
    let simple: fn(String) -> Value = Value::SimpleString;
    let number: fn(String) -> Value = |text| Value::Int(text.parse().unwrap());
    for form in [simple, number] {
        let proxy = stand_in(Server::start(), move |_, answer| digits(answer, form));
        whole_cycle(&proxy).await;
    }
    // Everything a simple string.
    let proxy = stand_in(Server::start(), |words, answer| match words[0].as_str() {
        // Here the redis client itself insists.
        "SUBSCRIBE" => answer,
        _ => all_simple(answer),
    });
    whole_cycle(&proxy).await;
}

/// Some close the connection where others say that they do not know a command.
#[tokio::test]
async fn a_proxy_that_closes_the_connection_at_hello_is_greeted_twice_and_loses_no_lease() {
    let (server, greeted) = (Server::start(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&greeted);
    let proxy = Fake::start(move |words| {
        if words[0] == "HELLO" {
            count.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some(bytes(&forward(&server, words)))
    });
    let locks = Client::connect(proxy.url()).await.unwrap();
    let request = locks.lock("held").ttl(Duration::from_secs(4));
    let lease = request.acquire().await.unwrap();
    wait::until("renewals", || locks.stats().renewed >= 4).await;
    assert_eq!(greeted.load(Ordering::SeqCst), 2);
    assert_eq!(locks.stats().lost, 0);
    lease.release().await.unwrap();
}

async fn whole_cycle(proxy: &Fake) {
    let locks = Client::connect(proxy.url()).await.unwrap();
    let lease = locks
        .lock("sync:42")
        .ttl(Duration::from_millis(600))
        .acquire()
        .await
        .unwrap();
    let first = lease.token().await.unwrap();
    let other = Client::connect(proxy.url()).await.unwrap();
    let busy = other.lock("sync:42").acquire().await.unwrap_err();
    let Error::Busy { remaining, .. } = &busy else {
        panic!("{busy:?}")
    };
    assert!(!remaining.is_zero());
    wait::until("a renewal", || locks.stats().renewed > 0).await;
    lease.release().await.unwrap();
    let lease = other.lock("sync:42").acquire().await.unwrap();
    assert!(lease.token().await.unwrap() > first);
    lease.release().await.unwrap();
    assert_eq!(locks.stats().renewal_failed, 0);
}

#[tokio::test]
async fn field_34_connecting_takes_few_round_trips() {
    const TRIP: Duration = Duration::from_millis(300);
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    proxy.treat(Way::Replies, Treatment::Delay(TRIP));
    for named in [false, true] {
        let mut builder = Client::builder()
            .connect_timeout(BOUND)
            .reply_timeout(BOUND);
        if named {
            builder = builder.name("far-away");
        }
        let start = Instant::now();
        builder.connect(proxy.url()).await.unwrap();
        assert!(start.elapsed() < 5 * TRIP, "{:?}", start.elapsed());
    }
    assert_eq!(server.keys(), [""; 0]);
}

/// The documented limit is about five; the rest is room for a busy machine.
#[tokio::test]
async fn field_34_a_ttl_of_eight_round_trips_is_held() {
    const TRIP: Duration = Duration::from_millis(200);
    let (_server, proxy, locks) = behind_a_proxy().await;
    proxy.treat(Way::Replies, Treatment::Delay(TRIP));
    timed(&locks, 42, 8 * TRIP, nap(5_000)).await.unwrap();
    assert_eq!(locks.stats().lost, 0);
}

/// Something that is no Redis: what it says first, and to whatever it is told.
fn other_server(greeting: &'static [u8], answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move |mut stream: TcpStream| {
        let mut buffer = [0; 1024];
        let mut next = greeting;
        while stream.write_all(next).is_ok() {
            match stream.read(&mut buffer) {
                Ok(1..) => next = answer,
                _ => return,
            }
            if answer.starts_with(b"HTTP") || answer.is_empty() {
                drop(stream.write_all(answer));
                return;
            }
        }
    };
    // It ends with the test program.
    thread::spawn(move || {
        let serve = Arc::new(serve);
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

#[tokio::test]
async fn field_31_something_else_at_the_address_is_told_in_one_line() {
    let others: [(&[u8], &[u8], &str); 9] = [
        (
            b"",
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "HTTP",
        ),
        (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"Invalid SSH identification string.\r\n",
            "SSH",
        ),
        (
            b"220 mail.example ESMTP\r\n",
            b"500 5.5.2 Error: bad syntax\r\n",
            "mail",
        ),
        (
            b"* OK IMAP4rev1 ready\r\n",
            b"* BAD unknown command\r\n",
            "mail",
        ),
        (b"+OK POP3 ready\r\n", b"-ERR unknown command\r\n", "mail"),
        (b"J\x00\x00\x00\x0a8.0.36\x00", b"\x00", "MySQL"),
        (b"", b"ERROR\r\n", "memcached"),
        (b"", b"\x00\x01\x02\xff", "something else"),
        (b"", b"", "closed"),
    ];
    for (greeting, answer, word) in others {
        let url = format!("redis://{}/", other_server(greeting, answer));
        let text = refused(&url).await;
        contains_all(&text, &["no Redis answers", word, "127.0.0.1"]);
        // A client that connects when it is first used is told in one line as well.
        let lazy = Client::builder().connect_lazily(url).unwrap();
        let error = lazy.lock("a").acquire().await.unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
}
