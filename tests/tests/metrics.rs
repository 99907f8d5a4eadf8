//! What a recorder of the crate `metrics` is told of locked functions on a real server: each metric made
//! to happen, cause by cause, and compared with the client's own counters.
#![cfg(feature = "metrics")]
#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use lockattr::{Client, Error, distributed_lock};
use tests::metrics::{self, Of};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(300);

/// A client, its server, and a recorder.
async fn begin() -> (Server, Client) {
    metrics::record();
    let server = Server::start();
    let client = client(&server.url()).await;
    (server, client)
}

async fn client(url: &str) -> Client {
    Client::connect(url).await.unwrap()
}

async fn until(what: &str, of: Of, name: &str, number: f64) {
    wait::until(what, || of.number(name) == Some(number)).await;
}

/// Of a call that has ended: nothing is left in the gauges.
fn assert_at_rest(of: Of) {
    assert_eq!(of.number("held"), Some(0.0), "{of:?}");
    assert_eq!(of.number("waiting"), Some(0.0), "{of:?}");
}

fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

fn only(samples: &[f64]) -> f64 {
    assert_eq!(samples.len(), 1, "{samples:?}");
    samples[0]
}

#[tokio::test]
async fn a_call_is_counted_and_timed() {
    #[distributed_lock(key = "plain:<id>", ttl = "30s", client = locks)]
    async fn plain(locks: &Client, id: u64) -> Result<(), Error> {
        until("it is held", Of("plain"), "held", 1.0).await;
        assert_eq!(Of("plain").number("waiting"), Some(0.0));
        tokio::time::sleep(SHORT).await;
        Ok(())
    }
    let (_server, locks) = begin().await;
    let of = Of("plain");
    let before = now();
    plain(&locks, 4242).await.unwrap();
    assert_eq!(of.number("acquired_total"), Some(1.0));
    for other in [
        "busy",
        "done",
        "unavailable",
        "unguarded",
        "marks_lost",
        "replies_not_kept",
    ] {
        assert_eq!(of.number(&format!("{other}_total")), Some(0.0), "{other}");
    }
    assert!(only(&of.samples("wait_seconds")) < 5.0);
    let held = only(&of.samples("hold_seconds"));
    assert!((SHORT.as_secs_f64()..10.0).contains(&held), "{held}");
    let used = only(&of.samples("ttl_used_ratio"));
    assert!((used - held / 30.0).abs() < 0.01, "{used} of {held} s");
    let last = of.number("last_success_timestamp_seconds").unwrap();
    assert!((before..=now()).contains(&last));
    assert_at_rest(of);
    // Never the key.
    let series = metrics::series();
    assert!(series.iter().all(|series| !series.contains("4242")));
    let labels = format!(
        "function=\"{}::plain\",template=\"plain:<id>\"",
        module_path!()
    );
    assert!(
        series.contains(&format!("lockattr_acquired_total{{{labels}}}")),
        "{series:#?}"
    );
    let described = metrics::described();
    let unit = |name: &str| described[&format!("lockattr_{name}")].0.clone();
    assert_eq!(unit("hold_seconds"), "seconds");
    assert_eq!(unit("acquired_total"), "count");
    assert!(
        described
            .values()
            .all(|(_, meaning)| meaning.ends_with('.'))
    );
    assert_eq!(described.len(), 18, "{:#?}", described.keys());
}

#[tokio::test]
async fn a_reply_that_is_not_kept_is_counted() {
    #[distributed_lock(key = "long", once = "1h", on_done = replay, client = locks)]
    async fn long(locks: &Client) -> Result<String, Error> {
        Ok("x".repeat(70_000))
    }
    let (_server, locks) = begin().await;
    long(&locks).await.unwrap();
    assert!(matches!(long(&locks).await, Err(Error::NoReply { .. })));
    let of = Of("long");
    assert_eq!(of.number("replies_not_kept_total"), Some(1.0));
    assert_eq!(of.number("done_total"), Some(1.0));
}

