//! Nodes that are away: a minority is not noticed but by the log, a majority is an outage.

use std::time::{Duration, Instant};

use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;

use super::{KEY, Nodes, is_busy, is_unavailable, take};
use crate::support::{BOUND, SLACK, nap};

/// Half of many calls take less than any would that waits for a node, on a machine with other work too.
const CALLS: usize = 200;
const QUICK: Duration = Duration::from_millis(100);

/// As many requests are under way at a silent node, beside probes, however many calls there are.
const MOST_LATE: u64 = 64;

async fn calls(locks: &lockattr::Client, what: &str) {
    let mut took = Vec::new();
    for _ in 0..CALLS {
        let begun = Instant::now();
        take(locks).await.release().await.unwrap();
        took.push(begun.elapsed());
    }
    took.sort();
    let (half, longest) = (took[CALLS / 2], took[CALLS - 1]);
    assert!(
        half < QUICK && longest < BOUND,
        "{what}: half of {CALLS} calls took {half:?}, the longest {longest:?}"
    );
}

#[tokio::test]
async fn a_minority_that_is_away_slows_nobody() {
    type Fault = fn(&Server, &Proxy);
    let faults: [(&str, Fault); 8] = [
        ("frozen", |server, _| server.freeze()),
        ("killed", |server, _| server.kill()),
        ("refusing writes", |server, _| server.refuse_writes()),
        ("out of memory", |server, _| {
            server.ask::<()>("CONFIG SET maxmemory 1");
        }),
        ("a replica of nobody", |server, _| {
            server.ask::<()>("REPLICAOF 127.0.0.1 1");
        }),
        ("refusing connections", |_, proxy| {
            proxy.refuse();
            proxy.cut();
        }),
        ("a black hole", |_, proxy| proxy.swallow_all()),
        ("losing replies", |_, proxy| {
            proxy.treat(Way::Replies, Treatment::Swallow);
        }),
    ];
    for (what, fault) in faults {
        for which in [0, 2] {
            let nodes = Nodes::start(3);
            let locks = nodes.behind_proxies().await;
            let lease = locks
                .lock("held")
                .ttl(Duration::from_secs(1))
                .acquire()
                .await
                .unwrap();
            fault(&nodes.servers[which], &nodes.proxies[which]);
            calls(&locks, what).await;
            nap(1_200).await;
            calls(&locks, what).await;
            // It was renewed all the while.
            assert!(lease.remaining() > Duration::ZERO, "{what}");
            lease.release().await.unwrap();
            if what == "frozen" {
                nodes.servers[which].thaw();
            }
        }
    }
}

#[tokio::test]
async fn a_minority_that_comes_and_goes_slows_nobody() {
    let nodes = Nodes::start(3);
    let locks = nodes.behind_proxies().await;
    for round in 0..6 {
        let proxy = &nodes.proxies[round % 3];
        proxy.refuse();
        proxy.cut();
        calls(&locks, "refusing").await;
        proxy.heal();
        calls(&locks, "healed").await;
        proxy.cut();
        calls(&locks, "cut").await;
        // While it is not back, the next to go would leave no majority.
        nodes.all_vote_again(&locks).await;
    }
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_silent_node_is_hardly_asked_and_has_no_votes_of_ended_calls_when_it_is_back() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let ttl = Duration::from_secs(1);
    let pair = async || {
        let lease = locks.lock(KEY).ttl(ttl).acquire().await.unwrap();
        lease.release().await.unwrap();
    };
    pair().await;
    nap(100).await;
    let clients = nodes.servers[0].clients();
    let before = nodes.servers[0].commands();
    nodes.servers[0].freeze();
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < 2 * ttl {
        pair().await;
        count += 1;
    }
    nap(3_000).await;
    nodes.servers[0].thaw();
    nodes.nothing_left().await;
    let asked = nodes.servers[0].commands().since(&before);
    assert!(u64::from(count) > 4 * MOST_LATE, "{count} calls");
    assert!(asked.of("set") <= MOST_LATE, "{asked:?} for {count} calls");
    // Each of them is given back, before and after it is known that nothing more comes; and the probes.
    assert!(
        asked.of("evalsha") <= 8 * MOST_LATE,
        "{asked:?} for {count} calls"
    );
    nap(500).await;
    let more = nodes.servers[0].clients().saturating_sub(clients);
    assert!(more <= 2, "{more} connections more");
    // It votes again.
    let lease = take(&locks).await;
    nodes.all_vote_for(&lease).await;
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_node_that_was_away_for_twice_the_ttl_of_failed_calls_has_none_of_their_votes() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let ttl = Duration::from_secs(1);
    take(&locks).await.release().await.unwrap();
    // Two of three: each call fails.
    nodes.servers[0].freeze();
    nodes.servers[2].freeze();
    let calls: Vec<_> = (0..100)
        .map(|_| tokio::spawn(locks.lock(KEY).ttl(ttl).acquire()))
        .collect();
    for call in calls {
        let answer = call.await.unwrap();
        assert!(is_unavailable(&answer), "{answer:?}");
    }
    nap(2_000).await;
    nodes.servers[0].thaw();
    nodes.servers[2].thaw();
    nodes.nothing_left().await;
    take(&locks).await.release().await.unwrap();
    nodes.nothing_left().await;
}

