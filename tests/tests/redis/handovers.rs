//! Leases that a release handed over: how long they run, and what else a holder may leave to those who
//! wait.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;

use crate::support::{Callers, LOOK, SLACK, client, nap, pair};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);

fn left(server: &Server, lock: &str) -> Duration {
    Duration::from_millis(u64::try_from(server.pttl(lock)).unwrap_or(0))
}

/// However late the message of a grant or of a place in the queue comes, no client relies on a lease
/// for longer than the store does.
#[tokio::test]
async fn a_lease_whose_grant_message_came_late_is_not_relied_on_for_too_long() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    // Not so late that the connection is taken for dead.
    let late = Treatment::Delay(Duration::from_millis(250));
    for (asking, waking) in [
        (Treatment::Pass, Treatment::Pass),
        (Treatment::Pass, late),
        (late, Treatment::Pass),
        (late, late),
    ] {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        proxy.treat(Way::Replies, asking);
        let request = far.lock("sync:42").ttl(2 * SECOND).renew(false);
        let call = tokio::spawn(request.wait(PATIENT).acquire());
        wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
        // The reply to that has arrived as well.
        nap(500).await;
        proxy.treat(Way::Replies, waking);
        lease.release().await.unwrap();
        let lease = call.await.unwrap().unwrap();
        let truth = left(&server, "lock:sync:42");
        let relied_on = lease.remaining();
        assert_eq!(server.owner("lock:sync:42").as_deref(), Some(lease.owner()));
        assert!(
            relied_on <= truth,
            "{asking:?} {waking:?}: {relied_on:?} of {truth:?}"
        );
        // And it is of some use.
        assert!(
            relied_on > SECOND / 2,
            "{asking:?} {waking:?}: {relied_on:?}"
        );
        proxy.heal();
        lease.release().await.unwrap();
        assert_eq!(server.size(), 0);
    }
}

/// A grant message that comes after the end of its lease starts no body: the call goes on waiting.
#[tokio::test]
async fn a_lease_whose_grant_message_came_after_its_end_is_not_used() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let request = far.lock("sync:42").ttl(SECOND / 2).renew(false);
    let call = tokio::spawn(request.wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    nap(100).await;
    proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(900)));
    lease.release().await.unwrap();
    wait::until("the lease that it was given ends", || {
        server.get("lock:sync:42").is_none()
    })
    .await;
    let next = locks.lock("sync:42").ttl(10 * SECOND).acquire().await;
    let next = next.unwrap();
    nap(700).await;
    assert!(!call.is_finished());
    assert_eq!(server.owner("lock:sync:42").as_deref(), Some(next.owner()));
    proxy.heal();
    next.release().await.unwrap();
    let lease = call.await.unwrap().unwrap();
    assert!(lease.remaining() <= left(&server, "lock:sync:42"));
}

#[tokio::test]
async fn a_lease_that_is_handed_over_runs_for_the_ttl_that_its_new_holder_asked_for() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    for (ttl, asked) in [(60 * SECOND, 5 * SECOND), (5 * SECOND, 60 * SECOND)] {
        let lease = locks.lock("sync:42").ttl(ttl).acquire().await.unwrap();
        let request = other.lock("sync:42").ttl(asked).wait(PATIENT);
        let call = tokio::spawn(request.acquire());
        wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
        lease.release().await.unwrap();
        let lease = call.await.unwrap().unwrap();
        assert_eq!(server.owner("lock:sync:42").as_deref(), Some(lease.owner()));
        let left = left(&server, "lock:sync:42");
        assert!(
            left <= asked && left + SECOND > asked,
            "{left:?} of {asked:?}"
        );
        assert!(lease.remaining() + SECOND + asked / 50 > asked);
        // It is renewed like any other.
        lease.token().await.unwrap();
        lease.extend(asked).await.unwrap();
        lease.release().await.unwrap();
        let _: usize = server.ask("DEL lock:token:{lock:sync:42}");
        assert_eq!(server.size(), 0);
    }
}

#[distributed_lock(
    key = "nightly",
    wait = "60s",
    once = "1h",
    on_done = error,
    client = locks
)]
async fn nightly(locks: &Client) -> Result<(), Error> {
    nap(300).await;
    Ok(())
}

