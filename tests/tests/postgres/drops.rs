//! Calls that go away: at each of their polls, at random while connections are hurt, and with their runtime.

use std::time::Duration;

use lockattr::Client;
use tests::dropping;
use tests::postgres::{Postgres, url};
use tests::proxy::Proxy;

use crate::support::{client, connected, pair};

fn left(server: &Postgres) -> Vec<String> {
    let waiters = (0..server.waiters()).map(|_| "a waiter".to_owned());
    server.locks().into_iter().chain(waiters).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_at_any_poll_leaves_nothing() {
    let (server, one) = pair().await;
    let two = client(&server).await;
    dropping::at_each_poll([&one, &two], || left(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_aborted_while_connections_are_hurt_leave_nothing() {
    let server = Postgres::start();
    let proxies = [(); 3].map(|()| Proxy::before(server.address()));
    let mut clients = Vec::new();
    for proxy in &proxies {
        clients.push(connected(Client::builder(), &server, &url(proxy.address())).await);
    }
    let ttl = Duration::from_secs(20);
    let ends = dropping::at_random(&clients, &proxies, 1_000, ttl, || left(&server)).await;
    println!("{ends:?}");
    assert!(ends["aborted"] > 100 && ends["done"] > 20, "{ends:?}");
}

#[test]
fn runtimes_and_clients_that_go_under_their_calls_leave_nothing() {
    let server = Postgres::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connect = || runtime.block_on(client(&server));
    dropping::with_the_runtime(connect, || left(&server));
}
