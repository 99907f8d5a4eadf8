//! The primary is found in time by any order of addresses, with sentinels that are silent, dead or stale.

use std::time::{Duration, Instant};

use lockattr::Client;
use tests::fake::Fake;
use tests::sentinel::{self, Sentinels};
use tests::server::Server;

use super::named;
use crate::support::job;

/// Within how long the true primary is found, whatever one sentinel says.
const FOUND: Duration = Duration::from_secs(2);

const ORDERS: [[usize; 3]; 3] = [[0, 1, 2], [1, 0, 2], [2, 1, 0]];

/// A client is connected in time, and its lock is on the true primary alone.
async fn finds(all: &Sentinels, url: &str, primary: usize) -> Duration {
    let start = Instant::now();
    let locks = match Client::connect(url).await {
        Ok(locks) => locks,
        Err(error) => panic!("{url}: {error}"),
    };
    let took = start.elapsed();
    assert!(took < FOUND, "{url}: {took:?}");
    let held = job(&locks, 42, async {
        all.servers[primary].get("lock:sync:42")
    })
    .await;
    assert!(held.unwrap().flatten().is_some(), "{url}");
    took
}

#[tokio::test]
async fn any_order_of_sentinels_leads_to_the_primary() {
    let all = Sentinels::start();
    for order in ORDERS {
        finds(&all, &all.url_of(order), 0).await;
        finds(&all, &all.url_of(order.into_iter().take(1)), 0).await;
    }
    // One accepts and says nothing.
    all.sentinels[0].freeze();
    for order in ORDERS {
        finds(&all, &all.url_of(order), 0).await;
    }
    // One is dead.
    all.sentinels[0].kill();
    for order in ORDERS {
        finds(&all, &all.url_of(order), 0).await;
    }
}

/// The first one was stopped over a failover: it goes on naming the old primary, which still is one.
#[tokio::test]
async fn a_stale_sentinel_does_not_lead_to_the_old_primary() {
    let all = Sentinels::start();
    all.sentinels[0].freeze();
    all.servers[0].freeze();
    let primary = all.moved_from(0, &[1, 2]);
    // Both answer again, as they were: for a moment there are two primaries.
    all.servers[0].thaw();
    all.sentinels[0].thaw();
    for order in ORDERS {
        finds(&all, &all.url_of(order), primary).await;
    }
}

/// Whatever the sentinel that answers first says: the others have the newer failover.
#[tokio::test]
async fn a_sentinel_that_names_the_old_primary_is_outdone_by_one_that_knows_better() {
    let (old, new) = (Server::start(), Server::start());
    let naming = |server: &Server, epoch: u64| {
        let port = server.address().port();
        Fake::start(move |words| Some(named(words, port, epoch)))
    };
    let (stale, knowing) = (naming(&old, 1), naming(&new, 2));
    let silent = Server::start();
    silent.freeze();
    let addresses = [stale.address(), knowing.address(), silent.address()];
    for order in ORDERS {
        let url = sentinel::url(order.map(|index| addresses[index]));
        let start = Instant::now();
        let locks = Client::connect(&url).await.unwrap();
        assert!(start.elapsed() < FOUND, "{:?}", start.elapsed());
        let lease = locks.lock("a").acquire().await.unwrap();
        assert!(new.get("lock:a").is_some() && old.get("lock:a").is_none());
        lease.release().await.unwrap();
        // Both say that they are primaries. With the one that knows better gone, it is not forgotten.
        assert!(new.drop_clients() > 0);
        locks
            .lock("a")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_eq!(old.commands().of("set"), 0);
}
