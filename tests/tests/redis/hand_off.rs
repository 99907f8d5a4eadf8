//! Leases that one process hands off and another takes up.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause, Memory, Status};
use tests::cluster::Cluster;
use tests::hand_offs::{Heir, is_lost, taken_up_by_one};
use tests::proxy::{Treatment, Way};
use tests::server::Server;
use tests::statuses::holder;
use tests::wait;

use crate::support::{SLACK, behind_a_proxy, client, nap, nothing_left, pair};

const TTL: Duration = Duration::from_secs(2);

#[test]
fn a_child_goes_on_with_what_its_parent_held_when_that_is_killed() {
    let server = Server::start();
    let mut owner = None;
    let heir = Heir::of_a_killed_parent(&server.url(), 2000, || {
        owner = server.owner("lock:heritage");
    });
    // Longer than the ttl: it is renewed, and by another owner.
    std::thread::sleep(TTL + TTL / 2);
    let now = server.owner("lock:heritage").expect("it is held");
    assert_ne!(Some(&now), owner.as_ref());
    assert!(now.ends_with(&format!(":{}", heir.id())), "{now}");
    heir.release();
    assert_eq!(server.owner("lock:heritage"), None);
}

#[tokio::test]
async fn who_waits_gets_it_after_the_one_who_took_it_up() {
    let (server, locks) = pair().await;
    let (heir, waiting) = (client(&server).await, client(&server).await);
    let lease = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    let request = || waiting.lock("k").wait(Duration::from_secs(30));
    let elsewhere = tokio::spawn(request().acquire());
    wait::until("it is queued", || server.waiters("lock:k") == 1).await;
    // One more in the process that hands off.
    let here = tokio::spawn(locks.lock("k").wait(Duration::from_secs(30)).acquire());
    nap(50).await;
    let text = lease.hand_off().unwrap();
    wait::until("both are queued", || server.waiters("lock:k") == 2).await;
    let lease = heir.take_up(&text).await.unwrap();
    nap(2_500).await;
    assert!(!elsewhere.is_finished() && !here.is_finished());
    lease.release().await.unwrap();
    let next = elsewhere.await.unwrap().unwrap();
    assert!(!here.is_finished());
    next.release().await.unwrap();
    here.await.unwrap().unwrap().release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn of_many_who_take_it_up_one_has_it() {
    let (server, locks) = pair().await;
    let mut heirs = Vec::new();
    for _ in 0..4 {
        heirs.push(client(&server).await);
    }
    for _ in 0..20 {
        let lease = locks.lock("k").acquire().await.unwrap();
        let text = lease.hand_off().unwrap().to_string();
        let taken = taken_up_by_one(&text, &heirs, LossCause::Taken).await;
        taken.release().await.unwrap();
        is_lost(locks.take_up(&text).await, LossCause::Deleted);
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn what_nobody_takes_up_ends_with_its_ttl() {
    let (server, locks) = pair().await;
    let lease = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let begun = Instant::now();
    let next = locks
        .lock("k")
        .wait(Duration::from_secs(30))
        .acquire()
        .await;
    let took = begun.elapsed();
    assert!(took < TTL + SLACK && took > TTL / 2, "{took:?}");
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    next.unwrap().release().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    assert_eq!(locks.stats().lost, 0);
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_shutdown_of_the_one_who_handed_off_leaves_the_lease_alone() {
    let (server, locks) = pair().await;
    let heir = client(&server).await;
    let lease = locks.lock("k").acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let begun = Instant::now();
    locks.shutdown().await;
    assert!(begun.elapsed() < SLACK);
    assert!(server.owner("lock:k").is_some());
    heir.take_up(&text).await.unwrap().release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn slots_lists_and_since_when_go_along() {
    let (server, locks) = pair().await;
    let heir = client(&server).await;
    let first = locks.lock("geo").permits(2).acquire().await.unwrap();
    let second = locks.lock("geo").permits(2).acquire().await.unwrap();
    let text = second.hand_off().unwrap();
    let second = heir.take_up(&text).await.unwrap();
    assert_eq!((second.slot(), second.key()), (1, "geo"));
    drop(first);
    second.release().await.unwrap();
    let keys = ["a", "größe 7%", "c&d=e"];
    let list = locks.lock_all(keys).acquire().await.unwrap();
    let (before, _) = holder(&locks, "a").await;
    nap(20).await;
    let list = heir.take_up(list.hand_off().unwrap()).await.unwrap();
    let (after, _) = holder(&locks, "a").await;
    let millis = |since: std::time::SystemTime| {
        since
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis()
    };
    assert_eq!(before.since.map(millis), after.since.map(millis));
    for key in keys {
        let owner = server.owner(&format!("lock:{key}"));
        assert_eq!(owner.as_deref(), Some(list.owner()));
    }
    list.release().await.unwrap();
    nothing_left(&server).await;
}

/// One key of several has gone: nothing is changed.
#[tokio::test]
async fn all_keys_are_taken_over_or_none() {
    let (server, locks) = pair().await;
    let list = locks.lock_all(["a", "b"]).ttl(TTL).acquire().await.unwrap();
    let owner = list.owner().to_owned();
    let text = list.hand_off().unwrap();
    let _: () = server.ask("DEL lock:b");
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    assert_eq!(server.owner("lock:a"), Some(owner));
    let _: () = server.ask("HSET lock:b x y");
    is_lost(locks.take_up(&text).await, LossCause::Taken);
}

#[tokio::test]
async fn what_is_left_of_its_bounds_goes_along() {
    let (server, locks) = pair().await;
    let heir = client(&server).await;
    let request = locks.lock("max").max_hold(Duration::from_secs(2));
    let lease = request.acquire().await.unwrap();
    nap(1_000).await;
    let begun = Instant::now();
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    let told = lease.lost().await;
    assert!(matches!(
        told,
        Error::Lost {
            cause: LossCause::HeldTooLong,
            ..
        }
    ));
    assert!(begun.elapsed() < Duration::from_secs(1) + SLACK);
    let request = locks.lock("min").min_hold(Duration::from_secs(60));
    let lease = request.acquire().await.unwrap();
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    lease.release().await.unwrap();
    assert!(holder(&locks, "min").await.0.has_left);
    let request = locks.lock("once").once(Duration::from_secs(60));
    let lease = request.acquire().await.unwrap();
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    lease.mark_done();
    lease.release().await.unwrap();
    let told = locks.status("once").await.unwrap();
    assert!(matches!(told, Status::Done { .. }), "{told:?}");
    drop(server);
}

#[tokio::test]
async fn what_cannot_be_handed_off_is_refused_and_says_why() {
    #[track_caller]
    fn refused<T: std::fmt::Debug>(told: Result<T, Error>, why: &str) {
        let Err(Error::Invalid { reason, .. }) = told else {
            panic!("{told:?}")
        };
        assert!(reason.contains(why), "{reason}");
    }
    let (server, locks) = pair().await;
    let lease = locks.lock("k").acquire().await.unwrap();
    refused(lease.share().hand_off(), "only handle");
    assert!(server.owner("lock:k").is_some());
    lease.release().await.unwrap();
    let request = locks.lock("k").once(Duration::from_secs(1));
    let lease = request.acquire().await.unwrap();
    lease.mark_done();
    refused(lease.hand_off(), "marked as done");
    let lease = locks.lock("other").acquire().await.unwrap();
    let _: () = server.ask("DEL lock:other");
    wait::until("it is told", || lease.remaining().is_zero()).await;
    is_lost(lease.hand_off(), LossCause::Deleted);
    let text = locks
        .lock("k2")
        .acquire()
        .await
        .unwrap()
        .hand_off()
        .unwrap();
    let other = Client::builder().prefix("app:").connect(server.url());
    refused(other.await.unwrap().take_up(&text).await, "another prefix");
}

#[tokio::test]
async fn a_text_that_was_changed_is_refused_and_shows_nothing() {
    let (_server, locks) = pair().await;
    let lease = locks.lock("secret:7").acquire().await.unwrap();
    let owner = lease.owner().to_owned();
    let handed = lease.hand_off().unwrap();
    assert!(!format!("{handed:?}").contains(&owner[..32]));
    let text = handed.to_string();
    for changed in [
        "",
        "something else",
        &text[..text.len() - 1],
        &text.replace("secret", "sacred"),
        &text.replacen(":1:", ":2:", 1),
    ] {
        let told = locks.take_up(changed).await.unwrap_err();
        assert!(matches!(told, Error::Config(_)), "{told:?}");
        assert!(!told.to_string().contains(&owner[..32]), "{told}");
    }
    let lease = locks.take_up(format!(" {text}\r\n")).await.unwrap();
    lease.release().await.unwrap();
}

/// The answer does not come, and the store has done it: what it has done is given back, and nobody else has it.
#[tokio::test]
async fn one_that_was_not_answered_is_given_back() {
    let (server, proxy, heir) = behind_a_proxy().await;
    let locks = client(&server).await;
    // The server knows the script from now on.
    let lease = locks.lock("k").acquire().await.unwrap();
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    lease.release().await.unwrap();
    let lease = locks.lock("k").acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    proxy.heal();
    wait::until("it is given back", || server.owner("lock:k").is_none()).await;
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    // The same of one that is dropped at any of its polls.
    for polls in 1..6 {
        let lease = locks.lock("k").acquire().await.unwrap();
        let text = lease.hand_off().unwrap();
        let mut call = Box::pin(heir.take_up(&text));
        let taken = crate::support::polled(call.as_mut(), polls);
        let taken = tokio::time::timeout(Duration::from_millis(200), taken).await;
        drop(call);
        let done = matches!(taken, Ok(Some(_)));
        drop(taken);
        if !done {
            // It was carried out, or is not: then the text is as good as before.
            nap(50).await;
            if let Ok(lease) = locks.take_up(&text).await {
                lease.release().await.unwrap();
            }
        }
        wait::until("it is given back", || server.owner("lock:k").is_none()).await;
    }
}

#[tokio::test]
async fn on_a_cluster_and_in_memory_it_is_the_same() {
    let cluster = Cluster::start(3, 0);
    let memory = Memory::new();
    let in_memory = || Client::builder().store(memory.clone()).unwrap();
    let on_cluster = async || Client::connect(cluster.url()).await.unwrap();
    let pairs = [
        (in_memory(), in_memory()),
        (on_cluster().await, on_cluster().await),
    ];
    for (locks, heir) in pairs {
        for key in ["a", "b", "c"] {
            let lease = locks.lock(key).ttl(TTL).acquire().await.unwrap();
            let token = lease.token().await.unwrap();
            let text = lease.hand_off().unwrap();
            let lease = heir.take_up(&text).await.unwrap();
            is_lost(locks.take_up(&text).await, LossCause::Taken);
            assert_eq!(lease.token().await.unwrap(), token);
            lease.release().await.unwrap();
            let next = locks.lock(key).acquire().await.unwrap();
            assert!(next.token().await.unwrap() > token);
        }
    }
    // While the hash slot moves, it is taken over where it is.
    let (locks, heir) = (on_cluster().await, on_cluster().await);
    let key = cluster.key_at(0, 3);
    let lock = format!("lock:{key}");
    let lease = locks.lock(&key).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let moving = cluster.begin_to_move(&lock, 1);
    moving.key(&lock);
    let lease = heir.take_up(&text).await.unwrap();
    moving.end();
    lease.release().await.unwrap();
}
