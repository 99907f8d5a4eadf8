//! The primary is found in time by any order of addresses, with sentinels that are silent, dead or stale.

use std::time::{Duration, Instant};

use lockattr::Client;
use tests::sentinel::Sentinels;

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
