//! Locks on a Redis Cluster: each on the node that keeps its hash slot.
//!
//! Every node is a store of its own, [`Redis`], with the scripts and the connections of a single server. A
//! step goes to the node of its lock; what that node cannot answer goes on by `steering`. A lock and
//! everything that belongs to it are in one hash slot, so a step of one lock is on one node, at the same
//! cost as on a single server. Several locks that are in different slots are taken one after the other,
//! by `lists`.
//!
//! Which node keeps what is known to `nodes`, and asked for by `refresh`. `waiters` hears where a claim
//! waits, and `renewals` asks all nodes at the same time.

use std::fmt;
use std::future::ready;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::addresses::AddressMap;
use super::fault::Fault;
use super::names::{Names, lock};
use super::release::after_failed;
use super::target::Target;
use super::timeouts::Deadline;
use super::{Redis, RedisConfig};
use crate::error::StoreError;
use crate::limits::MAX_PERMITS;
use crate::runtime::background::Background;
use crate::store::{
    Acquired, Attempt, Claim, Found, Held, HeldLeases, Limits, Release, Renewed, Reply, Store,
    Token, WakeUps,
};

mod check;
#[cfg(feature = "inspect")]
mod inspect;
mod lists;
mod losses;
mod nodes;
mod refresh;
mod renewals;
mod seeds;
mod slots;
mod steering;
#[cfg(all(test, feature = "conformance"))]
mod tests;
mod view;
mod waiters;

use nodes::Nodes;
pub(crate) use seeds::seeds;
use slots::slot_of;
use steering::Steering;
use view::address_at;

/// What a client needs to reach a cluster.
pub(crate) struct ClusterConfig {
    /// The nodes that are asked first; at least one.
    pub(crate) seeds: Vec<Target>,
    /// How each node is asked, wherever it is.
    pub(crate) node: RedisConfig,
    pub(crate) addresses: Option<AddressMap>,
}

/// Locks on a cluster.
pub(crate) struct Cluster {
    nodes: Arc<Nodes>,
    names: Names,
}

impl Cluster {
    pub(crate) fn new(config: ClusterConfig, background: &Background) -> Self {
        let ClusterConfig {
            seeds,
            node,
            addresses,
        } = config;
        let names = Names::new(&node.prefix, &node.id);
        let seeds = seeds.iter().map(address_at).collect();
        Self {
            nodes: Arc::new(Nodes::new(node, seeds, addresses, background)),
            names,
        }
    }

    /// Says of locks whether the same nodes keep them, which are there or away together.
    pub(crate) fn part_of(&self, locks: &[String]) -> u64 {
        let slots = locks.iter().map(|lock| slot_of(lock));
        let mut part = DefaultHasher::new();
        self.nodes.addresses_of(slots).hash(&mut part);
        part.finish()
    }

