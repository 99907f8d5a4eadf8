//! Locks on several independent servers, of which a majority grants them together.

use std::time::Duration;

use lockattr::{Client, Error, Lease};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;

use crate::support::{BOUND, nap};

mod answers;
mod away;
mod connecting;
mod hand_off;
mod readers;
mod restarts;
mod together;

/// The lock that most of these tests are about.
const KEY: &str = "sync:42";
const LOCK: &str = "lock:sync:42";

/// How soon after the faults are over no vote is left of a call that has ended: 500 ms, and room for a
/// machine with other work.
const CLEARED: Duration = Duration::from_secs(2);

/// Servers, and a proxy before each.
struct Nodes {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
}

impl Nodes {
    fn start(count: usize) -> Self {
        let servers: Vec<_> = (0..count).map(|_| Server::start()).collect();
        let proxies = servers.iter().map(|server| Proxy::before(server.address()));
        Self {
            proxies: proxies.collect(),
            servers,
        }
    }

    /// By the servers themselves.
    fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// As one URL.
    fn url(&self) -> String {
        let hosts = self
            .servers
            .iter()
            .map(|server| server.address().to_string());
        format!("redis+quorum://{}", hosts.collect::<Vec<_>>().join(","))
    }

    async fn client(&self) -> Client {
        let client = Client::builder().quorum(self.urls()).await;
        client.expect("a quorum")
    }

    /// One whose connections go through the proxies.
    async fn behind_proxies(&self) -> Client {
        let urls = self.proxies.iter().map(Proxy::url);
        let client = Client::builder().quorum(urls).await;
        client.expect("a quorum")
    }

    /// Who holds the lock at each node.
    fn votes(&self) -> Vec<Option<String>> {
        let owners = self.servers.iter().map(|server| server.owner(LOCK));
        owners.collect()
    }

    /// Waits until every node has given its vote to the lease.
    async fn all_vote_for(&self, lease: &Lease) {
        let owner = Some(lease.owner().to_owned());
        let all = || self.votes().iter().all(|vote| *vote == owner);
        wait::within("all nodes have given their votes", CLEARED, all).await;
    }

    /// Takes leases until one has the vote of every node.
    async fn all_vote_again(&self, locks: &Client) {
        let start = std::time::Instant::now();
        loop {
            let lease = take(locks).await;
            let owner = Some(lease.owner().to_owned());
            nap(20).await;
            let all = self.votes().iter().all(|vote| *vote == owner);
            lease.release().await.expect("a release");
            if all {
                return;
            }
            assert!(start.elapsed() < BOUND, "a node that is back does not vote");
        }
    }

    /// Waits until no lock or wait queue is left anywhere.
    async fn nothing_left(&self) {
        let left = || -> Vec<String> {
            let keys = self.servers.iter().flat_map(Server::keys);
            keys.filter(|key| !key.starts_with("lock:token:")).collect()
        };
        let start = std::time::Instant::now();
        while !left().is_empty() {
            assert!(start.elapsed() < CLEARED, "left: {:?}", left());
            nap(10).await;
        }
    }
}

async fn take(locks: &Client) -> Lease {
    locks.lock(KEY).acquire().await.expect("a free key")
}

fn is_busy(answer: &Result<Lease, Error>) -> bool {
    matches!(answer, Err(Error::Busy { .. }))
}

fn is_unavailable<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Unavailable { .. }))
}
