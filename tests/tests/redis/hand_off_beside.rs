//! Leases that are handed off beside what else there may be: local ones, joined ones, renewals on their way.

use std::sync::Arc;
use std::time::Duration;

use lockattr::{Client, Error, LossCause, Memory, distributed_lock};
use tests::proxy::{Treatment, Way};
use tests::wait;

use crate::support::{Section, behind_a_proxy, client, nap, nothing_left, pair};

#[distributed_lock(key = "k", ttl = "2s", on_unavailable = local, client = locks)]
async fn local(locks: &Client, section: &Section, millis: u64) -> Result<(), Error> {
    section.run(millis).await;
    Ok(())
}

fn two_of_memory() -> (Memory, [Client; 2]) {
    let memory = Memory::new();
    let client = || Client::builder().store(memory.clone()).unwrap();
    let clients = [client(), client()];
    (memory, clients)
}

#[tokio::test]
async fn a_lease_is_not_taken_up_beside_a_local_one() {
    let (memory, [giver, heir]) = two_of_memory();
    let lease = giver.lock("k").acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    memory.refuse(Some("away"));
    let section = Arc::new(Section::default());
    let running = {
        let (heir, section) = (heir.clone(), Arc::clone(&section));
        tokio::spawn(async move { local(&heir, &section, 500).await })
    };
    wait::until("it runs", || section.inside() == 1).await;
    memory.refuse(None);
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
    running.await.unwrap().unwrap();
    // The text is as good as before.
    heir.take_up(&text).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_local_lease_is_not_handed_off() {
    #[distributed_lock(key = "k", on_unavailable = local, client = locks, bind = lease)]
    async fn shared(locks: &Client) -> Result<lockattr::Lease, Error> {
        Ok(lease.share())
    }
    let (memory, [locks, _]) = two_of_memory();
    memory.refuse(Some("away"));
    let lease = shared(&locks).await.unwrap();
    let told = lease.hand_off();
    assert!(matches!(told, Err(Error::Invalid { .. })), "{told:?}");
}

#[tokio::test]
async fn a_lease_that_has_joined_is_not_handed_off() {
    #[distributed_lock(key = ["a", "b"], client = locks, bind = lease)]
    async fn inner(locks: &Client) -> Result<lockattr::Lease, Error> {
        Ok(lease.share())
    }
    #[distributed_lock(key = "a", client = locks)]
    async fn outer(locks: &Client) -> Result<lockattr::Lease, Error> {
        inner(locks).await
    }
    let (_, [locks, _]) = two_of_memory();
    let lease = outer(&locks).await.unwrap();
    assert_eq!(lease.key(), "a + b");
    let told = lease.hand_off();
    assert!(matches!(told, Err(Error::Invalid { .. })), "{told:?}");
}

#[tokio::test]
async fn what_has_no_time_left_is_taken_up_and_over() {
    let (server, locks) = pair().await;
    let heir = client(&server).await;
    let lease = locks.lock("k").max_hold(Duration::from_millis(300));
    let lease = lease.acquire().await.unwrap();
    let text = lease.hand_off().unwrap();
    nap(400).await;
    match heir.take_up(&text).await {
        Ok(lease) => {
            let told = lease.release().await;
            assert!(
                matches!(
                    told,
                    Err(Error::Lost {
                        cause: LossCause::HeldTooLong,
                        ..
                    })
                ),
                "{told:?}"
            );
        }
        told => panic!("{told:?}"),
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_renewal_on_its_way_neither_hurts_who_takes_it_up_nor_is_taken_for_a_loss() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let heir = client(&server).await;
    let lease = locks
        .lock("k")
        .ttl(Duration::from_millis(1500))
        .acquire()
        .await
        .unwrap();
    // The first renewal is due after 500 ms.
    proxy.treat(Way::Requests, Treatment::Delay(Duration::from_millis(300)));
    nap(600).await;
    let text = lease.hand_off().unwrap();
    let lease = heir.take_up(&text).await.unwrap();
    nap(2000).await;
    lease.check().unwrap();
    assert!(server.pttl("lock:k") > 700, "{}", server.pttl("lock:k"));
    lease.release().await.unwrap();
    proxy.heal();
    nap(200).await;
    assert_eq!(locks.stats().lost, 0);
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_slot_whose_take_over_was_not_answered_is_given_back() {
    let (server, proxy, heir) = behind_a_proxy().await;
    let giver = client(&server).await;
    // The server knows the script from now on.
    let lease = giver.lock("geo").permits(3).acquire().await.unwrap();
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    lease.release().await.unwrap();
    let first = giver.lock("geo").permits(3).acquire().await.unwrap();
    let second = giver.lock("geo").permits(3).acquire().await.unwrap();
    let third = giver.lock("geo").permits(3).acquire().await.unwrap();
    let text = second.hand_off().unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    proxy.heal();
    let holders = || server.holders("lock:geo").len();
    wait::until("it is given back", || holders() == 2).await;
    drop((first, third));
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_reader_whose_take_over_was_not_answered_is_given_back() {
    let (server, proxy, heir) = behind_a_proxy().await;
    let giver = client(&server).await;
    // The server knows the script from now on.
    let lease = giver.lock("doc").shared().acquire().await.unwrap();
    let lease = heir.take_up(lease.hand_off().unwrap()).await.unwrap();
    lease.release().await.unwrap();
    let first = giver.lock("doc").shared().acquire().await.unwrap();
    let second = giver.lock("doc").shared().acquire().await.unwrap();
    let text = second.hand_off().unwrap();
    proxy.treat(Way::Replies, Treatment::Swallow);
    let told = heir.take_up(&text).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    proxy.heal();
    let holders = || server.holders("lock:doc").len();
    wait::until("it is given back", || holders() == 1).await;
    first.release().await.unwrap();
    nothing_left(&server).await;
}