    /// The deadline of a request and of all its repetitions.
    fn deadline(&self) -> Deadline<'_> {
        self.nodes.timeouts.deadline(self.bound())
    }

    /// The same where an answer is worth twice the time.
    fn long_deadline(&self) -> Deadline<'_> {
        self.nodes.timeouts.deadline(2 * self.bound())
    }

    /// A little less than a request may take: this is used up where a node is missing, and a deadline is
    /// noticed late.
    fn bound(&self) -> Duration {
        self.nodes.request_timeout() * 7 / 8
    }

    /// Acquires locks of one hash slot.
    async fn acquire_in_slot(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        deadline: &mut Deadline<'_>,
    ) -> Result<Acquired, Fault> {
        let slot = slot_of(lock(&claim));
        let mut steering = Steering::new(&self.nodes, slot);
        if let Some(node) = self.nodes.of_slot(slot) {
            self.hear(claim, attempt, &node, deadline).await;
            let answer = node.acquire_once(claim, attempt, deadline).await;
            match acknowledged(&node, claim, answer, deadline).await {
                Err(fault) => steering.failed(node, fault),
                answer => return answer,
            }
        }
        Box::pin(self.acquire_steered(claim, attempt, steering, deadline)).await
    }

    async fn acquire_steered(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        mut steering: Steering<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Acquired, Fault> {
        loop {
            let mut node = steering.next(deadline).await?;
            self.hear(claim, attempt, &node, deadline).await;
            if steering.is_split && claim.locks.len() == 1 {
                if attempt.again {
                    // Whoever asks without the queue is not to stand there.
                    self.leave_queue(claim, &self.nodes.waiters.heard_on(&claim, &node), deadline)
                        .await?;
                }
                node = Arc::new(node.without_queues());
            }
            let answer = if steering.in_doubt {
                node.contend(claim, attempt, true, deadline).await
            } else {
                node.acquire_once(claim, attempt, deadline).await
            };
            match acknowledged(&node, claim, answer, deadline).await {
                Err(fault) => steering.failed(node, fault),
                answer => return answer,
            }
        }
    }

    /// A claim that waits is about to be asked for on this node, and has to be told by it.
    async fn hear(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        node: &Arc<Redis>,
        deadline: &mut Deadline<'_>,
    ) {
        if attempt.wait.is_zero() {
            return;
        }
        let before = self.nodes.waiters.hear(&claim, node);
        if attempt.again && !before.is_empty() {
            // The queue may have come here with the claim in it as it stood there. It is passed over
            // where that cannot be removed.
            let _ = Box::pin(self.leave_queue(claim, &before, deadline)).await;
        }
    }

    /// Takes a claim out of the queues of its locks as it was put there for these nodes.
    async fn leave_queue(
        &self,
        claim: Claim<'_>,
        entered_for: &[Arc<Redis>],
        deadline: &mut Deadline<'_>,
    ) -> Result<(), Fault> {
        for name in claim.locks {
            let mut command = redis::cmd("ZREM");
            command.arg(self.names.queue(name));
            for node in entered_for {
                command.arg(node.names.entry(&claim));
            }
            let mut steering = Steering::new(&self.nodes, slot_of(name));
            loop {
                let node = steering.next(deadline).await?;
                match node.connections.ask(command.clone(), deadline).await {
                    Err(fault) => steering.failed(node, fault),
                    Ok(_) => break,
                }
            }
        }
        Ok(())
    }

    /// Releases locks of one hash slot.
    async fn release_in_slot(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Found, Fault> {
        let slot = slot_of(lock(&claim));
        let mut steering = Steering::new(&self.nodes, slot);
        if let Some(node) = self.nodes.of_slot(slot) {
            match node.release_once(claim, release, deadline).await {
                Err(fault) => steering.failed(node, fault),
                answer => return answer,
            }
        }
        Box::pin(self.release_steered(claim, release, steering, deadline)).await
    }

    async fn release_steered(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
        mut steering: Steering<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Found, Fault> {
        let mut asked = Vec::new();
        let mut in_doubt: Option<Fault> = None;
        loop {
            if let Some((node, fault)) = steering.last() {
                asked.push(Arc::clone(node));
                if in_doubt.is_none() && fault.error.is_in_doubt() {
                    in_doubt = Some(fault.clone());
                }
            }
            let mut node = steering.next(deadline).await?;
            let is_split = steering.is_split && claim.locks.len() == 1;
            if release.may_queue && (is_split || asked.iter().any(|asked| !asked.is(&node))) {
                asked.push(Arc::clone(&node));
                self.leave_queue(claim, &asked, deadline).await?;
            }
            if is_split {
                node = Arc::new(node.without_queues());
            }
            let released = node.release_once(claim, release, deadline).await;
            match (released, &in_doubt) {
                (Err(fault), _) => steering.failed(node, fault),
                (released, Some(first)) => return after_failed(first, &release, released),
                (released, None) => return released,
            }
        }
    }

    /// Draws a token for locks of one hash slot.
    async fn token_in_slot(
        &self,
        lease: Held<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Token, Fault> {
        let mut steering = Steering::new(&self.nodes, slot_of(lock(&lease.claim)));
        loop {
            let node = steering.next(deadline).await?;
            match node.draw_once(lease, deadline).await {
                Err(fault) => steering.failed(node, fault),
                answer => return answer,
            }
        }
    }

    /// Whether all locks of a claim are in one hash slot, as is the only one of most.
    fn is_in_one_slot(claim: &Claim<'_>) -> bool {
        let [first, others @ ..] = claim.locks else {
            return true;
        };
        others.is_empty() || {
            let slot = slot_of(first);
            others.iter().all(|lock| slot_of(lock) == slot)
        }
    }
}

/// Passes a node's answer on once enough replicas have what it grants. The keys may have moved meanwhile, to
/// where they are asked for anew.
async fn acknowledged(
    node: &Redis,
    claim: Claim<'_>,
    answer: Result<Acquired, Fault>,
    deadline: &mut Deadline<'_>,
) -> Result<Acquired, Fault> {
    let begun = Instant::now();
    let acknowledged = node.acknowledged(claim, answer?).await;
    if acknowledged.is_err() {
        deadline.spend(begun.elapsed());
    }
    acknowledged
}

impl Store for Cluster {
    fn limits(&self) -> Limits {
        Limits::default()
            .several_in_one_step(false)
            .most_permits(MAX_PERMITS)
            .weights(true)
            .shared(true)
            .longest_answer(2 * self.nodes.request_timeout() + self.nodes.acknowledged_within())
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(async move { self.check_nodes(claim).await.map_err(|fault| fault.error) })
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        if let Some(why) = self.nodes.too_short(claim.ttl) {
            return Box::pin(ready(Err(StoreError::invalid(why))));
        }
        if !Self::is_in_one_slot(&claim) {
            return Box::pin(async move {
                let acquired = self.acquire_list(claim, attempt).await;
                acquired.map_err(|fault| fault.error)
            });
        }
        Box::pin(async move {
            let mut deadline = self.long_deadline();
            let acquired = self.acquire_in_slot(claim, attempt, &mut deadline).await;
            acquired.map_err(|fault| fault.error)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(self.renew_leases(leases, patience).await) })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        if !Self::is_in_one_slot(&claim) {
            return Box::pin(async move {
                let released = self.release_list(claim, release).await;
                released.map_err(|fault| fault.error)
            });
        }
        Box::pin(async move {
            let mut deadline = self.deadline();
            let released = self.release_in_slot(claim, release, &mut deadline).await;
            released.map_err(|fault| fault.error)
        })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(async move {
            let mut deadline = self.long_deadline();
            let token = if Self::is_in_one_slot(&lease.claim) {
                self.token_in_slot(lease, &mut deadline).await
            } else {
                self.token_of_list(lease, &mut deadline).await
            };
            token.map_err(|fault| fault.error)
        })
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        let node = |slot| self.nodes.of_slot(slot);
        Box::new(self.nodes.waiters.wakeups(&claim, node))
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(async move {
            let mut may_come = Duration::ZERO;
            for node in self.nodes.asked() {
                may_come = may_come.max(node.connections.settled(owner).await);
            }
            may_come
        })
    }

    fn tell_ended(&self, leases: HeldLeases) {
        self.nodes.tell_ended(leases);
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn crate::store::inspect::Inspect> {
        Some(self)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
