//! The store under test, and who asks it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::{sleep, timeout};

use super::promise::{
    BOUND, BUSY_LOCK, BUSY_OWNER, BUSY_REMAINING, BUSY_SINCE, FOUND, GRANTS, ONE_EACH, Promise,
    RELIED_ON,
};
use crate::owner::Origin;
use crate::runtime::clock::Clock;
use crate::store::{
    Acquired, Attempt, Claim, Found, Held, Limits, Release, Renewal, Reply, Store, Token,
    relied_on_until,
};

/// Lost time of a machine with much to do: a bound is checked as the promised one and this.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// By how much the wall clocks of a store and of its users may differ at most, and a test take.
pub(super) const CLOCKS_DIFFER: Duration = Duration::from_secs(600);

/// How long is waited between two looks.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Subject<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) limits: Limits,
    origin: Origin,
}

/// One acquisition of some locks.
#[derive(Clone)]
pub(super) struct Claimant {
    pub(super) locks: Vec<String>,
    pub(super) owner: String,
    pub(super) ttl: Duration,
    permits: u32,
    weight: u32,
    shared: bool,
}

#[derive(Clone, Copy)]
pub(super) struct HeldSlot {
    pub(super) slot: usize,
    pub(super) until: Instant,
}

impl Claimant {
    /// For another ttl.
    pub(super) fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Of so many of the permits.
    pub(super) fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Beside others like it.
    pub(super) fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Of a lock with as many permits.
    pub(super) fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// Of these locks alone.
    pub(super) fn only(&self, locks: &[String]) -> Self {
        let locks = locks.to_vec();
        Self {
            locks,
            ..self.clone()
        }
    }

    pub(super) fn claim(&self) -> Claim<'_> {
        Claim::new(&self.locks, &self.owner, self.ttl)
            .permits(self.permits)
            .weight(self.weight)
            .shared(self.shared)
    }

    pub(super) fn held(&self, slot: usize) -> Held<'_> {
        self.claim().held(slot)
    }
}

impl<'a> Subject<'a> {
    pub(super) fn new(store: &'a dyn Store) -> Self {
        assert!(
            store.in_callers_time() || Clock::of_caller() == Clock::Real,
            "leases of this store live in real time: check it under a clock that is not paused"
        );
        Self {
            store,
            limits: store.limits(),
            origin: Origin::here(),
        }
    }

    /// The key of a lock that nobody else has.
    pub(super) fn lock(&self) -> String {
        format!("lock:conformance:{}", self.origin.new_id())
    }

    /// Somebody who wants these locks, for longer than a test takes.
    pub(super) fn caller(&self, locks: &[String]) -> Claimant {
        Claimant {
            locks: locks.to_vec(),
            owner: self.origin.owner(self.origin.new_id()),
            ttl: self.limits.shortest_ttl.max(Duration::from_secs(60)) + self.limits.longest_answer,
            permits: 1,
            weight: 1,
            shared: false,
        }
    }

    /// Somebody who wants a new lock.
    pub(super) fn newcomer(&self) -> Claimant {
        self.caller(&[self.lock()])
    }

    /// Somebody else who wants the same.
    pub(super) fn rival(&self, caller: &Claimant) -> Claimant {
        let owner = self.origin.owner(self.origin.new_id());
        Claimant {
            owner,
            ..caller.clone()
        }
    }

    /// A ttl whose end can be waited for.
    pub(super) fn short_ttl(&self) -> Duration {
        self.limits.shortest_ttl.max(Duration::from_millis(600))
    }

    /// By the clock that leases of the store live in.
    pub(super) fn now(&self) -> Instant {
        if self.store.in_callers_time() {
            Clock::Tokio.now()
        } else {
            Clock::Real.now()
        }
    }

