//! Held keys that somebody else changes, which the server tells the client that holds them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockattr::{Client, Lease, LossCause};
use tests::server::Server;
use tests::wait;

use crate::losses::{LONG, TOLD, told};
use crate::rights::{least, user};
use crate::support::{client, nap, pair};

async fn hold(locks: &Client, key: &str) -> Lease {
    locks.lock(key).ttl(LONG).acquire().await.unwrap()
}

/// How many keys the server tells of.
fn tracked(server: &Server) -> u64 {
    server.info("stats")["tracking_total_keys"].parse().unwrap()
}

/// Has everything renewed that is held, which has it tracked.
async fn track(server: &Server, keys: u64) {
    server.drop_clients();
    wait::within("the keys are tracked", TOLD, || tracked(server) == keys).await;
}

fn renewals(server: &Server) -> u64 {
    let commands = server.commands();
    commands.of("evalsha") + commands.of("eval")
}

#[tokio::test]
async fn a_key_that_is_deleted_by_hand_ends_its_lease_at_once() {
    let (server, locks) = pair().await;
    let (lost, kept) = (hold(&locks, "lost").await, hold(&locks, "kept").await);
    track(&server, 2).await;
    let renewed = locks.stats().renewed;
    let _: () = server.ask("DEL lock:lost");
    assert_eq!(told(&lost).await, LossCause::Deleted);
    nap(300).await;
    assert!(kept.remaining() > LONG / 2);
    assert_eq!(
        locks.stats().renewed,
        renewed,
        "the other was not asked for"
    );
}

#[tokio::test]
async fn a_key_that_is_overwritten_ends_its_lease_and_an_expiry_by_hand_does_not() {
    let (server, locks) = pair().await;
    let (taken, kept) = (hold(&locks, "taken").await, hold(&locks, "kept").await);
    track(&server, 2).await;
    let _: () = server.ask("SET lock:taken other");
    assert_eq!(told(&taken).await, LossCause::Taken);
    assert_eq!(server.get("lock:taken").as_deref(), Some("other"));
    // The renewal that this causes gives it its ttl again, as often as somebody does it.
    for _ in 0..3 {
        let _: () = server.ask("PEXPIRE lock:kept 5000");
        wait::within("it is renewed", TOLD, || server.pttl("lock:kept") > 5_000).await;
        wait::within("it is tracked", TOLD, || tracked(&server) == 1).await;
    }
    assert!(kept.remaining() > LONG / 2);
    kept.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_flushed_ends_every_lease() {
    let (server, locks) = pair().await;
    let slot = locks.lock("slots").permits(3).ttl(LONG).acquire().await;
    let list = locks.lock_all(["a", "b"]).ttl(LONG).acquire().await;
    let alone = locks.lock("alone").ttl(LONG).renew(false).acquire().await;
    let (slot, list) = (slot.unwrap(), list.unwrap());
    track(&server, 3).await;
    let _: () = server.ask("DEL lock:b");
    assert_eq!(told(&list).await, LossCause::Deleted);
    // What others may hold as well is not tracked; the whole server's end is told all the same.
    assert!(slot.remaining() > LONG / 2);
    let _: () = server.ask("FLUSHALL");
    for lease in [slot, alone.unwrap()] {
        assert_eq!(told(&lease).await, LossCause::Deleted);
    }
}

/// A renewal is one call and two small commands for all of its leases; a release of what is tracked is one call,
/// and the message about it nothing more.
#[tokio::test]
async fn what_it_costs() {
    let (server, locks) = pair().await;
    let mut held = Vec::new();
    for number in 0..150 {
        held.push(hold(&locks, &format!("held:{number}")).await);
    }
    let short = locks.lock("short").ttl(Duration::from_secs(2));
    let short = short.acquire().await.unwrap();
    wait::until("it is renewed", || locks.stats().renewed == 1).await;
    assert_eq!(
        tracked(&server),
        0,
        "one that is renewed often is not tracked"
    );
    short.release().await.unwrap();
    let before = server.commands();
    track(&server, 150).await;
    let commands = server.commands().since(&before);
    let calls = ["evalsha", "client|caching", "mget"].map(|name| commands.of(name));
    // One of the calls finds out whether the server answers.
    assert_eq!(calls, [2, 1, 1], "{commands:?}");
    let before = renewals(&server);
    for lease in held {
        lease.release().await.unwrap();
    }
    nap(500).await;
    assert_eq!(renewals(&server), before + 150);
    assert_eq!(tracked(&server), 0);
}

/// A table that has no room for all makes the server tell of keys that nobody has changed.
#[tokio::test]
async fn a_server_that_tells_of_everything_all_the_time_is_no_storm() {
    let (server, locks) = pair().await;
    let _: () = server.ask("CONFIG SET tracking-table-max-keys 5");
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(hold(&locks, &format!("held:{number}")).await);
    }
    let before = renewals(&server);
    server.drop_clients();
    nap(4_000).await;
    let calls = renewals(&server) - before;
    // After 0.1, 0.2, 0.4, 0.8 and 1.6 seconds.
    assert!((2..=10).contains(&calls), "{calls}");
    assert_eq!(locks.stats().lost, 0);
}

