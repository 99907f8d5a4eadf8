//! How long a key stays closed: `min_hold`, `max_hold`, `once`.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause, distributed_lock};
use tests::wait;

use crate::support::{client, nap, pair};

#[distributed_lock(key = "tick", on_busy = skip, min_hold = "2s", client = locks)]
async fn tick(locks: &Client, fails: bool) -> Result<Option<()>, Error> {
    if fails {
        return Err(Error::NotInstalled);
    }
    Ok(Some(()))
}

#[tokio::test]
async fn a_key_stays_closed_for_its_min_hold_and_not_longer() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    for fails in [false, true] {
        let begun = Instant::now();
        let _ = tick(&locks, fails).await;
        let left = server.pttl("lock:tick");
        let gone = i64::try_from(begun.elapsed().as_millis()).unwrap() + 1;
        // Counted from the grant: the server may not have begun later than the call did.
        assert!(
            (2_000 - gone..=2_000).contains(&left),
            "{left} after {gone}"
        );
        assert_eq!(tick(&other, false).await.unwrap(), None);
        wait::until("the key is free", || server.size() == 0).await;
        assert!(begun.elapsed() >= Duration::from_millis(1_990));
    }
}

#[tokio::test]
async fn a_dropped_body_keeps_its_min_hold() {
    #[distributed_lock(key = "tick", min_hold = "2s", client = locks)]
    async fn hangs(locks: &Client) -> Result<(), Error> {
        pending().await
    }
    let (server, locks) = pair().await;
    let mut call = Box::pin(hangs(&locks));
    // The body has to have begun: an acquire that is dropped holds nothing.
    let granted = async { wait::until("granted", || locks.stats().granted == 1).await };
    tokio::select! {
        _ = call.as_mut() => panic!("it hangs"),
        () = granted => {}
    }
    let held = server.get("lock:tick").unwrap();
    drop(call);
    wait::until("it is nobody's", || {
        server.get("lock:tick") != Some(held.clone())
    })
    .await;
    let closed = server.owner("lock:tick").unwrap();
    assert_eq!(closed[32..], held[32..], "the same host and process");
    assert!(closed.starts_with(&"0".repeat(32)), "{closed}");
    assert!((1..=2_000).contains(&server.pttl("lock:tick")));
}

#[tokio::test]
async fn a_holder_that_dies_keeps_a_min_hold_that_is_longer_than_its_ttl() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_millis(500);
    let min = Duration::from_secs(60);
    let lease = locks
        .lock("k")
        .ttl(ttl)
        .min_hold(min)
        .acquire()
        .await
        .unwrap();
    assert!(server.pttl("lock:k") > 50_000);
    drop(lease);
    wait::until("given back", || {
        server.get("lock:k").is_some_and(|v| v.starts_with("0000"))
    })
    .await;
    assert!(server.pttl("lock:k") > 50_000);
}

/// Two replicas whose clocks differ by 80 ms fire a 5 ms job at each tick.
#[tokio::test]
async fn field_23_skewed_replicas_run_each_of_a_thousand_ticks_once() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[distributed_lock(key = "tick:<tick>", on_busy = skip, min_hold = "10s", client = locks)]
    async fn job(locks: &Client, tick: u32) {
        RUNS.fetch_add(1, Ordering::SeqCst);
        nap(5).await;
    }
    let (server, early) = pair().await;
    let late = client(&server).await;
    // Many ticks at a time: what counts is the distance of the two calls of each.
    let ticks = (0..1_000_u32).map(|tick| {
        let (early, late) = (early.clone(), late.clone());
        tokio::spawn(async move {
            nap(u64::from(tick % 100) * 20).await;
            job(&early, tick).await;
            nap(80).await;
            job(&late, tick).await;
        })
    });
    for tick in ticks.collect::<Vec<_>>() {
        tick.await.unwrap();
    }
    assert_eq!(RUNS.load(Ordering::SeqCst), 1_000);
    assert_eq!(early.stats().granted + late.stats().granted, 1_000);
}

#[tokio::test]
async fn field_10_a_hanging_body_ends_with_its_max_hold() {
    #[distributed_lock(key = "k", ttl = "1s", max_hold = "1500ms", client = locks)]
    async fn hangs(locks: &Client) -> Result<(), Error> {
        pending().await
    }
    let (server, locks) = pair().await;
    let begun = Instant::now();
    let outcome = hangs(&locks).await;
    assert!(
        matches!(
            &outcome,
            Err(Error::Lost {
                cause: LossCause::HeldTooLong,
                ..
            })
        ),
        "{outcome:?}"
    );
    assert!(
        (1_500..2_500).contains(&begun.elapsed().as_millis()),
        "{:?}",
        begun.elapsed()
    );
    // Given back, and not only left to expire.
    wait::within("free", Duration::from_millis(500), || server.size() == 0).await;
}

#[tokio::test]
async fn a_success_leaves_a_mark_and_nothing_else_does() {
    #[distributed_lock(key = "mail:<id>", once = "1h", on_done = error, client = locks)]
    async fn mail(locks: &Client, id: u32, outcome: Result<(), Error>) -> Result<(), Error> {
        outcome
    }
    let (server, locks) = pair().await;
    mail(&locks, 1, Err(Error::NotInstalled)).await.unwrap_err();
    assert_eq!(server.size(), 0);
    let panics = tokio::spawn({
        let locks = locks.clone();
        async move {
            #[distributed_lock(key = "mail:<id>", once = "1h", client = locks)]
            async fn panics(locks: &Client, id: u32) -> Result<(), Error> {
                panic!("on purpose")
            }
            panics(&locks, 1).await
        }
    });
    panics.await.unwrap_err();
    wait::until("the panic leaves nothing", || server.size() == 0).await;
    let before = std::time::SystemTime::now();
    mail(&locks, 1, Ok(())).await.unwrap();
    let mark = server.get("lock:mail:1").unwrap();
    assert!(mark.starts_with("done@"), "{mark}");
    assert!((3_590_000..=3_600_000).contains(&server.pttl("lock:mail:1")));
    let other = client(&server).await;
    match mail(&other, 1, Ok(())).await {
        Err(Error::Done { key, since, .. }) => {
            assert_eq!(key, "mail:1");
            let apart = since
                .duration_since(before)
                .unwrap_or_else(|error| error.duration());
            assert!(apart < Duration::from_secs(5), "{apart:?}");
        }
        other => panic!("{other:?}"),
    }
    // Without `once` the mark is not this call's business, but the key is taken.
    let plain = other.lock("mail:1").acquire().await;
    assert!(matches!(plain, Err(Error::Done { .. })), "{plain:?}");
    mail(&other, 2, Ok(())).await.unwrap();
    let _: u64 = server.ask("DEL lock:mail:1");
    mail(&other, 1, Ok(())).await.unwrap();
}

#[tokio::test]
async fn a_lease_that_was_lost_leaves_no_mark() {
    #[distributed_lock(key = "k", ttl = "600ms", once = "1h", client = locks)]
    async fn slow(locks: &Client) -> Result<(), Error> {
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }
    let (server, locks) = pair().await;
    let thief = std::thread::spawn(move || {
        wait::block_until("held", || server.get("lock:k").is_some());
        let _: String = server.ask("SET lock:k other PX 60000");
        server
    });
    let outcome = slow(&locks).await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    let server = thief.join().unwrap();
    assert_eq!(server.get("lock:k").as_deref(), Some("other"));
}
