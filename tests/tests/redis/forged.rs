//! A user with the right to every channel and to no key, as servers give it to each new user, cannot
//! make a waiter believe that it holds a lock, nor keep it busy.

use std::time::{Duration, Instant};

use lockattr::{Client, Lease};
use tests::forger::Forger;
use tests::server::Server;
use tests::wait;

use crate::support::{LOOK, SLACK, client, nap, pair};

const PATIENT: Duration = Duration::from_secs(60);

type Call = tokio::task::JoinHandle<Lease>;

async fn waits(server: &Server, locks: &Client) -> Call {
    let before = server.waiters("lock:sync:42");
    let request = locks
        .lock("sync:42")
        .ttl(Duration::from_secs(30))
        .wait(PATIENT);
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it is queued", || server.waiters("lock:sync:42") > before).await;
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_grant_is_not_believed() {
    let (server, locks) = pair().await;
    let mut forger = Forger::on(&server);
    let mut lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut next = waits(&server, &client(&server).await).await;
    let mut last = waits(&server, &client(&server).await).await;
    // The forger receives what each waiter is told.
    for _ in 0..4 {
        lease.release().await.unwrap();
        lease = next.await.unwrap();
        next = last;
        last = waits(&server, &client(&server).await).await;
        forger.receive();
        assert!(forger.messages().len() > 1, "{:?}", forger.messages());
        forger.forge_grants("lock:sync:42");
        nap(50).await;
        forger.flood();
        forger.forge_grants("lock:sync:42");
        nap(100).await;
        forger.discard_own();
        assert!(
            !next.is_finished() && !last.is_finished(),
            "two hold the lock"
        );
        assert_eq!(server.owner("lock:sync:42").as_deref(), Some(lease.owner()));
    }
    // Waiters still believe true messages.
    let started = Instant::now();
    lease.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    assert!(started.elapsed() < LOOK + SLACK, "{:?}", started.elapsed());
    assert_eq!(server.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forged_wake_ups_costs_the_server_no_look() {
    let (server, locks) = pair().await;
    let mut forger = Forger::on(&server);
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let (second, third) = (client(&server).await, client(&server).await);
    let next = waits(&server, &second).await;
    let last = waits(&server, &third).await;
    lease.release().await.unwrap();
    let lease = next.await.unwrap();
    forger.receive();
    let before = server.commands();
    let started = Instant::now();
    while started.elapsed() < 2 * LOOK {
        forger.flood();
    }
    let took = started.elapsed();
    let used = server.commands().since(&before);
    assert!(used.of("publish") > 1_000, "{used:?}");
    // Its own, about one a second, and renewals of the lease.
    let bound = u64::from(u32::try_from(took.as_millis() / 750).unwrap()) + 2;
    assert!(
        used.of("evalsha") <= bound,
        "{} in {took:?}",
        used.of("evalsha")
    );
    lease.release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    assert_eq!(server.size(), 0);
}

/// Nothing that is published names an owner, which is what a lock is given back by.
#[tokio::test]
async fn no_owner_goes_over_a_channel() {
    let (server, locks) = pair().await;
    let mut forger = Forger::on(&server);
    let mut owners = Vec::new();
    let mut lease = locks.lock("sync:42").acquire().await.unwrap();
    for _ in 0..5 {
        let other = client(&server).await;
        let next = waits(&server, &other).await;
        owners.push(lease.owner().to_owned());
        lease.release().await.unwrap();
        lease = next.await.unwrap();
    }
    owners.push(lease.owner().to_owned());
    forger.receive();
    assert!(forger.messages().len() >= 5);
    let ids = owners.iter().map(|owner| &owner[..32]);
    for id in ids {
        let told = forger.messages().iter().find(|(_, text)| text.contains(id));
        assert_eq!(told, None);
    }
}
