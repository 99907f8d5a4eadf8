//! Failovers under load: what goes on, what is told, and how long it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::sentinel::{Sentinels, Setup};
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{SLACK, Section, nap, nothing_left};

/// How soon after a server says that it is the primary locks are taken on it: a sentinel that says
/// nothing of it is asked every second, and a connection may just have begun.
const FOLLOWED: Duration = Duration::from_secs(2);

async fn client(all: &Sentinels) -> Client {
    Client::connect(all.url()).await.unwrap()
}

/// Calls of several clients on one key and on keys of their own, until they are stopped.
struct Load {
    over: Arc<AtomicBool>,
    section: Arc<Section>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(all: &Sentinels) -> Self {
        let (over, section) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(Section::default()),
        );
        let mut tasks = Vec::new();
        for number in 0..4 {
            let locks = client(all).await;
            for task in 0..4 {
                let (over, section, locks) =
                    (Arc::clone(&over), Arc::clone(&section), locks.clone());
                tasks.push(tokio::spawn(async move {
                    while !over.load(Ordering::SeqCst) {
                        let key = format!("own:{number}:{task}");
                        let own = locks.lock(&key).acquire().await;
                        told_well(own.map(drop));
                        let shared = locks.lock("shared").wait(Duration::from_millis(500));
                        match shared.acquire().await {
                            Ok(lease) => {
                                section.run(2).await;
                                told_well(lease.release().await);
                            }
                            Err(error) => told_well(Err(error)),
                        }
                    }
                }));
            }
        }
        Self {
            over,
            section,
            tasks,
        }
    }

    async fn stop(self) -> Arc<Section> {
        self.over.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.section
    }
}