#[tokio::test]
async fn what_does_not_run_is_told_apart() {
    #[distributed_lock(key = "refused:<id>", ttl = "30s", once = "1h", on_done = error, client = locks)]
    async fn refused(locks: &Client, id: u64) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = begin().await;
    let of = Of("refused");
    let other = client(&server.url()).await;
    let lease = other.lock("refused:1").acquire().await.unwrap();
    assert!(matches!(refused(&locks, 1).await, Err(Error::Busy { .. })));
    assert_eq!(of.number("busy_total"), Some(1.0));
    lease.release().await.unwrap();
    refused(&locks, 1).await.unwrap();
    assert!(matches!(refused(&locks, 1).await, Err(Error::Done { .. })));
    assert_eq!(of.number("done_total"), Some(1.0));
    server.kill();
    let down = refused(&locks, 2).await;
    assert!(matches!(down, Err(Error::Unavailable { .. })), "{down:?}");
    assert_eq!(of.number("unavailable_total"), Some(1.0));
    assert_eq!(of.number("acquired_total"), Some(1.0));
    assert_eq!(of.samples("wait_seconds").len(), 4);
    assert_eq!(of.samples("hold_seconds").len(), 1);
    assert_at_rest(of);
}

#[tokio::test]
async fn no_success_is_no_time_of_one() {
    #[distributed_lock(key = "failing", ttl = "30s", client = locks)]
    async fn failing(locks: &Client) -> anyhow::Result<()> {
        anyhow::bail!("as it does")
    }
    let (_server, locks) = begin().await;
    failing(&locks).await.unwrap_err();
    assert_eq!(Of("failing").number("acquired_total"), Some(1.0));
    let last = Of("failing").number("last_success_timestamp_seconds");
    assert_eq!(last, None);
}

#[tokio::test]
async fn gauges_are_right_whatever_ends_a_call() {
    #[distributed_lock(key = "ended:<id>", ttl = "30s", wait = "60s", client = locks)]
    async fn ended(locks: &Client, id: u64, body: impl AsyncFnOnce() -> ()) -> Result<(), Error> {
        body().await;
        Ok(())
    }
    let (_server, locks) = begin().await;
    let of = Of("ended");
    let spawn = |id| {
        let locks = locks.clone();
        tokio::spawn(async move { ended(&locks, id, async || pending().await).await })
    };
    let (held, waiting) = (spawn(1), spawn(1));
    until("one holds", of, "held", 1.0).await;
    until("one waits", of, "waiting", 1.0).await;
    // Dropped.
    waiting.abort();
    until("none waits", of, "waiting", 0.0).await;
    assert_eq!(of.number("held"), Some(1.0));
    held.abort();
    until("none holds", of, "held", 0.0).await;
    // Not polled once.
    drop(ended(&locks, 1, async || {}));
    assert_at_rest(of);
    // A panic.
    let task = {
        let locks = locks.clone();
        tokio::spawn(async move { ended(&locks, 1, async || panic!("as a body may")).await })
    };
    assert!(task.await.unwrap_err().is_panic());
    until("none holds", of, "held", 0.0).await;
    // By hand, shared, and dropped without a runtime.
    let lease = locks.lock("ended:2").template("by-hand:<id>");
    let lease = lease.acquire().await.unwrap();
    let shared = lease.share();
    drop(lease);
    assert_eq!(Of("by-hand:<id>").number("held"), Some(1.0));
    let dropped = AssertUnwindSafe(shared);
    std::thread::spawn(move || drop(dropped)).join().unwrap();
    assert_at_rest(Of("by-hand:<id>"));
    assert_eq!(Of("by-hand:<id>").samples("hold_seconds").len(), 1);
    assert_at_rest(of);
}

