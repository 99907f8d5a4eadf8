//! The wake-ups of claims that wait, on whichever nodes they are heard.
//!
//! A release grants the lock to a waiter whose client is subscribed on the node that keeps the lock. So a
//! claim listens on the node of its lock, and on another one as soon as it is asked for there, because the
//! hash slot has moved. Each node has a channel of its own, so that no message is taken for one of another
//! node, which has another clock.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::slots::slot_of;
use crate::runtime::waker;
use crate::store::redis::Redis;
use crate::store::redis::subscriber::WakeUpStream;
use crate::store::{Claim, WakeUp, WakeUps};

/// The claims that wait, by owner.
#[derive(Clone, Default)]
pub(super) struct ClusterWaiters(Arc<Mutex<HashMap<String, Arc<ClusterWaiter>>>>);

struct ClusterWaiter {
    ttl: Duration,
    /// The hash slots of its locks.
    slots: Vec<u16>,
    heard: Mutex<Heard>,
}

/// What the task of a claim has yet to take note of.
#[derive(Default)]
struct Heard {
    /// The nodes that it listens to, or is about to.
    nodes: Vec<Arc<Redis>>,
    added: Vec<WakeUpStream>,
    /// Whether those that it had before are of no use any more.
    replaced: bool,
    /// Whether it has to look, since a lock is on a node that it does not listen to.
    looks: bool,
    waker: Option<Waker>,
}

impl ClusterWaiters {
    /// The wake-ups of a claim, which listens on these nodes.
    pub(super) fn wakeups(
        &self,
        claim: &Claim<'_>,
        node: impl Fn(u16) -> Option<Arc<Redis>>,
    ) -> ClusterWakeUps {
        let mut slots: Vec<_> = claim.locks.iter().map(|lock| slot_of(lock)).collect();
        slots.sort_unstable();
        slots.dedup();
        let waiter = Arc::new(ClusterWaiter {
            ttl: claim.ttl,
            slots,
            heard: Mutex::default(),
        });
        for node in waiter.slots.iter().filter_map(|slot| node(*slot)) {
            waiter.hear(claim.owner, &node);
        }
        let before = self
            .waiters()
            .insert(claim.owner.to_owned(), Arc::clone(&waiter));
        drop(before);
        ClusterWakeUps {
            waiters: self.clone(),
            owner: claim.owner.to_owned(),
            waiter,
            streams: Vec::new(),
        }
    }

    /// A claim that waits is about to be asked for on this node. The answer is on which it has waited
    /// before, where this one is new.
    pub(super) fn hear(&self, claim: &Claim<'_>, node: &Arc<Redis>) -> Vec<Arc<Redis>> {
        let waiter = self.waiters().get(claim.owner).cloned();
        waiter.map_or(Vec::new(), |waiter| waiter.hear(claim.owner, node))
    }

    /// The nodes on which a claim may stand in a queue that is asked for on this one.
    pub(super) fn heard_on(&self, claim: &Claim<'_>, node: &Arc<Redis>) -> Vec<Arc<Redis>> {
        let mut heard = self.heard(claim.owner);
        if !heard.iter().any(|known| known.is(node)) {
            heard.push(Arc::clone(node));
        }
        heard
    }

    /// The nodes on which this owner listens.
    pub(super) fn heard(&self, owner: &str) -> Vec<Arc<Redis>> {
        let waiter = self.waiters().get(owner).cloned();
        waiter.map_or(Vec::new(), |waiter| waiter.heard().nodes.clone())
    }

    /// Which node keeps what has changed: those who wait for a lock on another node than they listen to
    /// have to look there.
    pub(super) fn tell_moved(&self, node: impl Fn(u16) -> Option<Arc<Redis>>) {
        let waiters: Vec<_> = self.waiters().values().cloned().collect();
        for waiter in waiters {
            let nodes = waiter.slots.iter().filter_map(|slot| node(*slot));
            let mut heard = waiter.heard();
            let is_elsewhere = |node: Arc<Redis>| !heard.nodes.iter().any(|known| known.is(&node));
            let woken = if nodes.into_iter().any(is_elsewhere) {
                heard.looks = true;
                heard.waker.take()
            } else {
                None
            };
            drop(heard);
            woken.into_iter().for_each(Waker::wake);
        }
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<String, Arc<ClusterWaiter>>> {
        // Every change is one map operation, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterWaiter {
    fn hear(&self, owner: &str, node: &Arc<Redis>) -> Vec<Arc<Redis>> {
        let mut heard = self.heard();
        if heard.nodes.iter().any(|known| known.is(node)) {
            return Vec::new();
        }
        let before = heard.nodes.clone();
        // A node to which keys are moving has only a part of them, and several locks are on several nodes.
        if self.slots.len() == 1 && !node.is_asking() {
            heard.nodes.clear();
            heard.replaced = true;
        }
        heard.nodes.push(Arc::clone(node));
        drop(heard);
        // Several locks are named one by one, and each is heard of by the claim's owner alone.
        let stream = node.subscriber.wakeups(owner, self.ttl);
        let mut heard = self.heard();
        let left = if heard.replaced {
            mem::take(&mut heard.added)
        } else {
            Vec::new()
        };
        heard.added.push(stream);
        drop(heard);
        drop(left);
        before
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        // No panic happens under this lock.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wake-ups of one claim.
pub(super) struct ClusterWakeUps {
    waiters: ClusterWaiters,
    owner: String,
    waiter: Arc<ClusterWaiter>,
    streams: Vec<WakeUpStream>,
}

impl WakeUps for ClusterWakeUps {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        let mut heard = self.waiter.heard();
        let left = if mem::take(&mut heard.replaced) {
            mem::take(&mut self.streams)
        } else {
            Vec::new()
        };
        self.streams.append(&mut heard.added);
        let looks = mem::take(&mut heard.looks);
        let before = waker::replace(&mut heard.waker, cx.waker());
        drop(heard);
        drop((left, before));
        for stream in &mut self.streams {
            match stream.poll_next(cx) {
                // One of several locks, which is not the grant of the claim.
                Poll::Ready(WakeUp::Granted { .. }) if self.waiter.slots.len() > 1 => {
                    return Poll::Ready(WakeUp::Look);
                }
                Poll::Ready(wake_up) => return Poll::Ready(wake_up),
                Poll::Pending => {}
            }
        }
        if looks {
            return Poll::Ready(WakeUp::Look);
        }
        Poll::Pending
    }
}

impl Drop for ClusterWakeUps {
    fn drop(&mut self) {
        let mut waiters = self.waiters.waiters();
        let is_own = |known: &Arc<ClusterWaiter>| Arc::ptr_eq(known, &self.waiter);
        let left = if waiters.get(&self.owner).is_some_and(is_own) {
            waiters.remove(&self.owner)
        } else {
            None
        };
        drop(waiters);
        drop(left);
    }
}