/// Busy, unavailable and lost are what a failover may make of a call.
fn told_well(answer: Result<(), Error>) {
    match answer {
        Ok(()) | Err(Error::Busy { .. } | Error::Unavailable { .. } | Error::Lost { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
}

/// Calls succeed again on the new primary, in time.
async fn goes_on(all: &Sentinels, locks: &Client, primary: usize, since: Instant) -> Duration {
    loop {
        if let Ok(lease) = locks.lock("probe").acquire().await {
            let on_it = all.servers[primary].get("lock:probe").is_some();
            let took = since.elapsed();
            let _ = lease.release().await;
            if on_it {
                return took;
            }
        }
        assert!(since.elapsed() < FOLLOWED + SLACK, "not followed");
        nap(5).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_followed_and_a_lease_goes_on() {
    let all = Sentinels::start();
    let (locks, holder) = (client(&all).await, client(&all).await);
    let held = holder
        .lock("held")
        .ttl(Duration::from_secs(9))
        .acquire()
        .await
        .unwrap();
    wait::until("it is replicated", || {
        all.servers[1].get("lock:held").is_some()
    })
    .await;
    let load = Load::start(&all).await;
    nap(200).await;
    all.servers[0].kill();
    let (primary, promoted) = all.promoted(&[1]);
    goes_on(&all, &locks, primary, promoted).await;
    // It is the holder's own on the new one, and renewed there.
    let renewed = holder.stats().renewed;
    wait::until("a renewal", || holder.stats().renewed > renewed).await;
    let owner = all.servers[primary].get("lock:held");
    assert_eq!(owner.as_deref(), Some(held.owner()));
    assert_eq!(holder.stats().lost, 0);
    held.release().await.unwrap();
    let section = load.stop().await;
    assert!(section.runs() > 0);
    nothing_left(&all.servers[primary]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_failover_is_followed_while_the_old_primary_lives_on() {
    let all = Sentinels::start();
    let (locks, holder) = (client(&all).await, client(&all).await);
    let held = holder
        .lock("held")
        .ttl(Duration::from_secs(9))
        .acquire()
        .await
        .unwrap();
    wait::until("it is replicated", || {
        all.servers[1].get("lock:held").is_some()
    })
    .await;
    let load = Load::start(&all).await;
    nap(200).await;
    let primary = all.fail_over(&[0, 1, 2]);
    goes_on(&all, &locks, primary, Instant::now()).await;
    let old = &all.servers[0];
    wait::until("the old one is a replica in step", || {
        old.info("replication")
            .get("master_link_status")
            .map(String::as_str)
            == Some("up")
    })
    .await;
    // And back again.
    let primary = all.fail_over(&[0, 1, 2]);
    assert_eq!(primary, 0);
    goes_on(&all, &locks, primary, Instant::now()).await;
    let renewed = holder.stats().renewed;
    wait::until("a renewal", || holder.stats().renewed > renewed).await;
    assert_eq!(holder.stats().lost, 0);
    assert_eq!(old.get("lock:held").as_deref(), Some(held.owner()));
    held.release().await.unwrap();
    load.stop().await;
    nothing_left(old).await;
}

/// While a replica does not answer, the sentinel that leads the failover names the old primary in one
/// of its answers for as long as the failover may take.
#[tokio::test]
async fn a_failover_that_is_not_finished_is_followed() {
    let setup = Setup {
        replicas: 3,
        failover_timeout: Some(Duration::from_secs(60)),
        ..Setup::default()
    };
    let all = setup.start();
    let locks = client(&all).await;
    let lease = locks.lock("a").acquire().await.unwrap();
    lease.release().await.unwrap();
    let begun = all.sentinels[0].try_ask::<()>("SENTINEL FAILOVER mymaster");
    begun.unwrap();
    let (primary, promoted) = all.promoted(&[1, 2, 3]);
    let silent = (1..4).find(|index| *index != primary).unwrap();
    all.servers[silent].freeze();
    goes_on(&all, &locks, primary, promoted).await;
    all.servers[silent].thaw();
}

/// Waiters of many clients, and who was served in which order.
async fn waiters(all: &Sentinels, clients: usize, each: usize) -> Vec<JoinHandle<Instant>> {
    let mut calls = Vec::new();
    for number in 0..clients {
        let locks = client(all).await;
        for _ in 0..each {
            let request = locks.lock("crowded").wait(Duration::from_secs(60));
            let call = async move {
                // Polled in the order in which they were spawned.
                let lease = request.acquire().await.unwrap();
                let served = Instant::now();
                lease.release().await.unwrap();
                served
            };
            calls.push(tokio::spawn(call));
            // In the wait queue of its client before the next.
            tokio::task::yield_now().await;
        }
        let queued = u64::try_from(number + 1).unwrap();
        let is_queued = || all.servers[0].waiters("lock:crowded") >= queued;
        wait::until("its front is queued", is_queued).await;
    }
    calls
}

#[tokio::test]
async fn two_hundred_waiters_are_served_in_order_after_a_failover() {
    const CLIENTS: usize = 20;
    const EACH: usize = 10;
    let all = Sentinels::start();
    let holder = client(&all).await;
    let held = holder.lock("crowded").acquire().await.unwrap();
    let calls = waiters(&all, CLIENTS, EACH).await;
    let queued = u64::try_from(CLIENTS).unwrap();
    let is_replicated = || all.servers[1].waiters("lock:crowded") == queued;
    wait::until("all of it is replicated", is_replicated).await;
    let primary = all.fail_over(&[0, 1, 2]);
    let new = &all.servers[primary];
    let listen = || {
        let channels: Vec<String> = new.ask("PUBSUB CHANNELS lock:wake:*");
        channels.len() == CLIENTS
    };
    wait::within("all listen at the new primary", FOLLOWED + SLACK, listen).await;
    held.release().await.unwrap();
    let released = Instant::now();
    let mut served = Vec::new();
    for call in calls {
        served.push(call.await.unwrap());
    }
    for of_client in served.chunks(EACH) {
        assert!(of_client.is_sorted(), "served out of turn");
    }
    let fronts: Vec<_> = served.iter().step_by(EACH).collect();
    assert!(fronts.is_sorted(), "clients served out of turn");
    let last = served.iter().max().unwrap();
    let took = last.saturating_duration_since(released);
    // Looking now and then instead would cost a second for each client.
    assert!(took < Duration::from_secs(10), "{took:?}");
    nothing_left(new).await;
}

/// What the README says of it; `--nocapture` shows it.
#[tokio::test]
async fn how_soon_a_failover_is_followed() {
    const ROUNDS: usize = 3;
    let setup = Setup {
        replicas: ROUNDS,
        sentinel_lines: "sentinel parallel-syncs mymaster 5\n",
        failover_timeout: Some(Duration::from_secs(1)),
        ..Setup::default()
    };
    let all = setup.start();
    let locks = client(&all).await;
    let mut alive: Vec<usize> = (0..=ROUNDS).collect();
    for ordered in [true, false] {
        let (mut of_promotion, mut of_word) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = all.named_by(&all.sentinels[2]).unwrap();
            let others: Vec<_> = alive
                .iter()
                .copied()
                .filter(|index| *index != before)
                .collect();
            if ordered {
                wait::until("a failover is to be had", || {
                    all.sentinels[2]
                        .try_ask::<()>("SENTINEL FAILOVER mymaster")
                        .is_ok()
                })
                .await;
            } else {
                all.servers[before].kill();
                alive = others.clone();
            }
            let (primary, promoted) = all.promoted(&others);
            let named = async {
                loop {
                    let mut named = all.sentinels.iter().map(|sentinel| all.named_by(sentinel));
                    if named.any(|named| named == Some(primary)) {
                        return Instant::now();
                    }
                    nap(2).await;
                }
            };
            let (took, named) = tokio::join!(goes_on(&all, &locks, primary, promoted), named);
            of_promotion.push(took);
            of_word.push((promoted + took).saturating_duration_since(named));
            all.moved_from(before, &[0, 1, 2]);
            wait::until("all follow it", || {
                alive
                    .iter()
                    .filter(|index| **index != primary)
                    .all(|index| {
                        let info = all.servers[*index].info("replication");
                        info.get("master_link_status").map(String::as_str) == Some("up")
                    })
            })
            .await;
        }
        of_promotion.sort_unstable();
        of_word.sort_unstable();
        let how = if ordered { "ordered" } else { "primary killed" };
        eprintln!(
            "{how}: first lock after the promotion {of_promotion:?}, after a sentinel named it {of_word:?}"
        );
        assert!(of_promotion[ROUNDS - 1] < FOLLOWED, "{of_promotion:?}");
    }
}
