//! Replies on every kind of store that Redis servers make: one, a cluster, a quorum, replicas that acknowledge, a
//! failover.

use std::time::Duration;

use lockattr::{Client, ClientBuilder, Error, Memory, distributed_lock};
use tests::cluster::Cluster;
use tests::proxy::Proxy;
use tests::replayed;
use tests::sentinel::Sentinels;
use tests::server::Server;
use tests::wait;

use crate::support::{BOUND, is_done, nap};

const MEBIBYTE: usize = 1024 * 1024;

fn large() -> ClientBuilder {
    Client::builder().reply_limit(MEBIBYTE)
}

#[distributed_lock(key = "kept", once = "1h", on_done = replay, client = locks)]
async fn kept(locks: &Client, reply: u32, work: impl AsyncFnOnce()) -> Result<u32, Error> {
    work().await;
    Ok(reply)
}

#[tokio::test]
async fn replies_of_one_server_and_in_memory() {
    let server = Server::start();
    let client = async || large().connect(server.url()).await.unwrap();
    replayed::are_given_back(&client().await, &client().await, MEBIBYTE).await;
    let memory = Memory::new();
    let client = || large().store(memory.clone()).unwrap();
    replayed::are_given_back(&client(), &client(), MEBIBYTE).await;
}

#[tokio::test]
async fn replies_of_a_cluster() {
    let cluster = Cluster::start(3, 0);
    let client = async || large().connect(cluster.url()).await.unwrap();
    replayed::are_given_back(&client().await, &client().await, MEBIBYTE).await;
}

#[tokio::test]
async fn replies_of_a_quorum() {
    let servers = [(); 3].map(|()| Server::start());
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let client = async || large().quorum(&urls).await.unwrap();
    replayed::are_given_back(&client().await, &client().await, MEBIBYTE).await;
}

#[tokio::test]
async fn a_reply_outlives_any_minority_of_a_quorum() {
    for away in 0..3 {
        let servers = [(); 3].map(|()| Server::start());
        let proxies = servers
            .each_ref()
            .map(|server| Proxy::before(server.address()));
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        let one = Client::builder().quorum(&urls).await.unwrap();
        let other = Client::builder().quorum(&urls).await.unwrap();
        // One is away while the mark is left, and hears of it later.
        let work = async || {
            let granted = || servers[away].get("lock:kept").is_some();
            wait::until("it has given its vote", granted).await;
            proxies[away].refuse();
            proxies[away].cut();
        };
        assert_eq!(kept(&one, 7, work).await.unwrap(), 7);
        assert!(!is_done(&servers[away], "lock:kept"));
        proxies[away].heal();
        let marked = || is_done(&servers[away], "lock:kept");
        wait::within("it hears of the mark", BOUND, marked).await;
        // Another is away while it is looked for.
        let gone = (away + 1) % 3;
        proxies[gone].refuse();
        proxies[gone].cut();
        let answer = kept(&other, 8, async || {}).await;
        assert_eq!(answer.unwrap(), 7, "{away} was away, and {gone} is");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_outlives_a_failover() {
    let all = Sentinels::start();
    let client = async || Client::connect(all.url()).await.unwrap();
    let (one, other) = (client().await, client().await);
    assert_eq!(kept(&one, 7, async || {}).await.unwrap(), 7);
    for server in &all.servers {
        wait::until("it is replicated", || server.get("lock:kept").is_some()).await;
    }
    all.fail_over(&[0, 1, 2]);
    let start = std::time::Instant::now();
    let answer = loop {
        match kept(&other, 8, async || {}).await {
            Err(Error::Unavailable { .. } | Error::Busy { .. }) => nap(50).await,
            answer => break answer,
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no primary");
    };
    assert_eq!(answer.unwrap(), 7);
}
