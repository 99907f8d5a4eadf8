//! The lease while the body runs: odd ttls, renewals that fail and recover, and leases that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;
use tracing::Level;

use crate::support::{SLACK, behind_a_proxy, client, nap, pair, runtimes, timed};

const SECOND: Duration = Duration::from_secs(1);

/// A key never seen missing, or with another owner, while `body` is awaited.
async fn watched<T>(server: &Server, key: &str, body: impl Future<Output = T>) -> T {
    let owner = server.get(key).expect("held");
    let mut body = std::pin::pin!(body);
    loop {
        match tokio::time::timeout(Duration::from_millis(50), body.as_mut()).await {
            Ok(value) => return value,
            Err(_) => assert_eq!(server.get(key).as_ref(), Some(&owner)),
        }
    }
}

#[tokio::test]
async fn a_body_of_three_ttls_keeps_its_key_throughout() {
    let (server, locks) = pair().await;
    timed(&locks, 42, SECOND, async {
        watched(&server, "lock:sync:42", nap(3_200)).await;
        // Every ttl/3, and not all the time.
        let renewed = locks.stats().renewed;
        assert!((7..=11).contains(&renewed), "{renewed}");
    })
    .await
    .unwrap();
    assert_eq!(locks.stats().lost, 0);
    assert_eq!(server.size(), 0);
}

#[distributed_lock(key = "sync:<user_id>", ttl = "1s", renew = false, client = locks)]
async fn not_renewed(locks: &Client, user_id: u64, millis: u64) -> Result<(), Error> {
    nap(millis).await;
    Ok(())
}

#[tokio::test]
async fn without_renewal_the_body_ends_with_its_lease() {
    let (server, locks) = pair().await;
    not_renewed(&locks, 42, 200).await.unwrap();
    let start = Instant::now();
    let lost = not_renewed(&locks, 42, 60_000).await.unwrap_err();
    let took = start.elapsed();
    assert!(
        matches!(&lost, Error::Lost { key, cause: LossCause::Expired, .. } if key == "sync:42"),
        "{lost:?}"
    );
    // Never a moment after the ttl, apart from what a busy machine takes to wake somebody.
    assert!(
        took >= Duration::from_millis(800) && took < SECOND + SLACK,
        "{took:?}"
    );
    assert_eq!(locks.stats().renewed, 0);
    wait::until("the key is gone", || server.size() == 0).await;
}

#[tokio::test]
async fn field_06_odd_ttls_are_refused_when_they_run() {
    let (server, locks) = pair().await;
    let before = server.commands();
    for ttl in [
        Duration::ZERO,
        Duration::from_micros(400),
        Duration::MAX,
        Duration::from_secs(u64::MAX),
    ] {
        let error = timed(&locks, 42, ttl, async { panic!("the body ran") })
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{ttl:?}: {error:?}");
        assert!(error.to_string().contains("ttl"), "{error}");
    }
    assert_eq!(server.commands().since(&before).total(), 0);
}

#[distributed_lock(key = "sync:<user_id>", ttl = "1.5s", client = locks)]
async fn one_and_a_half(locks: &Client, user_id: u64, server: &Server) -> Result<(), Error> {
    let mut monitor = server.monitor();
    wait::until("a renewal", || locks.stats().renewed > 0).await;
    let renewal = monitor
        .seen()
        .into_iter()
        .find(|seen| seen.words[0] == "EVALSHA")
        .unwrap();
    assert!(
        renewal.words.iter().any(|word| word == "1500"),
        "{renewal:?}"
    );
    assert!((900..=1_500).contains(&server.pttl("lock:sync:42")));
    Ok(())
}

#[tokio::test]
async fn field_06_one_and_a_half_seconds_are_1500_milliseconds_every_time() {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    one_and_a_half(&locks, 42, &server).await.unwrap();
    let set = monitor
        .seen()
        .into_iter()
        .find(|seen| seen.words[0] == "SET")
        .unwrap();
    assert!(set.words.iter().any(|word| word == "1500"), "{set:?}");
}

