//! However a body ends, its key is given back, and nobody else's ever is.

use std::future::{Future, pending};
use std::pin::pin;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tests::seed::Random;
use tests::server::Server;
use tests::wait;
use tracing::Level;

use crate::support::{SLACK, behind_a_proxy, client, job, nap, pair, polled, runtimes, timed};

/// A healthy server has the key no longer than this after a drop.
const SOON: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy)]
enum End {
    Value,
    Question,
    Return,
    Panic,
    Never,
}

#[distributed_lock(key = "sync:<user_id>", ttl = "30s", client = locks)]
async fn ends(locks: Client, user_id: u64, end: End) -> Result<u32, Error> {
    nap(5).await;
    match end {
        End::Value => {}
        End::Question => Err(Error::NotInstalled)?,
        End::Return => return Ok(2),
        End::Panic => panic!("on purpose"),
        End::Never => pending().await,
    }
    Ok(1)
}

/// Long enough that no expiry looks like a release.
const LONG: Duration = Duration::from_secs(30);

fn gone(server: &Server) {
    let start = Instant::now();
    wait::block_until("the key is gone", || server.size() == 0);
    assert!(start.elapsed() < SOON + SLACK, "{:?}", start.elapsed());
}

async fn gone_soon(server: &Server, what: &str) {
    wait::within(what, SOON + SLACK, || server.size() == 0).await;
}

#[test]
fn every_end_of_a_body_leaves_no_key() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (server, locks) = pair().await;
            let run = |user, end| ends(locks.clone(), user, end);
            // These wait for the release: the key is gone when they answer.
            assert_eq!(run(1, End::Value).await.unwrap(), 1);
            assert_eq!(server.size(), 0, "value");
            assert!(matches!(
                run(2, End::Question).await,
                Err(Error::NotInstalled)
            ));
            assert_eq!(server.size(), 0, "?");
            assert_eq!(run(3, End::Return).await.unwrap(), 2);
            assert_eq!(server.size(), 0, "early return");

            let panicked = tokio::spawn(run(4, End::Panic)).await.unwrap_err();
            assert!(panicked.is_panic());
            gone_soon(&server, "panic").await;

            let aborted = tokio::spawn(run(5, End::Never));
            wait::until("it runs", || server.size() == 1).await;
            aborted.abort();
            assert!(aborted.await.unwrap_err().is_cancelled());
            gone_soon(&server, "abort").await;

            tokio::time::timeout(Duration::from_millis(100), run(6, End::Never))
                .await
                .unwrap_err();
            gone_soon(&server, "timeout").await;

            tokio::select! {
                _ = run(7, End::Never) => unreachable!(),
                () = nap(100) => {}
            }
            gone_soon(&server, "select").await;
            // On a busy machine the last two may have come to their end before their grant.
            wait::until("all is counted", || {
                let stats = locks.stats();
                stats.released == stats.granted && stats.released >= 5
            })
            .await;
        });
    }
}

#[distributed_lock(key = "sync:<user_id>", ttl = "30s", client = locks)]
async fn shared(locks: &Client, user_id: u64) -> Result<Rc<u64>, Error> {
    nap(1).await;
    Ok(Rc::new(user_id))
}

#[tokio::test]
async fn a_value_that_is_not_send_ends_its_call_like_any_other() {
    let (server, locks) = pair().await;
    for user in 0..20 {
        assert_eq!(*shared(&locks, user).await.unwrap(), user);
        gone_soon(&server, "a value for one thread").await;
    }
    wait::until("all is counted", || locks.stats().released == 20).await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    assert!(matches!(shared(&locks, 42).await, Err(Error::Busy { .. })));
    drop(lease);
}

/// Several kinds of await points, on tokio's clock and without it.
async fn winding() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
        nap(1).await;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { sender.send(()) });
        receiver.await.expect("sent");
    }
}

