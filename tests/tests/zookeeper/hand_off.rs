//! Leases that one process hands off and another takes up: the node is another session's from then on.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause};
use tests::hand_offs::{Heir, is_lost, taken_up_by_one};
use tests::proxy::{Proxy, Treatment, Way};
use tests::statuses::holder;
use tests::wait;
use tests::zookeeper::{Control, Ensemble, url};

use crate::support::{
    SLACK, a_client, client, is_busy, millis, nodes, nothing_left, places, prompt_client, seconds,
    shared,
};

const TTL: Duration = Duration::from_secs(2);

#[test]
fn a_child_goes_on_with_what_its_parent_held_when_that_is_killed() {
    let server = Ensemble::single();
    let mut control = Control::of(server.address(0));
    let heir = Heir::of_a_killed_parent(&server.url(), 2000, || {});
    // Longer than the session of the parent.
    std::thread::sleep(TTL + TTL);
    let now = nodes(&mut control, "heritage");
    let process = format!(":{}+", heir.id());
    assert!(now.len() == 1 && now[0].contains(&process), "{now:?}");
    heir.release();
    assert_eq!(nodes(&mut control, "heritage"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_it_after_the_one_who_took_it_up() {
    let mut control = Control::of(shared().address(0));
    let (locks, heir, waiting) = (a_client().await, a_client().await, a_client().await);
    let lease = locks.lock("off:waits").acquire().await.unwrap();
    let request = waiting.lock("off:waits").wait(seconds(30));
    let waiter = tokio::spawn(request.acquire());
    wait::until("it is queued", || places(&mut control, "off:waits") == 2).await;
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    tokio::time::sleep(millis(700)).await;
    assert!(!waiter.is_finished());
    let released = Instant::now();
    lease.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(released.elapsed() < millis(500), "{:?}", released.elapsed());
    next.release().await.unwrap();
    nothing_left(&mut control, "off:waits", seconds(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_take_it_up_one_has_it() {
    let locks = a_client().await;
    let mut heirs = Vec::new();
    for _ in 0..4 {
        heirs.push(a_client().await);
    }
    for _ in 0..10 {
        let lease = locks.lock("off:many").acquire().await.unwrap();
        let text = lease.hand_off().unwrap().to_string();
        let taken = taken_up_by_one(&text, &heirs, LossCause::Taken).await;
        taken.release().await.unwrap();
        is_lost(locks.take_up(&text).await, LossCause::Deleted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_takes_up_ends_with_its_ttl() {
    let locks = a_client().await;
    let lease = locks.lock("off:left").ttl(TTL).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let begun = Instant::now();
    let next = a_client().await.lock("off:left").wait(seconds(30));
    let next = next.acquire().await.unwrap();
    let took = begun.elapsed();
    assert!(took < TTL + SLACK && took > TTL / 2, "{took:?}");
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    next.release().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    assert_eq!(locks.stats().lost, 0);
}

/// The session stays as long as it can without its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ends_leaves_what_it_has_handed_off() {
    let mut control = Control::of(shared().address(0));
    let locks = client(&shared().url(), seconds(3)).await;
    let heir = a_client().await;
    let other = locks.lock("off:other").acquire().await.unwrap();
    let [one, two] = ["off:ended", "off:nobody"].map(|key| locks.lock(key));
    let text = one.acquire().await.unwrap().hand_off().unwrap();
    let _ = two.acquire().await.unwrap().hand_off().unwrap();
    drop(other);
    locks.shutdown().await;
    drop(locks);
    tokio::time::sleep(millis(500)).await;
    let lease = heir.take_up(&text).await.unwrap();
    nothing_left(&mut control, "off:other", seconds(1)).await;
    nothing_left(&mut control, "off:nobody", seconds(3) + SLACK).await;
    tokio::time::sleep(millis(500)).await;
    assert!(lease.token().await.is_ok());
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_weights_readers_lists_and_since_when_go_along() {
    let mut control = Control::of(shared().address(0));
    let (locks, heir) = (a_client().await, a_client().await);
    let permits = |locks: &Client, weight| locks.lock("off:geo").permits(5).weight(weight);
    let first = permits(&locks, 1).acquire().await.unwrap();
    let second = permits(&locks, 3).acquire().await.unwrap();
    let token = second.token().await.unwrap();
    let second = heir.take_up(second.hand_off().unwrap()).await.unwrap();
    assert_eq!((second.slot(), second.key()), (1, "off:geo"));
    is_busy(permits(&locks, 2).acquire().await);
    first.release().await.unwrap();
    let beside = permits(&locks, 2).acquire().await.unwrap();
    assert_eq!(beside.slot(), 0);
    assert!(beside.token().await.unwrap() > token);
    beside.release().await.unwrap();
    assert_eq!(second.token().await.unwrap(), token);
    second.release().await.unwrap();

    let reader = |locks: &Client| locks.lock("off:doc").shared();
    let beside = reader(&locks).acquire().await.unwrap();
    let read = reader(&locks).acquire().await.unwrap();
    let text = read.hand_off().unwrap();
    let read = heir.take_up(&text).await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    beside.release().await.unwrap();
    is_busy(locks.lock("off:doc").acquire().await);
    read.release().await.unwrap();

    let keys = ["off:a", "off:größe 7%", "off:c&d=e"];
    let list = locks.lock_all(keys).acquire().await.unwrap();
    let (before, _) = holder(&locks, "off:a").await;
    tokio::time::sleep(millis(20)).await;
    // Twice, and a token in between, which writes to the node.
    let list = heir.take_up(list.hand_off().unwrap()).await.unwrap();
    list.token().await.unwrap();
    let list = locks.take_up(list.hand_off().unwrap()).await.unwrap();
    let (after, _) = holder(&locks, "off:a").await;
    assert_eq!(before.since, after.since);
    let busy = heir.lock("off:a").acquire().await;
    assert!(
        matches!(busy, Err(Error::Busy { since, .. }) if since == before.since),
        "{busy:?}"
    );
    list.release().await.unwrap();
    for key in ["off:geo", "off:doc", "off:a", "off:c%26d%3de"] {
        nothing_left(&mut control, key, seconds(1)).await;
    }
}

/// One key of several has gone: nothing is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_keys_are_taken_over_or_none() {
    let mut control = Control::of(shared().address(0));
    let (locks, heir) = (a_client().await, a_client().await);
    let list = locks.lock_all(["off:1", "off:2"]).ttl(TTL);
    let text = list.acquire().await.unwrap().hand_off().unwrap();
    let [one, two] = ["off:1", "off:2"].map(|key| nodes(&mut control, key).remove(0));
    control.delete(&format!("/locks/lock:off:2/{two}")).unwrap();
    is_lost(heir.take_up(&text).await, LossCause::Deleted);
    assert_eq!(nodes(&mut control, "off:1"), [one]);
    nothing_left(&mut control, "off:1", TTL + SLACK).await;
}

/// The answer does not come, and the servers have done it: what they have done is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_not_answered_is_given_back() {
    let mut control = Control::of(shared().address(0));
    let proxy = Proxy::before(shared().address(0));
    let at = url([proxy.address()].into_iter());
    let (locks, heir) = (a_client().await, prompt_client(&at, seconds(20)).await);
    for permits in [1, 3] {
        let key = format!("off:swallowed{permits}");
        let lease = locks.lock(&key).permits(permits).acquire().await.unwrap();
        let text = lease.hand_off().unwrap();
        proxy.treat(Way::Replies, Treatment::Swallow);
        let told = heir.take_up(&text).await;
        assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
        proxy.heal();
        // It was asked for or not: where it was not, the text is as good as before.
        if let Ok(lease) = locks.take_up(&text).await {
            lease.release().await.unwrap();
        }
        nothing_left(&mut control, &key, seconds(5)).await;
    }
}

/// The one who has handed off ends what is over as if it were its own: nothing of who has taken it up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_former_holder_that_was_cut_off_ends_nothing_of_it() {
    let mut control = Control::of(shared().address(0));
    let proxy = Proxy::before(shared().address(0));
    let at = url([proxy.address()].into_iter());
    let (locks, heir) = (client(&at, seconds(20)).await, a_client().await);
    let request = locks.lock("off:cut").permits(3).ttl(seconds(1));
    let text = request.acquire().await.unwrap().hand_off().unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let lease = heir.take_up(&text).await.unwrap();
    tokio::time::sleep(seconds(2)).await;
    proxy.heal();
    proxy.cut();
    tokio::time::sleep(millis(700)).await;
    let now = nodes(&mut control, "off:cut");
    assert!(now.len() == 2 && now[1] == "slot-0", "{now:?}");
    lease.release().await.unwrap();
    nothing_left(&mut control, "off:cut", seconds(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_taken_up_when_the_leader_has_died() {
    let servers = Ensemble::three();
    let (locks, heir) = (
        client(&servers.url(), seconds(8)).await,
        client(&servers.url(), seconds(8)).await,
    );
    let lease = locks.lock("off:leader").acquire().await.unwrap();
    let token = lease.token().await.unwrap();
    let text = lease.hand_off().unwrap();
    let leader = servers.leader().unwrap();
    servers.kill(leader);
    let begun = Instant::now();
    let lease = loop {
        match heir.take_up(&text).await {
            Ok(lease) => break lease,
            Err(Error::Unavailable { .. }) => {
                assert!(begun.elapsed() < seconds(7), "nobody answers");
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(lease.token().await.unwrap(), token);
    tokio::time::sleep(millis(700)).await;
    lease.release().await.unwrap();
    let next = locks.lock("off:leader").wait(seconds(5)).acquire().await;
    let next = next.unwrap();
    assert!(next.token().await.unwrap() > token);
    next.release().await.unwrap();
}
