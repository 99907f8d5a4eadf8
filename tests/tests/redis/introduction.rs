//! What a client says of itself on each connection: its name and its library's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lockattr::Client;
use tests::fake::Fake;
use tests::server::Server;
use tests::wait;

use crate::support::client;

/// A right that no lock needs is not asked for twice: servers log what they refuse.
#[tokio::test]
async fn the_library_is_named_on_each_connection_until_that_is_refused() {
    let refusals = [
        "",
        "-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n",
        "-NOPERM this user has no permissions to run the 'client|setinfo' command\r\n",
    ];
    for refusal in refusals {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (received, broken) = (Arc::clone(&said), AtomicBool::new(false));
        let fake = Fake::start(move |words| {
            received.lock().unwrap().push(words.join(" "));
            match words[0].as_str() {
                "CLIENT" if !refusal.is_empty() => Some(refusal.as_bytes().to_vec()),
                "TIME" => Some(b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n".to_vec()),
                // Ends the connection.
                "SET" if !broken.swap(true, Ordering::SeqCst) => None,
                _ => Some(b"+OK\r\n".to_vec()),
            }
        });
        let locks = Client::builder().connect_lazily(fake.url()).unwrap();
        // Asked again on another connection, where the answer makes no sense.
        assert!(locks.lock("a").acquire().await.is_err());
        let said = said.lock().unwrap();
        let count = |words: &str| said.iter().filter(|line| line.contains(words)).count();
        let connections = count("TIME");
        assert!(connections > 1, "{said:?}");
        let named = if refusal.is_empty() { connections } else { 1 };
        assert_eq!(count("CLIENT SETINFO LIB-NAME lockattr"), named, "{said:?}");
        let version = format!("CLIENT SETINFO LIB-VER {}", env!("CARGO_PKG_VERSION"));
        assert_eq!(count(&version), named, "{said:?}");
        assert!(count("SET lock:a ") > 0, "{said:?}");
    }
}

#[tokio::test]
async fn the_name_is_given_on_each_connection() {
    let server = Server::start();
    let named = Client::builder().name("billing-7");
    let locks = named.connect(server.url()).await.unwrap();
    let other = client(&server).await;
    let lease = other.lock("a").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock("a").wait(wait::PATIENCE).acquire());
    wait::until("it listens", || server.subscribers() == 1).await;
    let list: String = server.ask("CLIENT LIST TYPE pubsub");
    assert!(list.contains(" name=billing-7 "), "{list}");
    let list: String = server.ask("CLIENT LIST TYPE normal");
    // Of its caller, and for renewals.
    assert_eq!(list.matches(" name=billing-7 ").count(), 2, "{list}");
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}