/// B tries again and again on a thread of its own; says how often it got in.
fn somebody_else(server: &Arc<Server>, over: &Arc<AtomicBool>) -> thread::JoinHandle<u32> {
    let (server, over) = (Arc::clone(server), Arc::clone(over));
    thread::spawn(move || {
        let [runtime, _] = runtimes();
        runtime.block_on(async {
            let locks = client(&server).await;
            let mut entered = 0;
            while !over.load(Ordering::SeqCst) {
                if let Ok(lease) = locks.lock("sync:42").acquire().await {
                    entered += 1;
                    lease.release().await.unwrap();
                }
                nap(10).await;
            }
            assert!(locks.stats().busy > 10, "{:?}", locks.stats());
            entered
        })
    })
}

#[test]
fn field_07_a_body_that_blocks_every_thread_of_its_runtime_is_renewed() {
    for runtime in runtimes() {
        let server = Arc::new(Server::start());
        let over = Arc::new(AtomicBool::new(false));
        runtime.block_on(async {
            let locks = client(&server).await;
            let body = async {
                let other = somebody_else(&server, &over);
                // Whatever workers the runtime has, each has something to do.
                let busy = [(); 2].map(|()| tokio::spawn(async { thread::sleep(3 * SECOND) }));
                thread::sleep(3 * SECOND);
                over.store(true, Ordering::SeqCst);
                drop(busy);
                other.join().unwrap()
            };
            assert_eq!(timed(&locks, 42, SECOND, body).await.unwrap(), 0);
            assert!(locks.stats().renewed >= 6, "{:?}", locks.stats());
            assert_eq!(locks.stats().lost, 0);
        });
    }
}

/// What `fault` does in mid-body goes unnoticed, and the next call is renewed as well.
async fn unnoticed(server: &Server, locks: &Client, fault: impl Fn()) {
    for _ in 0..2 {
        let (before, ttl) = (locks.stats(), 3 * SECOND);
        timed(locks, 42, ttl, async {
            fault();
            let start = Instant::now();
            wait::until("two renewals", || {
                locks.stats().renewed >= before.renewed + 2 && start.elapsed() > ttl
            })
            .await;
            assert!(server.get("lock:sync:42").is_some());
        })
        .await
        .unwrap();
        assert_eq!(locks.stats().lost, 0);
        assert_eq!(server.size(), 0);
    }
}

#[tokio::test]
async fn field_08_killed_connections_go_unnoticed() {
    let (server, locks) = pair().await;
    unnoticed(&server, &locks, || {
        assert!(server.drop_clients() > 0);
    })
    .await;
}

#[tokio::test]
async fn field_08_a_pause_shorter_than_the_rest_of_the_ttl_goes_unnoticed() {
    let (server, locks) = pair().await;
    let pause = Duration::from_millis(1_200);
    unnoticed(&server, &locks, || server.pause(pause)).await;
}

#[tokio::test]
async fn field_08_an_endless_script_that_is_killed_in_time_goes_unnoticed() {
    let server = Arc::new(Server::with(&["--lua-time-limit", "50"]));
    let locks = client(&server).await;
    unnoticed(&server, &locks, || {
        let url = server.url();
        thread::spawn(move || {
            let mut other = redis::Client::open(url).unwrap().get_connection().unwrap();
            let endless = redis::cmd("EVAL")
                .arg("while true do end")
                .arg(0)
                .query::<()>(&mut other);
            assert!(endless.is_err());
        });
        let server = Arc::clone(&server);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(1_300));
            let _: () = server.ask("SCRIPT KILL");
        });
    })
    .await;
}

#[tokio::test]
async fn field_08_a_port_closed_for_a_while_goes_unnoticed() {
    let server = Arc::new(Server::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let locks = client(&server).await;
    unnoticed(&server, &locks, || {
        server.kill();
        let server = Arc::clone(&server);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(1_200));
            server.restart();
        });
    })
    .await;
}

#[tokio::test]
async fn field_08_a_black_hole_is_replaced_within_the_lease() {
    let (server, proxy, locks) = behind_a_proxy().await;
    // The connections that exist are lost for good; new ones work at once.
    unnoticed(&server, &locks, || {
        proxy.swallow_all();
        thread::sleep(Duration::from_millis(400));
        proxy.heal();
    })
    .await;
}

