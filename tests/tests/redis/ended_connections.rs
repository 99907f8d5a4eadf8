//! Requests whose connection ends before they are answered: they may arrive all the same, and what they
//! take then is given back.

use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Lease, LockRequest};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::support::{client, nap, nothing_left, polled, runtimes};

const SECOND: Duration = Duration::from_secs(1);
/// Nothing in here waits for that.
const TTL: Duration = Duration::from_secs(60);

async fn has_a_connection(locks: &Client) {
    let request = locks.lock("before").wait(20 * SECOND);
    let lease = request.acquire().await.unwrap();
    lease.release().await.unwrap();
}

/// A runtime that has a connection.
fn ending(locks: &Client) -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(has_a_connection(locks));
    runtime
}

/// One of each kind.
fn requests(locks: &Client) -> [LockRequest; 4] {
    [
        locks.lock("one").ttl(TTL),
        locks.lock("slots").permits(3).ttl(TTL),
        locks.lock_all(["a", "b"]).ttl(TTL),
        locks.lock("waits").wait(20 * SECOND).ttl(TTL),
    ]
}

/// What becomes of a call on another runtime.
#[derive(Clone, Copy)]
enum Then {
    /// It asks again, is granted, and is given back.
    Released,
    /// It hears of the end, asks again, and is dropped.
    Dropped,
}

/// Calls of each kind whose first requests are on their way for two seconds, while the runtimes end that
/// have sent them.
fn leaves_nothing_where_its_runtime_ends(then: Then) {
    const LATE: Duration = Duration::from_secs(2);
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(Client::connect(proxy.url())).unwrap();
    let calls = requests(&locks).map(|request| (ending(&locks), Box::pin(request.acquire())));
    proxy.treat(Way::Requests, Treatment::Delay(LATE));
    let sent = Instant::now();
    let calls = calls.map(|(runtime, mut call)| {
        // Long enough for it to be written.
        let answered = runtime.block_on(async { timeout(SECOND / 10, call.as_mut()).await });
        assert!(answered.is_err(), "it is on its way");
        call
    });
    proxy.heal();
    for mut call in calls {
        match then {
            Then::Released => {
                let lease = lasting.block_on(call).unwrap();
                lasting.block_on(lease.release()).unwrap();
            }
            Then::Dropped => drop(lasting.block_on(polled(call.as_mut(), 1))),
        }
    }
    assert!(sent.elapsed() < LATE, "too slow to show anything");
    thread::sleep((LATE + SECOND).saturating_sub(sent.elapsed()));
    lasting.block_on(nothing_left(&server));
}

#[test]
fn a_request_whose_connection_ends_while_it_is_awaited_leaves_nothing() {
    leaves_nothing_where_its_runtime_ends(Then::Released);
}

#[test]
fn a_call_that_is_dropped_after_its_connection_has_ended_leaves_nothing() {
    leaves_nothing_where_its_runtime_ends(Then::Dropped);
}

/// A lease whose first request is on its way for six seconds, from a runtime that has ended since.
fn granted_before_its_late_request(then: impl FnOnce(&Runtime, &Lease)) {
    const LATE: Duration = Duration::from_secs(6);
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(Client::connect(proxy.url())).unwrap();
    lasting.block_on(has_a_connection(&locks));
    let ending = ending(&locks);
    proxy.treat(Way::Requests, Treatment::Delay(LATE));
    let sent = Instant::now();
    let mut call = Box::pin(locks.lock("sync:42").ttl(TTL).acquire());
    let answered = ending.block_on(async { timeout(SECOND / 10, call.as_mut()).await });
    assert!(answered.is_err(), "it is on its way");
    proxy.heal();
    // It is silent for as long as a connection may be, and asked again on another.
    let lease = lasting.block_on(call).unwrap();
    drop(ending);
    thread::sleep(SECOND / 5);
    then(&lasting, &lease);
    lasting.block_on(lease.release()).unwrap();
    assert!(sent.elapsed() < LATE, "too slow to show anything");
    thread::sleep((LATE + SECOND).saturating_sub(sent.elapsed()));
    lasting.block_on(nothing_left(&server));
}

#[test]
fn what_may_come_late_is_looked_for_after_a_release() {
    granted_before_its_late_request(|_, _| {});
}

/// The extend asks as well what may come late.
#[test]
fn what_may_come_late_is_looked_for_after_an_extend_that_was_dropped_too() {
    granted_before_its_late_request(|runtime, lease| {
        let mut shorter = Box::pin(lease.extend(TTL / 2));
        // On a busy machine it may be answered within that poll, which changes nothing.
        let answered = runtime.block_on(polled(shorter.as_mut(), 1));
        assert!(matches!(answered, None | Some(Ok(()))), "{answered:?}");
        drop(shorter);
        thread::sleep(SECOND / 2);
    });
}

/// Replies are lost as by a router that has forgotten a connection: neither end hears of it.
#[tokio::test]
async fn connections_end_on_which_replies_are_lost_while_the_server_answers_on_others() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    has_a_connection(&locks).await;
    let before = server.clients();
    for round in 0..3 {
        proxy.treat(Way::Replies, Treatment::Swallow);
        for id in 0..20 {
            let request = locks.lock(format!("a:{round}:{id}")).ttl(TTL);
            let _ = timeout(SECOND / 20, request.acquire()).await;
        }
        // For longer than a connection may be silent.
        nap(1_500).await;
        proxy.heal();
        while locks.lock("again").acquire().await.is_err() {
            nap(50).await;
        }
    }
    let most = before + 2;
    assert!(server.clients() > most, "they are kept for a while");
    wait::within("they end", 40 * SECOND, || server.clients() <= most).await;
    nothing_left(&server).await;
}

/// The runtime of such a connection is not run, and runs again when its request is not awaited any more.
#[test]
fn a_request_that_nobody_awaits_any_more_is_not_written() {
    let server = Server::start();
    let [_, lasting] = runtimes();
    let locks = lasting.block_on(client(&server));
    let not_run = ending(&locks);
    let mut call = Box::pin(locks.lock("sync:42").ttl(TTL).acquire());
    assert!(not_run.block_on(polled(call.as_mut(), 1)).is_none());
    drop(call);
    lasting.block_on(async {
        for _ in 0..35 {
            has_a_connection(&locks).await;
            nap(1_000).await;
        }
    });
    let before = server.commands();
    not_run.block_on(nap(200));
    assert_eq!(server.commands().since(&before).of("set"), 0);
    lasting.block_on(nothing_left(&server));
}