#[tokio::test]
async fn all_who_wait_for_work_that_is_done_are_told_so_at_once() {
    let server = Server::start();
    let clients = [
        client(&server).await,
        client(&server).await,
        client(&server).await,
    ];
    let start = Instant::now();
    let calls: Vec<_> = (0..12)
        .map(|number| {
            let locks = clients[number % 3].clone();
            tokio::spawn(async move { nightly(&locks).await })
        })
        .collect();
    let mut ran = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(()) => ran += 1,
            Err(Error::Done { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(ran, 1);
    assert!(start.elapsed() < LOOK + SLACK, "{:?}", start.elapsed());
    assert_eq!(server.keys(), ["lock:nightly"]);
}

#[tokio::test]
async fn a_key_that_stays_closed_is_open_to_those_who_wait_when_its_time_has_come() {
    let (server, locks) = pair().await;
    let closed = SECOND;
    let request = locks.lock("sync:42").min_hold(closed);
    let start = Instant::now();
    let lease = request.acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    for _ in 0..2 {
        callers.arrive(&client(&server).await).await;
    }
    // And one of the holder's own client.
    callers.call(&locks, PATIENT);
    lease.release().await.unwrap();
    callers.within(2 * LOOK + SLACK, 3).await;
    let first = callers.served()[0].1 - start;
    assert!(first >= closed, "{first:?}");
    assert!(first < closed + SLACK, "{first:?}");
    wait::until("nothing is left", || server.size() == 0).await;
}

#[tokio::test]
async fn who_waits_for_several_keys_blocks_none_of_them_meanwhile() {
    let (server, locks) = pair().await;
    let (several, single) = (client(&server).await, client(&server).await);
    let a = locks.lock("a").acquire().await.unwrap();
    let b = locks.lock("b").acquire().await.unwrap();
    let both = tokio::spawn(several.lock_all(["a", "b"]).wait(PATIENT).acquire());
    wait::until("it is queued", || {
        server.waiters("lock:a") + server.waiters("lock:b") == 1
    })
    .await;
    let one = tokio::spawn(single.lock("a").wait(PATIENT).acquire());
    let queued = || server.waiters("lock:a") + server.waiters("lock:b");
    wait::until("both are queued", || queued() == 2).await;
    // The first of those who wait for `a` has no use for it yet.
    a.release().await.unwrap();
    let one = tokio::time::timeout(LOOK + SLACK, one).await;
    one.expect("its turn")
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    wait::within("nobody holds what it cannot use", LOOK + SLACK, || {
        server.get("lock:a").is_none()
    })
    .await;
    b.release().await.unwrap();
    let both = tokio::time::timeout(LOOK + SLACK, both).await;
    let both = both.expect("its turn").unwrap().unwrap();
    for lock in ["lock:a", "lock:b"] {
        assert_eq!(server.owner(lock).as_deref(), Some(both.owner()));
        assert!(both.remaining() <= left(&server, lock));
    }
    both.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_want_several_keys_and_some_who_want_one_all_get_on() {
    let server = Server::start();
    let mut calls = Vec::new();
    let start = Instant::now();
    for number in 0..12_usize {
        let locks = client(&server).await;
        calls.push(tokio::spawn(async move {
            for round in 0..8 {
                let names = ["a", "b", "c"];
                let (one, two) = (names[number % 3], names[(number + 1 + round % 2) % 3]);
                let request = if number % 4 == 0 {
                    locks.lock(one)
                } else {
                    locks.lock_all([one, two])
                };
                let lease = request.wait(PATIENT).acquire().await.unwrap();
                nap(1).await;
                lease.release().await.unwrap();
            }
        }));
    }
    for call in calls {
        call.await.unwrap();
    }
    // 96 sections of about 2 ms, some side by side; not one look each.
    let took = start.elapsed();
    println!("{took:?}");
    assert!(took < 5 * LOOK + SLACK, "{took:?}");
    wait::until("nothing is left", || server.size() == 0).await;
}

/// An earlier release of the application, or `redis-cli`, gives a lock back without a word to anybody.
#[tokio::test]
async fn a_holder_that_wakes_nobody_costs_at_most_one_look() {
    let server = Server::start();
    let _: () = server.ask("SET lock:sync:42 somebody NX PX 30000");
    let mut callers = Callers::new(&server, "sync:42");
    for _ in 0..3 {
        callers.arrive(&client(&server).await).await;
    }
    let _: usize = server.ask("DEL lock:sync:42");
    assert_eq!(callers.within(LOOK + SLACK, 3).await, [0, 1, 2]);
    assert_eq!(server.size(), 0);
}

/// No malformed entry of the wait queue is granted the lock.
/// A newcomer that takes what has ended under its holder, before those look who wait, stores its owner alone: its
/// release wakes nobody.
#[tokio::test]
async fn a_newcomer_that_comes_before_a_waiter_looks_costs_at_most_one_look() {
    let (server, locks) = pair().await;
    let (other, newcomer) = (client(&server).await, client(&server).await);
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let call = tokio::spawn(other.lock("sync:42").wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    // As the end of its ttl does, but before the waiter looks.
    let _: usize = server.ask("DEL lock:sync:42");
    let next = newcomer.lock("sync:42").acquire().await.unwrap();
    let start = Instant::now();
    next.release().await.unwrap();
    let granted = call.await.unwrap().unwrap();
    assert!(start.elapsed() < LOOK + SLACK, "{:?}", start.elapsed());
    granted.release().await.unwrap();
    drop(lease);
}

#[tokio::test]
async fn malformed_queue_entries_are_passed_over() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    callers.arrive(&client(&server).await).await;
    let queue = "lock:wait:{lock:sync:42}";
    let long = "x".repeat(10_000);
    let odd = [
        "",
        " ",
        "malformed",
        "a b c d",
        "a 30000 1 nobody-listens",
        "a -5 1 nobody-listens",
        "a 0 1 nobody-listens",
        "a 1e999 1 nobody-listens",
        "a 30000 x nobody-listens",
        "a 30000 1 nobody listens here",
        "a\n30000\n1\nc",
        "\u{0}\u{1}",
        &long,
    ];
    for (score, member) in odd.iter().enumerate() {
        let score = format!("-{score}");
        let _: usize = server.words(&["ZADD", queue, &score, member]).unwrap();
    }
    lease.release().await.unwrap();
    callers.within(LOOK + SLACK, 1).await;
    wait::within("the key is free", LOOK + SLACK, || {
        server.get("lock:sync:42").is_none()
    })
    .await;
}

/// Nor does it keep the mark of work that is done from being left.
#[tokio::test]
async fn malformed_queue_entries_keep_no_mark_from_being_set() {
    let (server, locks) = pair().await;
    let mine = locks.clone();
    let runs = tokio::spawn(async move { nightly(&mine).await });
    wait::until("it runs", || server.get("lock:nightly").is_some()).await;
    let _: usize = server.ask("ZADD lock:wait:{lock:nightly} 1 malformed 2 a");
    runs.await.unwrap().unwrap();
    let mark = server.get("lock:nightly").unwrap_or_default();
    assert!(mark.starts_with("done@"), "{mark}");
    assert_eq!(locks.stats().release_failed, 0);
}

#[tokio::test]
async fn another_type_under_the_queues_key_keeps_nobody_from_giving_back() {
    for odd in [
        "SET lock:wait:{lock:sync:42} x",
        "LPUSH lock:wait:{lock:sync:42} x",
    ] {
        let (server, locks) = pair().await;
        let other = client(&server).await;
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let _: redis::Value = server.ask(odd);
        let call = tokio::spawn(other.lock("sync:42").wait(PATIENT).acquire());
        nap(100).await;
        lease.release().await.unwrap();
        assert_eq!(locks.stats().release_failed, 0);
        // It looks for itself, or says what is wrong; it does not wait for ever.
        let told = tokio::time::timeout(LOOK + SLACK, call).await;
        println!("{:?}", told.expect("an end").unwrap());
        wait::until("the key is free", || server.get("lock:sync:42").is_none()).await;
    }
}

/// Somebody who listens to everything, such as `redis-cli psubscribe '*'`, is not a waiter.
#[tokio::test]
async fn an_onlooker_of_all_channels_keeps_no_dead_waiter_alive() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let mut onlooker = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let mut onlooker = onlooker.as_pubsub();
    onlooker.psubscribe("*").unwrap();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut callers = Callers::new(&server, "sync:42");
    let away = Client::connect(proxy.url()).await.unwrap();
    callers.arrive(&away).await;
    callers.arrive(&client(&server).await).await;
    assert_eq!(server.subscribers(), 3);
    proxy.refuse();
    wait::until("the server sees it go", || server.subscribers() == 2).await;
    lease.release().await.unwrap();
    assert_eq!(callers.within(LOOK + SLACK, 1).await, [1]);
}

/// A waiter finds the lock expired and before it in the queue one that nobody can wake: the lock is written
/// for that one first, and then has to be its own.
#[tokio::test]
async fn a_lock_that_was_written_for_a_waiter_who_is_gone_is_written_for_the_next_one() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_secs(30);
    // As long a lease as the next one's, and a longer one.
    for gone_ttl in ["30000", "60000"] {
        let _: () = server.ask("SET lock:sync:42 0@h:1 PX 700");
        let request = locks.lock("sync:42").ttl(ttl).wait(wait::PATIENCE);
        let waiter = tokio::spawn(request.acquire());
        wait::until("it waits", || server.waiters("lock:sync:42") == 1).await;
        let gone = format!("1@h:1 {gone_ttl} 1 lock:wake:1");
        let queue = "lock:wait:{lock:sync:42}";
        let _: () = server.words(&["ZADD", queue, "-1", &gone]).unwrap();
        let lease = waiter.await.unwrap().unwrap();
        assert_eq!(server.owner("lock:sync:42").as_deref(), Some(lease.owner()));
        let left = server.pttl("lock:sync:42");
        assert!((25_000..=30_000).contains(&left), "{left} ms");
        lease.release().await.unwrap();
        assert_eq!(server.size(), 0);
    }
}
