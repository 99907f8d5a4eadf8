//! The store in memory, and clocks that tests pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause, Memory, distributed_lock};

use crate::support::{client, job, nap, timed};
use tests::server::Server;

const HOUR: Duration = Duration::from_secs(3_600);

#[distributed_lock(key = "count", wait = "60s", client = locks)]
async fn counted(locks: &Client, inside: &AtomicU32) -> Result<(), Error> {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
    nap(1).await;
    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two at a time");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_on_one_key_in_memory_run_one_at_a_time() {
    let locks = Client::connect("memory:").await.unwrap();
    let inside = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tokio::spawn(async move { counted(&locks, &inside).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(locks.stats().granted, 100);
}

#[tokio::test]
async fn clients_of_one_memory_exclude_each_other_and_others_do_not() {
    let memory = Memory::new();
    let one = Client::builder().store(memory.clone()).unwrap();
    let two = Client::builder().store(memory.clone()).unwrap();
    let lease = one.lock("a").acquire().await.unwrap();
    let error = two.lock("a").acquire().await.unwrap_err();
    let Error::Busy { holder, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(
        holder.ends_with(&format!(":{}", std::process::id())),
        "{holder}"
    );
    assert_eq!(memory.holder("lock:a").as_deref(), Some(lease.owner()));
    // Another store.
    let other = Client::connect("memory:").await.unwrap();
    drop(other.lock("a").acquire().await.unwrap());
    lease.release().await.unwrap();
    assert_eq!(memory.holder("lock:a"), None);
}

#[tokio::test]
async fn memory_plays_the_faults_of_a_store() {
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    let ttl = Duration::from_millis(600);
    let lost = timed(&locks, 42, ttl, async {
        memory.expire("lock:sync:42");
        nap(5_000).await;
    });
    assert!(matches!(
        lost.await,
        Err(Error::Lost {
            cause: LossCause::Deleted,
            ..
        })
    ));
    let lost = timed(&locks, 42, ttl, async {
        memory.take("lock:sync:42", "somebody", HOUR);
        nap(5_000).await;
    });
    assert!(matches!(
        lost.await,
        Err(Error::Lost {
            cause: LossCause::Taken,
            ..
        })
    ));
    assert_eq!(memory.holder("lock:sync:42").as_deref(), Some("somebody"));
    memory.refuse(Some("on holiday"));
    let error = job(&locks, 43, async { panic!("the body ran") })
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("on holiday"), "{error}");
    memory.refuse(None);
    job(&locks, 43, async {}).await.unwrap();
    // What cannot be renewed for a while is no loss.
    timed(&locks, 44, ttl, async {
        memory.refuse(Some("on holiday"));
        nap(300).await;
        memory.refuse(None);
        nap(600).await;
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_slots_of_a_key_have_names_of_their_own() {
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    let take = || locks.lock("geo").permits(3).acquire();
    let leases = [take().await.unwrap(), take().await.unwrap()];
    let names = ["{lock:geo}0", "{lock:geo}1", "{lock:geo}2"];
    let holders = names.map(|name| memory.holder(name));
    assert_eq!(holders[0].as_deref(), Some(leases[0].owner()));
    assert_eq!(holders[1].as_deref(), Some(leases[1].owner()));
    assert_eq!(holders[2], None);
    memory.expire(names[1]);
    memory.take(names[2], "somebody", HOUR);
    let [first, second] = leases;
    assert!(matches!(second.release().await, Err(Error::Lost { .. })));
    let second = take().await.unwrap();
    assert_eq!(second.slot(), 1);
    // By its own name all that stands under the key is gone.
    memory.expire("lock:geo");
    assert!(matches!(first.release().await, Err(Error::Lost { .. })));
    assert!(matches!(second.release().await, Err(Error::Lost { .. })));
    drop(locks.lock("geo").acquire().await.unwrap());
}

#[distributed_lock(key = "once:<id>", once = "1s", client = locks)]
async fn once(locks: &Client, id: u32) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn marks_and_leases_that_are_over_take_no_memory() {
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    for id in 0..100_000 {
        once(&locks, id).await.unwrap();
        if id % 1_000 == 0 {
            tokio::time::advance(Duration::from_secs(2)).await;
        }
    }
    assert_eq!(memory.holder("lock:once:0"), None);
    let kept = kept(&memory);
    assert!(kept < 5_000, "{kept} names");
    // What is not over stays.
    let lease = locks.lock("long").ttl(HOUR).acquire().await.unwrap();
    for id in 0..10_000 {
        memory.take(&format!("other:{id}"), "somebody", Duration::from_millis(1));
        if id % 1_000 == 0 {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
    assert_eq!(memory.holder("lock:long").as_deref(), Some(lease.owner()));
    lease.release().await.unwrap();
}

/// How many names a store in memory keeps.
fn kept(memory: &Memory) -> usize {
    let text = format!("{memory:?}");
    assert!(!text.contains('@'), "owners are not shown: {text:.200}");
    let (_, rest) = text.split_once("names: ").expect("a count of names");
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|count| count.parse().ok())
        .expect("a count")
}

#[tokio::test(start_paused = true)]
async fn field_25_in_memory_time_is_the_tests_own() {
    let locks = Client::connect("memory:").await.unwrap();
    let real = Instant::now();
    // A body of three hours under a lease of one keeps it.
    let other = locks.clone();
    timed(&locks, 42, HOUR, async {
        for _ in 0..18 {
            tokio::time::sleep(HOUR / 6).await;
            assert!(matches!(
                other.lock("sync:42").acquire().await,
                Err(Error::Busy { .. })
            ));
        }
    })
    .await
    .unwrap();
    assert_eq!(locks.stats().lost, 0);

    // A lease that is not renewed ends when its hour is over, and a waiter gets it then.
    let start = tokio::time::Instant::now();
    let first = locks
        .lock("a")
        .ttl(HOUR)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let next = locks.lock("a").wait(2 * HOUR).acquire().await.unwrap();
    let waited = start.elapsed();
    assert!(
        waited >= HOUR && waited < HOUR + Duration::from_secs(2),
        "{waited:?}"
    );
    assert_eq!(first.remaining(), Duration::ZERO);
    assert!(matches!(first.lost().await, Error::Lost { .. }));
    next.release().await.unwrap();

    // And one that waits in vain waits exactly as long as it said.
    let held = locks.lock("a").ttl(HOUR).acquire().await.unwrap();
    let start = tokio::time::Instant::now();
    let error = locks.lock("a").wait(HOUR / 2).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    let waited = start.elapsed();
    assert!(
        waited >= HOUR / 2 && waited < HOUR / 2 + Duration::from_secs(1),
        "{waited:?}"
    );
    drop(held);
    assert!(
        real.elapsed() < Duration::from_secs(5),
        "{:?}",
        real.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn field_25_with_a_real_server_no_timeout_fires_that_should_not() {
    let server = Server::start();
    // The clock jumps ahead whenever this runtime has nothing to do, as it has while a reply is on
    // its way.
    let locks = client(&server).await;
    for user in 0..50 {
        assert_eq!(job(&locks, user, async {}).await.unwrap(), Some(()));
    }
    // Jumps in the body do not end its lease: the server's time is the real one.
    timed(&locks, 42, Duration::from_secs(5), async {
        tokio::time::sleep(24 * HOUR).await;
        assert!(server.get("lock:sync:42").is_some());
    })
    .await
    .unwrap();
    // Nor is a busy key waited for in the test's time only.
    let other = client(&server).await;
    let lease = other
        .lock("sync:42")
        .ttl(Duration::from_secs(1))
        .renew(false)
        .acquire()
        .await
        .unwrap();
    let next = locks
        .lock("sync:42")
        .wait(Duration::from_secs(10))
        .acquire()
        .await
        .unwrap();
    drop(lease);
    next.release().await.unwrap();
    let stats = locks.stats();
    assert_eq!(
        (stats.unavailable, stats.lost, stats.release_failed),
        (0, 0, 0),
        "{stats:?}"
    );
}

/// A caller of a client of its own, and when it was served in the test's time.
async fn served(memory: Memory, hold: Duration) -> tokio::time::Instant {
    let locks = Client::builder().store(memory).unwrap();
    let lease = locks.lock("a").ttl(HOUR).wait(24 * HOUR).acquire().await;
    let lease = lease.unwrap();
    let at = tokio::time::Instant::now();
    tokio::time::sleep(hold).await;
    lease.release().await.unwrap();
    at
}

/// As long as tokio's timers may be late.
const TICK: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn in_memory_clients_are_served_in_the_order_in_which_they_came_and_at_once() {
    let memory = Memory::new();
    let hold = Duration::from_secs(10);
    let calls: Vec<_> = (0..5)
        .map(|number| {
            let memory = memory.clone();
            tokio::spawn(async move {
                tokio::time::sleep(number * Duration::from_secs(1)).await;
                served(memory, hold).await
            })
        })
        .collect();
    let start = tokio::time::Instant::now();
    let mut expected = Duration::ZERO;
    for call in calls {
        let at = call.await.unwrap() - start;
        assert!(
            at >= expected && at <= expected + 5 * TICK,
            "{at:?} instead of {expected:?}"
        );
        expected += hold;
    }
    assert_eq!(memory.holder("lock:a"), None);
}

#[tokio::test(start_paused = true)]
async fn in_memory_a_wait_between_clients_ends_exactly_when_its_time_is_over() {
    let memory = Memory::new();
    let one = Client::builder().store(memory.clone()).unwrap();
    let two = Client::builder().store(memory.clone()).unwrap();
    let lease = one.lock("a").ttl(HOUR).acquire().await.unwrap();
    for millis in [1, 700, 12_345, 7_200_000] {
        let wait = Duration::from_millis(millis);
        for locks in [&one, &two] {
            let start = tokio::time::Instant::now();
            let told = locks.lock("a").ttl(HOUR).wait(wait).acquire().await;
            assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
            let took = start.elapsed();
            assert!(took >= wait && took <= wait + TICK, "{took:?} of {wait:?}");
        }
    }
    // No waiter is left in the queue that would be granted the lock.
    lease.release().await.unwrap();
    assert_eq!(memory.holder("lock:a"), None);
}
