//! What a lease counts from.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use super::super::server::location;
use super::super::{Access, RedisConfig};
use super::*;
use crate::runtime::background::Background;

/// A server that answers OK to everything: its URL, and when each `PING` came.
fn agreeable() -> (String, Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let pings = Arc::new(Mutex::new(Vec::new()));
    let came = Arc::clone(&pings);
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let input = BufReader::new(stream.try_clone().unwrap());
        for line in input.lines().map_while(Result::ok) {
            if line == "PING" {
                came.lock().unwrap().push(Instant::now());
            }
            // `*1`, or as many words as the command has.
            if line.starts_with('*') {
                stream.write_all(b"+OK\r\n").unwrap();
            }
        }
    });
    (url, pings)
}

#[tokio::test]
async fn what_is_sent_counts_from_before_it_was() {
    const BOUND: Duration = Duration::from_secs(10);
    let (url, pings) = agreeable();
    let config = RedisConfig {
        prefix: "lock:".to_owned(),
        id: "one".to_owned(),
        location: location(&url, &Access::default()).unwrap(),
        name: None,
        connect_timeout: BOUND,
        reply_timeout: BOUND,
        replicas: None,
        delayed_restart: None,
    };
    let server = Server::new(&config, &Background::start().unwrap());
    let timeouts = Timeouts::start(&server.background, BOUND);
    let connections = Connections::new(&server, &timeouts, BOUND);
    // The first one has to connect.
    for count in 1..=3 {
        let mut deadline = connections.deadline(BOUND);
        let mut asking = pin!(connections.ask(redis::cmd("PING"), &mut deadline));
        let polled = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx)));
        assert!(polled.await.is_pending());
        if count > 1 {
            // The caller is kept from going on, and the command goes out all the same.
            while pings.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let Ok((_, sent)) = asking.await else {
            panic!("no answer")
        };
        let came = pings.lock().unwrap()[count - 1];
        assert!(sent <= came, "{:?} after it came", sent - came);
    }
}
