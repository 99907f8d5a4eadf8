//! What is stored under a lock that is held, and since when it is: also for those who have waited for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockattr::{Client, Error, Lease, Memory};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{LOOK, SLACK, client, nap, pair};

const SECOND: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(60);
const LOCK: &str = "lock:sync:42";

/// How long a waiter waits here.
const WAITED: u64 = 1_500;

/// Milliseconds since 1970, on the machine of both the clients and the servers.
fn now() -> u64 {
    let now = UNIX_EPOCH.elapsed().unwrap();
    now.as_millis().try_into().unwrap()
}

/// When an owner's id was drawn.
fn drawn(owner: &str) -> u64 {
    let id = uuid::Uuid::try_parse(&owner[..32]).unwrap();
    let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
    seconds * 1_000 + u64::from(nanos) / 1_000_000
}

/// The moment in what is stored, which is that owner's, and what stands behind it.
fn stored(server: &Server, key: &str, owner: &str) -> (u64, Option<String>) {
    let value = server.get(key).unwrap();
    let rest = value.strip_prefix(owner).unwrap();
    let mut words = rest.strip_prefix(' ').expect(&value).splitn(2, ' ');
    let moment = words.next().unwrap();
    assert_eq!(moment.len(), 13, "{value}");
    (
        moment.parse().expect(&value),
        words.next().map(str::to_owned),
    )
}

/// Since when one that holds the lock with others does so, and what else is said of it.
fn said(server: &Server, owner: &str) -> (u64, String) {
    let members: Vec<String> = server.words(&["ZRANGE", LOCK, "0", "-1"]).unwrap();
    let own = members
        .iter()
        .find_map(|said| said.strip_prefix(&format!("{owner} ")));
    let (since, behind) = own.unwrap().split_once(' ').unwrap();
    (since.parse().unwrap(), behind.to_owned())
}

/// Since when a lock is held, as somebody else is told.
async fn told(locks: &Client) -> u64 {
    let since = match locks.lock("sync:42").acquire().await {
        Err(busy @ Error::Busy { since, .. }) => {
            assert!(busy.to_string().contains(" for "), "{busy}");
            since
        }
        other => panic!("{other:?}"),
    };
    let since = since.unwrap().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}

/// A call that has waited in the server's queue for as long as that, and when it was sent.
async fn waiter(server: &Server, locks: &Client) -> JoinHandle<Result<Lease, Error>> {
    let request = locks.lock("sync:42").ttl(10 * SECOND).wait(PATIENT);
    let call = tokio::spawn(request.acquire());
    wait::until("it is queued", || server.waiters(LOCK) == 1).await;
    nap(WAITED).await;
    call
}

#[tokio::test]
async fn what_was_free_is_held_since_the_call() {
    let (server, locks) = pair().await;
    let before = now();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let after = now();
    assert_eq!(server.get(LOCK).as_deref(), Some(lease.owner()));
    let since = told(&client(&server).await).await;
    assert_eq!(since, drawn(lease.owner()));
    assert!(
        (before..=after).contains(&since),
        "{before} {since} {after}"
    );
}

/// By a message, or by its own look where the message is lost; which finds its grant and starts the ttl
/// anew.
#[tokio::test]
async fn who_has_waited_holds_it_since_the_release() {
    for is_told in [true, false] {
        let (server, locks) = pair().await;
        let proxy = Proxy::before(server.address());
        let far = Client::connect(proxy.url()).await.unwrap();
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let call = waiter(&server, &far).await;
        if !is_told {
            proxy.swallow_subscriptions();
        }
        let before = now();
        lease.release().await.unwrap();
        let after = now();
        let value = server.get(LOCK);
        let lease = tokio::time::timeout(LOOK + SLACK, call).await.unwrap();
        let lease = lease.unwrap().unwrap();
        let (since, permits) = stored(&server, LOCK, lease.owner());
        assert!(
            (before..=after).contains(&since),
            "{before} {since} {after}"
        );
        assert!(since >= drawn(lease.owner()) + WAITED);
        assert_eq!((server.get(LOCK), permits), (value, None));
        assert_eq!(told(&locks).await, since);
        // What is stored there is its owner's, for every step.
        lease.token().await.unwrap();
        lease.extend(60 * SECOND).await.unwrap();
        assert!(server.pttl(LOCK) > 50_000);
        assert_eq!(stored(&server, LOCK, lease.owner()).0, since);
        lease.release().await.unwrap();
        assert_eq!(server.get(LOCK), None);
    }
}

/// Of what a script takes for its own caller.
#[tokio::test]
async fn who_has_found_it_free_at_a_second_look_holds_it_since_then() {
    let server = Server::start();
    let _: () = server.ask(&format!("SET {LOCK} somebody NX PX 60000"));
    let call = waiter(&server, &client(&server).await).await;
    let before = now();
    let _: usize = server.ask(&format!("DEL {LOCK}"));
    let lease = call.await.unwrap().unwrap();
    let (since, _) = stored(&server, LOCK, lease.owner());
    assert!((before..=now()).contains(&since), "{before} {since}");
}

