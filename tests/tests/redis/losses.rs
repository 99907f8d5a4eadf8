//! A server that has forgotten its locks: whoever holds one is told as soon as it answers again, and not at the
//! next renewal. What has kept them costs one renewal of each lease.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause};
use tests::proxy::Proxy;
use tests::server::{Commands, Server};
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{behind_a_proxy, client, nap, pair, runtimes, timed};

/// No renewal is due within a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// How soon after its server is back a body is stopped: the longest pause between two attempts to connect is a
/// quarter of a second; and the room for a busy machine.
pub(crate) const TOLD: Duration = Duration::from_secs(2);

/// A body that holds a key of this number until it is lost.
async fn body(server: &Server, locks: &Client, number: u64) -> JoinHandle<Result<(), Error>> {
    let locks = locks.clone();
    let body = tokio::spawn(async move { timed(&locks, number, LONG, nap(300_000)).await });
    let lock = format!("lock:sync:{number}");
    wait::until("it is held", || server.get(&lock).is_some()).await;
    // The grant may be on its way to it.
    nap(50).await;
    body
}

/// Waits until a body was stopped, and says why.
async fn stopped(body: JoinHandle<Result<(), Error>>) -> LossCause {
    let end = tokio::time::timeout(TOLD, body).await;
    match end.expect("it is told in time").unwrap() {
        Err(Error::Lost { cause, .. }) => cause,
        end => panic!("{end:?}"),
    }
}

/// Waits until a lease was told lost, and says why.
pub(crate) async fn told(lease: &Lease) -> LossCause {
    let end = tokio::time::timeout(TOLD, lease.lost()).await;
    match end.expect("it is told in time") {
        Error::Lost { cause, .. } => cause,
        end => panic!("{end:?}"),
    }
}

/// How often scripts were called.
fn calls(commands: &Commands) -> u64 {
    commands.of("eval") + commands.of("evalsha")
}

#[tokio::test]
async fn a_body_is_stopped_soon_after_its_server_was_started_anew() {
    let (server, locks) = pair().await;
    let other = Server::start();
    let elsewhere = client(&other).await;
    let unrelated = elsewhere.lock("sync:42").ttl(LONG).acquire().await.unwrap();
    let body = body(&server, &locks, 42).await;
    server.kill();
    nap(700).await;
    assert!(!body.is_finished(), "nobody knows yet");
    server.restart();
    assert_eq!(stopped(body).await, LossCause::Deleted);
    assert_eq!(server.size(), 0);
    assert_eq!(elsewhere.stats().renewed, 0);
    unrelated.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_started_anew_with_what_it_had_ends_nothing() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = client(&server).await;
    let body = body(&server, &locks, 42).await;
    let owner = server.get("lock:sync:42");
    server.restart();
    wait::within("it is renewed", TOLD, || locks.stats().renewed == 1).await;
    nap(500).await;
    assert!(!body.is_finished());
    assert_eq!(server.get("lock:sync:42"), owner);
    assert_eq!((locks.stats().renewed, locks.stats().lost), (1, 0));
    body.abort();
}

/// Its only connection went with the runtime that had taken it.
#[test]
fn a_lease_whose_runtime_has_ended_is_told_as_well() {
    let [first, second] = runtimes();
    let (server, locks, lease) = first.block_on(async {
        let (server, locks) = pair().await;
        let lease = locks.lock("sync:42").ttl(LONG).acquire().await.unwrap();
        (server, locks, lease)
    });
    drop(first);
    second.block_on(async {
        wait::until("it is renewed", || locks.stats().renewed == 1).await;
        server.restart();
        assert_eq!(told(&lease).await, LossCause::Deleted);
    });
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_is_looked_at_and_runs_no_longer() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let request = locks.lock("sync:42").ttl(LONG).renew(false);
    let lease = request.acquire().await.unwrap();
    nap(100).await;
    let (before, left) = (server.commands(), server.pttl("lock:sync:42"));
    proxy.cut();
    let looked = || calls(&server.commands().since(&before)) >= 2;
    wait::within("it is looked at", TOLD, looked).await;
    nap(300).await;
    let commands = server.commands().since(&before);
    assert_eq!(commands.of("pexpire"), 0, "{commands:?}");
    assert!(server.pttl("lock:sync:42") <= left - 100);
    assert!(lease.remaining() > LONG / 2);
    assert_eq!((locks.stats().renewed, locks.stats().lost), (0, 0));
    server.restart();
    assert_eq!(told(&lease).await, LossCause::Deleted);
}

