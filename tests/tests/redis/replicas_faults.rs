//! Grants that replicas have to acknowledge, while replicas freeze and come back, and while the server
//! itself is frozen, restarted or replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::proxy::{Proxy, Treatment, Way};
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;

use crate::replicas::{connected, unacknowledged, with_replicas};
use crate::support::{BOUND, CLEARED, SLACK, client, nap, nothing_left};

/// Callers that take keys of their own again and again, until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    granted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    fn of(locks: &Client, callers: usize) -> Self {
        let (stop, granted, refused) = (Arc::default(), Arc::default(), Arc::default());
        let callers = (0..callers).map(|number| {
            let (locks, stop) = (locks.clone(), Arc::clone(&stop));
            let (granted, refused) = (Arc::clone(&granted), Arc::clone(&refused));
            tokio::spawn(async move {
                while !AtomicBool::load(&stop, Ordering::Relaxed) {
                    match locks.lock(format!("load:{number}")).acquire().await {
                        Ok(lease) => {
                            AtomicUsize::fetch_add(&granted, 1, Ordering::Relaxed);
                            lease.release().await.unwrap();
                        }
                        // What was given back may be there for a moment yet.
                        Err(Error::Busy { .. }) => nap(5).await,
                        taken => {
                            unacknowledged(taken);
                            AtomicUsize::fetch_add(&refused, 1, Ordering::Relaxed);
                        }
                    }
                }
            })
        });
        let callers = callers.collect();
        Self {
            stop,
            granted,
            refused,
            callers,
        }
    }

    fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.unwrap();
        }
    }
}

#[tokio::test]
async fn field_11_replicas_freeze_and_come_back_under_load() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let (primary, replicas) = with_replicas(3);
    for count in 1..=3 {
        let locks = connected(count, TIMEOUT, &primary.url()).await;
        // Few, so that what a frozen replica is sent has room in the buffers of its connection: the
        // system holds back what has not, and for longer each time.
        let load = Load::of(&locks, 4);
        for _ in 0..2 {
            let granted = load.granted();
            wait::until("it runs", || load.granted() > granted + 100).await;
            assert_eq!(load.refused(), 0, "of {count}");
            for replica in &replicas[count as usize - 1..] {
                replica.freeze();
            }
            // Grants that were acknowledged before may be on their way.
            nap(50).await;
            let granted = load.granted();
            wait::until("all are refused", || load.refused() >= 4).await;
            assert_eq!(load.granted(), granted, "of {count}");
            for replica in &replicas {
                replica.thaw();
            }
            let again = || load.granted() > granted + 8;
            wait::within("it goes on", Duration::from_secs(1) + SLACK, again).await;
            // Calls that were in time before the others.
            load.refused.store(0, Ordering::Relaxed);
        }
        load.stop().await;
        nothing_left(&primary).await;
    }
}

/// Everything but grants goes on while a grant waits for replicas.
#[tokio::test]
async fn field_11_nothing_else_is_behind_the_acknowledgement() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let (primary, replicas) = with_replicas(1);
    let locks = connected(1, TIMEOUT, &primary.url()).await;
    let others = client(&primary).await;
    let _busy = others.lock("busy").acquire().await.unwrap();
    let ttl = TIMEOUT + Duration::from_millis(500);
    let short = locks.lock("short").ttl(ttl).acquire().await.unwrap();
    let mut held = Vec::new();
    for key in 0..10 {
        held.push(locks.lock(format!("held:{key}")).acquire().await.unwrap());
    }
    replicas[0].freeze();
    let begun = Instant::now();
    let blocked = tokio::spawn(locks.lock("blocked").acquire());
    wait::until("it is granted", || primary.get("lock:blocked").is_some()).await;
    // Renewals of leases of any ttl, refusals, tokens, extensions and releases.
    let renewed = locks.stats().renewed;
    short.extend(ttl).await.unwrap();
    for lease in held {
        let refused = locks.lock("busy").acquire().await;
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        lease.token().await.unwrap();
        lease.release().await.unwrap();
    }
    assert!(
        begun.elapsed() + Duration::from_secs(1) < TIMEOUT,
        "{:?}",
        begun.elapsed()
    );
    assert!(!blocked.is_finished());
    wait::until("a renewal", || locks.stats().renewed > renewed).await;
    assert!(!blocked.is_finished());
    unacknowledged(blocked.await.unwrap());
    assert!(begun.elapsed() < TIMEOUT + Duration::from_secs(1) + SLACK);
    // The lease has been held all the while.
    assert!(short.remaining() > Duration::ZERO);
    let lost = tokio::time::timeout(ttl, short.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    short.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_a_release_has_made_is_acknowledged_too() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let (primary, replicas) = with_replicas(1);
    let holders = client(&primary).await;
    let locks = connected(1, TIMEOUT, &primary.url()).await;
    let queued = async |wait: u64| {
        let held = holders.lock("sync:42").acquire().await.unwrap();
        let request = locks.lock("sync:42").wait(Duration::from_secs(wait));
        let waiter = tokio::spawn(request.acquire());
        let is_queued = || primary.waiters("lock:sync:42") == 1;
        wait::until("it is queued", is_queued).await;
        wait::until("it listens", || primary.subscribers() >= 1).await;
        (held, waiter)
    };
    for _ in 0..5 {
        let (held, waiter) = queued(60).await;
        held.release().await.unwrap();
        let lease = waiter.await.unwrap().unwrap();
        assert_eq!(replicas[0].get("lock:sync:42"), primary.get("lock:sync:42"));
        lease.release().await.unwrap();
    }
    let (held, waiter) = queued(60).await;
    replicas[0].freeze();
    held.release().await.unwrap();
    unacknowledged(waiter.await.unwrap());
    nothing_left(&primary).await;

    // The replica comes back in time.
    let (held, waiter) = {
        replicas[0].thaw();
        queued(60).await
    };
    replicas[0].freeze();
    held.release().await.unwrap();
    nap(100).await;
    replicas[0].thaw();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    nothing_left(&primary).await;
}

