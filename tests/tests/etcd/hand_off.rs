//! Leases that one process hands off and another takes up.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockattr::{Client, Error, LossCause};
use tests::etcd::Etcd;
use tests::hand_offs::{Heir, is_lost, taken_up_by_one};
use tests::proxy::{Proxy, Treatment, Way};
use tests::statuses::holder;
use tests::wait;

use crate::support::{SLACK, TTL, client, client_at, nap, nothing_left, queued, take};

const PATIENT: Duration = Duration::from_secs(30);

fn owner(cluster: &Etcd, key: &str) -> Option<String> {
    let value = cluster.get(key)?.value;
    value.split(' ').next().map(str::to_owned)
}

#[test]
fn a_child_goes_on_with_what_its_parent_held_when_that_is_killed() {
    let cluster = Etcd::start(1);
    let heir = Heir::of_a_killed_parent(&cluster.url(), 1000, || {});
    // Longer than the lease of the one that was killed runs: it is renewed, and by another owner.
    std::thread::sleep(Duration::from_millis(3_500));
    let now = owner(&cluster, "lock:heritage").expect("it is held");
    assert!(now.ends_with(&format!(":{}", heir.id())), "{now}");
    heir.release();
    assert_eq!(cluster.get("lock:heritage"), None);
}

/// The place that the one before has kept in front of them is gone with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_it_after_the_one_who_took_it_up() {
    let cluster = Etcd::start(1);
    let [one, two, three] = [
        client(&cluster).await,
        client(&cluster).await,
        client(&cluster).await,
    ];
    let held = take(&one, "k").await;
    let request = |locks: &Client| locks.lock("k").ttl(TTL).wait(PATIENT).acquire();
    let waited = tokio::spawn(request(&two));
    wait::until("it is queued", || queued(&cluster, "k") == 1).await;
    held.release().await.unwrap();
    let lease = waited.await.unwrap().unwrap();
    let waiting = tokio::spawn(request(&three));
    wait::until("it is queued", || queued(&cluster, "k") == 2).await;
    let lease = one.take_up(lease.hand_off().unwrap()).await.unwrap();
    assert_eq!(queued(&cluster, "k"), 1);
    nap(200).await;
    assert!(!waiting.is_finished());
    let released = Instant::now();
    lease.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_millis(750));
    next.release().await.unwrap();
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_take_it_up_one_has_it_in_every_form() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let mut heirs = Vec::new();
    for _ in 0..4 {
        heirs.push(client(&cluster).await);
    }
    for round in 0..9 {
        let request = locks.lock("k").ttl(TTL);
        let (request, cause) = match round % 3 {
            0 => (request, LossCause::Taken),
            1 => (request.shared(), LossCause::Deleted),
            _ => (request.permits(5).weight(3), LossCause::Deleted),
        };
        let lease = request.acquire().await.unwrap();
        let token = lease.token().await.unwrap();
        let text = lease.hand_off().unwrap().to_string();
        let lease = taken_up_by_one(&text, &heirs, cause).await;
        assert_eq!(lease.token().await.unwrap(), token);
        lease.release().await.unwrap();
        is_lost(locks.take_up(&text).await, LossCause::Deleted);
        let next = take(&locks, "k").await;
        assert!(next.token().await.unwrap() > token);
        next.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_takes_up_ends_with_its_ttl() {
    let cluster = Etcd::start(1);
    let locks = client(&cluster).await;
    let ttl = Duration::from_secs(1);
    let lease = locks.lock("k").ttl(ttl).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let begun = Instant::now();
    let next = locks.lock("k").ttl(ttl).wait(PATIENT).acquire().await;
    let took = begun.elapsed();
    assert!(took < ttl + Duration::from_secs(2) + SLACK, "{took:?}");
    assert!(took > ttl / 2, "{took:?}");
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    next.unwrap().release().await.unwrap();
    assert_eq!(locks.stats().lost, 0);
    nothing_left(&cluster).await;
}

/// Slot, weight, since when, and all keys of a list or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_lists_and_since_when_go_along() {
    let cluster = Etcd::start(1);
    let (locks, heir) = (client(&cluster).await, client(&cluster).await);
    let take = |weight| locks.lock("geo").permits(5).weight(weight).ttl(TTL);
    let first = take(1).acquire().await.unwrap();
    let second = take(4).acquire().await.unwrap();
    first.release().await.unwrap();
    let millis = |since: SystemTime| since.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let (before, _) = holder(&locks, "geo").await;
    nap(20).await;
    // Twice: since when it is held is not in its owner's id any more.
    let second = heir.take_up(second.hand_off().unwrap()).await.unwrap();
    let second = locks.take_up(second.hand_off().unwrap()).await.unwrap();
    let (after, _) = holder(&locks, "geo").await;
    assert_eq!((after.slot, after.weight, second.slot()), (1, 4, 1));
    assert_eq!(before.since.map(millis), after.since.map(millis));
    assert!(take(2).acquire().await.is_err());
    // It is put under another lease of etcd's, and stays what it is.
    second.extend(5 * TTL).await.unwrap();
    let (extended, _) = holder(&locks, "geo").await;
    assert_eq!((extended.slot, extended.since), (1, after.since));
    second.release().await.unwrap();

    let keys = ["a", "größe 7%", "c&d=e"];
    let all = || locks.lock_all(keys).ttl(TTL).acquire();
    let list = all().await.unwrap();
    let list = heir.take_up(list.hand_off().unwrap()).await.unwrap();
    for key in keys {
        let owner = owner(&cluster, &format!("lock:{key}"));
        assert_eq!(owner.as_deref(), Some(list.owner()));
    }
    list.release().await.unwrap();
    let list = all().await.unwrap();
    let before = list.owner().to_owned();
    let text = list.hand_off().unwrap();
    cluster.delete("lock:c&d=e");
    is_lost(heir.take_up(&text).await, LossCause::Deleted);
    assert_eq!(owner(&cluster, "lock:a"), Some(before));
    cluster.put("lock:c&d=e", "x");
    is_lost(heir.take_up(&text).await, LossCause::Taken);
}