#[tokio::test]
async fn a_connection_that_is_cut_costs_one_renewal_and_no_lease() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let unrelated = client(&server).await;
    let others = unrelated.lock("others").ttl(LONG).acquire().await.unwrap();
    let held = locks.lock("held").ttl(LONG).acquire().await.unwrap();
    for cuts in 1..=3 {
        nap(700).await;
        proxy.cut();
        wait::within("it is renewed", TOLD, || locks.stats().renewed == cuts).await;
    }
    nap(700).await;
    assert_eq!(
        (locks.stats().renewed, locks.stats().renewal_failed),
        (3, 0)
    );
    assert_eq!(unrelated.stats().renewed, 0);
    held.release().await.unwrap();
    others.release().await.unwrap();
}

#[tokio::test]
async fn who_holds_nothing_does_not_connect_again() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").ttl(LONG).acquire().await.unwrap();
    server.restart();
    assert_eq!(told(&lease).await, LossCause::Deleted);
    drop(lease);
    wait::until("its release was answered", || server.clients() > 0).await;
    nap(700).await;
    for _ in 0..3 {
        server.drop_clients();
        nap(400).await;
        assert_eq!(server.clients(), 0);
    }
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    lease.release().await.unwrap();
}

async fn hold(locks: &Client, count: usize) -> Vec<Lease> {
    let mut held = Vec::with_capacity(count);
    for number in 0..count {
        let request = locks.lock(format!("held:{number}")).ttl(LONG);
        held.push(request.acquire().await.unwrap());
    }
    held
}

/// Two hundred leases a call, and one call that finds out whether the server answers, twice where it does not
/// know the script.
#[tokio::test]
async fn ten_thousand_leases_are_fifty_calls_for_each_connection() {
    let (server, locks) = pair().await;
    let held = hold(&locks, 10_000).await;
    let before = server.commands();
    server.drop_clients();
    let all = || locks.stats().renewed == 10_000;
    wait::within("all are renewed", 3 * TOLD, all).await;
    nap(1_500).await;
    let commands = server.commands().since(&before);
    assert!((51..=52).contains(&calls(&commands)), "{commands:?}");
    assert_eq!(locks.stats().renewed, 10_000);
    // The same once more where it was started anew, without any of them.
    server.restart();
    wait::within("all are told", 3 * TOLD, || locks.stats().lost == 10_000).await;
    nap(1_500).await;
    let commands = server.commands();
    assert!((51..=52).contains(&calls(&commands)), "{commands:?}");
    drop(held);
}

#[tokio::test]
async fn connections_that_are_lost_again_and_again_are_no_storm() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let held = hold(&locks, 1_000).await;
    let before = server.commands();
    let begun = Instant::now();
    let mut cuts = 0_u64;
    while begun.elapsed() < Duration::from_secs(3) {
        proxy.cut();
        cuts += 1;
        nap(20).await;
    }
    let took = begun.elapsed();
    nap(1_500).await;
    // At most one round in three eighths of a second, the first and the last one at once; a round that is cut
    // off may be asked for again.
    let rounds = took.as_millis() / 375 + 3;
    let most = 2 * 6 * u64::try_from(rounds).unwrap();
    let commands = server.commands().since(&before);
    assert!(cuts > 50, "{cuts}");
    assert!(calls(&commands) <= most, "{most}: {commands:?}");
    assert!(held.iter().all(|lease| lease.remaining() > LONG / 2));
    assert_eq!(locks.stats().lost, 0);
}
