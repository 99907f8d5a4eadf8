//! Threads that wait for a lock, on any store, and without a runtime.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, distributed_lock};

use crate::wait::PATIENCE;

const THREADS: usize = 12;

#[distributed_lock(key = "threads", wait = "60s", ttl = "10s", bind = lease, client = locks, blocking)]
fn alone(locks: &Client, work: impl FnOnce(&Lease)) -> Result<(), Error> {
    work(lease);
    lease.check()
}

/// A client of a store that may need a while to answer.
pub fn client(url: &str) -> Client {
    let start = Instant::now();
    let builder = Client::builder().connect_timeout(Duration::from_secs(4));
    loop {
        match builder.clone().connect_blocking(url) {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Threads of two clients take turns, and each draws a token larger than the one before; the last one leaves
/// the key to whoever asks.
pub fn exclude_each_other(url: &str) {
    let clients = [client(url), client(url)];
    let (inside, last) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (inside, last) = (&inside, &last);
    thread::scope(|scope| {
        for locks in clients.iter().cycle().take(THREADS) {
            let work = move |lease: &Lease| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let token = lease.token_blocking().expect("a token");
                let token = usize::try_from(token).expect("64 bits");
                assert!(last.swap(token, Ordering::SeqCst) < token);
                thread::sleep(Duration::from_millis(5));
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            scope.spawn(move || alone(locks, work).expect("its turn"));
        }
    });
    let lease = clients[0].lock("threads").acquire_blocking();
    let lease = lease.expect("a free key");
    lease
        .extend_blocking(Duration::from_secs(15))
        .expect("a longer ttl");
    lease.release_blocking().expect("a lease that was held");
    for client in clients {
        client.shutdown_blocking();
    }
}