#[tokio::test]
async fn losses_have_their_causes() {
    #[distributed_lock(key = "lost:<id>", ttl = "1500ms", max_hold = max, client = locks)]
    async fn lost(locks: &Client, id: u64, max: Duration) -> Result<(), Error> {
        pending().await
    }
    #[distributed_lock(key = "expired", ttl = "500ms", renew = false, client = locks)]
    async fn expired(locks: &Client) -> Result<(), Error> {
        pending().await
    }
    let (server, locks) = begin().await;
    let of = Of("lost");
    let hour = 3600 * SECOND;
    let counted = |of: Of| {
        ["expired", "deleted", "taken", "shutdown", "held_too_long"]
            .map(|cause| of.number_with("lost_total", &format!("cause={cause:?}")))
    };
    let is_lost = |ended: Result<(), Error>| {
        assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
    };
    let other = client(&server.url()).await;
    is_lost(lost(&other, 1, SHORT).await);
    assert_eq!(counted(of), [0.0, 0.0, 0.0, 0.0, 1.0].map(Some));
    let spawned = |id| {
        let locks = locks.clone();
        tokio::spawn(async move { lost(&locks, id, hour).await })
    };
    let (deleted, taken) = (spawned(2), spawned(3));
    wait::until("it is held", || server.get("lock:lost:2").is_some()).await;
    let _: u64 = server.ask("DEL lock:lost:2");
    wait::until("it is held", || server.get("lock:lost:3").is_some()).await;
    let _: String = server.ask("SET lock:lost:3 another");
    is_lost(deleted.await.unwrap());
    is_lost(taken.await.unwrap());
    let stopped = spawned(4);
    wait::until("it is held", || server.get("lock:lost:4").is_some()).await;
    locks.shutdown().await;
    is_lost(stopped.await.unwrap());
    assert_eq!(counted(of), [0.0, 1.0, 1.0, 1.0, 1.0].map(Some));
    is_lost(expired(&other).await);
    assert_eq!(counted(Of("expired")), [1.0, 0.0, 0.0, 0.0, 0.0].map(Some));
    let used = only(&Of("expired").samples("ttl_used_ratio"));
    assert!((0.9..=1.0).contains(&used), "{used}");
    let held = only(&Of("expired").samples("hold_seconds"));
    assert!(held <= 0.5, "{held} s, though it ended with its ttl");
    for of in [of, Of("expired")] {
        assert_at_rest(of);
        let all = of.samples("hold_seconds").len();
        assert_eq!(
            of.number("acquired_total"),
            Some(f64::from(u32::try_from(all).unwrap()))
        );
        assert_eq!(of.number("last_success_timestamp_seconds"), None);
    }
}

/// A loss that is only found when the key is given back, by one who waits for that and by one who does not.
#[tokio::test]
async fn losses_that_are_found_late_have_their_causes() {
    #[distributed_lock(key = "late:<id>", ttl = "30s", client = locks)]
    async fn late(locks: &Client, id: u64, server: &Server) -> Result<(), Error> {
        let _: u64 = server.ask("DEL lock:late:1");
        Ok(())
    }
    let (server, locks) = begin().await;
    late(&locks, 1, &server).await.unwrap_err();
    assert_eq!(Of("late").number_with("lost_total", "deleted"), Some(1.0));
    assert_eq!(Of("late").number("last_success_timestamp_seconds"), None);
    let lease = locks.lock("late:2").template("late-by-hand");
    let lease = lease.acquire().await.unwrap();
    let _: String = server.ask("SET lock:late:2 another");
    drop(lease);
    let lost = || Of("late-by-hand").number_with("lost_total", "taken") == Some(1.0);
    wait::until("it is counted", lost).await;
    assert_eq!(locks.stats().lost, 2);
}

#[tokio::test]
async fn late_and_abandoned_releases_are_counted() {
    #[distributed_lock(key = "given:<id>", ttl = ttl, client = locks)]
    async fn given(locks: &Client, id: u64, ttl: Duration, end: impl Fn()) -> Result<(), Error> {
        end();
        Ok(())
    }
    #[distributed_lock(key = "marked", ttl = "1s", once = "2s", client = locks)]
    async fn marked(locks: &Client, end: impl Fn()) -> Result<(), Error> {
        end();
        Ok(())
    }
    let (server, _) = begin().await;
    let proxy = Proxy::before(server.address());
    let locks = client(&proxy.url()).await;
    let of = Of("given");
    given(&locks, 1, 30 * SECOND, || proxy.refuse())
        .await
        .unwrap();
    assert_eq!(of.number("released_late_total"), Some(0.0));
    proxy.heal();
    until("it is given back", of, "released_late_total", 1.0).await;
    given(&locks, 2, SECOND, || proxy.refuse()).await.unwrap();
    until("its key has run out", of, "release_abandoned_total", 1.0).await;
    proxy.heal();
    assert_eq!(of.number("released_late_total"), Some(1.0));
    let again = async || marked(&locks, || proxy.refuse()).await.is_ok();
    while !again().await {}
    until("it is lost", Of("marked"), "marks_lost_total", 1.0).await;
    let stats = locks.stats();
    assert_eq!(
        (
            stats.released_late,
            stats.release_abandoned,
            stats.marks_lost
        ),
        (1, 2, 1)
    );
    assert_at_rest(of);
}

