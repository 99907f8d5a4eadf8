//! Calls that go away: at each of their polls, at random while connections are hurt, and with their runtime.

use std::time::Duration;

use tests::dropping;
use tests::etcd::Etcd;
use tests::proxy::Proxy;

use crate::support::{client, client_at};

fn left(cluster: &Etcd) -> Vec<String> {
    let keys = cluster.keys("lock:").into_iter().map(|key| key.name);
    keys.filter(|name| !name.starts_with("lock:token:"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_at_any_poll_leaves_nothing() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    dropping::at_each_poll([&one, &two], || left(&cluster)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_aborted_while_connections_are_hurt_leave_nothing() {
    let cluster = Etcd::start(1);
    let proxies = [(); 3].map(|()| Proxy::before(cluster.addresses()[0]));
    let mut clients = Vec::new();
    for proxy in &proxies {
        clients.push(client_at(&cluster.url_of(&[proxy.address()])).await);
    }
    let ttl = Duration::from_secs(20);
    let ends = dropping::at_random(&clients, &proxies, 1_000, ttl, || left(&cluster)).await;
    println!("{ends:?}");
    assert!(ends["aborted"] > 100 && ends["done"] > 20, "{ends:?}");
}

#[test]
fn runtimes_and_clients_that_go_under_their_calls_leave_nothing() {
    let cluster = Etcd::start(1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connect = || runtime.block_on(client(&cluster));
    dropping::with_the_runtime(connect, || left(&cluster));
}