#[tokio::test]
async fn a_user_who_may_not_is_refused_once_and_keeps_its_leases() {
    let server = Server::start();
    let locks = Client::connect(user(&server, &least().replace("+client|", "-client|")))
        .await
        .unwrap();
    let lease = hold(&locks, "held").await;
    for renewed in 1..=3 {
        let _: u64 = server.ask("CLIENT KILL TYPE normal");
        wait::within("it is renewed", TOLD, || locks.stats().renewed == renewed).await;
        nap(600).await;
    }
    let refused: Vec<BTreeMap<String, redis::Value>> = server.ask("ACL LOG");
    let of_tracking = refused.iter().filter(|entry| {
        let object = redis::from_redis_value_ref::<String>(&entry["object"]).unwrap();
        object.contains("tracking") || object.contains("caching")
    });
    let counts: Vec<u64> = of_tracking
        .map(|entry| redis::from_redis_value_ref(&entry["count"]).unwrap())
        .collect();
    assert_eq!(counts, [1, 1]);
    assert_eq!(locks.stats().renewal_failed, 0);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn another_clients_leases_are_left_alone() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let (mine, others) = (hold(&locks, "mine").await, hold(&other, "others").await);
    track(&server, 2).await;
    let renewed = other.stats().renewed;
    let _: () = server.ask("DEL lock:mine");
    assert_eq!(told(&mine).await, LossCause::Deleted);
    nap(300).await;
    assert_eq!(other.stats().renewed, renewed);
    others.release().await.unwrap();
}

/// From a deletion by hand, and from a restart without the keys, to the end of the lease.
#[tokio::test]
#[ignore = "measures, and holds nothing up that is slow"]
async fn measured_how_soon_a_loss_is_told() {
    let (server, locks) = pair().await;
    let told_after = async |lease: &Lease, since: Instant| {
        told(lease).await;
        since.elapsed()
    };
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(hold(&locks, &format!("held:{number}")).await);
    }
    track(&server, 50).await;
    let mut times = Vec::new();
    for lease in &held {
        // Each after a while, so that it is not held up by the one before.
        nap(300).await;
        let since = Instant::now();
        let _: () = server.ask(&format!("DEL lock:{}", lease.key()));
        times.push(told_after(lease, since).await);
    }
    report("deleted by hand", times);
    let mut times = Vec::new();
    for round in 0..20 {
        let lease = hold(&locks, &format!("again:{round}")).await;
        nap(600).await;
        server.restart();
        times.push(told_after(&lease, Instant::now()).await);
    }
    report("after a restart", times);
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (first, last) = (times[0], times[times.len() - 1]);
    println!("{what}: {:?} ({first:?}–{last:?})", times[times.len() / 2]);
}