/// The answer does not come, and the cluster has done it: what it has done is given back, and nobody else has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_not_answered_is_given_back() {
    let cluster = Etcd::start(1);
    let proxy = Proxy::before(cluster.addresses()[0]);
    let locks = client(&cluster).await;
    let heir = client_at(&cluster.url_of(&[proxy.address()])).await;
    let lease = locks.lock("k").ttl(5 * TTL).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    proxy.heal();
    // Whether it was done is not known; it is either given back, or as it was.
    nap(500).await;
    match locks.take_up(&text).await {
        Ok(lease) => lease.release().await.unwrap(),
        told => is_lost(told, LossCause::Deleted),
    }
    nothing_left(&cluster).await;
    // The same of one that is dropped after a while.
    for millis in [0, 1, 2, 4, 8] {
        let lease = locks.lock("k").ttl(5 * TTL).acquire().await.unwrap();
        let text = lease.hand_off().unwrap();
        let taking = heir.take_up(&text);
        let taken = tokio::time::timeout(Duration::from_millis(millis), taking).await;
        drop(taken);
        nap(50).await;
        if let Ok(lease) = locks.take_up(&text).await {
            lease.release().await.unwrap();
        }
        nothing_left(&cluster).await;
    }
}

/// The only member stands still while it is taken up, and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stands_still_meanwhile_makes_no_second_owner() {
    let cluster = Etcd::start(1);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let lease = one.lock("k").ttl(5 * TTL).acquire().await.unwrap();
    let text = lease.hand_off().unwrap().to_string();
    cluster.freeze(0);
    let both = [one.clone(), two.clone()].map(|heir| {
        let text = text.clone();
        tokio::spawn(async move { heir.take_up(text).await })
    });
    nap(700).await;
    cluster.thaw(0);
    let mut leases = Vec::new();
    for call in both {
        match call.await.unwrap() {
            Ok(lease) => leases.push(lease),
            Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
            told => panic!("{told:?}"),
        }
    }
    assert!(leases.len() <= 1, "{leases:?}");
    for lease in leases {
        lease.release().await.unwrap();
    }
    nothing_left(&cluster).await;
}
