//! Connections that are cut at the worst moment, sessions that end, and servers that freeze, die and come
//! back.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use lockattr::{Error, LossCause};
use tests::proxy::{Proxy, Treatment, Way};
use tests::record::{self, Event, Record};
use tests::worker::Worker;
use tests::zookeeper::{Control, Ensemble, url};

use crate::support::{
    SLACK, a_client, client, millis, nodes, nothing_left, prompt_client, queued, seconds, shared,
};

/// What an answer may take where no server answers: two connections and two replies, one second each.
const BOUND: Duration = Duration::from_secs(4);

/// A proxy before the shared server, and its URL.
fn behind() -> (Proxy, String) {
    let proxy = Proxy::before(shared().address(0));
    let at = url([proxy.address()].into_iter());
    (proxy, at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_19_a_place_whose_making_was_not_answered_is_found_and_given_back() {
    let mut control = Control::of(shared().address(0));
    let (proxy, at) = behind();
    let locks = prompt_client(&at, seconds(20)).await;
    let other = a_client().await;
    let lease = locks.lock("unanswered").acquire().await.unwrap();
    lease.release().await.unwrap();
    for swallowed in [Way::Replies, Way::Requests] {
        proxy.treat(swallowed, Treatment::Swallow);
        let begun = Instant::now();
        let error = locks.lock("unanswered").acquire().await.unwrap_err();
        assert!(begun.elapsed() < BOUND + SLACK, "{:?}", begun.elapsed());
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        if swallowed == Way::Replies {
            assert_eq!(nodes(&mut control, "unanswered").len(), 1);
        }
        proxy.heal();
        proxy.cut();
        nothing_left(&mut control, "unanswered", millis(500) + SLACK).await;
        let lease = other.lock("unanswered").acquire().await.unwrap();
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_19_what_is_given_back_while_cut_off_is_the_next_ones_at_once_after_it() {
    let mut control = Control::of(shared().address(0));
    let (proxy, at) = behind();
    let other = a_client().await;
    for swallowed in [Way::Replies, Way::Requests] {
        let locks = client(&at, seconds(20)).await;
        let lease = locks.lock("late").acquire().await.unwrap();
        let next = other.lock("late").wait(seconds(20));
        let next = tokio::spawn(async move { next.acquire().await });
        queued(&mut control, "late", 2).await;
        proxy.treat(swallowed, Treatment::Swallow);
        if swallowed == Way::Replies {
            drop(lease);
        } else {
            drop(lease);
            // A shutdown waits for what is to be given back.
            let shutdown = locks.clone();
            tokio::spawn(async move { shutdown.shutdown().await });
        }
        tokio::time::sleep(millis(300)).await;
        proxy.heal();
        proxy.cut();
        let healed = Instant::now();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert!(healed.elapsed() < SLACK, "{:?}", healed.elapsed());
        nothing_left(&mut control, "late", seconds(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_19_calls_that_are_dropped_while_connections_are_cut_leave_nothing() {
    let mut control = Control::of(shared().address(0));
    let (proxy, at) = behind();
    let locks = client(&at, seconds(20)).await;
    for polls in 1..30 {
        let mut asking = pin!(locks.lock("dropped").acquire());
        let mut left = polls;
        let some_polls = poll_fn(|cx| {
            left -= 1;
            match asking.as_mut().poll(cx) {
                Poll::Ready(lease) => Poll::Ready(Some(lease)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        drop(some_polls.await);
        if polls % 2 == 0 {
            proxy.cut();
        }
    }
    nothing_left(&mut control, "dropped", millis(500) + SLACK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_a_client_that_is_cut_off_for_nine_tenths_of_its_timeout_loses_nothing() {
    let session = seconds(12);
    let (proxy, at) = behind();
    let locks = client(&at, session).await;
    let lease = locks.lock("tenths").acquire().await.unwrap();
    let other = a_client().await;
    // Beyond the first seconds, in which the grant itself is young.
    tokio::time::sleep(seconds(1)).await;
    proxy.refuse();
    tokio::time::sleep(session.mul_f64(0.9)).await;
    assert!(!lease.remaining().is_zero());
    proxy.heal();
    tokio::time::sleep(seconds(1)).await;
    assert!(lease.remaining() > session / 2, "{:?}", lease.remaining());
    assert!(matches!(
        other.lock("tenths").acquire().await,
        Err(Error::Busy { .. })
    ));
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_a_client_that_is_cut_off_for_longer_has_lost_before_another_holds() {
    let session = seconds(3);
    let mut control = Control::of(shared().address(0));
    let (proxy, at) = behind();
    let locks = client(&at, session).await;
    let other = a_client().await;
    let lease = locks.lock("cut").acquire().await.unwrap();
    let next = other.lock("cut").wait(seconds(20));
    let next = tokio::spawn(async move {
        let lease = next.acquire().await;
        (lease.unwrap(), Instant::now())
    });
    queued(&mut control, "cut", 2).await;
    tokio::time::sleep(seconds(1)).await;
    proxy.refuse();
    let cut = Instant::now();
    let told = lease.lost().await;
    let lost = Instant::now();
    let expired = matches!(
        told,
        Error::Lost {
            cause: LossCause::Expired,
            ..
        }
    );
    assert!(expired, "{told}");
    assert!(lost - cut <= session, "{:?}", lost - cut);
    let (next, granted) = next.await.unwrap();
    assert!(granted >= lost, "{:?} too early", lost - granted);
    assert!(granted - cut < session + SLACK, "{:?}", granted - cut);
    tokio::time::sleep((cut + 2 * session).saturating_duration_since(Instant::now())).await;
    proxy.heal();
    // The session that was cut off is over, and another takes its place.
    let error = locks.lock("cut").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    next.release().await.unwrap();
    let next = locks.lock("cut").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_servers_that_are_away_for_three_timeouts_come_back_to_free_locks() {
    let session = seconds(2);
    let server = Ensemble::single();
    let locks = prompt_client(&server.url(), session).await;
    let other = prompt_client(&server.url(), session).await;
    let lease = locks.lock("away").acquire().await.unwrap();
    let away = Instant::now();
    server.kill(0);
    let loss = lease.lost().await;
    assert!(
        away.elapsed() <= session,
        "{loss} after {:?}",
        away.elapsed()
    );
    let error = other.lock("away").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    tokio::time::sleep((away + 3 * session).saturating_duration_since(Instant::now())).await;
    drop(lease);
    server.restart(0);
    let back = Instant::now();
    // The servers know the old session yet, and its client ends it.
    let next = other
        .lock("away")
        .wait(seconds(10))
        .acquire()
        .await
        .unwrap();
    assert!(back.elapsed() < SLACK, "{:?}", back.elapsed());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_servers_that_have_lost_their_data_are_used_again() {
    let session = seconds(2);
    let server = Ensemble::single();
    let locks = client(&server.url(), session).await;
    let lease = locks.lock("data").acquire().await.unwrap();
    // They have seen much that they will not know.
    for _ in 0..20 {
        lease.token().await.unwrap();
        let other = locks.lock("other").acquire().await.unwrap();
        other.release().await.unwrap();
    }
    server.start_anew();
    let begun = Instant::now();
    lease.lost().await;
    let next = locks.lock("data").wait(seconds(20)).acquire().await;
    assert!(begun.elapsed() < session + SLACK, "{:?}", begun.elapsed());
    next.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_a_waiter_that_dies_is_passed_over() {
    let mut control = Control::of(shared().address(0));
    let locks = a_client().await;
    let lease = locks.lock("sync:1020").acquire().await.unwrap();
    let records: Vec<_> = (0..4).map(|_| Record::new()).collect();
    let mut waiters = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let words = ["1020", "2000", "1", "20000", "ttl=2000"];
        waiters.push(Worker::start("hold", &shared().url(), record, &words));
        queued(&mut control, "sync:1020", number + 2).await;
    }
    waiters[1].kill();
    waiters[2].freeze();
    let begun = Instant::now();
    lease.release().await.unwrap();
    // The dead one and the frozen one are there for the rest of their sessions.
    waiters[0].says("outcome Ok");
    waiters[3].says("outcome Ok");
    assert!(
        begun.elapsed() < seconds(4) + SLACK,
        "{:?}",
        begun.elapsed()
    );
    waiters[2].thaw();
    waiters[2].says("outcome Ok");
}

/// The servers have not ended its session yet, and are about to: the leader hears from a server only twice a tick who
/// is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_comes_back_after_its_own_deadline_begins_anew() {
    let mut control = Control::of(shared().address(0));
    let locks = a_client().await;
    let lease = locks.lock("sync:1022").acquire().await.unwrap();
    let held = nodes(&mut control, "sync:1022");
    let record = Record::new();
    let words = ["1022", "4000", "1", "30000", "ttl=4000"];
    let mut waiter = Worker::start("hold", &shared().url(), &record, &words);
    queued(&mut control, "sync:1022", 2).await;
    let place = nodes(&mut control, "sync:1022");
    let place = place.into_iter().find(|node| !held.contains(node)).unwrap();
    // Not in the middle of a look, whose time would be over.
    tokio::time::sleep(millis(400)).await;
    waiter.freeze();
    // Its session may be relied on for 3.84 s, and lives for 4 s.
    tokio::time::sleep(millis(3_870)).await;
    waiter.thaw();
    let is_gone = || !nodes(&mut control, "sync:1022").contains(&place);
    tests::wait::within("its place goes", SLACK, is_gone).await;
    queued(&mut control, "sync:1022", 2).await;
    lease.release().await.unwrap();
    waiter.says("outcome Ok");
    assert!(waiter.finish().success());
}

#[test]
fn field_store_20_a_holder_that_was_frozen_is_not_polled_again() {
    let record = Record::new();
    let words = ["1021", "2000", "60000", "0", "ttl=2000"];
    let mut holder = Worker::start("hold", &shared().url(), &record, &words);
    holder.says("entered");
    tests::wait::block_until("it is at work", || record.count(Event::Beat) > 3);
    holder.freeze();
    let frozen = record::now();
    std::thread::sleep(seconds(4));
    let other = Record::new();
    let words = ["1021", "2000", "1", "10000", "ttl=2000"];
    let mut next = Worker::start("hold", &shared().url(), &other, &words);
    next.says("outcome Ok");
    assert!(next.finish().success());
    holder.thaw();
    let outcome = holder.says("outcome");
    assert!(outcome.contains("Lost"), "{outcome}");
    assert!(holder.finish().success());
    let entries = record.entries().into_iter();
    let late: Vec<_> = entries
        .filter(|entry| entry.event != Event::Outcome && entry.at > frozen)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_leases_survive_the_loss_of_one_server_of_three_and_waiters_are_woken() {
    let session = seconds(8);
    let servers = Ensemble::three();
    let (one, two) = (
        client(&servers.url(), session).await,
        client(&servers.url(), session).await,
    );
    let leader = servers.leader().expect("three servers have a leader");
    let follower = servers.follower();
    for (what, server) in [("frozen", follower), ("killed", leader)] {
        let lease = one.lock("three").acquire().await.unwrap();
        let next = two.lock("three").wait(seconds(30));
        let next = tokio::spawn(async move { next.acquire().await });
        let third = (0..3).find(|other| *other != follower && *other != leader);
        let mut control = Control::of(servers.address(third.unwrap()));
        queued(&mut control, "three", 2).await;
        if what == "frozen" {
            servers.freeze(server);
        } else {
            servers.kill(server);
        }
        tokio::time::sleep(session.mul_f64(0.75)).await;
        assert!(!lease.remaining().is_zero(), "{what}");
        assert!(lease.release().await.is_ok(), "{what}");
        let freed = Instant::now();
        let next = next.await.unwrap().unwrap();
        assert!(freed.elapsed() < SLACK, "{what}: {:?}", freed.elapsed());
        next.release().await.unwrap();
        if what == "frozen" {
            servers.thaw(server);
            servers.wait_until_served(&[server]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_store_20_without_a_majority_all_is_unavailable_and_comes_back_by_itself() {
    let session = seconds(3);
    let servers = Ensemble::three();
    let locks = prompt_client(&servers.url(), session).await;
    let lease = locks.lock("majority").acquire().await.unwrap();
    let leader = servers.leader().expect("three servers have a leader");
    let follower = servers.follower();
    let away = Instant::now();
    servers.freeze(leader);
    servers.freeze(follower);
    let loss = lease.lost().await;
    assert!(
        away.elapsed() <= session,
        "{loss} after {:?}",
        away.elapsed()
    );
    let begun = Instant::now();
    let error = locks.lock("majority").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(begun.elapsed() < BOUND + SLACK, "{:?}", begun.elapsed());
    drop(lease);
    servers.thaw(leader);
    servers.thaw(follower);
    servers.wait_until_served(&[0, 1, 2]);
    let back = Instant::now();
    let next = loop {
        match locks.lock("majority").wait(seconds(20)).acquire().await {
            Ok(next) => break next,
            Err(error) => assert!(back.elapsed() < seconds(10), "{error}"),
        }
    };
    next.release().await.unwrap();
}
