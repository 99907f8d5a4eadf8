//! Renewals: when a lease needs attention, and what becomes of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Keeper;
use super::schedule::{Batch, RenewalSchedule, ScheduleKey, Share};
use crate::acquisition::{Acquisition, Confirmed, KeepersRelease};
use crate::error::{LossCause, StoreError};
use crate::limits::MAX_KEYS;
use crate::runtime::background::{Background, Elapsed};
use crate::runtime::clock::{Clock, millis};
use crate::store::{Found, Held, Release, Renewal};

/// As many leases as one call to the store renews: enough to share its cost, and few enough not to
/// hold up the server's other commands.
pub(super) const BATCH: usize = 200;

/// A lease is renewed this often within its ttl, so that one renewal may fail unnoticed.
const RENEWALS_PER_TTL: u32 = 3;

/// After this many ttls, and each time its age has doubled, a lease that is still held is warned of.
const OLD: u32 = 10;

impl Keeper {
    /// Looks after a lease until it is [forgotten](Keeper::forget).
    pub(crate) fn keep(self: &Arc<Self>, lease: &Arc<Acquisition>) -> ScheduleKey {
        match lease.clock {
            Clock::Real => self
                .schedule
                .enter(Arc::clone(lease), |share| Some(first_look(lease, share))),
            Clock::Tokio => {
                let key = self.schedule.enter(Arc::clone(lease), |_| None);
                tokio::spawn(watch_in_callers_time(
                    Arc::downgrade(self),
                    key,
                    Arc::clone(lease),
                ));
                key
            }
        }
    }

    /// Renews leases in one call, and says of each what was found.
    async fn renew(self: Arc<Self>, batch: Batch) {
        let owners: Vec<_> = batch.iter().map(|(_, lease)| lease.owner()).collect();
        let claims: Vec<Held<'_>> = batch
            .iter()
            .zip(&owners)
            .map(|((_, lease), owner)| lease.claim(owner, ttl_to_ask(lease)).held(lease.slot()))
            .collect();
        let ended: Vec<_> = batch
            .iter()
            .map(|(_, lease)| lease.shortenings_ended())
            .collect();
        let patience = batch.iter().map(|(_, lease)| patience(lease)).min();
        let patience = patience.unwrap_or_default();
        let renewing = self.ask_store(self.store.renew(&claims, patience));
        // A store may never answer, and there is to be time for another try.
        let bound = Instant::now() + 2 * patience;
        let answer = match batch.first() {
            Some((_, lease)) if lease.clock == Clock::Tokio => renewing.await,
            _ => self
                .background
                .until(bound, renewing)
                .await
                .unwrap_or_else(|Elapsed| {
                    Err(StoreError::in_doubt("leases were not renewed in time"))
                }),
        };
        let error = match &answer {
            Ok(answers) => answers.iter().find_map(|one| one.clone().err()),
            Err(error) => Some(error.clone()),
        };
        self.tell_outage(error.as_ref(), batch.len());
        if error.is_none() {
            self.tell_answered(true);
        }
        let sent = claims.iter().zip(ended);
        for (index, ((key, lease), (claim, ended))) in batch.iter().zip(sent).enumerate() {
            let one = match &answer {
                Ok(answers) => answers.get(index).cloned().unwrap_or_else(unanswered),
                Err(error) => Err(error.clone()),
            };
            match one {
                Ok(Renewal::Until(_)) if !lease.renews() => {
                    self.schedule.renewed(*key, lease.end());
                }
                Ok(Renewal::Until(until)) => {
                    let asked = claim.claim.ttl;
                    self.counters.renewed();
                    lease.observe_renewal(next_look(lease));
                    lease.renewed(Confirmed { asked, until }, ended);
                    warn_of_age(&self.background, lease, lease.ttl());
                    self.schedule.renewed(*key, next_look(lease));
                }
                Ok(Renewal::Gone) => self.end(*key, lease, LossCause::Deleted),
                Ok(Renewal::Taken) => self.end(*key, lease, LossCause::Taken),
                Err(_) => {
                    self.counters.renewal_failed();
                    let again = lease.clock.now() + retry_pause(lease.ttl());
                    self.schedule.renewed(*key, again.min(lease.end()));
                }
            }
        }
    }

    /// Gives back what its holder has given back a while ago, and whose runtime has not got round to
    /// sending that: it may be blocked until the key has expired.
    async fn release_as_well(self: Arc<Self>, lease: Arc<Acquisition>) {
        let before = lease.keepers_release();
        lease.set_keepers_release(Some(KeepersRelease::Asked));
        let (owner, left_behind) = (lease.owner(), lease.leaves());
        let release = Release::held(lease.slot(), &left_behind);
        let claim = lease.claim(&owner, lease.ttl());
        let answer = self.ask_store(self.store.release(claim, release)).await;
        // What an earlier one has done, or may have done, this one does not find.
        let known = match &answer {
            Ok(found) if *found == Found::Ours || before.is_none() => {
                Some(KeepersRelease::Found(*found))
            }
            Err(error) if error.is_in_doubt() && before.is_none() => Some(KeepersRelease::Asked),
            Ok(_) | Err(_) => before,
        };
        lease.set_keepers_release(known);
        if answer.is_ok() {
            lease.tell_queue();
        }
    }

    fn end(&self, key: ScheduleKey, lease: &Acquisition, cause: LossCause) {
        // A renewal that comes back after the release finds nothing, which is no loss.
        lease.lose(cause);
        self.schedule.leave(key);
    }

