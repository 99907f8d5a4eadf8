//! What users test their services with (feature `testing`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lockattr::testing::{TestLocks, What};
use lockattr::{Client, Error, LossCause, distributed_lock};
use tokio::time::{Instant, sleep};

const LONG: Duration = Duration::from_secs(3600);

#[distributed_lock(key = "sync:<id>", ttl = "30s")]
async fn sync(id: u64, length: Duration) -> Result<u64, Error> {
    sleep(length).await;
    Ok(id)
}

#[distributed_lock(key = "mail:<address>", on_busy = skip, redact = true)]
async fn mail(address: &str) {
    sleep(Duration::from_secs(1)).await;
}

#[distributed_lock(key = "sync:<id>")]
async fn twice(id: u64) -> Result<u64, Error> {
    sync(id, Duration::ZERO).await
}

#[distributed_lock(key = "report", once = "1h", on_busy = skip)]
async fn report() {}

/// The message of a panic.
fn panics(what: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("a panic");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_each_call_is_recorded() {
    let locks = TestLocks::install();
    sync(1, Duration::ZERO).await.expect("the lock is free");
    let (first, second) = tokio::join!(sync(2, LONG), sync(2, LONG));
    assert!(first.is_ok());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    report().await;
    report().await;

    let happened: Vec<(String, What)> = locks
        .events()
        .into_iter()
        .map(|event| (event.key, event.what))
        .collect();
    let expected = [
        ("sync:1", What::Locked),
        ("sync:1", What::Released),
        ("sync:2", What::Locked),
        ("sync:2", What::Busy),
        ("sync:2", What::Released),
        ("report", What::Locked),
        ("report", What::Released),
        ("report", What::Done),
    ];
    let expected = expected.map(|(key, what)| (key.to_owned(), what));
    assert_eq!(happened, expected);
    locks.assert_skipped("sync:2");
    locks.assert_skipped("report");
    locks.assert_released("sync:1");
    locks.assert_nothing_held();
    assert_eq!(locks.count("sync:2", What::Locked), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_within_another_has_joined_it() {
    let locks = TestLocks::install();
    twice(1).await.expect("the lock is free");
    assert_eq!(locks.count("sync:1", What::Locked), 1);
    assert_eq!(locks.count("sync:1", What::Joined), 1);
    assert_eq!(locks.count("sync:1", What::Released), 1);
    locks.assert_nothing_held();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_expires_stops_its_body_at_once() {
    let locks = TestLocks::install();
    let begun = Instant::now();
    let body = tokio::spawn(sync(1, LONG));
    sleep(Duration::from_secs(1)).await;
    assert!(locks.is_held("sync:1"));
    locks.expire("sync:1");
    let outcome = body.await.expect("no panic");
    let cause = LossCause::Deleted;
    assert!(
        matches!(&outcome, Err(Error::Lost { cause: found, .. }) if *found == cause),
        "{outcome:?}"
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(locks.count("sync:1", What::Lost(cause)), 1);
    locks.assert_nothing_held();
    sync(1, Duration::ZERO).await.expect("it is free again");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_somebody_else_holds_is_busy_until_its_ttl_is_over() {
    let locks = TestLocks::install();
    let body = tokio::spawn(sync(1, LONG));
    sleep(Duration::from_secs(1)).await;
    locks.hold_elsewhere("sync:1", Duration::from_secs(60));
    let outcome = body.await.expect("no panic");
    assert!(
        matches!(
            &outcome,
            Err(Error::Lost {
                cause: LossCause::Taken,
                ..
            })
        ),
        "{outcome:?}"
    );
    let outcome = sync(1, Duration::ZERO).await;
    assert!(
        matches!(&outcome, Err(Error::Busy { holder, .. }) if holder == "elsewhere:1"),
        "{outcome:?}"
    );
    sleep(Duration::from_secs(61)).await;
    sync(1, Duration::ZERO).await.expect("its ttl is over");
}

#[distributed_lock(key = "doc:<id>", shared)]
async fn read(id: u64, length: Duration) -> Result<(), Error> {
    sleep(length).await;
    Ok(())
}

#[distributed_lock(key = "api", permits = 3, weight = weight)]
async fn call(weight: u32, length: Duration) -> Result<(), Error> {
    sleep(length).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_a_key_concerns_all_who_hold_it() {
    let locks = TestLocks::install();
    let minute = Duration::from_secs(60);
    for cause in [LossCause::Deleted, LossCause::Taken] {
        let fault = |key| match cause {
            LossCause::Deleted => locks.expire(key),
            _ => locks.hold_elsewhere(key, minute),
        };
        let readers = [(); 2].map(|()| tokio::spawn(read(1, LONG)));
        let callers = [1, 2].map(|weight| tokio::spawn(call(weight, LONG)));
        sleep(Duration::from_secs(1)).await;
        assert!(matches!(call(1, LONG).await, Err(Error::Busy { .. })));
        fault("doc:1");
        fault("api");
        for holder in readers.into_iter().chain(callers) {
            let told = holder.await.expect("no panic");
            assert!(
                matches!(&told, Err(Error::Lost { cause: found, .. }) if *found == cause),
                "{told:?}"
            );
        }
        let taken = cause == LossCause::Taken;
        for answer in [read(1, minute).await, call(3, minute).await] {
            match answer {
                Ok(()) => assert!(!taken),
                Err(Error::Busy { holder, .. }) => assert!(taken && holder == "elsewhere:1"),
                told => panic!("{told:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_refuses_is_slow_and_is_mended() {
    let locks = TestLocks::install();
    locks.refuse("out of order");
    let outcome = sync(1, Duration::ZERO).await;
    let Err(Error::Unavailable { source, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(source.to_string().contains("out of order"), "{source}");
    assert_eq!(locks.count("sync:1", What::Unavailable), 1);

    locks.mend();
    locks.delay(Duration::from_secs(2));
    let begun = Instant::now();
    sync(1, Duration::ZERO).await.expect("slow, and in time");
    assert!(
        begun.elapsed() >= Duration::from_secs(4),
        "asked and given back"
    );

    locks.delay(LONG);
    let begun = Instant::now();
    let outcome = sync(2, Duration::ZERO).await;
    assert!(
        matches!(outcome, Err(Error::Unavailable { .. })),
        "{outcome:?}"
    );
    assert!(begun.elapsed() < LONG);
    locks.mend();
    sync(3, Duration::ZERO).await.expect("it answers again");
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_shown_as_a_hash_are_found_by_their_text() {
    let locks = TestLocks::install();
    locks.hold_elsewhere("mail:ann@example.org", LONG);
    mail("ann@example.org").await;
    locks.assert_skipped("mail:ann@example.org");
    mail("bob@example.org").await;
    locks.assert_locked("mail:bob@example.org");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_of_the_runtime_has_these_locks() {
    let locks = TestLocks::install();
    let calls = (0..20).map(|id| tokio::spawn(sync(id, Duration::ZERO)));
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic").expect("the lock is free");
    }
    for id in 0..20 {
        locks.assert_locked(&format!("sync:{id}"));
    }
}

#[tokio::test]
async fn they_are_gone_with_their_value_and_one_set_at_a_time() {
    let locks = TestLocks::install();
    let message = panics(|| drop(TestLocks::install()));
    assert!(message.contains("has locks already"), "{message}");
    sync(1, Duration::ZERO)
        .await
        .expect("the first are still there");
    drop(locks);
    let outcome = sync(1, Duration::ZERO).await;
    assert!(matches!(outcome, Err(Error::NotInstalled)), "{outcome:?}");
    let locks = TestLocks::install();
    sync(1, Duration::ZERO)
        .await
        .expect("there are locks again");
    assert_eq!(locks.count("sync:1", What::Locked), 1);
}

#[test]
fn outside_of_a_runtime_they_say_what_is_missing() {
    let message = panics(|| drop(TestLocks::install()));
    assert!(message.contains("no tokio runtime"), "{message}");
    assert!(message.contains("scope_blocking"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn functions_that_block_have_them_in_spawn_blocking_and_in_scope() {
    #[distributed_lock(key = "count", blocking)]
    fn count() -> Result<u32, Error> {
        Ok(1)
    }
    let locks = TestLocks::install();
    let counted = tokio::task::spawn_blocking(count).await;
    assert_eq!(counted.expect("it runs").expect("it is free"), 1);
    let counted = std::thread::scope(|scope| {
        let outside = scope.spawn(count).join().expect("it runs");
        assert!(matches!(outside, Err(Error::NotInstalled)), "{outside:?}");
        let inside = || locks.client().scope_blocking(count);
        scope.spawn(inside).join().expect("it runs")
    });
    assert_eq!(counted.expect("it is free"), 1);
    assert_eq!(locks.count("count", What::Locked), 2);
    assert_eq!(locks.count("count", What::Released), 2);
    locks.assert_nothing_held();
}

#[tokio::test(start_paused = true)]
async fn a_client_in_scope_comes_first_and_a_second_one_contends() {
    let locks = TestLocks::install();
    let other = Client::builder().store(locks.store()).expect("a client");
    let begun = Instant::now();
    let held = other.lock("sync:1").ttl(LONG).acquire().await;
    let held = held.expect("the lock is free");
    assert!(sync(1, Duration::ZERO).await.is_err());
    other
        .scope(sync(2, Duration::ZERO))
        .await
        .expect("it is free");
    assert_eq!(locks.count("sync:2", What::Locked), 0);
    held.release().await.expect("it is ours");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_assertion_that_fails_tells_what_has_happened() {
    let locks = TestLocks::install();
    let message = panics(|| locks.assert_locked("sync:1"));
    assert_eq!(message, "`sync:1` was not locked: no call came");
    sync(2, Duration::ZERO).await.expect("the lock is free");
    let message = panics(|| locks.assert_locked("sync:1"));
    assert_eq!(
        message,
        "`sync:1` was not locked: nothing happened to it, but to `sync:2`"
    );
    let message = panics(|| locks.assert_lost("sync:2"));
    assert_eq!(message, "`sync:2` was not lost: it was Locked, Released");
    let body = tokio::spawn(sync(3, LONG));
    sleep(Duration::from_secs(1)).await;
    let message = panics(|| locks.assert_nothing_held());
    assert_eq!(message, "still held: sync:3");
    body.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_taken_up_is_recorded_and_one_that_is_handed_off_is_not_held() {
    let locks = TestLocks::install();
    let giver = Client::builder().store(locks.store()).expect("a client");
    let lease = giver.lock("k").acquire().await.expect("it is free");
    let text = lease.hand_off().expect("its only handle");
    let taken = locks.client().take_up(&text).await;
    let lease = taken.expect("nobody else has it");
    locks.assert_locked("k");
    let text = lease.hand_off().expect("its only handle");
    locks.assert_nothing_held();
    let taken = locks.client().take_up("no text").await;
    taken.expect_err("it is none");
    let lease = giver.take_up(&text).await.expect("nobody else has it");
    lease.release().await.expect("it is ours");
}