#[tokio::test]
async fn handovers_are_told_apart() {
    #[distributed_lock(key = "handed", ttl = "30s", wait = "60s", client = locks)]
    async fn handed(locks: &Client, inside: Duration) -> Result<(), Error> {
        tokio::time::sleep(inside).await;
        Ok(())
    }
    let (server, locks) = begin().await;
    let of = Of("handed");
    let kinds = || ["process", "store"].map(|kind| of.number_with("handovers_total", kind));
    let first = handed(&locks, SHORT);
    let second = async {
        until("one holds", of, "held", 1.0).await;
        handed(&locks, Duration::ZERO).await
    };
    let (first, second) = tokio::join!(first, second);
    first.and(second).unwrap();
    assert_eq!(kinds(), [1.0, 0.0].map(Some));
    assert_eq!(of.samples("hold_seconds").len(), 2);
    let other = client(&server.url()).await;
    let lease = other.lock("handed").acquire().await.unwrap();
    let release = async {
        wait::until("it is queued", || server.waiters("lock:handed") == 1).await;
        wait::until("it listens", || server.subscribers() >= 1).await;
        lease.release().await
    };
    let (waited, released) = tokio::join!(handed(&locks, Duration::ZERO), release);
    waited.and(released).unwrap();
    assert_eq!(kinds(), [1.0, 1.0].map(Some));
    let stats = locks.stats();
    assert_eq!((stats.handed_over_here, stats.handed_over_by_store), (1, 1));
    assert_at_rest(of);
}

#[tokio::test]
async fn fallbacks_and_disabled_clients_run_unguarded() {
    #[distributed_lock(key = "runs", ttl = "30s", on_unavailable = run, client = locks)]
    async fn runs(locks: &Client) -> Result<(), Error> {
        until("it is held", Of("runs"), "held", 1.0).await;
        Ok(())
    }
    #[distributed_lock(key = "local", ttl = "30s", on_unavailable = local, client = locks)]
    async fn local(locks: &Client) -> Result<(), Error> {
        until("it is held", Of("local"), "held", 1.0).await;
        Ok(())
    }
    let (server, locks) = begin().await;
    server.kill();
    runs(&locks).await.unwrap();
    local(&locks).await.unwrap();
    runs(&Client::disabled().unwrap()).await.unwrap();
    assert_eq!(Of("runs").number("unguarded_total"), Some(2.0));
    assert_eq!(Of("local").number("unguarded_total"), Some(1.0));
    for of in [Of("runs"), Of("local")] {
        assert_eq!(of.number("acquired_total"), of.number("unguarded_total"));
        assert_eq!(of.number("unavailable_total"), Some(0.0));
        assert!(of.number("last_success_timestamp_seconds").is_some());
        assert_at_rest(of);
    }
}

#[tokio::test]
async fn renewals_say_how_late_they_are_and_how_much_of_the_ttl_is_used() {
    #[distributed_lock(key = "renewed", ttl = "3s", client = locks)]
    async fn renewed(locks: &Client, server: &Server) -> Result<(), Error> {
        until_samples("renewal_lag_seconds", 1).await;
        server.freeze();
        tokio::time::sleep(Duration::from_millis(1_800)).await;
        server.thaw();
        until_samples("renewal_lag_seconds", 2).await;
        Ok(())
    }
    async fn until_samples(name: &str, number: usize) {
        wait::until(name, || Of("renewed").samples(name).len() >= number).await;
    }
    let (server, locks) = begin().await;
    renewed(&locks, &server).await.unwrap();
    let lags = Of("renewed").samples("renewal_lag_seconds");
    let used = Of("renewed").samples("ttl_used_ratio");
    let renewals = usize::try_from(locks.stats().renewed).unwrap();
    assert_eq!((lags.len(), used.len()), (renewals, renewals + 1));
    let longest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    // Due a second after the one before, and answered when the server was thawed.
    let lag = longest(&lags);
    assert!((0.5..2.0).contains(&lag), "{lags:?}");
    let most = longest(&used);
    assert!(
        (most - (1.0 + lag) / 3.0).abs() < 0.05,
        "{used:?}, {lags:?}"
    );
}