    fn tell_outage(&self, error: Option<&StoreError>, leases: usize) {
        let failing = error.is_some();
        if self.failing.swap(failing, Ordering::Relaxed) == failing {
            return;
        }
        if let Some(error) = error.cloned() {
            self.background.tell(move || {
                tracing::warn!(
                    target: "lockattr", leases, %error,
                    "leases could not be renewed; trying again until they end"
                );
            });
        } else {
            self.background.tell(
                move || tracing::info!(target: "lockattr", leases, "leases are renewed again"),
            );
        }
    }
}

/// The answer for one lease.
pub(super) fn only(answers: &[Result<Renewal, StoreError>]) -> Result<Renewal, StoreError> {
    answers.first().cloned().unwrap_or_else(unanswered)
}

/// What a lease is asked for: one that is not renewed for no more than it has yet, so that this finds out
/// whether it is there, and changes nothing.
fn ttl_to_ask(lease: &Acquisition) -> Duration {
    if lease.renews() {
        return lease.ttl_to_ask(lease.ttl());
    }
    let left = lease
        .deadline()
        .saturating_duration_since(lease.clock.now());
    left.max(Duration::from_millis(1))
}

fn unanswered() -> Result<Renewal, StoreError> {
    let fewer = "the store has answered for fewer leases than it was asked for";
    Err(StoreError::refused(fewer))
}

/// The keeper's work in real time. Ends with the background thread.
pub(super) async fn watch(schedule: Arc<RenewalSchedule>, keeper: Weak<Keeper>) {
    loop {
        let due = schedule.next().await;
        let Some(keeper) = keeper.upgrade() else {
            return;
        };
        let (late, due): (Batch, Batch) = due
            .into_iter()
            .partition(|(_, lease)| lease.is_given_back());
        for (_, lease) in late {
            // What another caller may go on with, or is answered by now, needs none.
            if lease.is_on_its_way_back() {
                keeper
                    .background
                    .spawn(Arc::clone(&keeper).release_as_well(lease));
            }
        }
        for batch in batches(due) {
            // On a task of its own: a server that does not answer must hold up no other lease.
            keeper.background.spawn(Arc::clone(&keeper).renew(batch));
        }
    }
}

/// As many leases at a time as one call renews, and as many keys as one call may have.
fn batches(due: Batch) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut keys = MAX_KEYS;
    for (key, lease) in due {
        let more = lease.keys.locks().len();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH && keys + more <= MAX_KEYS => {
                keys += more;
                batch.push((key, lease));
            }
            _ => {
                keys = more;
                batches.push(vec![(key, lease)]);
            }
        }
    }
    batches
}

/// The same for one lease in the time of the calling runtime, whose clock a test has paused.
async fn watch_in_callers_time(keeper: Weak<Keeper>, key: ScheduleKey, lease: Arc<Acquisition>) {
    let mut not_before = lease.granted;
    loop {
        let moment = || next_look(&lease).max(not_before).min(lease.end());
        if lease.ended_before(moment).await {
            return;
        }
        let Some(keeper) = keeper.upgrade() else {
            return;
        };
        if lease.loss().is_some() {
            keeper.schedule.leave(key);
            return;
        }
        not_before = lease.clock.now() + retry_pause(lease.ttl());
        if lease.renews() {
            keeper.schedule.claim(key).await;
            let renewal = Arc::clone(&keeper).renew(vec![(key, Arc::clone(&lease))]);
            // A store that does not answer must not hold up the end of the lease.
            let end = lease.end();
            if tokio::time::timeout_at(end.into(), renewal).await.is_err() {
                keeper.schedule.renewed(key, end);
            }
        }
    }
}

/// When a new lease needs attention first: by its share of the time from the middle of an interval to
/// its end, so that leases taken together are not due together.
fn first_look(lease: &Acquisition, share: Share) -> Instant {
    if !lease.renews() {
        return lease.end();
    }
    let half = lease.ttl() / (2 * RENEWALS_PER_TTL);
    lease
        .end()
        .min(lease.started() + half + share.of_time(half))
}

/// When a lease needs attention next.
pub(super) fn next_look(lease: &Acquisition) -> Instant {
    let mut next = lease.end();
    if lease.renews() {
        next = next.min(lease.started() + lease.ttl() / RENEWALS_PER_TTL);
    }
    next
}

/// How long a renewal may take: a half-dead connection has to be found out while there is time for
/// another one, and a server that is far away is to be waited for.
pub(super) fn patience(lease: &Acquisition) -> Duration {
    let left = lease
        .deadline()
        .saturating_duration_since(lease.clock.now());
    (left / 3).max(Duration::from_millis(20))
}

fn retry_pause(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

/// A lease that was renewed many times may belong to a body that hangs for ever.
fn warn_of_age(background: &Background, lease: &Acquisition, ttl: Duration) {
    let age = lease.clock.now().saturating_duration_since(lease.granted);
    let told = lease.told.load(Ordering::Relaxed);
    if age < (ttl * OLD).saturating_mul(1 << told) {
        return;
    }
    lease.told.store((told + 1).min(31), Ordering::Relaxed);
    let key = lease.keys.label().to_owned();
    let site = lease.site;
    background.tell(move || {
        tracing::warn!(
            target: "lockattr",
            function = site.told_function(),
            template = site.told_template(),
            key,
            held_ms = millis(age),
            "a lock has been held for very long; does its body hang?"
        );
    });
}