/// Waiters of one client and of several, some of whom are refused: no grant is left to nobody.
#[tokio::test]
async fn a_queue_goes_on_past_those_who_were_refused() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let (primary, replicas) = with_replicas(1);
    let holders = client(&primary).await;
    let held = holders.lock("sync:42").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for count in 1..=3 {
        let locks = connected(1, TIMEOUT, &primary.url()).await;
        let request = || locks.lock("sync:42").wait(Duration::from_secs(60));
        waiters.push(tokio::spawn(request().acquire()));
        waiters.push(tokio::spawn(request().acquire()));
        let are_queued = || primary.waiters("lock:sync:42") == count;
        wait::until("it is queued", are_queued).await;
    }
    replicas[0].freeze();
    held.release().await.unwrap();
    for waiter in waiters {
        unacknowledged(waiter.await.unwrap());
    }
    nothing_left(&primary).await;
}

/// What was acknowledged is held after a failover to a replica that has acknowledged it.
#[tokio::test]
async fn field_11_a_failover_loses_no_grant_that_counts() {
    let (primary, mut replicas) = with_replicas(2);
    let proxy = Proxy::before(primary.address());
    let locks = connected(2, Duration::from_secs(5), &proxy.url()).await;
    let granted = Arc::new(AtomicUsize::new(0));
    let callers = (0..8).map(|caller| {
        let (locks, granted) = (locks.clone(), Arc::clone(&granted));
        tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let key = format!("{caller}:{}", kept.len());
                match locks.lock(&key).acquire().await {
                    Ok(lease) => kept.push((key, lease)),
                    Err(Error::Unavailable { .. }) => return kept,
                    Err(other) => panic!("{other:?}"),
                }
                granted.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let many = || granted.load(Ordering::Relaxed) >= 40;
    wait::until("many are granted", many).await;
    primary.kill();
    let mut kept = Vec::new();
    for caller in callers {
        kept.extend(caller.await.unwrap());
    }
    promote(&replicas[0], &replicas[1..]);
    proxy.retarget(replicas[0].address());
    let others = client(&replicas[0]).await;
    for (key, _) in &kept {
        let busy = others.lock(key).acquire().await;
        assert!(matches!(busy, Err(Error::Busy { .. })), "{key}: {busy:?}");
    }
    // The client goes on there, once there are as many replicas.
    replicas.push(replicas[0].replica());
    locks
        .lock("after")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for (_, lease) in kept {
        lease.release().await.unwrap();
    }
    nothing_left(&replicas[0]).await;
}

/// Replicas of another server, which has never had the grant, acknowledge nothing in its place.
#[tokio::test]
async fn field_11_a_failover_during_the_acknowledgement_acknowledges_nothing() {
    for is_killed in [true, false] {
        let (primary, replicas) = with_replicas(1);
        let (other, _replicas_of_other) = with_replicas(1);
        let proxy = Proxy::before(primary.address());
        let locks = connected(1, Duration::from_secs(5), &proxy.url()).await;
        replicas[0].freeze();
        let taking = tokio::spawn(locks.lock("sync:42").acquire());
        let waits = || primary.info("clients")["blocked_clients"] == "1";
        wait::until("it waits", waits).await;
        proxy.retarget(other.address());
        if is_killed {
            primary.kill();
        } else {
            let port = other.address().port();
            let _: () = primary.ask(&format!("REPLICAOF 127.0.0.1 {port}"));
        }
        let source = unacknowledged(taking.await.unwrap());
        assert!(source.to_string().contains("gone before"), "{source}");
        nothing_left(&other).await;
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        assert_eq!(other.keys(), ["lock:sync:42"]);
        lease.release().await.unwrap();
    }
}

/// Makes a replica the primary of the others.
fn promote(replica: &Server, others: &[Server]) {
    let _: () = replica.ask("REPLICAOF NO ONE");
    let port = replica.address().port().to_string();
    for other in others {
        let _: () = other.ask(&format!("REPLICAOF 127.0.0.1 {port}"));
        wait::block_until("the other is in step", || {
            other.info("replication")["master_link_status"] == "up"
        });
    }
}

#[tokio::test]
async fn a_server_that_is_frozen_meanwhile_is_told_in_time() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let (primary, replicas) = with_replicas(1);
    let locks = connected(1, TIMEOUT, &primary.url()).await;
    replicas[0].freeze();
    let begun = Instant::now();
    let taking = tokio::spawn(locks.lock("sync:42").acquire());
    wait::until("it is granted", || primary.get("lock:sync:42").is_some()).await;
    primary.freeze();
    unacknowledged(taking.await.unwrap());
    let took = begun.elapsed();
    assert!(
        took < BOUND + TIMEOUT + Duration::from_secs(1) + SLACK,
        "{took:?}"
    );
    primary.thaw();
    nothing_left(&primary).await;
    replicas[0].thaw();
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    lease.release().await.unwrap();
}

/// A connection that was closed while nobody used it costs nobody a grant.
#[tokio::test]
async fn a_connection_that_has_ended_is_replaced() {
    let (primary, _replica) = with_replicas(1);
    let locks = connected(1, Duration::from_secs(5), &primary.url()).await;
    for _ in 0..5 {
        locks
            .lock("a")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        primary.drop_clients();
        let _: () = primary.ask("SCRIPT FLUSH");
    }
}

/// A connection that is lost without a word is replaced: it is not waited for until the timeout is over.
#[tokio::test]
async fn a_connection_that_is_silent_is_replaced() {
    const TIMEOUT: Duration = Duration::from_secs(60);
    /// The longest that one `WAIT` takes, and its answer.
    const ONE_WAIT: Duration = Duration::from_secs(5 + 1);
    let (primary, replicas) = with_replicas(1);
    let proxy = Proxy::before(primary.address());
    let locks = connected(1, TIMEOUT, &proxy.url()).await;
    replicas[0].freeze();
    let first = tokio::spawn(locks.lock("first").acquire());
    let waits = || primary.info("clients")["blocked_clients"] == "1";
    wait::until("it waits", waits).await;
    let begun = Instant::now();
    proxy.treat(Way::Replies, Treatment::Swallow);
    replicas[0].thaw();
    wait::until("the answer is lost", || !waits()).await;
    proxy.heal();
    let next = locks.lock("next").acquire().await.unwrap();
    let first = first.await.unwrap().unwrap();
    let took = begun.elapsed();
    assert!(took < ONE_WAIT + SLACK, "{took:?}");
    for lease in [first, next] {
        lease.release().await.unwrap();
    }
}

/// A client that is gone waits for no replica.
#[tokio::test]
async fn a_client_that_is_dropped_meanwhile_ends() {
    let (primary, replicas) = with_replicas(1);
    let locks = connected(1, Duration::from_secs(60), &primary.url()).await;
    replicas[0].freeze();
    let call = tokio::spawn(locks.lock("a").acquire());
    let waits = || primary.info("clients")["blocked_clients"] == "1";
    wait::until("it waits", waits).await;
    drop(locks);
    call.abort();
    let is_closed = || !waits();
    wait::within("its connection is closed", CLEARED, is_closed).await;
    nothing_left(&primary).await;
}

/// A lock whose key was deleted before replicas had it is nobody's.
#[tokio::test]
async fn a_grant_that_is_gone_meanwhile_is_not_acknowledged() {
    let (primary, replicas) = with_replicas(1);
    let locks = connected(1, Duration::from_secs(5), &primary.url()).await;
    // The first one blocks the next ones, which are acknowledged in the round after it.
    replicas[0].freeze();
    let first = tokio::spawn(locks.lock("first").acquire());
    wait::until("it waits", || {
        primary.info("clients")["blocked_clients"] == "1"
    })
    .await;
    let next = tokio::spawn(locks.lock("next").acquire());
    wait::until("it is granted", || primary.get("lock:next").is_some()).await;
    let _: () = primary.ask("DEL lock:next");
    let _: () = primary.ask("SET lock:next another PX 60000");
    replicas[0].thaw();
    let first = first.await.unwrap().unwrap();
    let source = unacknowledged(next.await.unwrap());
    assert!(source.to_string().contains("gone before"), "{source}");
    nap(CLEARED.as_millis().try_into().unwrap()).await;
    assert_eq!(primary.get("lock:next").as_deref(), Some("another"));
    assert!(first.remaining() > Duration::ZERO);
}