#[tokio::test]
async fn field_09_a_deleted_key_is_noticed_within_one_renewal_interval() {
    tests::log::listen();
    let (server, locks) = pair().await;
    let (ttl, interval) = (6 * SECOND, 2 * SECOND);
    let (mut deleted, ran_on) = (None, AtomicBool::new(false));
    let body = async {
        nap(300).await;
        assert_eq!(server.ask::<u64>("DEL lock:sync:9090"), 1);
        deleted = Some(Instant::now());
        nap(60_000).await;
        ran_on.store(true, Ordering::SeqCst);
    };
    let lost = timed(&locks, 9090, ttl, body).await.unwrap_err();
    let took = deleted.unwrap().elapsed();
    assert!(took <= interval + SLACK, "{took:?}");
    let Error::Lost { key, cause, held } = &lost else {
        panic!("{lost:?}")
    };
    assert_eq!((key.as_str(), *cause), ("sync:9090", LossCause::Deleted));
    assert!(
        *held >= Duration::from_millis(300) && *held <= interval + SLACK,
        "{held:?}"
    );
    assert!(!ran_on.load(Ordering::SeqCst));
    // A renewal never brings a key back.
    assert_eq!(server.size(), 0);
    one_loss_was_told(&locks, "sync:9090");
}

#[tokio::test]
async fn field_09_a_key_taken_by_another_owner_stays_theirs() {
    tests::log::listen();
    let (server, locks) = pair().await;
    let theirs = "ffffffffffffffffffffffffffffffff@other:1";
    let body = async {
        let _: () = server.ask(&format!("SET lock:sync:9091 {theirs} PX 60000"));
        nap(60_000).await;
    };
    let start = Instant::now();
    let lost = timed(&locks, 9091, 3 * SECOND, body).await.unwrap_err();
    assert!(start.elapsed() <= SECOND + SLACK, "{:?}", start.elapsed());
    assert!(
        matches!(
            &lost,
            Error::Lost {
                cause: LossCause::Taken,
                ..
            }
        ),
        "{lost:?}"
    );
    assert_eq!(server.get("lock:sync:9091").as_deref(), Some(theirs));
    assert!(server.pttl("lock:sync:9091") > 50_000);
    one_loss_was_told(&locks, "sync:9091");
}

fn one_loss_was_told(locks: &Client, key: &str) {
    assert_eq!(locks.stats().lost, 1, "{:?}", locks.stats());
    let told: Vec<_> = tests::log::about(key)
        .into_iter()
        .filter(|told| told.level <= Level::WARN)
        .collect();
    assert_eq!(told.len(), 1, "{told:#?}");
}

#[distributed_lock(key = "sync:<user_id>", ttl = "900ms", on_lost = continue, client = locks)]
async fn goes_on(locks: &Client, user_id: u64, server: &Server) -> Result<u32, Error> {
    let _: () = server.ask("DEL lock:sync:42");
    nap(1_500).await;
    Ok(7)
}

#[distributed_lock(
    key = "sync:<user_id>", ttl = "900ms", client = locks,
    on_busy = return 0, on_unavailable = return 1, on_lost = return fallback
)]
async fn answers(locks: &Client, user_id: u64, fallback: u32, server: &Server) -> u32 {
    let _: () = server.ask("DEL lock:sync:42");
    nap(60_000).await;
    7
}

#[tokio::test]
async fn what_happens_on_loss_is_what_the_attribute_says() {
    let (server, locks) = pair().await;
    assert_eq!(goes_on(&locks, 42, &server).await.unwrap(), 7);
    assert_eq!(locks.stats().lost, 1);
    assert_eq!(answers(&locks, 42, 8, &server).await, 8);
    assert_eq!(locks.stats().lost, 2);
}

#[tokio::test]
async fn a_success_after_the_lease_was_lost_is_no_success() {
    let (server, locks) = pair().await;
    // The body never yields, so nobody can interrupt it; its key goes while it works.
    let body = async {
        let _: () = server.ask("DEL lock:sync:42");
        thread::sleep(Duration::from_millis(20));
    };
    let lost = timed(&locks, 42, 60 * SECOND, body).await.unwrap_err();
    assert!(
        matches!(
            &lost,
            Error::Lost {
                cause: LossCause::Deleted,
                ..
            }
        ),
        "{lost:?}"
    );
    // The same past the deadline, with renewals that do not arrive.
    let body = async {
        server.freeze();
        thread::sleep(Duration::from_millis(1_200));
        server.thaw();
    };
    let lost = timed(&locks, 42, SECOND, body).await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { .. }), "{lost:?}");
}

