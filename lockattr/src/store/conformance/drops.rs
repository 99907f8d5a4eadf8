//! Futures that are dropped before they are done.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::promise::{BOUND, DROPPED, GRANTS, SETTLED};
use super::subject::{Claimant, SLACK, Subject};
use crate::store::{Acquired, Attempt, Release, Reply, Store};

/// A future that is polled more often than this is taken to be done.
const MOST_POLLS: usize = 50;

/// After the last poll, for an answer that comes then.
const LINGERS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(20)];

/// When something that was said to come no more would have come.
const LATE: Duration = Duration::from_millis(300);

/// The futures of all steps may be dropped after any poll: nothing stays of the owner once its keys are
/// given back.
pub async fn drops(store: &dyn Store) {
    let subject = Subject::new(store);
    let mut settled = Vec::new();
    for step in [
        DroppedStep::Acquire,
        DroppedStep::Wait,
        DroppedStep::Renew,
        DroppedStep::Token,
        DroppedStep::Release,
    ] {
        for linger in LINGERS {
            for polls in 0..MOST_POLLS {
                let dropped = drop_after(&subject, step, polls, linger).await;
                settled.extend(dropped.settled);
                if dropped.was_done {
                    break;
                }
            }
        }
    }
    // What comes now was said to come no more.
    sleep(LATE).await;
    for caller in settled {
        let next = subject.rival(&caller);
        match subject.acquire(&next, Attempt::default()).await {
            Acquired::Granted { slot, .. } => subject.give_back(&next, slot).await,
            answer => SETTLED.broken(format!(
                "{LATE:?} after its owner had settled, a lock was answered as {answer:?}"
            )),
        }
    }
}

/// What came of a future that was dropped.
struct Dropped {
    was_done: bool,
    /// Whose it was, where the store has said that nothing can come of it any more.
    settled: Option<Claimant>,
}

#[derive(Clone, Copy, Debug)]
enum DroppedStep {
    Acquire,
    /// An acquire that waits.
    Wait,
    Renew,
    Token,
    Release,
}

/// Drops one step after some polls, and gives back what may be left of it.
async fn drop_after(
    subject: &Subject<'_>,
    step: DroppedStep,
    polls: usize,
    linger: Duration,
) -> Dropped {
    let (store, caller) = (subject.store, subject.newcomer());
    let claim = caller.claim();
    let was_done = match step {
        DroppedStep::Acquire => {
            let reply = store.acquire(claim, Attempt::default());
            polled(subject, reply, polls, linger).await
        }
        DroppedStep::Wait => {
            let holder = subject.rival(&caller);
            let grant = subject.granted(&holder).await;
            let wakeups = store.wakeups(claim);
            let reply = store.acquire(claim, Attempt::first(Duration::from_secs(60)));
            let is_done = polled(subject, reply, polls, linger).await;
            drop(wakeups);
            subject.give_back(&holder, grant.slot).await;
            is_done
        }
        DroppedStep::Renew | DroppedStep::Token | DroppedStep::Release => {
            let grant = subject.granted(&caller).await;
            let leases = [claim.held(grant.slot)];
            match step {
                DroppedStep::Renew => {
                    let reply = store.renew(&leases, subject.limits.longest_answer);
                    let is_done = polled(subject, reply, polls, linger).await;
                    let rival = subject.rival(&caller);
                    subject.busy(&GRANTS, &rival, &caller, grant).await;
                    is_done
                }
                DroppedStep::Token => polled(subject, store.token(leases[0]), polls, linger).await,
                _ => {
                    let release = Release::held(grant.slot, &[]);
                    polled(subject, store.release(claim, release), polls, linger).await
                }
            }
        }
    };
    let what = format!("{step:?} was dropped after {polls} polls");
    let yet = given_back(subject, &caller, &what).await;
    Dropped {
        was_done,
        settled: yet.is_zero().then_some(caller),
    }
}

/// Whether it is done by then.
async fn polled<T>(
    subject: &Subject<'_>,
    mut reply: Reply<'_, T>,
    polls: usize,
    linger: Duration,
) -> bool {
    let longest = subject.limits.longest_answer;
    let mut left = polls;
    let some_polls = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match reply.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    });
    match timeout(longest, some_polls).await {
        Ok(is_done) => {
            if !is_done {
                sleep(linger).await;
            }
            is_done
        }
        Err(_) => BOUND.broken(format!("an answer has not come after {longest:?}")),
    }
}

/// Gives back what a caller may have or get yet, as the trait says it is done. Answers for how long
/// something may come all the same.
async fn given_back(subject: &Subject<'_>, caller: &Claimant, what: &str) -> Duration {
    let bound = subject.limits.longest_answer + SLACK;
    let give_back = async || subject.release(caller, Release::whatever(true)).await;
    give_back().await;
    let settled = subject.store.settled(&caller.owner);
    let Ok(yet) = timeout(bound, settled).await else {
        SETTLED.broken(format!(
            "{what}, and its owner has not settled after {bound:?}"
        ));
    };
    give_back().await;
    let next = subject.rival(caller);
    let late = subject.now() + yet.min(bound);
    loop {
        match subject.acquire(&next, Attempt::default()).await {
            Acquired::Granted { slot, .. } => {
                subject.give_back(&next, slot).await;
                return yet;
            }
            answer if subject.now() >= late => {
                let promise = if yet.is_zero() { SETTLED } else { DROPPED };
                promise.broken(format!(
                    "{what}, its owner's keys were given back when it had settled, and the lock is \
                     still answered as {answer:?}"
                ))
            }
            _ => sleep(Duration::from_millis(10)).await,
        }
        give_back().await;
    }
}
