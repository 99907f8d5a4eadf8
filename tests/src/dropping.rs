//! Calls that go away at any moment, on any store: at each of their polls, at random while connections are hurt, and
//! with their runtime.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, LockRequest};
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use crate::proxy::{Proxy, Treatment, Way};
use crate::seed::Random;

/// The keys that are asked for, of which the last one has slots.
pub const KEYS: [&str; 4] = ["a", "b", "c", "slots"];

/// How soon nothing is left of calls that are over.
const CLEARED: Duration = Duration::from_secs(2);

/// What became of calls, by name.
pub type Ends = BTreeMap<&'static str, usize>;

/// One of the requests that are tried: one key, several in either order, or a slot; with and without renewals, and
/// with waits of all lengths.
fn request(locks: &Client, random: &mut Random, ttl: Duration) -> LockRequest {
    let [a, b, c, slots] = KEYS;
    let request = match random.below(6) {
        0 => locks.lock_all([a, b, c]),
        1 => locks.lock_all([c, a]),
        2 => locks.lock(slots).permits(3),
        3 => locks.lock(b),
        _ => locks.lock(a),
    };
    let wait = match random.below(4) {
        0 => Duration::ZERO,
        1 => Duration::from_millis(1),
        2 => random.millis(5, 60),
        _ => Duration::from_secs(30),
    };
    request.ttl(ttl).wait(wait).renew(random.below(6) > 0)
}

/// Takes what is asked for, may draw a token, does something for a while, and gives it back.
async fn call(request: LockRequest, busy: Duration, draws: bool) -> Result<(), Error> {
    let lease = request.acquire().await?;
    if draws {
        lease.token().await?;
    }
    sleep(busy).await;
    lease.release().await
}

fn random_call(
    locks: &Client,
    random: &mut Random,
    ttl: Duration,
) -> impl Future<Output = Result<(), Error>> + use<> {
    let request = request(locks, random, ttl);
    call(request, random.millis(0, 10), random.below(3) == 0)
}