#[distributed_lock(key = "sync:<user_id>", ttl = "60s", client = locks)]
async fn fails(
    locks: &Client,
    user_id: u64,
    server: &Server,
) -> Result<(), Box<dyn std::error::Error>> {
    let _: () = server.ask("DEL lock:sync:42");
    Err("the body's own")?;
    Ok(())
}

#[tokio::test]
async fn a_bodys_own_error_stays_that_error() {
    let (server, locks) = pair().await;
    assert_eq!(
        fails(&locks, 42, &server).await.unwrap_err().to_string(),
        "the body's own"
    );
}

#[tokio::test]
async fn field_11_a_body_never_starts_on_a_lease_that_has_ended() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::builder()
        .reply_timeout(3 * SECOND)
        .connect(proxy.url())
        .await
        .unwrap();
    proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(1_200)));
    let result = timed(&locks, 42, SECOND, async { panic!("the body ran") }).await;
    assert!(result.is_err(), "{result:?}");
    assert!(!matches!(result, Err(Error::Busy { .. })), "{result:?}");
    proxy.heal();
    wait::until("the key is free", || server.size() == 0).await;
}

#[tokio::test]
async fn field_11_after_a_wait_the_lease_counts_from_the_attempt_that_won() {
    let (server, locks) = pair().await;
    let _: () = server.ask("SET lock:sync:42 ffffffffffffffffffffffffffffffff@other:1 PX 1500");
    let lease = locks
        .lock("sync:42")
        .ttl(SECOND)
        .renew(false)
        .wait(10 * SECOND)
        .acquire()
        .await
        .unwrap();
    let remaining = lease.remaining();
    assert!(
        remaining > Duration::from_millis(500) && remaining <= SECOND,
        "{remaining:?}"
    );
    let pttl = u64::try_from(server.pttl("lock:sync:42")).unwrap();
    // Ours is never thought to run longer than the server's.
    assert!(
        lease.remaining() <= Duration::from_millis(pttl + 5),
        "{pttl}"
    );
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_late_reply_shortens_the_lease_by_as_much() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let delay = Duration::from_millis(600);
    proxy.treat(Way::Replies, Treatment::Delay(delay));
    let lease = locks
        .lock("sync:42")
        .ttl(3 * SECOND)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    assert!(
        lease.remaining() + delay <= 3 * SECOND,
        "{:?}",
        lease.remaining()
    );
    proxy.heal();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_is_never_thought_to_run_longer_than_the_servers_key() {
    let (server, proxy, locks) = behind_a_proxy().await;
    proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(300)));
    let lease = locks
        .lock("sync:42")
        .ttl(2 * SECOND)
        .acquire()
        .await
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < 4 * SECOND {
        let (ours, at) = (lease.remaining(), Instant::now());
        let theirs = u64::try_from(server.pttl("lock:sync:42")).expect("held");
        // The server was asked a little later, and counts in milliseconds.
        let theirs = Duration::from_millis(theirs + 5) + at.elapsed();
        assert!(ours <= theirs, "{ours:?} of {theirs:?}");
        nap(10).await;
    }
    assert!(locks.stats().renewed >= 3, "{:?}", locks.stats());
    proxy.heal();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_is_extended_told_of_its_end_and_given_back() {
    let (server, locks) = pair().await;
    let lease = locks
        .lock("sync:42")
        .ttl(2 * SECOND)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    lease.extend(30 * SECOND).await.unwrap();
    assert!(server.pttl("lock:sync:42") > 25_000);
    assert!(lease.remaining() > 25 * SECOND && lease.remaining() <= 30 * SECOND);
    let _: () = server.ask("DEL lock:sync:42");
    let error = lease.extend(30 * SECOND).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert_eq!(server.size(), 0);
    tokio::time::timeout(SECOND, lease.lost())
        .await
        .expect("told at once");
}
