//! The promises of the trait on stores in memory, and the faults of single nodes in simulated time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use super::super::{Acquired, Attempt, Claim, Found, Release, Store};
use super::Quorum;
use crate::runtime::background::Background;

mod claims;
mod readers;
mod rivals;
mod silent;
mod stand_in;
mod take_over;
mod tokens;
mod votes;

use stand_in::StandIn;

const TTL: Duration = Duration::from_secs(10);
const LOCK: &str = "lock:sync:42";

/// A quorum of stand-ins, and the thread that it needs.
struct Setup {
    nodes: Vec<StandIn>,
    quorum: Quorum,
    background: Background,
    lock: [String; 1],
}

impl Setup {
    fn new(count: usize) -> Self {
        Self::of((0..count).map(|_| StandIn::default()).collect())
    }

    fn of(nodes: Vec<StandIn>) -> Self {
        let background = Background::start().expect("a thread");
        let quorum = Self::quorum_of(&nodes, &background);
        Self {
            nodes,
            quorum,
            background,
            lock: [LOCK.to_owned()],
        }
    }

    fn quorum_of(nodes: &[StandIn], background: &Background) -> Quorum {
        let stores = nodes
            .iter()
            .map(|node| Arc::new(node.clone()) as Arc<dyn Store>);
        Quorum::new(stores.collect(), background)
    }

    /// What another client has.
    fn another(&self) -> Quorum {
        Self::quorum_of(&self.nodes, &self.background)
    }

    fn claim<'a>(&'a self, owner: &'a str) -> Claim<'a> {
        Claim::new(&self.lock, owner, TTL)
    }

    async fn acquire(&self, owner: &str) -> Acquired {
        let acquired = self.quorum.acquire(self.claim(owner), Attempt::default());
        acquired.await.expect("an answer")
    }

    async fn release(&self, owner: &str) -> Found {
        let released = self
            .quorum
            .release(self.claim(owner), Release::held(0, &[]));
        released.await.expect("an answer")
    }

    fn holders(&self) -> Vec<Option<String>> {
        self.nodes
            .iter()
            .map(|node| node.memory.holder(LOCK))
            .collect()
    }

    /// What is known of claims, at all nodes.
    fn known(&self) -> usize {
        self.quorum.nodes.iter().map(|node| node.claims.len()).sum()
    }
}

/// Whether a future is not done when it is polled once.
async fn is_pending<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

fn is_granted(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Granted { .. })
}

#[cfg(feature = "conformance")]
#[tokio::test(start_paused = true)]
async fn a_quorum_keeps_the_promises_of_a_store() {
    use crate::store::conformance;
    use crate::store::memory::Memory;

    let background = Background::start().expect("a thread");
    for nodes in [3, 4, 5] {
        let stores = || (0..nodes).map(|_| Arc::new(Memory::new()) as Arc<dyn Store>);
        conformance::check(async || Quorum::new(stores().collect(), &background)).await;
    }
}

/// The same where each answer takes another time.
#[cfg(feature = "conformance")]
#[tokio::test(start_paused = true)]
async fn a_quorum_of_nodes_far_apart_keeps_them_as_well() {
    use crate::store::conformance;

    let background = Background::start().expect("a thread");
    conformance::check(async || {
        let nodes: Vec<_> = [3, 1, 7, 2, 5]
            .map(Duration::from_millis)
            .map(StandIn::slow)
            .into();
        Setup::quorum_of(&nodes, &background)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_calls_that_have_ended() {
    let nodes = Setup::new(3);
    for round in 0..50 {
        let owner = format!("holder-{round}");
        assert!(is_granted(&nodes.acquire(&owner).await));
        let refused = nodes.acquire("another").await;
        assert!(matches!(refused, Acquired::Busy { .. }), "{refused:?}");
        assert_eq!(nodes.release(&owner).await, Found::Ours);
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(nodes.known(), 0);
    assert_eq!(nodes.holders(), [None, None, None]);
}
