//! A hash slot that moves to another node under the locks that are in it, stopped at every stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, Lease};
use tests::cluster::{Cluster, Move};
use tests::seed::Random;
use tests::wait;
use tokio::task::JoinHandle;

use crate::cluster::client;
use crate::support::{BOUND, LOOK, SLACK, Section, nap};

/// A ttl that is renewed several times at each stage, which lasts for as long.
const TTL: Duration = Duration::from_millis(900);
const STAGE: u64 = 1_300;

/// Which keys of a lock have moved while the rest has not.
const HALVES: [&str; 3] = ["lock", "queue", "both"];

fn half(moving: &Move<'_>, key: &str, which: &str) {
    if which != "queue" {
        moving.key(&format!("lock:{key}"));
    }
    if which != "lock" {
        moving.key(&format!("lock:wait:{{lock:{key}}}"));
    }
}

async fn held(locks: &Client, key: &str) -> Lease {
    let request = locks.lock(key).ttl(TTL);
    request.acquire().await.unwrap()
}

fn is_busy<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
}

#[tokio::test]
async fn leases_are_renewed_while_their_slot_moves() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let key = cluster.key_at(0, 0);
    let lock = format!("lock:{key}");
    let (one, beside) = (
        held(&locks, &key).await,
        held(&locks, &cluster.key_at(0, 1)).await,
    );
    let moving = cluster.begin_to_move(&lock, 1);
    nap(STAGE).await;
    moving.key(&lock);
    nap(STAGE).await;
    moving.end();
    nap(STAGE).await;
    assert!(one.remaining() > Duration::ZERO && beside.remaining() > Duration::ZERO);
    assert!(cluster.primary(1).get(&lock).is_some());
    is_busy(client(&cluster).await.lock(&key).acquire().await);
    one.release().await.unwrap();
    beside.release().await.unwrap();
    assert_eq!((locks.stats().lost, cluster.left()), (0, Vec::new()));
}

#[tokio::test]
async fn several_leases_of_a_slot_are_renewed_while_a_part_of_them_has_moved() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let key = cluster.key_at(0, 0);
    let slots = [
        locks
            .lock(&key)
            .permits(3)
            .ttl(TTL)
            .acquire()
            .await
            .unwrap(),
        locks
            .lock(&key)
            .permits(3)
            .ttl(TTL)
            .acquire()
            .await
            .unwrap(),
        locks
            .lock(&key)
            .permits(3)
            .ttl(TTL)
            .acquire()
            .await
            .unwrap(),
    ];
    let moving = cluster.begin_to_move(&format!("lock:{key}"), 1);
    moving.key(&format!("lock:{key}"));
    nap(STAGE).await;
    assert_eq!(locks.stats().renewal_failed, 0);
    moving.end();
    nap(STAGE).await;
    for slot in slots {
        assert!(slot.remaining() > Duration::ZERO);
        slot.release().await.unwrap();
    }
    assert_eq!((locks.stats().lost, cluster.left()), (0, Vec::new()));
}

#[tokio::test]
async fn a_lock_is_taken_refused_and_given_back_while_its_slot_moves() {
    let cluster = Cluster::start(3, 0);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    for (number, which) in HALVES.iter().enumerate() {
        let key = cluster.key_at(0, number);
        let lease = held(&one, &key).await;
        let moving = cluster.begin_to_move(&format!("lock:{key}"), 1);
        is_busy(two.lock(&key).acquire().await);
        half(&moving, &key, which);
        is_busy(two.lock(&key).acquire().await);
        is_busy(
            two.lock(&key)
                .wait(Duration::from_millis(300))
                .acquire()
                .await,
        );
        lease.release().await.unwrap();
        let lease = held(&two, &key).await;
        is_busy(one.lock(&key).acquire().await);
        lease.release().await.unwrap();
        moving.end();
        let lease = held(&one, &key).await;
        is_busy(two.lock(&key).acquire().await);
        lease.release().await.unwrap();
        assert_eq!(cluster.left(), [""; 0], "{which}");
    }
}