/// It is a call that got a lease, and no further lease.
#[tokio::test]
async fn a_joined_call_is_counted_and_holds_nothing_of_its_own() {
    #[distributed_lock(key = "around", ttl = "30s", client = locks)]
    async fn outer(locks: &Client) -> Result<(), Error> {
        inner(locks).await?;
        stopped(locks).await.unwrap_err();
        Ok(())
    }
    #[distributed_lock(key = "around", client = locks)]
    async fn inner(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    #[distributed_lock(key = "around", max_hold = "50ms", client = locks)]
    async fn stopped(locks: &Client) -> Result<(), Error> {
        pending().await
    }
    let (_server, locks) = begin().await;
    outer(&locks).await.unwrap();
    for (of, holds) in [(Of("outer"), 1), (Of("inner"), 0), (Of("stopped"), 0)] {
        assert_eq!(of.number("acquired_total"), Some(1.0));
        assert_eq!(of.samples("wait_seconds").len(), 1);
        assert_eq!(of.samples("hold_seconds").len(), holds, "{of:?}");
        assert_at_rest(of);
    }
    assert!(
        Of("inner")
            .number("last_success_timestamp_seconds")
            .is_some()
    );
    let lost = Of("stopped").number_with("lost_total", "held_too_long");
    assert_eq!(lost, Some(1.0));
    assert_eq!(locks.stats().granted, 3);
    assert_eq!(locks.stats().lost, 1);
}

#[tokio::test]
async fn requests_by_hand_have_the_template_that_they_name() {
    let (_server, locks) = begin().await;
    let lease = locks.lock("hand:1").template("hand:<id>");
    lease.acquire().await.unwrap().release().await.unwrap();
    let lease = locks.lock("hand:2").acquire().await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(Of("hand:<id>").number("acquired_total"), Some(1.0));
    assert_at_rest(Of("hand:<id>"));
    // By any test here, and nowhere else.
    assert!(Of("").number("acquired_total").unwrap() >= 1.0);
    let success = metrics::series().into_iter();
    let success = success.filter(|series| series.contains("last_success"));
    assert!(success.into_iter().all(|series| series.contains("::")));
}

/// A mixture that comes to everything, on one client: what was counted is the same in both places.
#[tokio::test]
async fn metrics_agree_with_the_clients_counters() {
    #[distributed_lock(key = "mix:<id>", ttl = "200ms", wait = wait, on_unavailable = run, client = locks)]
    async fn mix_a(locks: &Client, id: u64, wait: Duration, inside: Duration) -> Result<(), Error> {
        tokio::time::sleep(inside).await;
        Ok(())
    }
    #[distributed_lock(key = "mix:<id>", ttl = "100ms", renew = false, once = "500ms", client = locks)]
    async fn mix_b(locks: &Client, id: u64, inside: Duration) -> Result<(), Error> {
        tokio::time::sleep(inside).await;
        Ok(())
    }
    let (server, _) = begin().await;
    let proxy = Proxy::before(server.address());
    let locks = client(&proxy.url()).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..240_u64 {
        let locks = locks.clone();
        let inside = Duration::from_millis(number * 7 % 150);
        calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(number * 10)).await;
            let wait = Duration::from_millis(number * 13 % 300);
            let call = async {
                if number % 3 == 0 {
                    mix_b(&locks, number % 4, inside).await
                } else {
                    mix_a(&locks, number % 4, wait, inside).await
                }
            };
            let patience = Duration::from_millis(50 + number * 11 % 1_000);
            let _ = tokio::time::timeout(patience, call).await;
        });
    }
    mix_b(&locks, 9, SHORT).await.unwrap_err();
    tokio::time::sleep(SECOND).await;
    proxy.refuse();
    tokio::time::sleep(SHORT).await;
    proxy.heal();
    calls.join_all().await;
    locks.shutdown().await;
    let stats = locks.stats();
    for (name, counted) in [
        ("acquired", stats.granted),
        ("busy", stats.busy),
        ("done", stats.done),
        ("unavailable", stats.unavailable),
        ("unguarded", stats.unguarded),
        ("lost", stats.lost),
        ("released_late", stats.released_late),
        ("release_abandoned", stats.release_abandoned),
        ("marks_lost", stats.marks_lost),
        ("replies_not_kept", stats.replies_not_kept),
        (
            "handovers",
            stats.handed_over_here + stats.handed_over_by_store,
        ),
    ] {
        let sum = metrics::sum(&format!("{name}_total"), "mix_");
        let counted = f64::from(u32::try_from(counted).unwrap());
        assert!((sum - counted).abs() < 0.5, "{name}: {sum}, {stats:?}");
    }
    let common = [
        stats.granted,
        stats.busy,
        stats.done,
        stats.lost,
        stats.unguarded,
    ];
    assert!(common.iter().all(|count| *count > 0), "{stats:?}");
    let waits: usize = ["mix_a", "mix_b"]
        .map(|of| Of(of).samples("wait_seconds").len())
        .iter()
        .sum();
    let ended = stats.granted + stats.busy + stats.done + stats.unavailable;
    assert_eq!(u64::try_from(waits).unwrap(), ended, "{stats:?}");
    assert_at_rest(Of("mix_a"));
    assert_at_rest(Of("mix_b"));
}
