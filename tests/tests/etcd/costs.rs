//! What a lock costs beside etcd's own recipe: a session's lease, a transaction that creates a key, and its deletion.

use std::time::{Duration, Instant};

use lockattr::Client;
use tests::etcd::Etcd;

use crate::support::{client, nothing_left};

const LOCKS: u64 = 500;

const METHODS: [&str; 6] = [
    "Txn",
    "DeleteRange",
    "LeaseGrant",
    "LeaseRevoke",
    "LeaseTimeToLive",
    "LeaseKeepAlive",
];

fn requests(cluster: &Etcd) -> u64 {
    METHODS.iter().map(|method| cluster.received(method)).sum()
}

/// Requests for a hundred locks, one after the other, each of which is free.
async fn of_lockattr(cluster: &Etcd) -> u64 {
    let locks = client(cluster).await;
    // The first ones have the leases granted.
    for key in 0..10 {
        let lease = locks.lock(format!("warm{key}")).acquire().await.unwrap();
        lease.release().await.unwrap();
    }
    let (before, start) = (requests(cluster), Instant::now());
    for key in 0..LOCKS {
        let lease = locks.lock(format!("k{key}")).acquire().await.unwrap();
        lease.release().await.unwrap();
    }
    let each = start.elapsed() / u32::try_from(LOCKS).unwrap();
    let all = requests(cluster) - before;
    println!("lockattr: {all} requests for {LOCKS} locks, {each:?} each");
    all * 100 / LOCKS
}

fn of_the_recipe(cluster: &Etcd) -> u64 {
    let lease = cluster.ask("/v3/lease/grant", r#"{"TTL":"30"}"#);
    let lease = lease["ID"].as_str().expect("an id").to_owned();
    let before = requests(cluster);
    for _ in 0..LOCKS {
        // Key `recipe`, value `x`.
        let taking = format!(
            r#"{{"compare":[{{"result":"EQUAL","target":"CREATE","key":"cmVjaXBl","create_revision":"0"}}],
            "success":[{{"request_put":{{"key":"cmVjaXBl","value":"eA==","lease":"{lease}"}}}}],
            "failure":[{{"request_range":{{"key":"cmVjaXBl"}}}}]}}"#
        );
        assert_eq!(cluster.ask("/v3/kv/txn", &taking)["succeeded"], true);
        cluster.ask("/v3/kv/deleterange", r#"{"key":"cmVjaXBl"}"#);
    }
    let all = requests(cluster) - before;
    println!("the recipe: {all} requests for {LOCKS} locks");
    all * 100 / LOCKS
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_as_many_requests_as_by_the_recipe_and_a_tenth_at_most() {
    let cluster = Etcd::start(1);
    let ours = of_lockattr(&cluster).await;
    let theirs = of_the_recipe(&cluster);
    println!("{ours} and {theirs} requests for a hundred locks");
    assert!(
        ours * 10 <= theirs * 11,
        "{ours} and {theirs} for a hundred locks"
    );
    nothing_left(&cluster).await;
}

/// One that is refused costs a transaction, and a look at how long the holder's lease runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_lock_costs_two_requests() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let held = one.lock("k").acquire().await.unwrap();
    assert!(two.lock("k").acquire().await.is_err());
    let before = requests(&cluster);
    for _ in 0..50 {
        let told = two.lock("k").acquire().await;
        match told {
            Err(lockattr::Error::Busy { remaining, .. }) => {
                assert!(remaining > Duration::from_secs(15), "{remaining:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    let all = requests(&cluster) - before;
    assert!(all <= 110, "{all} requests for fifty refusals");
    held.release().await.unwrap();
    nothing_left(&cluster).await;
}

/// What each form costs, alone and beside one other holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_form_costs_so_many_requests() {
    const ROUNDS: u64 = 20;
    let cluster = Etcd::start(1);
    let (locks, other) = (client(&cluster).await, client(&cluster).await);
    let of = |locks: &Client, form: &str| {
        let request = locks.lock(form).ttl(Duration::from_secs(60));
        match form {
            "alone" => request,
            "permits" => request.permits(10),
            "weight" => request.permits(1_000_000).weight(400_000),
            _ => request.shared(),
        }
    };
    for (form, beside, most) in [
        ("alone", false, [1, 1]),
        ("shared", false, [1, 1]),
        ("shared", true, [1, 1]),
        ("permits", false, [1, 1]),
        ("permits", true, [2, 1]),
        ("weight", true, [2, 1]),
    ] {
        let neighbour = if beside {
            Some(of(&other, form).acquire().await.unwrap())
        } else {
            None
        };
        // The first one has the lease granted.
        let first = of(&locks, form).acquire().await.unwrap();
        first.release().await.unwrap();
        let mut both = [0, 0];
        for _ in 0..ROUNDS {
            let before = requests(&cluster);
            let lease = of(&locks, form).acquire().await.unwrap();
            let taken = requests(&cluster);
            lease.release().await.unwrap();
            both[0] += taken - before;
            both[1] += requests(&cluster) - taken;
        }
        println!("{form}, beside another: {beside}: {both:?} requests for {ROUNDS}");
        for (all, most) in both.into_iter().zip(most) {
            // A renewal may fall in between.
            assert!(all <= most * ROUNDS + 4, "{form}: {all} for {ROUNDS}");
        }
        if let Some(neighbour) = neighbour {
            neighbour.release().await.unwrap();
        }
    }
    let lease = of(&locks, "alone").acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let before = requests(&cluster);
    let lease = other.take_up(&text).await.unwrap();
    let all = requests(&cluster) - before;
    println!("taken up: {all} requests");
    assert!(all <= 3, "{all} requests to take a lease up");
    lease.release().await.unwrap();
    nothing_left(&cluster).await;
}
