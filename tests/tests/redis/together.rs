//! Calls that share: permits, several keys, calls within calls, handles.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, current, distributed_lock};
use tests::server::Server;
use tests::wait;

use crate::support::{client, nap, pair};

/// The slots in use, and the most there ever were.
#[derive(Default)]
struct Slots {
    used: Mutex<BTreeSet<usize>>,
    most: AtomicUsize,
}

impl Slots {
    fn enter(&self, slot: usize) {
        let mut used = self.used.lock().unwrap();
        assert!(used.insert(slot), "slot {slot} is used twice");
        self.most.fetch_max(used.len(), Ordering::SeqCst);
    }

    fn leave(&self, slot: usize) {
        assert!(self.used.lock().unwrap().remove(&slot));
    }
}

#[distributed_lock(key = "geo", permits = permits, wait = "60s", bind = lease, client = locks)]
async fn geo(locks: &Client, permits: u32, slots: &Slots) -> Result<usize, Error> {
    let slot = lease.slot();
    slots.enter(slot);
    nap(20).await;
    slots.leave(slot);
    Ok(slot)
}

#[tokio::test]
async fn three_permits_are_three_slots_and_never_four_for_fifty_contenders() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let slots = Arc::new(Slots::default());
    let calls: Vec<_> = (0..50)
        .map(|call| {
            let locks = if call % 2 == 0 { &locks } else { &other }.clone();
            let slots = Arc::clone(&slots);
            tokio::spawn(async move { geo(&locks, 3, &slots).await.unwrap() })
        })
        .collect();
    let mut seen = BTreeSet::new();
    for call in calls {
        seen.insert(call.await.unwrap());
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
    assert_eq!(slots.most.load(Ordering::SeqCst), 3);
    wait::until("all is given back", || server.size() == 0).await;
}

#[tokio::test]
async fn a_slot_whose_holder_died_comes_back_after_the_ttl() {
    let (server, locks) = pair().await;
    let take = |ttl: u64| locks.lock("geo").permits(3).ttl(Duration::from_millis(ttl));
    // Three holders of which one is not renewed: what a process leaves that was killed.
    let kept = [
        take(30_000).acquire().await.unwrap(),
        take(30_000).acquire().await.unwrap(),
    ];
    let dead = take(700).renew(false).acquire().await.unwrap();
    let begun = Instant::now();
    let other = client(&server).await;
    let busy = other.lock("geo").permits(3).acquire().await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    let next = other.lock("geo").permits(3).wait(Duration::from_secs(10));
    let next = next.acquire().await.unwrap();
    assert_eq!(next.slot(), dead.slot());
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    drop(kept);
}

#[tokio::test]
async fn all_slots_are_under_the_key_of_the_lock() {
    let (server, locks) = pair().await;
    let mut held = Vec::new();
    for slot in 0..3 {
        let lease = locks.lock("geo").permits(3).acquire().await.unwrap();
        assert_eq!(lease.slot(), slot);
        assert_eq!(lease.key(), "geo");
        held.push(lease);
    }
    assert_eq!(server.keys(), ["lock:geo"]);
    assert!(server.pttl("lock:geo") > 0);
    let mut holders = server.holders("lock:geo");
    let mut owners: Vec<_> = held.iter().map(|lease| lease.owner().to_owned()).collect();
    holders.sort();
    owners.sort();
    assert_eq!(holders, owners);
    // Tokens grow over all of a key's slots.
    let mut tokens = Vec::new();
    for lease in &held {
        tokens.push(lease.token().await.unwrap());
    }
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
}

