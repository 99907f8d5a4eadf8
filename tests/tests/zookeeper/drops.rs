//! Calls that go away: at each of their polls, at random while connections are hurt, and with their runtime.

use tests::dropping::{self, KEYS};
use tests::proxy::Proxy;
use tests::zookeeper::{Control, Ensemble, url};

use crate::support::{client, nodes, prompt_client, seconds};

/// What is left, as a session of an operator's sees it that begins now: it is not kept.
fn left(servers: &Ensemble) -> Vec<String> {
    let mut control = Control::of(servers.address(0));
    let of_key = |key: &&str| nodes(&mut control, key);
    KEYS.iter().flat_map(of_key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_at_any_poll_leaves_nothing() {
    let servers = Ensemble::single();
    let url = servers.url();
    let one = client(&url, seconds(30)).await;
    let two = client(&url, seconds(30)).await;
    dropping::at_each_poll([&one, &two], || left(&servers)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_aborted_while_connections_are_hurt_leave_nothing() {
    let servers = Ensemble::single();
    let proxies = [(); 3].map(|()| Proxy::before(servers.address(0)));
    let mut clients = Vec::new();
    for proxy in &proxies {
        let url = url([proxy.address()].into_iter());
        clients.push(prompt_client(&url, seconds(20)).await);
    }
    let ends = dropping::at_random(&clients, &proxies, 1_000, seconds(20), || left(&servers));
    let ends = ends.await;
    println!("{ends:?}");
    assert!(ends["aborted"] > 100 && ends["done"] > 20, "{ends:?}");
}

#[test]
fn runtimes_and_clients_that_go_under_their_calls_leave_nothing() {
    let servers = Ensemble::single();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connect = || runtime.block_on(client(&servers.url(), seconds(30)));
    dropping::with_the_runtime(connect, || left(&servers));
}