#[test]
fn field_14_a_call_dropped_at_every_poll_leaves_no_key() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (server, locks) = pair().await;
            // At each of its wake-ups, up to the end.
            let mut ends = 0;
            for count in 1..200 {
                let mut call = Box::pin(timed(&locks, count, LONG, winding()));
                let done = polled(call.as_mut(), usize::try_from(count).unwrap()).await;
                drop(call);
                ends += u32::from(done.is_some());
                gone_soon(&server, &format!("dropped after {count} polls")).await;
            }
            assert!(
                (1..195).contains(&ends),
                "the drops missed the call: {ends}"
            );
            // And at polls that nothing asked for, when replies are on their way.
            for count in 1..200 {
                let mut call = Box::pin(timed(&locks, count, LONG, winding()));
                for _ in 0..count {
                    if polled(call.as_mut(), 1).await.is_some() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                drop(call);
                gone_soon(&server, &format!("dropped after {count} hasty polls")).await;
            }
        });
    }
}

#[test]
fn field_14_no_renewal_follows_a_dropped_call() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (server, locks) = pair().await;
            for count in 1..40 {
                let ttl = Duration::from_millis(150);
                let mut call = Box::pin(timed(&locks, count, ttl, winding()));
                polled(call.as_mut(), usize::try_from(count).unwrap()).await;
            }
            // A key that a dropped request may yet get is looked for a little longer; then all is
            // quiet.
            let renewed = locks.stats().renewed;
            let start = Instant::now();
            loop {
                let before = server.commands();
                nap(500).await;
                if server.commands().since(&before).of("evalsha") == 0 {
                    break;
                }
                assert!(start.elapsed() < wait::PATIENCE, "something goes on");
            }
            assert_eq!(locks.stats().renewed, renewed);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_14_calls_aborted_at_random_under_load_leave_no_key() {
    let (server, locks) = pair().await;
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    // The client's own here: its connection's driver, and who sees the runtime end.
    let before = alive();
    assert_eq!(before, 2);
    let mut random = Random::announced("aborts");
    let mut tasks = Vec::new();
    for user in 0..300 {
        let locks = locks.clone();
        let body = nap(random.below(20));
        let task = tokio::spawn(async move { timed(&locks, user % 40, LONG, body).await });
        tasks.push((task, random.millis(0, 30)));
    }
    for (task, delay) in tasks {
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            task.abort();
        });
    }
    wait::until("all ends", || alive() == before).await;
    gone_soon(&server, "aborted").await;
}

#[tokio::test]
async fn field_14_a_call_dropped_while_its_reply_is_on_the_way_gives_the_key_back() {
    let (server, proxy, locks) = behind_a_proxy().await;
    proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(300)));
    for user in 0..5 {
        let call = timed(&locks, user, LONG, async { panic!("the body ran") });
        let dropped = tokio::time::timeout(Duration::from_millis(50 + 20 * user), call).await;
        assert!(dropped.is_err());
    }
    // Each may have been granted by now, and none is kept.
    gone_soon(&server, "dropped before the reply").await;
    nap(400).await;
    assert_eq!(server.size(), 0);
}

