//! How long leases were held by function, and the advice on a ttl that is too short without renewal.

use std::future::pending;
use std::time::Duration;

use lockattr::{Client, Error, HoldTimes, distributed_lock};
use tests::log::{self, Told};
use tests::wait;
use tokio::task::JoinSet;
use tracing::Level;

use crate::support::{client, nap, pair};

/// Enough runs to tell.
const RUNS: u64 = 25;

const TTL: Duration = Duration::from_millis(400);

fn of(locks: &Client, function: &str) -> HoldTimes {
    let all = locks.hold_times().into_iter();
    let name = format!("{}::{function}", module_path!());
    let mut found = all.filter(|times| times.function == name);
    let one = found.next().unwrap();
    assert_eq!(found.next(), None);
    one
}

fn told(function: &str) -> Vec<Told> {
    let name = format!("function=\"{}::{function}\"", module_path!());
    let about = log::about(&name).into_iter();
    about.filter(|told| told.text.contains("enough=")).collect()
}

/// Side by side, each on a key of its own.
async fn runs<F>(locks: &Client, number: u64, call: impl Fn(Client, u64) -> F)
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut calls = JoinSet::new();
    for id in 0..number {
        calls.spawn(call(locks.clone(), id));
    }
    calls.join_all().await;
}

#[tokio::test]
async fn a_ttl_that_is_too_short_is_told_once_for_a_function_and_a_client() {
    #[distributed_lock(key = "slow:<id>", ttl = TTL, renew = false, client = locks)]
    async fn slow(locks: Client, id: u64) -> Result<(), Error> {
        nap(260).await;
        Ok(())
    }
    log::listen();
    let (server, locks) = pair().await;
    runs(&locks, RUNS, slow).await;
    runs(&locks, RUNS, slow).await;
    let about = told("slow");
    assert_eq!(about.len(), 1, "{about:#?}");
    let (level, text) = (about[0].level, &about[0].text);
    assert_eq!(level, Level::WARN);
    for part in ["template=\"slow:<id>\"", "ttl=\"400ms\"", "p99="] {
        assert!(text.contains(part), "{text}");
    }
    let times = of(&locks, "slow");
    assert_eq!((times.count, times.template), (2 * RUNS, "slow:<id>"));
    assert_eq!((times.ttl, times.needs_renewal), (TTL, true));
    assert!(times.p50 >= Duration::from_millis(240), "{times:?}");
    assert!(times.p50 <= times.p99 && times.p99 <= times.max);
    let other = client(&server).await;
    assert!(other.hold_times().is_empty());
    runs(&other, RUNS, slow).await;
    assert_eq!(told("slow").len(), 2);
}

/// In virtual time, where it is known to the millisecond.
#[tokio::test(start_paused = true)]
async fn the_ttl_that_would_do_is_twice_what_is_needed_and_readable() {
    #[distributed_lock(key = "exact:<id>", ttl = "1m", renew = false, client = locks)]
    async fn exact(locks: Client, id: u64) -> Result<(), Error> {
        nap(40_000).await;
        Ok(())
    }
    log::listen();
    let locks = Client::connect("memory:").await.unwrap();
    runs(&locks, RUNS, exact).await;
    let about = told("exact");
    assert_eq!(about.len(), 1, "{about:#?}");
    let text = &about[0].text;
    assert!(text.contains("ttl=\"1m\" enough=\"1m 30s\""), "{text}");
    let times = of(&locks, "exact");
    let off = times.p99.abs_diff(Duration::from_secs(40));
    assert!(off < Duration::from_secs(3), "{times:?}");
    assert_eq!(times.max, Duration::from_secs(40));
}

#[tokio::test]
async fn renewed_leases_and_few_runs_and_short_ones_are_not_told() {
    #[distributed_lock(key = "renewed:<id>", ttl = TTL, client = locks)]
    async fn renewed(locks: Client, id: u64) -> Result<(), Error> {
        nap(300).await;
        Ok(())
    }
    #[distributed_lock(key = "few:<id>", ttl = TTL, renew = false, client = locks)]
    async fn few(locks: Client, id: u64) -> Result<(), Error> {
        nap(260).await;
        Ok(())
    }
    #[distributed_lock(key = "short:<id>", ttl = "30s", renew = false, client = locks)]
    async fn short(locks: Client, id: u64) -> Result<(), Error> {
        Ok(())
    }
    #[distributed_lock(key = "extended:<id>", ttl = TTL, renew = false, bind = lease, client = locks)]
    async fn extended(locks: Client, id: u64) -> Result<(), Error> {
        nap(100).await;
        lease.extend(TTL).await?;
        nap(200).await;
        Ok(())
    }
    log::listen();
    let (_server, locks) = pair().await;
    tokio::join!(
        runs(&locks, RUNS, renewed),
        runs(&locks, 19, few),
        runs(&locks, RUNS, short),
        runs(&locks, RUNS, extended),
    );
    for function in ["renewed", "few", "short", "extended"] {
        let about = told(function);
        assert!(about.is_empty(), "{about:#?}");
    }
    assert!(of(&locks, "renewed").needs_renewal);
    assert!(!of(&locks, "short").needs_renewal);
    assert_eq!(of(&locks, "few").count, 19);
}

/// Leases that run out are found by the background, which waits for no subscriber.
#[tokio::test]
async fn leases_that_run_out_are_told_from_the_background() {
    #[distributed_lock(key = "hangs:<id>", ttl = "250ms", renew = false, client = locks)]
    async fn hangs(locks: Client, id: u64) -> Result<(), Error> {
        pending().await
    }
    log::listen();
    let (_server, locks) = pair().await;
    runs(&locks, RUNS, hangs).await;
    wait::until("it is told", || told("hangs").len() == 1).await;
    let text = &told("hangs")[0].text;
    assert!(text.contains("enough=\"500ms\""), "{text}");
    assert_eq!(of(&locks, "hangs").count, RUNS);
}

#[tokio::test]
async fn requests_by_hand_are_known_by_their_template() {
    let (_server, locks) = pair().await;
    for _ in 0..3 {
        let named = locks.lock("by-hand:1").template("hold-by-hand:<id>");
        named.acquire().await.unwrap().release().await.unwrap();
        let unnamed = locks.lock("by-hand:1").acquire().await.unwrap();
        unnamed.release().await.unwrap();
    }
    let all = locks.hold_times();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(
        (all[0].function, all[0].template),
        ("", "hold-by-hand:<id>")
    );
    assert_eq!((all[0].count, all[0].ttl), (3, Duration::from_secs(30)));
    assert_eq!(locks.stats().granted, 6);
}