/// An application that counted one holder and its next release that counts three, and one that counts two.
#[tokio::test]
async fn changing_the_number_keeps_to_ones_own() {
    let (_server, locks) = pair().await;
    let of = |permits| locks.lock("geo").permits(permits).acquire();
    let is_busy = |answer| matches!(answer, Err(Error::Busy { .. }));
    let alone = of(1).await.unwrap();
    assert!(is_busy(of(3).await));
    alone.release().await.unwrap();
    let two = [of(3).await.unwrap(), of(3).await.unwrap()];
    assert!(is_busy(of(2).await) && is_busy(of(1).await));
    let [first, second] = two;
    first.release().await.unwrap();
    let other = of(2).await.unwrap();
    assert_eq!((other.slot(), second.slot()), (0, 1));
    assert!(is_busy(of(2).await));
    assert_eq!(of(3).await.unwrap().slot(), 2);
}

#[tokio::test]
async fn odd_numbers_of_permits_are_refused() {
    let (server, locks) = pair().await;
    let before = server.commands();
    for permits in [0, 1_000_001, u32::MAX] {
        let refused = locks.lock("geo").permits(permits).acquire().await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    let both = locks.lock_all(["a", "b"]).permits(2).acquire().await;
    assert!(matches!(both, Err(Error::Invalid { .. })), "{both:?}");
    let sent = server.commands().since(&before);
    assert_eq!(sent.of("set") + sent.of("evalsha"), 0);
}

#[distributed_lock(key = ["account:<from>", "account:<to>"], wait = "30s", client = locks)]
async fn transfer(
    locks: &Client,
    from: u32,
    to: u32,
    inside: &Mutex<BTreeSet<u32>>,
) -> Result<(), Error> {
    let accounts = BTreeSet::from([from, to]);
    for account in &accounts {
        assert!(
            inside.lock().unwrap().insert(*account),
            "{account} is booked twice"
        );
    }
    nap(2).await;
    for account in &accounts {
        inside.lock().unwrap().remove(account);
    }
    Ok(())
}

#[tokio::test]
async fn several_keys_are_taken_together_in_any_order_without_a_deadlock() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let inside = Arc::new(Mutex::new(BTreeSet::new()));
    let calls: Vec<_> = (0..60_u32)
        .map(|call| {
            let locks = if call % 2 == 0 { &locks } else { &other }.clone();
            let inside = Arc::clone(&inside);
            let (from, to) = (call % 4, (call / 4) % 4);
            tokio::spawn(async move { transfer(&locks, from, to, &inside).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    wait::until("all is given back", || server.size() == 0).await;
}

#[tokio::test]
async fn of_several_keys_all_are_held_or_none() {
    let (server, locks) = pair().await;
    let busy = locks.lock("b").acquire().await.unwrap();
    let other = client(&server).await;
    match other.lock_all(["a", "b", "c"]).acquire().await {
        Err(Error::Busy { key, .. }) => assert_eq!(key, "b"),
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(server.keys(), ["lock:b"]);
    busy.release().await.unwrap();
    let ttl = Duration::from_millis(600);
    let lease = other
        .lock_all(["a", "b", "a"])
        .ttl(ttl)
        .acquire()
        .await
        .unwrap();
    assert_eq!(lease.key(), "a + b");
    nap(1_500).await;
    let (a, b) = (server.get("lock:a"), server.get("lock:b"));
    assert!(a.is_some() && a == b, "{a:?} {b:?}");
    let _: u64 = server.ask("DEL lock:b");
    assert!(matches!(lease.lost().await, Error::Lost { .. }));
    drop(lease);
    wait::until("the other key is given back", || server.size() == 0).await;
}

#[distributed_lock(key = "outer:<id>", wait = wait, client = locks)]
async fn outer<F: Future>(
    locks: &Client,
    id: u32,
    wait: Duration,
    inside: F,
) -> Result<F::Output, Error> {
    Ok(inside.await)
}

#[tokio::test]
async fn a_call_inside_a_call_joins_its_lease() {
    let (server, locks) = pair().await;
    let before = server.commands();
    let inside = async {
        let lease = current().unwrap();
        assert_eq!(lease.key(), "outer:1");
        let owner = lease.owner().to_owned();
        drop(lease);
        outer(&locks, 1, Duration::ZERO, async {
            assert_eq!(current().unwrap().owner(), owner);
            outer(&locks, 1, Duration::ZERO, async {}).await
        })
        .await
    };
    Box::pin(outer(&locks, 1, Duration::ZERO, inside))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(current().is_none());
    wait::until("all is given back", || server.size() == 0).await;
    let sent = server.commands().since(&before);
    assert_eq!(
        (sent.of("set"), sent.of("evalsha")),
        (1, 1),
        "one grant and one release"
    );
}

#[tokio::test]
async fn two_calls_side_by_side_inside_a_call_take_turns() {
    let (_server, locks) = pair().await;
    let inside = AtomicUsize::new(0);
    let one = || async {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "both at once");
        nap(50).await;
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let patient = Duration::from_secs(10);
    let both = async {
        tokio::join!(
            outer(&locks, 1, patient, one()),
            outer(&locks, 1, patient, one()),
        )
    };
    let (a, b) = Box::pin(outer(&locks, 1, Duration::ZERO, both))
        .await
        .unwrap();
    a.unwrap();
    b.unwrap();
    let impatient = async {
        tokio::join!(
            outer(&locks, 1, Duration::ZERO, one()),
            outer(&locks, 1, Duration::ZERO, one()),
        )
    };
    let (a, b) = Box::pin(outer(&locks, 1, Duration::ZERO, impatient))
        .await
        .unwrap();
    assert!(a.is_ok(), "{a:?}");
    assert!(matches!(b, Err(Error::Busy { .. })), "{b:?}");
}

#[tokio::test]
async fn a_spawned_task_does_not_inherit() {
    let (_server, locks) = pair().await;
    let spawned = {
        let locks = locks.clone();
        async move {
            tokio::spawn(async move {
                assert!(current().is_none());
                outer(&locks, 1, Duration::ZERO, async {}).await
            })
            .await
        }
    };
    let joined = outer(&locks, 1, Duration::ZERO, spawned).await.unwrap();
    assert!(matches!(joined.unwrap(), Err(Error::Busy { .. })));
}

#[tokio::test]
async fn a_cycle_ends_with_the_wait_and_says_what_was_held() {
    let (_server, locks) = pair().await;
    let wait = Duration::from_millis(300);
    let cross = |mine: u32, other: u32| {
        let locks = locks.clone();
        async move {
            outer(&locks, mine, wait, async {
                nap(100).await;
                outer(&locks, other, wait, async {}).await
            })
            .await
        }
    };
    let begun = Instant::now();
    let (a, b) = tokio::join!(tokio::spawn(cross(1, 2)), tokio::spawn(cross(2, 1)));
    let (a, b) = (a.unwrap().unwrap(), b.unwrap().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(3));
    let told = match (a, b) {
        (Err(error), _) | (_, Err(error)) => error,
        both => panic!("nobody waited: {both:?}"),
    };
    assert!(matches!(told, Error::Busy { .. }), "{told:?}");
    let told = told.to_string();
    assert!(told.contains("while holding `outer:"), "{told}");
}

#[tokio::test]
async fn a_call_of_several_keys_inside_one_of_them_takes_the_rest() {
    #[distributed_lock(key = ["outer:<id>", "more"], client = locks)]
    async fn both(locks: &Client, server: &Server, id: u32) -> Result<Vec<String>, Error> {
        let mut keys = server.keys();
        keys.sort();
        Ok(keys)
    }
    let (server, locks) = pair().await;
    let inside = async {
        let keys = both(&locks, &server, 1).await?;
        assert_eq!(keys, ["lock:more", "lock:outer:1"]);
        // By hand it is a lease of its own that is asked for.
        let by_hand = locks.lock("outer:1").acquire().await;
        assert!(matches!(by_hand, Err(Error::Busy { .. })), "{by_hand:?}");
        Ok::<_, Error>(())
    };
    outer(&locks, 1, Duration::ZERO, inside)
        .await
        .unwrap()
        .unwrap();
    wait::until("all is given back", || server.size() == 0).await;
}

#[tokio::test]
async fn a_handle_keeps_the_key_until_the_task_that_has_it_ends() {
    #[distributed_lock(key = "upload", ttl = "600ms", bind = lease, client = locks)]
    async fn upload(locks: &Client) -> Result<tokio::task::JoinHandle<()>, Error> {
        let lease = lease.share();
        Ok(tokio::spawn(async move {
            nap(1_500).await;
            lease.release().await.unwrap();
        }))
    }
    let (server, locks) = pair().await;
    let task = upload(&locks).await.unwrap();
    let owner = server.get("lock:upload");
    assert!(owner.is_some());
    nap(1_000).await;
    assert_eq!(server.get("lock:upload"), owner, "it is renewed");
    assert!(matches!(upload(&locks).await, Err(Error::Busy { .. })));
    task.await.unwrap();
    wait::until("all is given back", || server.size() == 0).await;
}

/// `on_unavailable = local` excludes here, and gives way to the store as soon as that answers.
#[tokio::test]
async fn local_leases_exclude_in_the_process_and_never_meet_the_stores() {
    #[distributed_lock(key = "shard", on_unavailable = local, client = locks)]
    async fn compact(locks: &Client, millis: u64) -> Result<(), Error> {
        nap(millis).await;
        Ok(())
    }
    let server = Server::start();
    let locks = client(&server).await;
    server.kill();
    let (a, b) = tokio::join!(compact(&locks, 300), compact(&locks, 300));
    // Whichever was told of the outage first.
    let busy = match (a, b) {
        (Ok(()), Err(busy)) | (Err(busy), Ok(())) => busy,
        both => panic!("{both:?}"),
    };
    assert!(matches!(busy, Error::Busy { .. }), "{busy:?}");
    let long = tokio::spawn({
        let locks = locks.clone();
        async move { compact(&locks, 3_000).await }
    });
    wait::until("it runs locally", || locks.stats().unguarded == 2).await;
    server.restart();
    wait::until("the store answers again", || {
        server.try_ask::<String>("PING").is_ok()
    })
    .await;
    // The store would grant it, but a local body runs.
    let meanwhile = compact(&locks, 0).await;
    assert!(
        matches!(meanwhile, Err(Error::Busy { .. })),
        "{meanwhile:?}"
    );
    long.await.unwrap().unwrap();
    compact(&locks, 0).await.unwrap();
    assert_eq!(locks.stats().unguarded, 2, "back at the store");
}

/// A lease of the store that outlives the store's answers counts for local calls as well.
#[tokio::test]
async fn a_local_call_respects_what_the_store_has_granted_here() {
    #[distributed_lock(key = "shard", ttl = "20s", on_unavailable = local, client = locks)]
    async fn compact(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = pair().await;
    let lease = locks.lock("shard").acquire().await.unwrap();
    server.kill();
    let outcome = compact(&locks).await;
    assert!(matches!(outcome, Err(Error::Busy { .. })), "{outcome:?}");
    drop(lease);
}

#[tokio::test]
async fn a_disabled_client_runs_everything_and_counts_it() {
    #[distributed_lock(key = "k", client = locks)]
    async fn run<F: Future>(locks: &Client, inside: F) -> Result<F::Output, Error> {
        Ok(inside.await)
    }
    let locks = Client::disabled().unwrap();
    let (a, b) = tokio::join!(run(&locks, nap(50)), run(&locks, nap(50)));
    a.unwrap();
    b.unwrap();
    run(&locks, run(&locks, async {})).await.unwrap().unwrap();
    assert_eq!(locks.stats().unguarded, 4);
    let lease = locks.lock("k").acquire().await.unwrap();
    assert!(matches!(
        lease.token().await,
        Err(Error::Unavailable { .. })
    ));
}

/// The switch of the environment: no server is needed, and one line says so.
#[test]
fn a_process_can_be_told_to_do_without_locks() {
    let record = tests::record::Record::new();
    // A worker ends with its standard input.
    let (input, _kept_open) = std::io::pipe().unwrap();
    let output = std::process::Command::new(tests::worker::program())
        .args(["hold", "redis://127.0.0.1:1/"])
        .arg(record.path())
        .args(["42", "2000", "10", "0"])
        .env("LOCKATTR_DISABLED", "1")
        .stdin(input)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(out.contains("outcome Ok(())"), "{out}\n{err}");
    assert!(out.contains("unguarded: 1"), "{out}");
    assert_eq!(err.matches("LOCKS ARE DISABLED").count(), 1, "{err}");
}

#[tokio::test]
async fn what_a_call_asks_for_holds_also_where_it_joins() {
    #[distributed_lock(key = "outer:<id>", once = "1h", client = locks)]
    async fn once(locks: &Client, id: u32, runs: &AtomicUsize) -> Result<Option<()>, Error> {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok(Some(()))
    }
    #[distributed_lock(key = "outer:<id>", once = "1h", client = locks)]
    async fn fails<F: Future>(locks: &Client, id: u32, inside: F) -> Result<(), Error> {
        inside.await;
        Err(Error::NotInstalled)
    }
    #[distributed_lock(key = "outer:<id>", min_hold = "2s", client = locks)]
    async fn closes(locks: &Client, id: u32) -> Result<(), Error> {
        Ok(())
    }
    #[distributed_lock(key = "outer:<id>", max_hold = "200ms", client = locks)]
    async fn hangs(locks: &Client, id: u32) -> Result<(), Error> {
        std::future::pending().await
    }
    let (server, locks) = pair().await;
    let runs = AtomicUsize::new(0);
    // A success inside counts once, for later calls inside and outside.
    let inside = async {
        assert_eq!(once(&locks, 1, &runs).await.unwrap(), Some(()));
        assert_eq!(once(&locks, 1, &runs).await.unwrap(), None);
    };
    outer(&locks, 1, Duration::ZERO, inside).await.unwrap();
    assert_eq!(once(&locks, 1, &runs).await.unwrap(), None);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // One inside that has no `once` says nothing of the call around it.
    let inside = outer(&locks, 2, Duration::ZERO, async {});
    fails(&locks, 2, inside).await.unwrap_err();
    wait::until("no mark", || server.get("lock:outer:2").is_none()).await;
    outer(&locks, 3, Duration::ZERO, closes(&locks, 3))
        .await
        .unwrap()
        .unwrap();
    wait::until("nobody's", || {
        server
            .get("lock:outer:3")
            .is_some_and(|value| value.starts_with("0000"))
    })
    .await;
    let begun = Instant::now();
    let ended = outer(&locks, 4, Duration::ZERO, hangs(&locks, 4))
        .await
        .unwrap();
    assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(locks.stats().lost, 1);
}

#[tokio::test]
async fn a_call_joins_a_local_lease_as_well() {
    #[distributed_lock(key = "shard", on_unavailable = local, client = locks)]
    async fn shard<F: Future>(locks: &Client, inside: F) -> Result<F::Output, Error> {
        Ok(inside.await)
    }
    let (server, locks) = pair().await;
    server.kill();
    shard(&locks, shard(&locks, async {}))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_call_with_another_number_of_permits_does_not_join() {
    #[distributed_lock(key = "geo", permits = 2, client = locks)]
    async fn shared<F: Future>(locks: &Client, inside: F) -> Result<F::Output, Error> {
        Ok(inside.await)
    }
    #[distributed_lock(key = "geo", client = locks)]
    async fn alone(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let (_server, locks) = pair().await;
    let inner = shared(&locks, alone(&locks)).await.unwrap();
    assert!(matches!(inner, Err(Error::Busy { .. })), "{inner:?}");
}
