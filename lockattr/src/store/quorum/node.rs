//! One node of a quorum: the store that it is, and what is known of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Acquired, Attempt, Found, Held, Renewal, Renewed, Store, Token};
use super::claims::{Claims, Phase, Returning};
use super::context::QuorumContext;
use super::health::Health;
use super::owned::{OwnedClaim, OwnedHeld, OwnedRelease};
use super::requests::Request;
use crate::error::StoreError;

/// The pauses before something that could not be given back is given back again.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What may still come is looked for after such a share of the time that has gone by.
const LOOKS_AFTER_SHARE: u32 = 3;

pub(super) struct QuorumNode {
    pub(super) store: Arc<dyn Store>,
    pub(super) context: QuorumContext,
    pub(super) health: Health,
    pub(super) claims: Claims,
}

impl QuorumNode {
    pub(super) fn new(store: Arc<dyn Store>, context: QuorumContext) -> Arc<Self> {
        Arc::new(Self {
            store,
            context,
            health: Health::default(),
            claims: Claims::default(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.health.is_open(self.context.now())
    }

    /// Asks for the node's vote.
    pub(super) fn acquire(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        attempt: Attempt,
    ) -> Request<Acquired> {
        let (node, claim) = (Arc::clone(self), Arc::clone(claim));
        Request::new(|sent| async move {
            node.is_ready(&claim).await?;
            node.claims.sweep(node.context.now());
            let waits = !attempt.wait.is_zero();
            let asking = node.claims.begin(&claim.owner, Phase::Asking, waits).await;
            sent.now();
            let answer = node.store.acquire(claim.claim(), attempt).await;
            asking.answered(&answer);
            node.health.heard(&answer);
            answer
        })
    }

    /// Asks for the vote of a node that a lease has not, as long as `is_held` says that it is one.
    pub(super) fn join(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        is_held: impl FnOnce() -> bool + Send + 'static,
    ) -> Request<Acquired> {
        let (node, claim) = (Arc::clone(self), Arc::clone(claim));
        Request::new(|sent| async move {
            let asking = node.claims.begin(&claim.owner, Phase::Held, false).await;
            // Only now: a release that comes later finds the claim here.
            if !is_held() {
                let over = Err(StoreError::refused("the lease is over"));
                asking.answered(&over);
                return over;
            }
            sent.now();
            let joins = node.store.acquire(claim.claim(), Attempt::default());
            let answer = joins.await;
            asking.answered(&answer);
            node.health.heard(&answer);
            answer
        })
    }

    pub(super) fn renew(
        self: &Arc<Self>,
        leases: &Arc<Vec<OwnedHeld>>,
        patience: Duration,
    ) -> Request<Vec<Renewed>> {
        let (node, leases) = (Arc::clone(self), Arc::clone(leases));
        Request::new(|sent| async move {
            sent.now();
            let held: Vec<Held<'_>> = leases.iter().map(OwnedHeld::held).collect();
            let renewing = node.store.renew(&held, patience);
            let answer = match node.context.within(patience, renewing).await {
                Ok(answer) => answer,
                Err(_) => Err(StoreError::in_doubt("leases were not renewed in time")),
            };
            node.health.heard(&answer);
            if let Ok(each) = &answer {
                let each = leases.iter().zip(each);
                node.claims
                    .renewed(each.filter_map(|(lease, answer)| match answer {
                        Ok(Renewal::Until(until)) => Some((lease.claim.owner.as_str(), *until)),
                        _ => None,
                    }));
            }
            answer
        })
    }

    pub(super) fn release(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        release: &Arc<OwnedRelease>,
    ) -> Request<Found> {
        let (node, claim, release) = (Arc::clone(self), Arc::clone(claim), Arc::clone(release));
        Request::new(|sent| async move {
            node.is_ready(&claim).await?;
            sent.now();
            let answer = node.store.release(claim.claim(), release.release()).await;
            node.health.heard(&answer);
            answer
        })
    }

    pub(super) fn token(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        at_least: u64,
    ) -> Request<Token> {
        let (node, claim) = (Arc::clone(self), Arc::clone(claim));
        Request::new(|sent| async move {
            node.is_ready(&claim).await?;
            sent.now();
            let lease = claim.claim().held(0).at_least(at_least);
            let answer = node.store.token(lease).await;
            node.health.heard(&answer);
            answer
        })
    }

    /// Goes on with a request that its call does not wait for any more. What it is granted is a further
    /// vote of its lease, or given back where there is none.
    pub(super) fn go_on<T: Send + 'static>(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        request: Request<T>,
    ) {
        if !request.is_sent() {
            return;
        }
        let late = Health::late(self);
        let has_ended = self.claims.has_ended(&claim.owner);
        let (node, claim) = (Arc::clone(self), Arc::clone(claim));
        let context = self.context.clone();
        let going_on = async move {
            let _ = request.answer.await;
            drop(late);
            node.give_back_what_is_owed(&claim);
        };
        if has_ended {
            context.go_on(going_on);
        } else {
            context.go_on_here(going_on);
        }
    }

    /// Gives back what the node has of a claim that has ended, and the place in its queue of one that is a
    /// lease, unless that is being done.
    pub(super) fn give_back_what_is_owed(self: &Arc<Self>, claim: &Arc<OwnedClaim>) {
        if self.claims.is_owed(&claim.owner)
            && let Some(returning) = Claims::begin_return(self, &claim.owner)
        {
            let release = Arc::new(OwnedRelease::whatever());
            let task = self.returned(claim, release, None, Some(returning));
            self.context.go_on(task);
        }
    }

    /// Goes on with a release until the node has answered, or what it gives back has expired by itself.
    pub(super) fn go_on_with_release(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        release: Arc<OwnedRelease>,
        begun: Option<Request<Found>>,
        returning: Option<Returning>,
    ) {
        let is_begun = begun.is_some();
        let task = self.returned(claim, release, begun, returning);
        if is_begun {
            self.context.go_on_here(task);
        } else {
            self.context.go_on(task);
        }
    }

    fn returned(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        release: Arc<OwnedRelease>,
        begun: Option<Request<Found>>,
        returning: Option<Returning>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (node, claim) = (Arc::clone(self), Arc::clone(claim));
        async move {
            node.give_back(&claim, &release, begun).await;
            if returning.is_some() {
                node.claims.returned(&claim.owner);
            }
        }
    }

    async fn give_back(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        release: &Arc<OwnedRelease>,
        begun: Option<Request<Found>>,
    ) {
        let until = self.context.now() + release.lasts(claim.ttl);
        let mut next = begun;
        let mut pause = FIRST_PAUSE;
        loop {
            let request = next.take().unwrap_or_else(|| self.release(claim, release));
            match request.answer.await {
                Ok(found) if !self.claims.released(&claim.owner, found) => return,
                Ok(_) => break,
                // It has expired by itself, but for what may come yet.
                Err(_) if self.context.now() >= until => {
                    if !self.claims.released(&claim.owner, Found::Nothing) {
                        return;
                    }
                    break;
                }
                Err(_) => {
                    self.context.sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
        self.claims.is_answered(&claim.owner).await;
        // Also a place in the queue may come.
        let release = Arc::new(OwnedRelease::whatever());
        self.give_back_late(claim, &release).await;
    }

    /// The same of what may come of a request that was never answered, until nothing of it can come any
    /// more.
    async fn give_back_late(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
        release: &Arc<OwnedRelease>,
    ) {
        let begun = self.context.now();
        let mut settled = self.store.settled(&claim.owner);
        let mut last: Option<Instant> = None;
        loop {
            let answered = self.release(claim, release).answer.await.is_ok();
            let now = self.context.now();
            match last {
                Some(last) if now >= last && (answered || now >= last + claim.ttl) => return,
                _ => {}
            }
            let pause = (now.saturating_duration_since(begun) / LOOKS_AFTER_SHARE).max(FIRST_PAUSE);
            match last {
                Some(last) if now < last => {
                    let left = last.saturating_duration_since(now);
                    self.context.sleep(pause.min(left)).await;
                }
                Some(_) => self.context.sleep(pause).await,
                None => {
                    if let Ok(may_come) = self.context.within(pause, settled.as_mut()).await {
                        last = Some(self.context.now() + may_come.min(claim.ttl));
                    }
                }
            }
        }
    }

    /// Waits until no earlier request of an owner can be carried out any more; see
    /// [`settled`](Store::settled).
    pub(super) async fn settled(&self, owner: &str) -> Duration {
        if !self.claims.is_known(owner) {
            return Duration::ZERO;
        }
        self.claims.is_answered(owner).await;
        self.store.settled(owner).await
    }
}

impl fmt::Debug for QuorumNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumNode")
            .field("store", &self.store)
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