/// Polls a future so often, at its wake-ups or `hastily`, and drops it.
async fn polled(polls: usize, hastily: bool, future: impl Future) {
    let mut future = pin!(future);
    let mut done = 0;
    poll_fn(|context| {
        done += 1;
        if future.as_mut().poll(context).is_ready() || done >= polls {
            return Poll::Ready(());
        }
        if hastily {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

async fn cleared(what: &str, left: &mut impl FnMut() -> Vec<String>) {
    let start = Instant::now();
    loop {
        let still = left();
        if still.is_empty() {
            return;
        }
        assert!(start.elapsed() < CLEARED, "left of {what}: {still:?}");
        sleep(Duration::from_millis(3)).await;
    }
}

/// Drops calls at each of their polls, while somebody else has a key now and then, and looks what is left of each.
pub async fn at_each_poll(clients: [&Client; 2], mut left: impl FnMut() -> Vec<String>) {
    let [locks, other] = clients;
    let ttl = Duration::from_secs(30);
    let mut random = Random::announced("at each poll");
    for hastily in [false, true] {
        for polls in 1..=60 {
            let held = match random.below(3) {
                0 => other.lock(KEYS[0]).ttl(ttl).acquire().await.ok(),
                _ => None,
            };
            let for_long = random.millis(0, 20);
            let holding = async {
                if let Some(held) = held {
                    sleep(for_long).await;
                    held.release().await.expect("nobody took it");
                }
            };
            let call = polled(polls, hastily, random_call(locks, &mut random, ttl));
            let _ = tokio::join!(timeout(Duration::from_millis(150), call), holding);
            cleared(&format!("{polls} polls, hastily {hastily}"), &mut left).await;
        }
    }
}

/// Aborts so many calls at random moments, while two keys go from client to client and the proxies before these are
/// hurt. No two bodies of a key run at a time, and soon after nothing is left.
pub async fn at_random(
    clients: &[Client],
    proxies: &[Proxy],
    calls: usize,
    ttl: Duration,
    mut left: impl FnMut() -> Vec<String>,
) -> Ends {
    let over = AtomicBool::new(false);
    let ends = thread::scope(|scope| {
        scope.spawn(|| hurt(proxies, &over));
        let running = aborted(clients, calls, ttl);
        let ends = block_in_place(|| Handle::current().block_on(running));
        over.store(true, Ordering::Relaxed);
        ends
    });
    cleared("aborted calls", &mut left).await;
    ends
}

async fn aborted(clients: &[Client], calls: usize, ttl: Duration) -> Ends {
    let mut random = Random::announced("aborted");
    let over = Arc::new(AtomicBool::new(false));
    let mut steady = JoinSet::new();
    for key in &KEYS[..2] {
        let inside = Arc::new(AtomicUsize::new(0));
        for locks in clients {
            let (over, inside) = (Arc::clone(&over), Arc::clone(&inside));
            let locks = locks.clone();
            steady.spawn(async move {
                let mut ends = Ends::new();
                while !over.load(Ordering::Relaxed) {
                    let request = locks.lock(key).ttl(ttl).wait(Duration::from_secs(30));
                    let end = turn(request, &inside).await;
                    *ends.entry(told(end)).or_default() += 1;
                }
                ends
            });
        }
    }
    let mut ends = Ends::new();
    let mut running = JoinSet::new();
    for index in 0..calls {
        let call = random_call(&clients[index % clients.len()], &mut random, ttl);
        let after = random.millis(0, [4, 40, 400][index % 3]);
        running.spawn(async move { timeout(after, call).await.map_or("aborted", told) });
        sleep(random.millis(0, 8)).await;
        if running.len() > 24
            && let Some(end) = running.join_next().await
        {
            *ends.entry(end.expect("no panic")).or_default() += 1;
        }
    }
    for end in running.join_all().await {
        *ends.entry(end).or_default() += 1;
    }
    over.store(true, Ordering::Relaxed);
    for (end, count) in steady.join_all().await.into_iter().flatten() {
        *ends.entry(end).or_default() += count;
    }
    ends
}

async fn turn(request: LockRequest, inside: &AtomicUsize) -> Result<(), Error> {
    let lease = request.acquire().await?;
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two bodies");
    sleep(Duration::from_millis(4)).await;
    inside.fetch_sub(1, Ordering::SeqCst);
    lease.release().await
}

fn told(end: Result<(), Error>) -> &'static str {
    match end {
        Ok(()) => "done",
        Err(Error::Busy { .. }) => "busy",
        Err(Error::Unavailable { .. }) => "unavailable",
        Err(error) => panic!("a lease outlives every fault here: {error}"),
    }
}

/// Cuts, delays and swallows at random until it is over, and then mends all.
fn hurt(proxies: &[Proxy], over: &AtomicBool) {
    let mut random = Random::announced("hurt");
    while !over.load(Ordering::Relaxed) {
        let one = random.below(u64::try_from(proxies.len()).expect("a few"));
        let one = &proxies[usize::try_from(one).expect("a few")];
        let way = [Way::Requests, Way::Replies][usize::from(random.below(2) == 0)];
        match random.below(3) {
            0 => one.cut(),
            1 => one.treat(way, Treatment::Swallow),
            _ => one.treat(way, Treatment::Delay(random.millis(10, 700))),
        }
        thread::sleep(random.millis(5, 1_300));
        one.heal();
        if random.below(2) == 0 {
            one.cut();
        }
        thread::sleep(random.millis(5, 150));
    }
    proxies.iter().for_each(Proxy::heal);
}

/// Drops runtimes under their calls, and clients that are shut down, or not, with them.
pub fn with_the_runtime(connect: impl Fn() -> Client, mut left: impl FnMut() -> Vec<String>) {
    let mut random = Random::announced("with the runtime");
    let looking = Builder::new_current_thread().enable_all().build();
    let looking = looking.expect("a runtime");
    let mut locks = connect();
    for round in 0..24 {
        let runtime = match round % 2 {
            0 => Builder::new_current_thread().enable_all().build(),
            _ => Builder::new_multi_thread().enable_all().build(),
        };
        let runtime = runtime.expect("a runtime");
        for _ in 0..30 {
            runtime.spawn(random_call(&locks, &mut random, Duration::from_secs(30)));
        }
        let pause = random.millis(0, 120);
        runtime.block_on(async { sleep(pause).await });
        let is_shut_down = round % 4 == 3;
        if is_shut_down {
            runtime.block_on(locks.shutdown());
            assert_eq!(left(), [""; 0], "after a shutdown");
        }
        drop(runtime);
        if round % 4 > 1 {
            locks = connect();
        }
        looking.block_on(cleared(&format!("round {round}"), &mut left));
    }
}

/// So many calls for `units`, alone, as readers and with weights, begin within 900 ms and are dropped within
/// `patience` milliseconds, while the proxies swallow answers and cut connections. The answer is how many were served.
pub async fn of_every_form(
    clients: &[Client],
    proxies: &[Proxy],
    count: usize,
    patience: u64,
) -> usize {
    let mut random = Random::announced("dropped");
    let mut calls = JoinSet::new();
    for number in 0..count {
        let locks = &clients[number % clients.len()];
        let request = match random.below(5) {
            0 => locks.lock("units"),
            1 | 2 => locks.lock("units").shared(),
            _ => {
                let weight = 1 + u32::try_from(random.below(4)).expect("a small number");
                locks.lock("units").permits(4).weight(weight)
            }
        };
        let request = request.ttl(Duration::from_secs(20));
        let request = request.wait(Duration::from_secs(30));
        let (starts, patience) = (random.millis(0, 900), random.millis(0, patience));
        let holds = random.millis(0, 10);
        calls.spawn(async move {
            sleep(starts).await;
            let call = async {
                let lease = request.acquire().await?;
                sleep(holds).await;
                lease.release().await
            };
            timeout(patience, call)
                .await
                .is_ok_and(|ended| ended.is_ok())
        });
    }
    for proxy in proxies {
        sleep(Duration::from_millis(200)).await;
        proxy.treat(Way::Replies, Treatment::Swallow);
        sleep(Duration::from_millis(50)).await;
        proxy.heal();
        proxy.cut();
    }
    let served = calls.join_all().await;
    served.into_iter().filter(|served| *served).count()
}