#[test]
fn field_15_a_panic_a_dropped_runtime_and_a_thread_without_one_leave_no_key() {
    let server = Server::start();
    let [first, second] = runtimes();
    let locks = first.block_on(client(&server));
    for runtime in [first, second] {
        // The body is dropped with its runtime, on whatever thread does that.
        runtime.spawn(ends(locks.clone(), 1, End::Never));
        let held = || server.size() == 1;
        runtime.block_on(wait::until("it runs", held));
        let start = Instant::now();
        drop(runtime);
        assert!(start.elapsed() < SOON + SLACK, "{:?}", start.elapsed());
        gone(&server);
    }

    // Polled in a runtime, dropped on a thread that never had one.
    let [runtime, _] = runtimes();
    let mut call = Box::pin(ends(locks.clone(), 2, End::Never));
    runtime.block_on(async {
        let half = tokio::time::timeout(Duration::from_millis(100), call.as_mut()).await;
        assert!(half.is_err());
        assert_eq!(server.size(), 1);
    });
    thread::spawn(move || drop(call))
        .join()
        .expect("no panic on drop");
    gone(&server);

    // A lease by hand, likewise; also after its runtime has gone.
    let lease = runtime.block_on(locks.lock("by-hand").acquire()).unwrap();
    drop(runtime);
    assert_eq!(server.size(), 1);
    let start = Instant::now();
    drop(lease);
    assert!(
        start.elapsed() < Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
    gone(&server);
}

#[test]
fn field_15_a_lease_dropped_while_unwinding_causes_no_second_panic() {
    for runtime in runtimes() {
        let server = Server::start();
        let locks = runtime.block_on(client(&server));
        let lease = runtime.block_on(locks.lock("by-hand").acquire()).unwrap();
        let unwound = thread::spawn(move || {
            let _lease = lease;
            panic!("on purpose");
        });
        assert!(unwound.join().is_err());
        gone(&server);
    }
}

#[tokio::test]
async fn field_12_a_value_that_overwrote_the_owner_stays() {
    let (server, locks) = pair().await;
    let theirs = "ffffffffffffffffffffffffffffffff@other:1";
    let result = job(&locks, 42, async {
        let _: () = server.ask(&format!("SET lock:sync:42 {theirs} PX 60000"));
    });
    assert!(matches!(result.await, Err(Error::Lost { .. })));
    assert_eq!(server.get("lock:sync:42").as_deref(), Some(theirs));
    assert!(server.pttl("lock:sync:42") > 50_000);

    // The same for a future that is dropped, and for a lease given back by hand.
    let lease = locks.lock("sync:43").acquire().await.unwrap();
    let _: () = server.ask(&format!("SET lock:sync:43 {theirs} PX 60000"));
    assert!(matches!(lease.release().await, Err(Error::Lost { .. })));
    let lease = locks.lock("sync:44").acquire().await.unwrap();
    let _: () = server.ask(&format!("SET lock:sync:44 {theirs} PX 60000"));
    drop(lease);
    nap(200).await;
    for key in ["lock:sync:43", "lock:sync:44"] {
        assert_eq!(server.get(key).as_deref(), Some(theirs));
        assert!(server.pttl(key) > 50_000);
    }
}

/// What stops the server, and what a call is worth then: its value, within the release bound.
async fn stops_before_the_end(user: u64, url: &str, stop: impl Fn()) -> Client {
    tests::log::listen();
    let locks = Client::connect(url).await.unwrap();
    let stopped = std::cell::Cell::new(None);
    let value = timed(&locks, user, Duration::from_secs(20), async {
        nap(20).await;
        stop();
        stopped.set(Some(Instant::now()));
        7
    })
    .await
    .unwrap();
    assert_eq!(value, 7);
    let took = stopped.get().unwrap().elapsed();
    assert!(took < crate::support::BOUND + SLACK, "{took:?}");
    wait::until("it is told", || !warnings(user).is_empty()).await;
    // The keeper's own tries are not told each.
    nap(1_000).await;
    assert_eq!(warnings(user).len(), 1, "{:#?}", warnings(user));
    assert_eq!(locks.stats().release_failed, 1, "{:?}", locks.stats());
    locks
}

fn warnings(user: u64) -> Vec<tests::log::Told> {
    let mut told = tests::log::about(&format!("sync:{user}"));
    told.retain(|told| told.level <= Level::WARN);
    told
}

#[tokio::test]
async fn field_13_a_frozen_server_does_not_keep_the_value_and_frees_the_key_later() {
    let server = Server::start();
    let locks = stops_before_the_end(1313, &server.url(), || server.freeze()).await;
    server.thaw();
    wait::until("the key is gone", || server.size() == 0).await;
    drop(locks);
}

#[tokio::test]
async fn field_13_a_dead_server_does_not_keep_the_value() {
    let server = Server::start();
    stops_before_the_end(1314, &server.url(), || server.kill()).await;
}

#[tokio::test]
async fn field_13_a_black_hole_does_not_keep_the_value_and_the_key_is_freed() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = stops_before_the_end(1315, &proxy.url(), || proxy.swallow_all()).await;
    assert_eq!(server.size(), 1);
    proxy.heal();
    // Long before its ttl of twenty seconds: the keeper tries again.
    wait::within("the key is gone", Duration::from_secs(8), || {
        server.size() == 0
    })
    .await;
    drop(locks);
}

#[tokio::test]
async fn field_13_nothing_goes_on_once_the_key_must_have_expired() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let ttl = Duration::from_secs(1);
    let value = timed(&locks, 42, ttl, async {
        // Whoever connects is turned away, and counted.
        proxy.refuse();
        7
    });
    assert_eq!(value.await.unwrap(), 7);
    let before = proxy.accepted();
    wait::until("it is tried again", || proxy.accepted() > before).await;
    nap(1_500).await;
    let after = proxy.accepted();
    // Each pause is twice the one before, so the next would end well within this one.
    nap(2_500).await;
    assert_eq!(proxy.accepted(), after);
}

