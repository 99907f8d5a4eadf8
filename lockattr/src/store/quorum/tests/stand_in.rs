//! A node in simulated time: a store in memory behind a network, with the faults of both.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::super::memory::Memory;
use super::super::super::{
    Acquired, Attempt, Claim, Found, Held, Limits, Listed, Release, Renewal, Renewed, Reply, Store,
    Token, WakeUps,
};
use super::super::owned::{OwnedClaim, OwnedHeld, OwnedRelease};
use crate::error::StoreError;

/// How long an answer is waited for.
pub(super) const BOUND: Duration = Duration::from_secs(2);

/// How a node treats its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    InOrder,
    /// What it is asked it does when it goes on.
    Frozen,
    /// It does what it is asked, and nobody hears of it.
    LosesReplies,
    /// It does nothing, and says so at once.
    Refuses,
}

#[derive(Clone, Debug)]
pub(super) struct StandIn {
    pub(super) memory: Memory,
    mode: watch::Sender<Mode>,
    delay: Duration,
    /// How many requests have reached it, of those that may be granted something and of all.
    acquires: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    /// By owner.
    outstanding: watch::Sender<HashMap<String, usize>>,
    /// Leases that were renewed at each call.
    pub(super) renewals: Arc<Mutex<Vec<usize>>>,
}

impl Default for StandIn {
    fn default() -> Self {
        Self::slow(Duration::ZERO)
    }
}

impl StandIn {
    /// One that takes so long to do anything.
    pub(super) fn slow(delay: Duration) -> Self {
        Self {
            memory: Memory::new(),
            mode: watch::Sender::new(Mode::InOrder),
            delay,
            acquires: Arc::default(),
            requests: Arc::default(),
            outstanding: watch::Sender::default(),
            renewals: Arc::default(),
        }
    }

    /// The same node as one sees it that is so far away.
    pub(super) fn at(&self, delay: Duration) -> Self {
        Self {
            delay,
            ..self.clone()
        }
    }

    pub(super) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(super) fn acquires(&self) -> usize {
        self.acquires.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Has a request go out, which is carried out whatever becomes of whoever waits for it.
    fn ask<T, F>(&self, owner: &str, work: impl FnOnce(Memory) -> F) -> Reply<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (node, owner) = (self.clone(), owner.to_owned());
        let work = work(self.memory.clone());
        Box::pin(async move {
            node.requests.fetch_add(1, Ordering::SeqCst);
            node.outstanding
                .send_modify(|all| *all.entry(owner.clone()).or_default() += 1);
            let carried_out = tokio::spawn({
                let node = node.clone();
                async move {
                    if !node.delay.is_zero() {
                        sleep(node.delay).await;
                    }
                    let mut mode = node.mode.subscribe();
                    let mode = *mode
                        .wait_for(|mode| *mode != Mode::Frozen)
                        .await
                        .expect("the node is there");
                    let answer = match mode {
                        Mode::Refuses => Err(StoreError::refused("the node refuses")),
                        _ => work.await,
                    };
                    node.outstanding.send_modify(|all| {
                        if let Some(count) = all.get_mut(&owner) {
                            *count -= 1;
                        }
                        all.retain(|_, count| *count > 0);
                    });
                    (mode, answer)
                }
            });
            match timeout(BOUND, carried_out).await {
                Ok(Ok((Mode::LosesReplies, _))) => {
                    sleep(BOUND).await;
                    Err(StoreError::in_doubt("the reply was lost"))
                }
                Ok(Ok((_, answer))) => answer,
                Ok(Err(ended)) => panic!("{ended}"),
                Err(_) => Err(StoreError::in_doubt("the node is silent")),
            }
        })
    }
}

impl Store for StandIn {
    fn limits(&self) -> Limits {
        self.memory.limits().longest_answer(2 * BOUND)
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        self.acquires.fetch_add(1, Ordering::SeqCst);
        let owned = OwnedClaim::from(claim);
        self.ask(claim.owner, |memory| async move {
            memory.acquire(owned.claim(), attempt).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        let owned: Vec<_> = leases.iter().map(OwnedHeld::from).collect();
        self.renewals.lock().expect("no panic").push(owned.len());
        self.ask("renewals", move |memory| async move {
            let leases: Vec<_> = owned.iter().map(OwnedHeld::held).collect();
            memory.renew(&leases, patience).await
        })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        let (owned, release) = (OwnedClaim::from(claim), OwnedRelease::from(release));
        self.ask(claim.owner, |memory| async move {
            memory.release(owned.claim(), release.release()).await
        })
    }

    fn take_over<'a>(&'a self, lease: Held<'a>, new_owner: &'a str) -> Reply<'a, Renewal> {
        let (owned, heir) = (OwnedClaim::from(lease.claim), new_owner.to_owned());
        self.ask(new_owner, |memory| async move {
            memory.take_over(owned.claim().held(0), &heir).await
        })
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        let lock = lock.to_owned();
        self.ask("status", |memory| async move { memory.status(&lock).await })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        let (owned, at_least) = (OwnedClaim::from(lease.claim), lease.at_least);
        self.ask(lease.claim.owner, move |memory| async move {
            memory.token(owned.claim().held(0).at_least(at_least)).await
        })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        self.memory.wakeups(claim)
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(async move {
            let mut outstanding = self.outstanding.subscribe();
            let settled = outstanding.wait_for(|all| !all.contains_key(owner));
            settled.await.expect("the node is there");
            Duration::ZERO
        })
    }

    fn in_callers_time(&self) -> bool {
        true
    }
}