/// The store is not asked, and has who holds it since the first caller; this process says it of the last.
#[tokio::test]
async fn a_lease_that_is_handed_on_keeps_what_is_stored() {
    let (server, locks) = pair().await;
    let request = || locks.lock("sync:42").ttl(60 * SECOND).wait(PATIENT);
    let first = request().acquire().await.unwrap();
    let call = tokio::spawn(request().acquire());
    nap(WAITED).await;
    let before = now();
    first.release().await.unwrap();
    let lease = call.await.unwrap().unwrap();
    assert_eq!(server.get(LOCK).as_deref(), Some(lease.owner()));
    let elsewhere = told(&client(&server).await).await;
    assert_eq!(elsewhere, drawn(lease.owner()));
    let here = told(&locks).await;
    // One clock is read twice.
    assert!(
        here + 5 >= before && here >= elsewhere + WAITED / 2,
        "{here}"
    );
}

#[tokio::test]
async fn a_holder_of_permits_says_which_and_how_many() {
    let (server, locks) = pair().await;
    let mut leases = Vec::new();
    let before = now();
    for slot in 0..3 {
        let lease = locks.lock("sync:42").permits(3).acquire().await.unwrap();
        let (since, behind) = said(&server, lease.owner());
        assert!((before..=now()).contains(&since), "{before} {since}");
        assert_eq!(behind, format!("{slot} 1 3"));
        leases.push(lease);
    }
    assert!((before..=now()).contains(&told(&client(&server).await).await));
    // One that waits is granted the slot in the same form.
    let other = client(&server).await;
    let request = other.lock("sync:42").permits(3).wait(PATIENT);
    let call = tokio::spawn(request.acquire());
    wait::until("it is queued", || server.waiters(LOCK) == 1).await;
    let lease = leases.swap_remove(0);
    let before = now();
    lease.release().await.unwrap();
    let lease = call.await.unwrap().unwrap();
    let (since, behind) = said(&server, lease.owner());
    assert!(since >= before, "{before} {since}");
    assert_eq!(behind, "0 1 3");
    leases.push(lease);
    for lease in leases {
        lease.token().await.unwrap();
        lease.extend(60 * SECOND).await.unwrap();
        assert!(server.pttl(LOCK) > 50_000);
        lease.release().await.unwrap();
    }
    assert_eq!(server.pttl(LOCK), -2);
}

#[tokio::test]
async fn a_lock_that_stays_closed_says_since_when() {
    let (server, locks) = pair().await;
    for permits in [1, 3] {
        let request = locks.lock("sync:42").permits(permits);
        let lease = request.min_hold(PATIENT).acquire().await.unwrap();
        let owner = lease.owner().to_owned();
        nap(50).await;
        let before = now();
        lease.release().await.unwrap();
        let nobody = format!("{:032}{}", 0, &owner[32..]);
        let since = if permits == 1 {
            stored(&server, LOCK, &nobody).0
        } else {
            let (since, behind) = said(&server, &nobody);
            assert_eq!(behind, "0 1 3");
            since
        };
        assert!((before..=now()).contains(&since), "{before} {since}");
        assert_eq!(told(&client(&server).await).await, since);
        let _: usize = server.ask(&format!("DEL {LOCK}"));
    }
}

/// What one that waits for a list of keys may be granted is a lock, and no slot of it.
#[tokio::test]
async fn a_list_that_waits_is_granted_no_slot() {
    let (server, locks) = pair().await;
    let slot = || locks.lock("sync:42").permits(2).acquire();
    let (first, second) = (slot().await.unwrap(), slot().await.unwrap());
    let other = client(&server).await;
    let request = other.lock_all(["sync:42", "b"]).ttl(10 * SECOND);
    let call = tokio::spawn(request.wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters(LOCK) == 1).await;
    second.release().await.unwrap();
    assert_eq!(server.holders(LOCK), [first.owner()]);
    assert_eq!(server.waiters(LOCK), 1);
    first.release().await.unwrap();
    let lease = tokio::time::timeout(SLACK, call).await.unwrap();
    let lease = lease.unwrap().unwrap();
    assert!(stored(&server, LOCK, lease.owner()).1.is_none());
}

#[tokio::test]
async fn a_quorum_and_a_store_in_memory_say_it_as_well() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let urls = || servers.iter().map(Server::url);
    let quorum = async || Client::builder().quorum(urls()).await.unwrap();
    let memory = Memory::new();
    let local = || Client::builder().store(memory.clone()).unwrap();
    for (one, two) in [(quorum().await, quorum().await), (local(), local())] {
        let first = one
            .lock("sync:42")
            .ttl(10 * SECOND)
            .acquire()
            .await
            .unwrap();
        let request = two.lock("sync:42").ttl(10 * SECOND).wait(PATIENT);
        let call = tokio::spawn(request.acquire());
        nap(WAITED).await;
        let before = now();
        first.release().await.unwrap();
        let _lease = call.await.unwrap().unwrap();
        let since = told(&one).await;
        assert!((before..=now()).contains(&since), "{before} {since}");
    }
}

#[tokio::test]
async fn a_clock_that_is_ahead_is_told_as_just_now() {
    let (server, locks) = pair().await;
    let ahead = SystemTime::now() + Duration::from_secs(3_600);
    let ms = ahead.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let theirs = "0123456789abcdef0123456789abcdef@web-7:4711";
    let set = ["SET", LOCK, &format!("{theirs} {ms}"), "PX", "60000"];
    let _: () = server.words(&set).unwrap();
    let busy = locks.lock("sync:42").acquire().await.unwrap_err();
    let text = busy.to_string();
    assert!(text.contains("held by web-7:4711 for 0ms, whose"), "{text}");
}