#[tokio::test]
async fn a_shut_down_client_gives_everything_back_and_takes_no_more() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:1").acquire().await.unwrap();
    let running = tokio::spawn(ends(locks.clone(), 2, End::Never));
    wait::until("it runs", || locks.stats().granted == 2).await;
    assert_eq!(server.size(), 2);
    tokio::time::timeout(Duration::from_secs(10), locks.shutdown())
        .await
        .expect("a bound");
    assert_eq!(server.size(), 0);
    let lost = running.await.unwrap();
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    drop(lease);
    let refused = locks.lock("sync:3").acquire().await.unwrap_err();
    assert!(!matches!(refused, Error::Busy { .. }), "{refused:?}");
    assert_eq!(server.size(), 0);
    // Twice is as good as once.
    locks.shutdown().await;
}

#[tokio::test]
async fn clients_that_are_gone_leave_no_connection() {
    let server = Server::start();
    for _ in 0..10 {
        let locks = client(&server).await;
        job(&locks, 1, async {}).await.unwrap();
    }
    wait::until("no connection is left", || server.clients() == 0).await;
}

#[tokio::test]
async fn connections_are_as_many_for_one_lease_as_for_500() {
    let (server, locks) = pair().await;
    let lease = locks.lock("first").acquire().await.unwrap();
    nap(100).await;
    let one = server.clients();
    assert!((1..=4).contains(&one), "{one}");
    let mut leases = vec![lease];
    for key in 0..500 {
        let ttl = Duration::from_millis(900);
        leases.push(
            locks
                .lock(format!("many:{key}"))
                .ttl(ttl)
                .acquire()
                .await
                .unwrap(),
        );
    }
    let before = locks.stats().renewed;
    wait::until("all are renewed", || locks.stats().renewed > before + 1_000).await;
    assert_eq!(server.clients(), one);
    assert_eq!(server.size(), 501);
    drop(leases);
    wait::until("all are given back", || server.size() == 0).await;
}

#[allow(dead_code, reason = "compiled, not run: the future must be Send")]
fn calls_are_send(locks: Client) -> impl Future<Output = Result<u32, Error>> + Send {
    let call = ends(locks, 1, End::Value);
    async move { pin!(call).await }
}

/// The server carries the release out and its reply comes too late: the keeper asks again and finds
/// nothing, which is no loss.
#[tokio::test]
async fn a_release_whose_reply_was_lost_is_no_loss() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let lease = locks.lock("sync:99").acquire().await.unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let released = tokio::spawn(lease.release());
    wait::until("the server has done it", || server.size() == 0).await;
    released.await.unwrap().unwrap();
    proxy.heal();
    wait::until("the keeper has asked", || locks.stats().released == 1).await;
    assert_eq!(locks.stats().lost, 0);
}

/// The keeper gives back what its holder's runtime does not get round to, and is refused; the key runs
/// out, and another takes it.
#[test]
fn a_release_that_comes_when_another_holds_the_key_is_told_as_a_loss() {
    let server = Server::start();
    server.set_user("app", "on >pass ~* &* +@all");
    let [slow, lasting] = runtimes();
    let connecting = Client::connect(server.url_as("app", "pass"));
    let locks = lasting.block_on(connecting).unwrap();
    slow.block_on(async {
        let lease = locks.lock("before").acquire().await.unwrap();
        lease.release().await.unwrap();
    });
    let request = locks.lock("sync:42").ttl(Duration::from_secs(3));
    let lease = lasting.block_on(request.acquire()).unwrap();
    let mut release = Box::pin(lease.release());
    assert!(slow.block_on(polled(release.as_mut(), 1)).is_none());
    let _: () = server.ask("ACL SETUSER app -evalsha -eval");
    let has_run_out = wait::until("it has run out", || server.size() == 0);
    lasting.block_on(has_run_out);
    let _: () = server.ask("ACL SETUSER app +evalsha +eval");
    let other = lasting.block_on(client(&server));
    let held = lasting.block_on(other.lock("sync:42").acquire()).unwrap();
    let released = slow.block_on(release);
    assert_eq!(server.owner("lock:sync:42").as_deref(), Some(held.owner()));
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    assert_eq!(locks.stats().lost, 1);
}