    /// The answer, which is to come in time.
    pub(super) async fn answer<T>(&self, step: &str, reply: Reply<'_, T>) -> T {
        let longest = self.limits.longest_answer;
        match timeout(longest, reply).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                panic!("`Store::{step}` failed, of a store that is to be in order: {error}")
            }
            Err(_) => BOUND.broken(format!("`{step}` has not answered after {longest:?}")),
        }
    }

    pub(super) async fn acquire(&self, caller: &Claimant, attempt: Attempt) -> Acquired {
        let reply = self.store.acquire(caller.claim(), attempt);
        self.answer("acquire", reply).await
    }

    /// What is granted at once, since nobody holds it.
    pub(super) async fn granted(&self, caller: &Claimant) -> HeldSlot {
        self.granted_as(&GRANTS, caller, Attempt::default()).await
    }

    pub(super) async fn granted_as(
        &self,
        promise: &Promise,
        caller: &Claimant,
        attempt: Attempt,
    ) -> HeldSlot {
        match self.acquire(caller, attempt).await {
            Acquired::Granted { slot, until, .. } => self.relied_on(caller, slot, until),
            other => promise.broken(format!(
                "what is free was not granted, but answered {other:?}"
            )),
        }
    }

    pub(super) fn relied_on(&self, caller: &Claimant, slot: usize, until: Instant) -> HeldSlot {
        let longest = relied_on_until(self.now(), caller.ttl);
        RELIED_ON.holds(
            until <= longest,
            format!(
                "a ttl of {:?} was to be relied on for {:?} longer than it may be; \
                 `relied_on_until` says until when",
                caller.ttl,
                until.saturating_duration_since(longest)
            ),
        );
        HeldSlot { slot, until }
    }

    /// What is refused, since `holder` has it by `grant`.
    pub(super) async fn busy(
        &self,
        promise: &Promise,
        caller: &Claimant,
        holder: &Claimant,
        grant: HeldSlot,
    ) {
        self.busy_at(promise, caller, 0, holder, grant).await;
    }

    /// The same of one that waits.
    pub(super) async fn busy_for(
        &self,
        promise: &Promise,
        caller: &Claimant,
        wait: Duration,
        holder: &Claimant,
        grant: HeldSlot,
    ) {
        let answer = self.acquire(caller, Attempt::again(wait)).await;
        self.is_busy(promise, answer, 0, holder, grant);
    }

    /// The same of several locks, of which the one with this index is held.
    pub(super) async fn busy_at(
        &self,
        promise: &Promise,
        caller: &Claimant,
        index: usize,
        holder: &Claimant,
        grant: HeldSlot,
    ) {
        let answer = self.acquire(caller, Attempt::default()).await;
        self.is_busy(promise, answer, index, holder, grant);
    }

    fn is_busy(
        &self,
        promise: &Promise,
        answer: Acquired,
        index: usize,
        holder: &Claimant,
        grant: HeldSlot,
    ) {
        let (lock, owner, remaining, since) = match answer {
            Acquired::Busy {
                lock,
                owner,
                remaining,
                since,
                ..
            } => (lock, owner, remaining, since),
            other => promise.broken(format!(
                "what another owner holds was answered as {other:?}"
            )),
        };
        BUSY_LOCK.holds(
            lock == index,
            format!("lock {index} is held, not lock {lock}"),
        );
        BUSY_OWNER.holds(
            owner == holder.owner,
            format!("`{}` holds it, not `{owner}`", holder.owner),
        );
        if let Some(since) = since {
            let off = apart(since, SystemTime::now());
            BUSY_SINCE.holds(
                off < CLOCKS_DIFFER,
                format!("what was granted just now was told as held since {since:?}"),
            );
        }
        let least = grant.until.saturating_duration_since(self.now());
        BUSY_REMAINING.holds(
            least <= remaining && remaining <= holder.ttl,
            format!(
                "{remaining:?} are left of a ttl of {:?} that may be relied on for {least:?} yet",
                holder.ttl
            ),
        );
    }

    /// Asks until what somebody holds is granted, which is to be when his time is over and not before.
    pub(super) async fn granted_after(
        &self,
        promise: &Promise,
        caller: &Claimant,
        until: Instant,
    ) -> HeldSlot {
        let late = until + self.limits.longest_answer + SLACK;
        loop {
            match self.acquire(caller, Attempt::default()).await {
                Acquired::Granted {
                    slot, until: next, ..
                } => {
                    let early = until.saturating_duration_since(self.now());
                    promise.holds(
                        early.is_zero(),
                        format!("it was granted {early:?} too early"),
                    );
                    return self.relied_on(caller, slot, next);
                }
                other if self.now() > late => {
                    promise.broken(format!("what is over is still answered as {other:?}"))
                }
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Waits until a moment of the store's clock.
    pub(super) async fn sleep_until(&self, moment: Instant) {
        while self.now() < moment {
            sleep(moment.saturating_duration_since(self.now()).max(PAUSE)).await;
        }
    }

    pub(super) async fn release(&self, caller: &Claimant, release: Release<'_>) -> Found {
        let reply = self.store.release(caller.claim(), release);
        self.answer("release", reply).await
    }

    /// Gives back what is held.
    pub(super) async fn give_back(&self, caller: &Claimant, slot: usize) {
        let found = self.release(caller, Release::held(slot, &[])).await;
        FOUND.holds(
            found == Found::Ours,
            format!("what its owner held was answered as {found:?}"),
        );
    }

    /// Renews several leases, and answers what each is known of.
    pub(super) async fn renew(&self, leases: &[Held<'_>]) -> Vec<Renewal> {
        let reply = self.store.renew(leases, self.limits.longest_answer);
        let answers = self.answer("renew", reply).await;
        ONE_EACH.holds(
            answers.len() == leases.len(),
            format!("{} answers for {} leases", answers.len(), leases.len()),
        );
        let known = answers.into_iter().map(|answer| match answer {
            Ok(renewal) => renewal,
            Err(error) => {
                panic!("`Store::renew` failed, of a store that is to be in order: {error}")
            }
        });
        known.collect()
    }

    pub(super) async fn token(&self, caller: &Claimant, slot: usize) -> Token {
        let reply = self.store.token(caller.held(slot));
        self.answer("token", reply).await
    }
}

/// How far two moments are apart.
pub(super) fn apart(one: SystemTime, other: SystemTime) -> Duration {
    let apart = one.duration_since(other);
    apart.unwrap_or_else(|earlier| earlier.duration())
}

/// Waits for all of these, which go on at the same time.
pub(super) async fn all<T>(mut futures: Vec<impl Future<Output = T> + Unpin>) -> Vec<T> {
    let mut outputs: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(done) => *output = Some(done),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
