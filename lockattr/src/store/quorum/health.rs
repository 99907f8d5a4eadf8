//! Whether a node is asked.
//!
//! A node that has failed is not asked again before it has answered a probe, and one that is behind with
//! its answers not before it has caught up. So as many requests as `MOST_LATE` are outstanding at a node
//! that has gone silent, beside those of calls that it keeps waiting, however many calls the others answer;
//! and one probe at a time after that.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::super::Release;
use super::node::QuorumNode;
use super::owned::OwnedClaim;
use crate::error::StoreError;

/// How many answers that nobody waits for any more may be outstanding.
pub(super) const MOST_LATE: usize = 64;

/// A node that has not answered for so long when the others have is taken to be silent.
pub(super) const SILENT: Duration = Duration::from_millis(150);

/// The pauses between two probes.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A node that nobody has wanted to ask for so long is not probed any more.
const WANTED: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Health {
    state: Mutex<HealthState>,
    /// A probe was answered, or a late answer has come.
    changed: Notify,
}

#[derive(Default)]
struct HealthState {
    /// Why it cannot be asked.
    down: Option<StoreError>,
    probing: bool,
    /// When somebody wanted to ask it last.
    wanted: Option<Instant>,
    /// How many probes have failed.
    failed_probes: u64,
    /// Since when late answers are waited for, in the order in which that has begun.
    late: BTreeMap<u64, Instant>,
    next_late: u64,
}

impl HealthState {
    fn is_behind(&self, now: Instant) -> bool {
        let oldest = self.late.first_key_value();
        let is_silent = |(_, since): (&u64, &Instant)| now >= *since + SILENT;
        self.late.len() >= MOST_LATE || oldest.is_some_and(is_silent)
    }
}

impl Health {
    /// Whether it is asked now.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        let state = self.state();
        state.down.is_none() && !state.is_behind(now)
    }

    /// Learns from an answer.
    pub(super) fn heard<T>(&self, answer: &Result<T, StoreError>) {
        let mut state = self.state();
        match answer {
            Err(error) if error.is_invalid() => {}
            Err(error) => state.down = Some(error.clone()),
            Ok(_) if state.down.is_some() => {
                state.down = None;
                drop(state);
                self.changed.notify_waiters();
            }
            Ok(_) => {}
        }
    }

    /// A late answer is waited for, until what is answered here is dropped.
    pub(super) fn late(node: &Arc<QuorumNode>) -> Late {
        let mut state = node.health.state();
        let number = state.next_late;
        state.next_late += 1;
        state.late.insert(number, node.context.now());
        drop(state);
        Late {
            node: Arc::clone(node),
            number,
        }
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        // No panic happens under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Gate {
    Open,
    /// Answers are late.
    Behind,
    /// Why, and how many probes have failed by now.
    Down(StoreError, u64),
}

impl QuorumNode {
    /// Waits until the node may be asked; the error is that of the next probe. `claim` is what it would be
    /// asked for.
    pub(super) async fn is_ready(
        self: &Arc<Self>,
        claim: &Arc<OwnedClaim>,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        loop {
            let changed = self.health.changed.notified();
            match self.gate() {
                Gate::Open => return Ok(()),
                Gate::Behind => {}
                Gate::Down(error, probes) => match failed {
                    Some(failed) if probes > failed => return Err(error),
                    _ => {
                        failed.get_or_insert(probes);
                        self.want(claim);
                    }
                },
            }
            // A probe may have been answered at once.
            if !matches!(self.gate(), Gate::Open) {
                changed.await;
            }
        }
    }

    fn gate(&self) -> Gate {
        let state = self.health.state();
        match &state.down {
            Some(error) => Gate::Down(error.clone(), state.failed_probes),
            None if state.is_behind(self.context.now()) => Gate::Behind,
            None => Gate::Open,
        }
    }

    /// Has the node probed, if it cannot be asked. `claim` is what it would be asked for.
    pub(super) fn want(self: &Arc<Self>, claim: &Arc<OwnedClaim>) {
        {
            let mut state = self.health.state();
            if state.down.is_none() {
                return;
            }
            state.wanted = Some(self.context.now());
            if mem::replace(&mut state.probing, true) {
                return;
            }
        }
        let (node, claim) = (Arc::clone(self), claim.of_nobody());
        self.context.go_on(async move { node.probe(&claim).await });
    }

    /// Asks for something that changes nothing, until that is answered or nobody wants the node any more.
    async fn probe(&self, claim: &OwnedClaim) {
        let mut pause = FIRST_PAUSE;
        loop {
            let release = Release::whatever(false);
            let answer = self.store.release(claim.claim(), release).await;
            {
                let mut state = self.health.state();
                state.down = answer.err();
                let is_up = state.down.is_none();
                state.probing = !is_up;
                state.failed_probes += u64::from(!is_up);
                drop(state);
                self.health.changed.notify_waiters();
                if is_up {
                    return;
                }
            }
            self.context.sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
            let mut state = self.health.state();
            let wanted = state.wanted.map(|wanted| wanted + WANTED);
            if wanted < Some(self.context.now()) {
                state.probing = false;
                return;
            }
        }
    }
}

/// An answer that nobody waits for.
pub(super) struct Late {
    node: Arc<QuorumNode>,
    number: u64,
}

impl Drop for Late {
    fn drop(&mut self) {
        self.node.health.state().late.remove(&self.number);
        self.node.health.changed.notify_waiters();
    }
}
