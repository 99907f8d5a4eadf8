//! What runs on a local lock and what the store grants, beside calls that never fall back themselves.

use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;

use crate::support::{BOUND, SLACK, Section, nap, pair, polled, runtimes};

const SECOND: Duration = Duration::from_secs(1);

/// In a queue of its own, so that the two do not meet before the store is asked.
#[distributed_lock(key = ["a", "b"], client = locks)]
async fn strict(locks: &Client, section: &Section, millis: u64) -> Result<(), Error> {
    section.run(millis).await;
    Ok(())
}

#[distributed_lock(key = "a", on_unavailable = local, client = locks)]
async fn local(locks: &Client, section: &Section, millis: u64) -> Result<(), Error> {
    section.run(millis).await;
    Ok(())
}

/// The first of the two never falls back, and no local lease was there when it began to ask.
#[test]
fn a_strict_call_whose_grant_is_late_does_not_run_beside_the_first_local_one() {
    let server = Server::start();
    let [one, two] = runtimes();
    let proxy = Proxy::before(server.address());
    let locks = two.block_on(Client::connect(proxy.url())).unwrap();
    let section = Section::default();
    // Each runtime has a connection of its own by then.
    for runtime in [&one, &two] {
        runtime.block_on(strict(&locks, &section, 0)).unwrap();
    }
    proxy.treat(Way::Replies, Treatment::Delay(SECOND * 7 / 10));
    thread::scope(|scope| {
        let by_store = scope.spawn(|| one.block_on(strict(&locks, &section, 1_000)));
        let is_granted = || server.get("lock:a").is_some();
        wait::block_until("the store has granted it", is_granted);
        thread::sleep(SECOND / 10);
        proxy.heal();
        server.refuse_writes();
        let local = two.block_on(local(&locks, &section, 1_500));
        println!("local: {local:?}, by the store: {:?}", by_store.join());
    });
    server.accept_writes();
    assert_eq!(section.most(), 1, "bodies at once");
}

/// Whoever holds the key by the store gives it back while the store is away: nobody runs any more in
/// this process, and a call that comes then is let in at once.
#[tokio::test]
async fn a_local_call_that_waits_is_let_in_when_the_holder_of_the_stores_lease_is_done() {
    #[distributed_lock(key = "a", wait = "8s", on_unavailable = local, client = locks)]
    async fn waiting(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = pair().await;
    // In a queue of its own, so that the waiter does not take it over.
    let lease = locks.lock_all(["a", "b"]).ttl(60 * SECOND);
    let lease = lease.acquire().await.unwrap();
    server.refuse_writes();
    let start = Instant::now();
    let waiter = {
        let locks = locks.clone();
        tokio::spawn(async move { waiting(&locks).await })
    };
    nap(500).await;
    drop(lease);
    let answer = waiter.await.unwrap();
    let took = start.elapsed();
    println!("{answer:?} after {took:?}");
    let newcomer = local(&locks, &Section::default(), 0).await;
    assert!(newcomer.is_ok(), "{newcomer:?}");
    server.accept_writes();
    assert!(answer.is_ok(), "{answer:?} after {took:?}");
    assert!(took < SECOND + SLACK, "{took:?}");
}

/// After a shutdown the program ends: whatever is taken then is never given back.
#[tokio::test]
async fn nothing_is_asked_for_after_a_shutdown_that_a_call_beside_a_local_lease_has_seen() {
    let (server, locks) = pair().await;
    let section = Section::default();
    server.refuse_writes();
    let running = local(&locks, &section, 60_000);
    let rest = async {
        wait::until("it runs", || section.inside() == 1).await;
        server.accept_writes();
        let waiter = locks.lock("a").wait(20 * SECOND);
        let waiter = tokio::spawn(waiter.acquire());
        nap(1_500).await;
        locks.shutdown().await;
        let before = server.commands();
        let answer = waiter.await.unwrap();
        let asked = server.commands().since(&before);
        (asked.of("set"), format!("{answer:?}"))
    };
    let (ran, (asked, answer)) = tokio::join!(running, rest);
    println!("{ran:?}, {answer}");
    assert_eq!(asked, 0, "keys were asked for after the shutdown");
}

/// In a queue of its own, as above.
#[distributed_lock(
    key = ["a", "b"],
    ttl = "20s",
    wait = "15s",
    on_unavailable = local,
    client = locks
)]
async fn patient_local(locks: &Client) -> Result<(), Error> {
    Ok(())
}

/// A local call waits for a lease that the store has granted before it went away.
async fn goes_on_when_it_is_given_back(next_is_dropped: bool) {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let request = || locks.lock("a").ttl(20 * SECOND);
    let lease = request().acquire().await.unwrap();
    let mut next = Box::pin(request().wait(60 * SECOND).acquire());
    if next_is_dropped {
        assert!(polled(next.as_mut(), 1).await.is_none());
    }
    proxy.refuse();
    let mut call = Box::pin(patient_local(&locks));
    let early = tokio::time::timeout(2 * SECOND, call.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    let start = Instant::now();
    let release = async {
        lease.release().await.unwrap();
        drop(next);
    };
    let (answer, ()) = tokio::join!(call, release);
    answer.unwrap();
    let took = start.elapsed();
    assert!(took < BOUND + SLACK, "{took:?}");
}

#[tokio::test]
async fn a_local_call_goes_on_when_a_lease_of_the_store_is_given_back() {
    goes_on_when_it_is_given_back(false).await;
}

#[tokio::test]
async fn a_local_call_goes_on_when_a_lease_was_handed_on_and_not_taken() {
    goes_on_when_it_is_given_back(true).await;
}
