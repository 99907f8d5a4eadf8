//! Locks on several independent nodes: who has the votes of a majority holds the lock, as the description of
//! Redlock has it.
//!
//! # What it survives, and what breaks it
//! A minority of the nodes may be down or silent, or come back empty after a while, and no lock is lost,
//! granted twice or slowed by it.
//! It is disputed whether that is worth its cost, and both sides are right about the faults:
//!
//! - A process that stands still for longer than its ttl, or a request that is under way for as long, writes
//!   after its lease has ended. So it is with every lock that expires, on one node or many. The resource has
//!   to refuse such a write by its fencing token, and tokens grow here as they do on one node: what a token
//!   has to be compared with is kept where the write goes.
//! - A lease counts on the nodes' clocks running about as fast as ours. One that jumps costs its vote. Where
//!   a majority jumps forward together, as after a wrong step of a common time server, leases end early at
//!   the nodes and two may hold the lock.
//! - A node that is started anew without its data gives its vote again. A lease has no more than a bare
//!   majority where rivals had the other votes when it was granted, or nodes were away; and it has to lose one
//!   of those votes alone for another to be granted beside it. So a node that persists nothing, or not each
//!   write, is to stay away for the longest ttl in use before it is started again ("delayed restart"): a lease
//!   that goes on has been renewed by a majority of the others by then. Such restarts, one after the other,
//!   cost nothing: a held lease takes its vote there again once the node answers.
//! - Tokens that grow over a restart need the node's counters or its clock: of a minority that has lost its
//!   counters, the clocks have to be right to within the time from one grant to the next.
//!
//! Steps: `acquire`, `renew`, `release`, `take_over` and `token`, each with the rule by which `votes` counts. A `node` is the
//! store that it is, with what is known of it: `health` says whether it is asked, and `claims` what it has of
//! each claim, so that what comes late is given back.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Acquired, Attempt, Claim, Found, Held, HeldLeases, Limits, Listed, Release, Renewal, Renewed,
    Reply, Store, Token, WakeUps,
};
use crate::runtime::background::Background;
use crate::runtime::clock::Clock;

mod acquire;
mod check;
mod claims;
mod context;
mod health;
#[cfg(feature = "inspect")]
mod inspect;
mod judged;
mod losses;
mod node;
mod owned;
mod release;
mod renew;
mod requests;
mod standing;
mod take_over;
#[cfg(test)]
mod tests;
mod token;
mod votes;
mod wakeups;

use context::QuorumContext;
use node::QuorumNode;

/// Locks on several nodes.
#[derive(Debug)]
pub(crate) struct Quorum {
    /// In an order that is the same for all clients.
    nodes: Arc<[Arc<QuorumNode>]>,
    context: QuorumContext,
    longest_answer: Duration,
    longest_reply: usize,
    /// Whether the check waits for every node, and not for a majority.
    checks_all: bool,
}

/// How many nodes there may be.
pub(crate) const NODES: RangeInclusive<usize> = 3..=9;

impl Quorum {
    /// Of as many nodes as [`NODES`] says, in the same order for all clients, which live in the same time.
    pub(crate) fn new(stores: Vec<Arc<dyn Store>>, background: &Background) -> Self {
        let in_callers_time = stores.iter().any(Store::in_callers_time);
        let context = QuorumContext {
            background: background.clone(),
            clock: if in_callers_time {
                Clock::Tokio
            } else {
                Clock::Real
            },
        };
        let longest = stores.iter().map(|store| store.limits().longest_answer);
        let longest_answer = longest.max().unwrap_or_default();
        let longest_reply = stores
            .iter()
            .map(|store| store.limits().longest_reply)
            .min();
        let nodes = stores.into_iter();
        Self {
            nodes: nodes
                .map(|store| QuorumNode::new(store, context.clone()))
                .collect(),
            context,
            longest_answer,
            longest_reply: longest_reply.unwrap_or_default(),
            checks_all: false,
        }
    }

    /// The same with a check that hears every node.
    pub(crate) fn checking_all(self) -> Self {
        Self {
            checks_all: true,
            ..self
        }
    }

    /// A place for the answer of each node.
    fn none<T>(&self) -> Vec<Option<T>> {
        self.nodes.iter().map(|_| None).collect()
    }
}

impl Store for Quorum {
    /// A node that has failed is asked once it has answered a probe, which takes as long as an answer at
    /// most; rivals are contended with for half as long.
    fn limits(&self) -> Limits {
        let of_nodes = || self.nodes.iter().map(|node| node.store.limits());
        let shortest_ttl = of_nodes().map(|limits| limits.shortest_ttl).max();
        let limits = Limits::default();
        limits
            .shortest_ttl(shortest_ttl.unwrap_or(limits.shortest_ttl))
            .several_locks(of_nodes().all(|limits| limits.several_locks))
            // A majority is too few to count by. Of n permits each of k nodes grants n, which are n × k in all, and a
            // holder of one takes m = k / 2 + 1 of these: n × k / m may hold one each, up to almost 2 × n. Of two
            // permits on three nodes, three may: with nodes 1 and 2, 2 and 3, 1 and 3. For n holders to leave too
            // little for one more, m has to be larger than n × k / (n + 1), which is all nodes from n = k - 1 on: then
            // none may be away.
            .permits(false)
            .shared(of_nodes().all(|limits| limits.shared))
            .hand_off(of_nodes().all(|limits| limits.hand_off))
            .longest_reply(self.longest_reply)
            .longest_answer(2 * self.longest_answer)
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(self.check_nodes(Arc::new(claim.into())))
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(self.acquire_votes(Arc::new(claim.into()), attempt))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(self.renew_leases(leases, patience).await) })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.release_votes(Arc::new(claim.into()), release))
    }

    fn take_over<'a>(&'a self, lease: Held<'a>, new_owner: &'a str) -> Reply<'a, Renewal> {
        Box::pin(self.take_votes_over(lease, new_owner))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(self.draw_token(Arc::new(lease.claim.into()), lease.at_least))
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        Box::new(self.wakeups_of_nodes(claim))
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(async move {
            let mut longest = Duration::ZERO;
            // One after the other: each has a length from when it is asked.
            for node in self.nodes.iter() {
                longest = longest.max(node.settled(owner).await);
            }
            longest
        })
    }

    fn tell_ended(&self, leases: HeldLeases) {
        for node in self.nodes.iter() {
            node.tell_ended(&leases);
        }
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        Box::pin(self.standing(lock))
    }

    fn in_callers_time(&self) -> bool {
        self.context.clock == Clock::Tokio
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        let all = self.nodes.iter().all(|node| node.store.inspect().is_some());
        all.then_some(self)
    }
}