#[tokio::test]
async fn votes_whose_replies_were_lost_do_not_outlive_their_calls() {
    let nodes = Nodes::start(3);
    let locks = nodes.behind_proxies().await;
    take(&locks).await.release().await.unwrap();
    for proxy in &nodes.proxies[..2] {
        proxy.treat(Way::Replies, Treatment::Swallow);
    }
    let start = Instant::now();
    let answer = locks.lock(KEY).acquire().await;
    assert!(is_unavailable(&answer), "{answer:?}");
    assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
    for proxy in &nodes.proxies {
        proxy.heal();
    }
    nodes.nothing_left().await;
    take(&locks).await.release().await.unwrap();
}

#[tokio::test]
async fn calls_that_are_dropped_leave_nothing() {
    let nodes = Nodes::start(3);
    let locks = nodes.behind_proxies().await;
    nodes.proxies[1].treat(Way::Replies, Treatment::Delay(Duration::from_millis(20)));
    for polls in 0..30 {
        let mut call = Box::pin(locks.lock(KEY).acquire());
        let lease = crate::support::polled(call.as_mut(), polls).await;
        drop((call, lease));
        if polls % 2 == 0 {
            nodes.nothing_left().await;
        }
    }
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_majority_that_is_away_is_an_outage_that_ends_by_itself() {
    type Fault = fn(&Server, bool);
    let faults: [(&str, Fault); 3] = [
        (
            "frozen",
            |server, away| if away { server.freeze() } else { server.thaw() },
        ),
        ("killed", |server, away| {
            if away {
                server.kill();
            } else {
                server.restart();
            }
        }),
        ("refusing", |server, away| {
            if away {
                server.refuse_writes();
            } else {
                server.accept_writes();
            }
        }),
    ];
    for (what, fault) in faults {
        let nodes = Nodes::start(3);
        let locks = nodes.client().await;
        take(&locks).await.release().await.unwrap();
        for server in &nodes.servers[1..] {
            fault(server, true);
        }
        for _ in 0..3 {
            let start = Instant::now();
            let answer = locks.lock(KEY).wait(Duration::from_secs(1)).acquire().await;
            assert!(is_unavailable(&answer), "{what}: {answer:?}");
            assert!(
                start.elapsed() < BOUND + SLACK,
                "{what}: {:?}",
                start.elapsed()
            );
        }
        for server in &nodes.servers[1..] {
            fault(server, false);
        }
        let back = Instant::now();
        let lease = loop {
            match locks.lock(KEY).acquire().await {
                Ok(lease) => break lease,
                answer if back.elapsed() < SLACK => {
                    assert!(is_unavailable(&answer), "{what}: {answer:?}");
                }
                answer => panic!("{what}: {answer:?}"),
            }
        };
        lease.release().await.unwrap();
        nodes.nothing_left().await;
    }
}

/// The second one is not kept out by a vote that nobody can give back.
#[tokio::test]
async fn a_holder_keeps_others_out_whichever_node_is_away() {
    let nodes = Nodes::start(3);
    let (one, other) = (nodes.client().await, nodes.client().await);
    for server in &nodes.servers {
        let lease = take(&one).await;
        nodes.all_vote_for(&lease).await;
        server.freeze();
        for _ in 0..10 {
            assert!(is_busy(&other.lock(KEY).acquire().await));
        }
        lease.release().await.unwrap();
        take(&other).await.release().await.unwrap();
        server.thaw();
        nodes.nothing_left().await;
    }
}
