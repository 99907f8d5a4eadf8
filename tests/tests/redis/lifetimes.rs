//! Clients, leases and futures that outlive one another, or are not where one expects them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Treatment, Way};
use tests::record::Record;
use tests::server::Server;
use tests::wait;
use tests::worker::Worker;

use crate::support::{behind_a_proxy, by_hand, client, nap, pair, polled, runtimes, timed};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_client_works_without_any_runtime_of_the_callers() {
    let server = Server::start();
    by_hand(async {
        let locks = Client::connect(server.url()).await.unwrap();
        let body = async { thread::sleep(Duration::from_millis(700)) };
        timed(&locks, 42, Duration::from_millis(600), body)
            .await
            .unwrap();
        let lease = locks
            .lock("a")
            .ttl(SECOND)
            .renew(false)
            .acquire()
            .await
            .unwrap();
        let start = Instant::now();
        let next = locks.lock("a").wait(10 * SECOND).acquire().await.unwrap();
        assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
        drop((lease, next));
        let busy = locks.lock("b").acquire().await.unwrap();
        assert!(matches!(
            locks.lock("b").acquire().await,
            Err(Error::Busy { .. })
        ));
        busy.release().await.unwrap();
    });
    wait::block_until("everything is given back", || server.size() == 0);
}

#[tokio::test]
async fn a_lease_outlives_the_clients_it_came_from() {
    let server = Server::start();
    let ttl = Duration::from_millis(600);
    let lease = {
        let locks = client(&server).await;
        locks.lock("a").ttl(ttl).acquire().await.unwrap()
    };
    nap(1_500).await;
    assert_eq!(server.get("lock:a").as_deref(), Some(lease.owner()));
    // Longer than anybody waits here: it does not merely expire.
    lease.extend(60 * SECOND).await.unwrap();
    drop(lease);
    wait::until("it is given back", || server.size() == 0).await;
    // And the client's thread and connections go with it.
    wait::until("nobody is connected", || server.clients() == 0).await;
}

#[tokio::test]
async fn a_lost_lease_that_is_dropped_late_does_not_harm_its_successor() {
    let (server, locks) = pair().await;
    let first = locks
        .lock("a")
        .ttl(SECOND)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    first.lost().await;
    let second = locks.lock("a").wait(10 * SECOND).acquire().await.unwrap();
    assert_ne!(first.owner(), second.owner());
    drop(first);
    nap(300).await;
    assert_eq!(server.owner("lock:a").as_deref(), Some(second.owner()));
    second.release().await.unwrap();
}

#[tokio::test]
async fn everybody_who_waits_for_a_loss_is_told() {
    let (server, locks) = pair().await;
    let lease = Arc::new(locks.lock("a").ttl(SECOND).acquire().await.unwrap());
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let lease = Arc::clone(&lease);
            tokio::spawn(async move { lease.lost().await })
        })
        .collect();
    nap(50).await;
    let _: () = server.ask("DEL lock:a");
    for task in waiting {
        let lost = tokio::time::timeout(3 * SECOND, task)
            .await
            .expect("told")
            .unwrap();
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    }
}

#[distributed_lock(key = "a", ttl = "1s", on_lost = continue, bind = lease, client = locks)]
async fn winds_down(locks: &Client, server: &Server) -> Result<&'static str, Error> {
    let _: () = server.ask("DEL lock:a");
    tokio::select! {
        _ = lease.lost() => Ok("wound down"),
        () = nap(10_000) => Ok("never told"),
    }
}

#[tokio::test]
async fn a_body_that_goes_on_can_wait_for_its_loss() {
    let (server, locks) = pair().await;
    assert_eq!(winds_down(&locks, &server).await.unwrap(), "wound down");
}

#[tokio::test]
async fn a_release_that_is_dropped_half_way_gives_the_key_back() {
    let (server, proxy, locks) = behind_a_proxy().await;
    for delay in [0, 200] {
        proxy.treat(
            Way::Requests,
            Treatment::Delay(Duration::from_millis(delay)),
        );
        for polls in 0..3 {
            let lease = locks.lock("a").acquire().await.unwrap();
            let mut release = Box::pin(lease.release());
            if polls > 0 {
                drop(polled(release.as_mut(), polls).await);
            }
            drop(release);
            wait::within("it is given back", 2 * SECOND, || server.size() == 0).await;
        }
    }
}

