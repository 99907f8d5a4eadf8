//! Leases that one process hands off and another takes up.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause};
use tests::hand_offs::{Heir, is_lost, taken_up_by_one};
use tests::postgres::Postgres;
use tests::proxy::{Proxy, Treatment, Way};
use tests::statuses::holder;
use tests::wait;
use tokio_postgres::NoTls;

use crate::support::{BOUND, SLACK, client, connected, pair};

const TTL: Duration = Duration::from_secs(2);
const PATIENT: Duration = Duration::from_secs(30);

#[test]
fn a_child_goes_on_with_what_its_parent_held_when_that_is_killed() {
    let server = Postgres::start();
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
async fn of_many_who_take_it_up_one_has_it_and_who_waits_gets_it_then() {
    let (server, locks) = pair().await;
    let mut heirs = Vec::new();
    for _ in 0..4 {
        heirs.push(client(&server).await);
    }
    for _ in 0..5 {
        let lease = locks.lock("k").acquire().await.unwrap();
        let text = lease.hand_off().unwrap().to_string();
        let waiting = client(&server).await;
        let waiter = tokio::spawn(waiting.lock("k").wait(PATIENT).acquire());
        wait::until("it is queued", || server.waiters() == 1).await;
        let taken = taken_up_by_one(&text, &heirs, LossCause::Taken).await;
        assert!(!waiter.is_finished());
        taken.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        is_lost(locks.take_up(&text).await, LossCause::Deleted);
    }
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn what_nobody_takes_up_ends_with_its_ttl() {
    let (server, locks) = pair().await;
    let lease = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    let begun = Instant::now();
    let next = locks.lock("k").wait(PATIENT).acquire().await.unwrap();
    let took = begun.elapsed();
    assert!(took < TTL + SLACK && took > TTL / 2, "{took:?}");
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    next.release().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn readers_slots_weights_lists_and_since_when_go_along() {
    let (server, locks) = pair().await;
    let heir = client(&server).await;
    let reader = locks.lock("doc").shared().acquire().await.unwrap();
    let beside = locks.lock("doc").shared().acquire().await.unwrap();
    let token = reader.token().await.unwrap();
    assert!(beside.token().await.unwrap() > token);
    let reader = heir.take_up(reader.hand_off().unwrap()).await.unwrap();
    assert_eq!(reader.token().await.unwrap(), token);
    beside.release().await.unwrap();
    let writer = locks.lock("doc").acquire().await;
    assert!(matches!(writer, Err(Error::Busy { .. })), "{writer:?}");
    // Its transactions are fenced by the token that it has taken over.
    let (db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let fence = "SELECT lockattr.fence('lock:doc', $1)";
    let token = i64::try_from(token).unwrap();
    db.execute(fence, &[&token]).await.unwrap();
    reader.release().await.unwrap();

    let of = |weight| locks.lock("geo").permits(5).weight(weight).acquire();
    let (first, second) = (of(1).await.unwrap(), of(3).await.unwrap());
    let second = heir.take_up(second.hand_off().unwrap()).await.unwrap();
    assert_eq!(second.slot(), 1);
    assert!(matches!(of(2).await, Err(Error::Busy { .. })));
    drop((first, second));

    let keys = ["a", "größe 7%", "c&d=e"];
    let list = locks.lock_all(keys).acquire().await.unwrap();
    let token = list.token().await.unwrap();
    let (before, _) = holder(&locks, "a").await;
    let list = heir.take_up(list.hand_off().unwrap()).await.unwrap();
    let (after, _) = holder(&locks, "a").await;
    assert_eq!(before.since, after.since);
    assert_eq!(list.token().await.unwrap(), token);
    for key in keys {
        let owner = server.owner(&format!("lock:{key}"));
        assert_eq!(owner.as_deref(), Some(list.owner()));
    }
    list.release().await.unwrap();
    // Later tokens are larger.
    let later = locks.lock("a").acquire().await.unwrap();
    assert!(later.token().await.unwrap() > token);
    later.release().await.unwrap();
    wait::until("nothing is left", || server.locks().is_empty()).await;
}

/// One key of several has gone: nothing is changed.
#[tokio::test]
async fn all_keys_are_taken_over_or_none() {
    let (server, locks) = pair().await;
    let list = locks.lock_all(["a", "b"]).ttl(TTL).acquire().await.unwrap();
    let owner = list.owner().to_owned();
    let text = list.hand_off().unwrap();
    server.rows("DELETE FROM lockattr.locks WHERE name = 'lock:b'");
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    assert_eq!(server.owner("lock:a"), Some(owner));
    let other = locks.lock("b").acquire().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    other.release().await.unwrap();
}

/// The answer does not come, and the database has done it: what it has done is given back, and nobody else has it.
/// Where the server crashes meanwhile, the text is as good as before.
#[tokio::test]
async fn one_that_was_not_answered_is_given_back_and_a_crash_costs_nothing() {
    let (server, locks) = pair().await;
    let proxy = Proxy::before(server.address());
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let heir = connected(Client::builder(), &server, &url).await;
    let lease = locks.lock("k").acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    proxy.heal();
    wait::within("it is given back", BOUND + SLACK, || {
        server.owner("lock:k").is_none()
    })
    .await;
    is_lost(locks.take_up(&text).await, LossCause::Deleted);

    let lease = locks.lock("k").acquire().await.unwrap();
    let token = lease.token().await.unwrap();
    let text = lease.hand_off().unwrap();
    server.kill();
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    server.restart();
    let lease = client(&server).await.take_up(&text).await.unwrap();
    assert_eq!(lease.token().await.unwrap(), token);
    lease.release().await.unwrap();
}
