//! Callers of every kind on the same few keys: of several clients and runtimes, for one key, several
//! keys and slots, that wait, do not wait, go at any moment, share, extend and release.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, Memory};
use tests::seed::Random;
use tests::server::Server;
use tests::wait;

use crate::support::{LOOK, SLACK, client, nap, runtimes};

const PATIENT: Duration = Duration::from_secs(30);

/// What is in use.
#[derive(Default)]
struct Uses(Mutex<HashSet<String>>);

impl Uses {
    fn begin(&self, names: &[String]) {
        let mut uses = self.0.lock().unwrap();
        for name in names {
            assert!(uses.insert(name.clone()), "{name} has two holders");
        }
    }

    fn end(&self, names: &[String]) {
        let mut uses = self.0.lock().unwrap();
        uses.retain(|name| !names.contains(name));
    }
}

/// One call, and how long it waited for its lease; of several keys, each is let go for as long as
/// another is busy, so that there is no telling how long that takes.
async fn call(locks: &Client, uses: &Uses, random: &mut Random) -> Option<Duration> {
    let keys = ["a", "b", "c"];
    let one = usize::try_from(random.below(3)).unwrap();
    let two = (one + 1 + usize::try_from(random.below(2)).unwrap()) % 3;
    let permits = 1 + u32::try_from(random.below(3)).unwrap();
    let kind = random.below(6);
    let request = match kind {
        0 | 1 => locks.lock(keys[one]),
        2 => locks.lock_all([keys[one], keys[two]]),
        _ => locks.lock("slots").permits(permits),
    };
    let patience = match random.below(4) {
        0 => Duration::ZERO,
        1 => random.millis(1, 40),
        _ => PATIENT,
    };
    let ttl = Duration::from_secs(3 + random.below(2));
    let request = request.ttl(ttl).renew(random.below(4) > 0).wait(patience);
    let start = Instant::now();
    let lease = if random.below(5) == 0 {
        let time = random.millis(0, 30);
        tokio::time::timeout(time, request.acquire()).await.ok()?
    } else {
        request.acquire().await
    };
    let lease = match lease {
        Ok(lease) => lease,
        Err(Error::Busy { .. }) => {
            assert!(patience < PATIENT, "no turn within {PATIENT:?}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let waited = start.elapsed();
    let names: Vec<_> = match kind {
        0 | 1 => vec![keys[one].to_owned()],
        2 => vec![keys[one].to_owned(), keys[two].to_owned()],
        _ => vec![format!("slots {}", lease.slot())],
    };
    uses.begin(&names);
    hold(&lease, random).await;
    assert!(lease.remaining() > Duration::ZERO, "lost under its holder");
    uses.end(&names);
    let shared = (random.below(4) == 0).then(|| lease.share());
    match random.below(3) {
        0 => drop(lease),
        1 => lease.release().await.unwrap(),
        _ => {
            let time = random.millis(0, 1);
            drop(tokio::time::timeout(time, lease.release()).await);
        }
    }
    drop(shared);
    (patience == PATIENT && kind != 2).then_some(waited)
}

async fn hold(lease: &Lease, random: &mut Random) {
    match random.below(6) {
        0 => {
            lease.extend(Duration::from_secs(3)).await.unwrap();
        }
        1 => {
            let time = random.millis(0, 1);
            let extend = lease.extend(Duration::from_secs(5));
            drop(tokio::time::timeout(time, extend).await);
        }
        2 => {
            lease.token().await.unwrap();
        }
        _ => tokio::time::sleep(random.millis(0, 8)).await,
    }
}

fn run(clients: &[Client], length: Duration) {
    let seed = Random::announced("mixture").number();
    let uses: Arc<Uses> = Arc::default();
    let end = Instant::now() + length;
    let runtimes = runtimes();
    let mut callers = Vec::new();
    for (place, runtime) in (0..).zip(&runtimes) {
        for (number, locks) in (0..).zip(clients) {
            for caller in 0..6 {
                let (locks, uses) = (locks.clone(), Arc::clone(&uses));
                let mut random = Random::new(seed ^ (place * 1_000 + number * 100 + caller));
                callers.push(runtime.spawn(async move {
                    let (mut calls, mut longest) = (0, Duration::ZERO);
                    while Instant::now() < end {
                        let waited = call(&locks, &uses, &mut random).await;
                        longest = longest.max(waited.unwrap_or_default());
                        calls += 1;
                    }
                    (calls, longest)
                }));
            }
        }
    }
    let [current, multi] = &runtimes;
    // The single thread is driven by this one.
    let ends = current.block_on(async {
        let mut ends = Vec::new();
        for caller in callers {
            ends.push(caller.await.unwrap());
        }
        ends
    });
    let calls: u32 = ends.iter().map(|(calls, _)| calls).sum();
    let longest = ends.iter().map(|(_, longest)| *longest).max().unwrap();
    println!("{calls} calls, the longest wait {longest:?}");
    for locks in clients {
        assert_eq!(locks.stats().lost, 0);
        assert_eq!(locks.stats().unavailable, 0);
    }
    multi.block_on(nap(1));
    assert!(longest < LOOK + SLACK, "{longest:?}");
}

#[test]
fn callers_of_every_kind_exclude_each_other_and_get_on() {
    let server = Server::start();
    let [runtime, _] = runtimes();
    let clients: Vec<_> = (0..3).map(|_| runtime.block_on(client(&server))).collect();
    run(&clients, Duration::from_secs(6));
    drop(clients);
    wait::block_until("nothing is left", || {
        let mut left = server.keys();
        left.retain(|key| !key.starts_with("lock:token:"));
        left.is_empty()
    });
}

#[test]
fn callers_of_every_kind_get_on_in_memory() {
    let memory = Memory::new();
    let clients: Vec<_> = (0..3)
        .map(|_| Client::builder().store(memory.clone()).unwrap())
        .collect();
    run(&clients, Duration::from_secs(4));
}

/// Whatever they are doing in that moment: once a client was shut down, it has nothing and wants
/// nothing.
#[test]
fn a_client_that_is_shut_down_among_callers_of_every_kind_leaves_nothing() {
    let mut random = Random::announced("shut down");
    let server = Server::start();
    let runtimes = runtimes();
    let [current, multi] = &runtimes;
    for round in 0..30 {
        let locks = multi.block_on(client(&server));
        let uses: Arc<Uses> = Arc::default();
        let mut callers = Vec::new();
        for caller in 0..12 {
            let (locks, uses) = (locks.clone(), Arc::clone(&uses));
            let mut random = Random::new(random.number());
            callers.push(
                runtimes[caller % 2]
                    .spawn(async move { while taken(&locks, &uses, &mut random).await {} }),
            );
        }
        current.block_on(async {
            tokio::time::sleep(random.millis(1, 80)).await;
            let start = Instant::now();
            locks.shutdown().await;
            assert!(start.elapsed() < 4 * LOOK, "{:?}", start.elapsed());
            let mut left = server.keys();
            left.retain(|key| !key.starts_with("lock:token:"));
            assert!(left.is_empty(), "in round {round}: {left:?}");
            for caller in callers {
                caller.await.unwrap();
            }
        });
    }
}

/// One call on a client that may be shut down; whether it still was not.
async fn taken(locks: &Client, uses: &Uses, random: &mut Random) -> bool {
    let (key, permits) = (random.below(2), 1 + u32::try_from(random.below(2)).unwrap());
    let request = match random.below(3) {
        0 => locks.lock_all(["a", "b"]),
        1 => locks.lock("slots").permits(permits),
        _ => locks.lock(format!("k:{key}")),
    };
    let patience = if random.below(4) == 0 {
        Duration::ZERO
    } else {
        PATIENT
    };
    let time = random.millis(0, 60);
    let acquire = tokio::time::timeout(time, request.wait(patience).acquire());
    match acquire.await {
        Ok(Ok(lease)) => {
            uses.begin(&[lease.owner().to_owned()]);
            tokio::time::sleep(random.millis(0, 4)).await;
            uses.end(&[lease.owner().to_owned()]);
            true
        }
        Ok(Err(Error::Unavailable { .. })) => false,
        Ok(Err(Error::Busy { .. })) | Err(_) => true,
        Ok(Err(error)) => panic!("{error}"),
    }
}
