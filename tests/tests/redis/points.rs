//! Every point at which a call can be broken, one after the other: before and after each step that it
//! asks of its store, in simulated time.
//!
//! The points are counted by the store itself, so that a step that is added is broken as well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token, WakeUps,
};
use lockattr::{Client, Error, Memory, StoreError, distributed_lock};
use tests::wait;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(3);

/// How a step is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The store says no, and does nothing.
    Refused,
    /// The request is lost: nothing is done, and nobody is told.
    RequestLost,
    /// It is done, and the reply is lost.
    ReplyLost,
    /// It is done when nobody waits for it any more.
    Late,
    /// It takes longer than the ttl.
    Slow,
    /// The caller goes away before it is done.
    DroppedBefore,
    /// The caller goes away when it is done, before the reply comes.
    DroppedAfter,
}

const FAULTS: [Fault; 7] = [
    Fault::Refused,
    Fault::RequestLost,
    Fault::ReplyLost,
    Fault::Late,
    Fault::Slow,
    Fault::DroppedBefore,
    Fault::DroppedAfter,
];

/// A store in memory of which one step is broken.
#[derive(Clone, Debug)]
struct Breaking {
    memory: Memory,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    fault: Fault,
    /// Which step it is, counted from the first.
    at: usize,
    steps: AtomicUsize,
    /// Tells the test to drop the call.
    drop: Notify,
}

impl Breaking {
    /// Whether the next step is the one to break.
    fn breaks(&self) -> bool {
        self.plan.steps.fetch_add(1, Ordering::SeqCst) == self.plan.at
    }

    async fn step<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        late: impl FnOnce() + Send,
        step: F,
    ) -> Result<T, StoreError> {
        let lost = || StoreError::in_doubt("no answer");
        if !self.breaks() {
            return step.await;
        }
        match self.plan.fault {
            Fault::Refused => Err(StoreError::refused("out of order")),
            Fault::RequestLost => Err(lost()),
            Fault::ReplyLost => {
                step.await?;
                Err(lost())
            }
            Fault::Late => {
                late();
                Err(lost())
            }
            Fault::Slow => {
                sleep(TTL * 2).await;
                step.await
            }
            Fault::DroppedBefore => {
                self.plan.drop.notify_one();
                sleep(TTL * 100).await;
                step.await
            }
            Fault::DroppedAfter => {
                let done = step.await;
                self.plan.drop.notify_one();
                sleep(TTL * 100).await;
                done
            }
        }
    }
}

impl Store for Breaking {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        let memory = self.memory.clone();
        let (locks, owner) = (claim.locks.to_vec(), claim.owner.to_owned());
        let late = move || {
            // The request arrives after its sender has given it up.
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                memory.take(&locks[0], &owner, TTL);
            });
        };
        Box::pin(self.step(late, self.memory.acquire(claim, attempt)))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.step(|| {}, self.memory.renew(leases, patience)))
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.step(|| {}, self.memory.release(claim, release)))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(self.step(|| {}, self.memory.token(lease)))
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        self.memory.wakeups(claim)
    }

    fn in_callers_time(&self) -> bool {
        true
    }
}

/// Who is inside, and the tokens in the order in which they were drawn.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    tokens: Mutex<Vec<u64>>,
}

struct Inside<'a>(&'a Room);

impl<'a> Inside<'a> {
    fn enter(room: &'a Room) -> Self {
        assert_eq!(room.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        Self(room)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "room", ttl = TTL, wait = wait, bind = lease, client = locks)]
async fn visit(locks: &Client, wait: Duration, room: &Room) -> Result<(), Error> {
    let _inside = Inside::enter(room);
    if let Ok(token) = lease.token().await {
        room.tokens.lock().unwrap().push(token);
    }
    // Long enough for some renewals.
    sleep(TTL * 2).await;
    Ok(())
}

/// One call whose step `at` is broken, and a healthy one that waits for it. Answers whether the call
/// came as far as that step.
async fn history(fault: Fault, at: usize) -> bool {
    let memory = Memory::new();
    let plan = Arc::new(Plan {
        fault,
        at,
        steps: AtomicUsize::new(0),
        drop: Notify::new(),
    });
    let broken = Breaking {
        memory: memory.clone(),
        plan: Arc::clone(&plan),
    };
    let broken = Client::builder().store(broken).unwrap();
    let healthy = Client::builder().store(memory.clone()).unwrap();
    let room = Room::default();
    let first = async {
        tokio::select! {
            outcome = visit(&broken, Duration::ZERO, &room) => {
                // Only a request that came late may find the other call there.
                let busy = matches!(outcome, Err(Error::Busy { .. }));
                assert!(!busy || fault == Fault::Slow, "{fault:?} at {at}: {outcome:?}");
            }
            () = plan.drop.notified() => {}
        }
    };
    let second = async {
        sleep(Duration::from_millis(500)).await;
        visit(&healthy, TTL * 100, &room).await
    };
    let ((), second) = timeout(TTL * 1_000, async { tokio::join!(first, second) })
        .await
        .unwrap_or_else(|_| panic!("{fault:?} at {at}: nobody else gets in"));
    second.unwrap_or_else(|error| panic!("{fault:?} at {at}: {error}"));
    {
        let tokens = room.tokens.lock().unwrap();
        assert!(
            tokens.is_sorted_by(|a, b| a < b),
            "{fault:?} at {at}: {tokens:?}"
        );
    }
    // What the keeper does at last it does on its own thread, in real time.
    wait::until("the key is given back", || {
        memory.holder("lock:room").is_none()
    })
    .await;
    plan.steps.load(Ordering::SeqCst) > at
}

#[test]
fn a_call_that_is_broken_at_any_point_harms_nobody() {
    let mut points = 0;
    for fault in FAULTS {
        for at in 0.. {
            assert!(at < 100, "a call has an end");
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            if !runtime.block_on(history(fault, at)) {
                break;
            }
            points += 1;
        }
    }
    // An acquire, a token, some renewals and a release, in seven ways each.
    assert!(points >= 7 * 5, "{points} points were found");
}