/// Calls that wait for one key, each from the client of its number.
fn waiting(
    clients: &[Client],
    key: &str,
    section: &Arc<Section>,
    count: usize,
) -> Vec<JoinHandle<()>> {
    let call = |number: usize| {
        let request = clients[number % clients.len()].lock(key);
        let (request, section) = (request.ttl(TTL), Arc::clone(section));
        tokio::spawn(async move {
            let lease = request
                .wait(Duration::from_secs(30))
                .acquire()
                .await
                .unwrap();
            section.run(10).await;
            lease.release().await.unwrap();
        })
    };
    (0..count).map(call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_whatever_has_moved_when_the_lock_is_given_back() {
    let cluster = Cluster::start(3, 0);
    let holder = client(&cluster).await;
    let clients = [
        client(&cluster).await,
        client(&cluster).await,
        client(&cluster).await,
    ];
    for (number, which) in HALVES.iter().enumerate() {
        for ends_before in [false, true] {
            let key = cluster.key_at(0, 2 * number + usize::from(ends_before));
            let lock = format!("lock:{key}");
            let lease = held(&holder, &key).await;
            let section = Arc::default();
            let calls = waiting(&clients, &key, &section, 9);
            let is_queued = || cluster.primary(0).waiters(&lock) == 3;
            wait::until("each client is queued", is_queued).await;
            let moving = cluster.begin_to_move(&lock, 1);
            half(&moving, &key, which);
            nap(200).await;
            if ends_before {
                moving.end();
                lease.release().await.unwrap();
            } else {
                lease.release().await.unwrap();
                nap(500).await;
                moving.end();
            }
            let limit = LOOK + SLACK;
            wait::within("all were inside", limit, || section.runs() == 9).await;
            for call in calls {
                call.await.unwrap();
            }
            assert_eq!(section.most(), 1);
            wait::until("nothing is left", || cluster.left().is_empty()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_listen_on_the_former_node_are_told_at_once() {
    let cluster = Cluster::start(3, 0);
    let holder = client(&cluster).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(client(&cluster).await);
    }
    let key = cluster.key_at(0, 0);
    let lock = format!("lock:{key}");
    let lease = holder.lock(&key).acquire().await.unwrap();
    let section = Arc::default();
    let calls = waiting(&clients, &key, &section, 10);
    wait::until("all are queued", || cluster.primary(0).waiters(&lock) == 10).await;
    wait::until("all listen", || cluster.primary(0).subscribers() >= 10).await;
    cluster.begin_to_move(&lock, 1).end();
    lease.release().await.unwrap();
    // Those far back would look by themselves after two seconds or three.
    let limit = Duration::from_millis(1_200);
    wait::within("all were inside", limit, || section.runs() == 10).await;
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(section.most(), 1);
    wait::until("nothing is left", || cluster.left().is_empty()).await;
}

#[tokio::test]
async fn waiters_look_as_soon_as_their_client_learns_that_slots_have_moved() {
    let cluster = Cluster::start(3, 0);
    let (holder, locks) = (client(&cluster).await, client(&cluster).await);
    let (key, other) = (cluster.key_at(0, 0), cluster.key_at(0, 1));
    let lock = format!("lock:{key}");
    let lease = holder.lock(&key).acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock(&key).wait(Duration::from_secs(30)).acquire());
    let channel_at = |primary: usize| {
        let range = format!("ZRANGE lock:wait:{{{lock}}} -1 -1");
        let last: Vec<String> = cluster.primary(primary).ask(&range);
        last.last()?.rsplit(' ').next().map(str::to_owned)
    };
    let is_heard_at = |primary: usize| {
        channel_at(primary).is_some_and(|channel| {
            let words = ["PUBSUB", "NUMSUB", &channel];
            let count: (String, u64) = cluster.primary(primary).words(&words).unwrap();
            count.1 == 1
        })
    };
    wait::until("it waits", || is_heard_at(0)).await;
    for lock in [&lock, &format!("lock:{other}")] {
        cluster.begin_to_move(lock, 1).end();
    }
    // The look that it takes by itself in between is over, and the next one far away.
    nap(100).await;
    locks
        .lock(&other)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    wait::within("it waits there", Duration::from_millis(500), || {
        is_heard_at(1)
    })
    .await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    wait::until("nothing is left", || cluster.left().is_empty()).await;
}

#[tokio::test]
async fn waiters_that_give_up_leave_no_place_behind_while_their_slot_moves() {
    let cluster = Cluster::start(3, 0);
    let holder = client(&cluster).await;
    let clients = [client(&cluster).await, client(&cluster).await];
    for (number, which) in HALVES.iter().enumerate() {
        let key = cluster.key_at(0, number);
        let lock = format!("lock:{key}");
        let lease = held(&holder, &key).await;
        let late = clients[0].lock(&key).wait(Duration::from_millis(1500));
        let late = tokio::spawn(late.acquire());
        let dropped = clients[1].lock(&key).wait(Duration::from_secs(30));
        let dropped = tokio::spawn(dropped.acquire());
        let are_queued = || cluster.primary(0).waiters(&lock) == 2;
        wait::until("both are queued", are_queued).await;
        let moving = cluster.begin_to_move(&lock, 1);
        half(&moving, &key, which);
        is_busy(late.await.unwrap());
        dropped.abort();
        moving.end();
        let has_left = || cluster.left() == [lock.clone()];
        wait::within("no place is left", BOUND + SLACK, has_left).await;
        lease.release().await.unwrap();
        wait::within("nothing is left", SLACK, || cluster.left().is_empty()).await;
    }
}

/// Ends a move a little later.
async fn end_soon(moving: Move<'_>) {
    nap(700).await;
    moving.end();
}

#[tokio::test]
async fn steps_of_several_keys_wait_for_the_end_of_the_move() {
    let cluster = Cluster::start(3, 0);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(0, 0);
    let lock = format!("lock:{key}");
    // A token, whose counter does not exist yet.
    let lease = held(&one, &key).await;
    let moving = cluster.begin_to_move(&lock, 1);
    let (token, ()) = tokio::join!(lease.token(), end_soon(moving));
    let token = token.unwrap();
    lease.release().await.unwrap();
    // A slot beside one that is held.
    let first = one.lock(&key).permits(2).acquire().await.unwrap();
    let moving = cluster.begin_to_move(&lock, 2);
    moving.key(&lock);
    let (second, ()) = tokio::join!(two.lock(&key).permits(2).acquire(), end_soon(moving));
    let second = second.unwrap();
    is_busy(two.lock(&key).permits(2).acquire().await);
    first.release().await.unwrap();
    second.release().await.unwrap();
    // A list of which one slot moves.
    let keys = [key.clone(), cluster.key_at(1, 5)];
    let moving = cluster.begin_to_move(&lock, 0);
    let list = one.lock_all(&keys).ttl(TTL).acquire().await.unwrap();
    moving.key(&lock);
    nap(STAGE).await;
    let (drawn, ()) = tokio::join!(list.token(), end_soon(moving));
    assert!(drawn.unwrap() > token);
    is_busy(two.lock_all(&keys).acquire().await);
    list.release().await.unwrap();
    assert_eq!((one.stats().lost, cluster.left()), (0, Vec::new()));
}

#[tokio::test]
async fn a_move_that_does_not_end_is_told_as_what_it_is() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let key = cluster.key_at(0, 0);
    let lease = locks.lock(&key).acquire().await.unwrap();
    let moving = cluster.begin_to_move(&format!("lock:{key}"), 1);
    let begun = std::time::Instant::now();
    let error = lease.token().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let address = cluster.primary(0).address().to_string();
    for word in ["TRYAGAIN", address.as_str()] {
        assert!(error.to_string().contains(word), "no {word} in {error}");
    }
    assert!(begun.elapsed() < BOUND + SLACK, "{:?}", begun.elapsed());
    moving.end();
    lease.release().await.unwrap();
    wait::within("nothing is left", SLACK, || cluster.left().is_empty()).await;
}

/// Of calls of every kind, while their slots move to and fro, key by key and with pauses in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_beside_another_while_slots_move_to_and_fro() {
    let cluster = Cluster::start(3, 0);
    let clients = [
        client(&cluster).await,
        client(&cluster).await,
        client(&cluster).await,
    ];
    let keys: Vec<_> = (0..3).map(|primary| cluster.key_at(primary, 0)).collect();
    let sections: Vec<Arc<Section>> = keys.iter().map(|_| Arc::default()).collect();
    let over = Arc::new(AtomicBool::new(false));
    let calls: Vec<_> = (0..12)
        .map(|number| {
            let (locks, over) = (clients[number % 3].clone(), Arc::clone(&over));
            let (keys, sections) = (keys.clone(), sections.clone());
            tokio::spawn(async move {
                let (mut served, mut turn) = (0, number);
                while !over.load(Ordering::SeqCst) {
                    turn += 1;
                    let at = turn % 3;
                    let (request, ats) = if turn % 7 == 0 {
                        let pair = [at, (at + 1) % 3];
                        (locks.lock_all(pair.map(|at| &keys[at])), pair.to_vec())
                    } else {
                        (locks.lock(&keys[at]), vec![at])
                    };
                    match request
                        .ttl(TTL)
                        .wait(Duration::from_secs(5))
                        .acquire()
                        .await
                    {
                        Ok(lease) => {
                            served += 1;
                            let second = ats.get(1).map(|at| sections[*at].run(3));
                            let second = async {
                                if let Some(second) = second {
                                    second.await;
                                }
                            };
                            tokio::join!(sections[ats[0]].run(3), second);
                            lease.release().await.unwrap();
                        }
                        Err(Error::Busy { .. } | Error::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                served
            })
        })
        .collect();
    let mut random = Random::announced("slots that move to and fro");
    for _ in 0..25 {
        let lock = format!("lock:{}", keys[usize::from(random.below(3) == 1)]);
        let further = if random.below(2) == 0 { 1 } else { 2 };
        let to = (cluster.keeper(&lock).0 + further) % 3;
        let moving = cluster.begin_to_move(&lock, to);
        nap(random.below(60)).await;
        moving.key(&lock);
        nap(random.below(60)).await;
        moving.key(&format!("lock:wait:{{{lock}}}"));
        nap(random.below(60)).await;
        moving.end();
        nap(random.below(100)).await;
    }
    over.store(true, Ordering::SeqCst);
    let mut served = 0;
    for call in calls {
        served += call.await.unwrap();
    }
    assert!(served > 300, "{served}");
    for section in &sections {
        assert_eq!(section.most(), 1);
    }
    let lost: u64 = clients.iter().map(|locks| locks.stats().lost).sum();
    assert_eq!(lost, 0);
    wait::until("nothing is left", || cluster.left().is_empty()).await;
}
