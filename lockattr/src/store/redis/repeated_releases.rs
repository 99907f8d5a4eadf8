//! Releases that the old primary has confirmed and the new one may not have heard of.
//!
//! Replication is asynchronous, and a primary that is cut off or about to be replaced confirms what is
//! lost with it. A lock whose release is lost so is held by nobody until its ttl ends, and the mark that
//! the release left is gone. So where the server has moved, the releases of the last seconds are asked for
//! once more. They compare the owner: one that was not lost changes nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use super::connections::{Connections, WeakConnections};
use super::names::Names;
use super::release;
use super::script::{Form, Lua};
use super::server::Server;
use crate::store::{Claim, Leave, Release, Sharing};

/// For how long a release is remembered: longer than a primary that is cut off is followed after.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The most that are remembered.
const MOST: usize = 10_000;

/// How often a repetition is tried, and the pause between.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The releases of the last seconds.
#[derive(Default)]
pub(super) struct RecentReleases(Mutex<VecDeque<RecentRelease>>);

struct RecentRelease {
    at: Instant,
    locks: Vec<String>,
    sharing: Sharing,
    owner: String,
    ttl: Duration,
    slot: Option<usize>,
    leave: Vec<Leave>,
    keep_marks: bool,
}

/// What it takes to ask for them again, for as long as the client lives.
pub(super) struct Repeating {
    pub(super) connections: WeakConnections,
    pub(super) names: Names,
    pub(super) script: Arc<Lua>,
    pub(super) bound: Duration,
}

impl RecentReleases {
    /// Remembers the releases of a server that may move, and has them repeated when it does.
    pub(super) fn start(server: &Server, repeating: Repeating) -> Arc<Self> {
        let recent = Arc::<Self>::default();
        let task = run(Arc::downgrade(&recent), server.moves_to_come(), repeating);
        server.background.spawn(task);
        recent
    }

    /// A release was confirmed.
    pub(super) fn add(&self, claim: &Claim<'_>, release: &Release<'_>) {
        let at = Instant::now();
        let one = RecentRelease {
            at,
            locks: claim.locks.to_vec(),
            sharing: claim.sharing(),
            owner: claim.owner.to_owned(),
            ttl: claim.ttl,
            slot: release.slot,
            leave: release.leave.to_vec(),
            keep_marks: release.keep_marks,
        };
        let mut recent = self.recent();
        let is_old = |one: &RecentRelease| at.duration_since(one.at) > REMEMBERED;
        while recent.len() >= MOST || recent.front().is_some_and(is_old) {
            recent.pop_front();
        }
        recent.push_back(one);
    }

    fn take(&self) -> VecDeque<RecentRelease> {
        let mut recent = std::mem::take(&mut *self.recent());
        recent.retain(|one| one.at.elapsed() <= REMEMBERED);
        recent
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<RecentRelease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentRelease {
    fn claim(&self) -> Claim<'_> {
        Claim::new(&self.locks, &self.owner, self.ttl).with(self.sharing)
    }

    /// What is to be left lasts until when it would have.
    fn leave(&self) -> Vec<Leave> {
        let age = self.at.elapsed();
        let left = |length: &Duration| length.checked_sub(age).filter(|left| !left.is_zero());
        let rest = |leave: &Leave| {
            let rest = match leave {
                Leave::Closed(length) => left(length).map(Leave::Closed),
                Leave::Done(length) => left(length).map(Leave::Done),
                Leave::Nothing => None,
            };
            rest.unwrap_or(Leave::Nothing)
        };
        self.leave.iter().map(rest).collect()
    }

    /// Asks for it again, and says whether it was answered.
    async fn repeat(&self, repeating: &Repeating, connections: &Connections) -> bool {
        let leave = self.leave();
        let release = Release {
            slot: self.slot,
            leave: &leave,
            keep_marks: self.keep_marks,
            // There it may still be waiting for what it was granted here: it would be granted again.
            may_queue: true,
        };
        let (claim, names) = (self.claim(), &repeating.names);
        let call = |form: Form<'_>| release::call(names, false, form, &claim, &release);
        let mut deadline = connections.deadline(repeating.bound);
        let answer = repeating.script.run(connections, call, &mut deadline).await;
        answer.is_ok()
    }
}

async fn run(recent: Weak<RecentReleases>, mut moves: watch::Receiver<u64>, repeating: Repeating) {
    while moves.changed().await.is_ok() {
        let Some(releases) = recent.upgrade().map(|recent| recent.take()) else {
            return;
        };
        let mut tries = TRIES;
        for release in releases {
            while let Some(connections) = repeating.connections.upgrade()
                && tries > 0
                && !release.repeat(&repeating, &connections).await
            {
                drop(connections);
                tries -= 1;
                sleep(PAUSE).await;
            }
        }
    }
}