#[tokio::test]
async fn an_extension_that_is_dropped_half_way_never_overstates_the_lease() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let lease = locks
        .lock("a")
        .ttl(60 * SECOND)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    proxy.treat(Way::Replies, Treatment::Delay(SECOND / 2));
    // It may have been shortened by now, so it is relied on for no longer than that.
    let extending = lease.extend(3 * SECOND);
    tokio::time::timeout(Duration::from_millis(100), extending)
        .await
        .unwrap_err();
    assert!(lease.remaining() <= 3 * SECOND, "{:?}", lease.remaining());
    let left = u64::try_from(server.pttl("lock:a")).unwrap();
    assert!(
        lease.remaining() <= Duration::from_millis(left + 5),
        "{left}"
    );
    proxy.heal();
    lease.extend(30 * SECOND).await.unwrap();
    assert!(lease.remaining() > 20 * SECOND);
}

#[test]
fn two_thousand_leases_dropped_at_once_are_all_given_back() {
    for runtime in runtimes() {
        let server = Server::start();
        let leases = runtime.block_on(async {
            let locks = client(&server).await;
            let mut leases = Vec::new();
            for key in 0..2_000 {
                leases.push(locks.lock(format!("many:{key}")).acquire().await.unwrap());
            }
            leases
        });
        assert_eq!(server.size(), 2_000);
        drop(runtime);
        // Without a runtime, which has gone.
        drop(leases);
        wait::block_until("all are given back", || server.size() == 0);
    }
}

#[tokio::test]
async fn a_shutdown_ends_those_who_wait_as_well() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let held = other.lock("a").acquire().await.unwrap();
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("a").wait(20 * SECOND).acquire().await })
    };
    nap(100).await;
    tokio::time::timeout(10 * SECOND, locks.shutdown())
        .await
        .expect("a bound");
    held.release().await.unwrap();
    let refused = tokio::time::timeout(10 * SECOND, waiting)
        .await
        .expect("an end")
        .unwrap();
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    wait::until("nothing is left", || server.size() == 0).await;
}

#[tokio::test]
async fn a_shutdown_waits_for_requests_that_are_on_their_way() {
    let (server, proxy, locks) = behind_a_proxy().await;
    proxy.treat(Way::Replies, Treatment::Delay(SECOND / 2));
    let asking = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("a").ttl(60 * SECOND).acquire().await })
    };
    // Granted, and its reply has not arrived yet.
    wait::until("the grant", || server.size() == 1).await;
    tokio::time::timeout(10 * SECOND, locks.shutdown())
        .await
        .expect("a bound");
    // A program may end now.
    assert_eq!(server.size(), 0);
    let refused = asking.await.unwrap();
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn scopes_nest_and_end() {
    #[distributed_lock(key = "a", on_busy = skip)]
    async fn in_scope() -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    let (_one, outer) = pair().await;
    let (_two, inner) = pair().await;
    outer
        .scope(async {
            in_scope().await.unwrap();
            inner.scope(async { in_scope().await.unwrap() }).await;
            in_scope().await.unwrap();
            // What is spawned is not within.
            let spawned = tokio::spawn(in_scope()).await.unwrap();
            assert!(matches!(spawned, Err(Error::NotInstalled)), "{spawned:?}");
        })
        .await;
    assert_eq!((outer.stats().granted, inner.stats().granted), (2, 1));
    assert!(matches!(in_scope().await, Err(Error::NotInstalled)));
}

#[test]
fn memory_stays_flat_over_many_keys() {
    let (server, record) = (Server::start(), Record::new());
    // A process of its own: the other tests use memory as well.
    let mut worker = Worker::start("flat", &server.url(), &record, &[]);
    let line = worker.says("grown");
    assert!(worker.finish().success());
    let grown: u64 = line["grown ".len()..].parse().unwrap();
    // 84,000 leases of a quarter of a kilobyte would be ten times that.
    assert!(grown < 2_048, "{grown} kB");
    assert_eq!(server.size(), 0);
}
