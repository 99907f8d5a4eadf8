//! The leases of etcd that a client has: which claim is under which of them, and which are free.
//!
//! Each claim has a lease of its own, so that whatever a late request might write for it can be ruled out for good:
//! once the lease is revoked, nothing can be put under it. A lease whose claim was given back, and of which every
//! request was answered, has nothing under it and may serve the next claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::error::StoreError;
use crate::store::relied_on;

/// Free leases of one length that are kept for later claims.
const KEPT: usize = 128;

/// As many claims are known at least before those are looked for whose leases have ended.
const SWEPT_FROM: usize = 1024;

/// A lease is granted for a part of a ttl, and at least for so long, more than the ttl.
const SHARE_ABOVE: u32 = 10;
const LEAST_ABOVE: Duration = Duration::from_secs(1);

/// For how many seconds a lease is asked for. It may be used again without a keep-alive for as long as it is
/// longer than the ttl, and blocks others for so much longer when its holder crashes.
pub(super) fn seconds(ttl: Duration) -> u64 {
    let whole = ttl + (ttl / SHARE_ABOVE).max(LEAST_ABOVE);
    whole.as_secs() + u64::from(whole.subsec_nanos() > 0)
}

/// One that is long enough for a mark.
pub(super) fn seconds_of_mark(length: Duration) -> u64 {
    length.as_secs() + 1
}

/// An id that nobody else has drawn.
pub(super) fn new_id() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::refused(format!("no random numbers: {error}")))?;
    Ok((i64::from_le_bytes(bytes) & i64::MAX).max(1))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseRef {
    pub(super) id: i64,
    /// For how long it runs whenever it runs anew.
    pub(super) length: Duration,
    /// When it was asked to run anew, of the last time that this was done for certain.
    pub(super) since: Instant,
}

impl LeaseRef {
    /// Whether it outlasts a ttl that starts then.
    pub(super) fn covers(&self, start: Instant, ttl: Duration) -> bool {
        start + ttl <= self.since + relied_on(self.length)
    }

    fn may_live(&self, now: Instant) -> bool {
        now < self.since + relied_on(self.length)
    }
}

/// What is known of one claim.
#[derive(Default)]
struct Tenure {
    /// Its keys are under the last of these, or under one before where a request was not answered.
    leases: Vec<LeaseRef>,
    place: Option<Place>,
    /// Whether a request was not answered.
    in_doubt: bool,
    in_flight: usize,
    /// Whether its leases are being revoked, so that they serve nobody else.
    is_revoked: bool,
}

/// Where a claim stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of the claim's locks, whose queue.
    pub(super) lock: usize,
    pub(super) revision: i64,
}

#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Inner>);

#[derive(Default)]
struct Inner {
    table: Mutex<Table>,
    /// Notified when a request is over.
    over: Notify,
}

#[derive(Default)]
struct Table {
    tenures: HashMap<String, Tenure>,
    sweep_at: usize,
    /// By their seconds.
    free: HashMap<u64, Vec<LeaseRef>>,
}

impl Leases {
    /// The lease under which a claim writes next.
    pub(super) fn current(&self, owner: &str) -> Option<LeaseRef> {
        self.table().tenures.get(owner)?.leases.last().copied()
    }

    /// All that its keys may be under.
    pub(super) fn all(&self, owner: &str) -> Vec<LeaseRef> {
        let table = self.table();
        let tenure = table.tenures.get(owner);
        tenure.map_or_else(Vec::new, |tenure| tenure.leases.clone())
    }

    /// A free lease for a claim, if there is one that may live.
    pub(super) fn reuse(&self, owner: &str, seconds: u64) -> Option<LeaseRef> {
        let mut table = self.table();
        let free = table.free.get_mut(&seconds)?;
        let lease = free.pop()?;
        if !lease.may_live(Instant::now()) {
            // Those below it were put there before.
            free.clear();
            return None;
        }
        table.tenure(owner).leases.push(lease);
        Some(lease)
    }

    /// A claim is going to write under this lease.
    pub(super) fn add(&self, owner: &str, lease: LeaseRef) {
        let mut table = self.table();
        table.tenure(owner).leases.push(lease);
    }

    /// For how long a lease runs, as the server says that has granted it.
    pub(super) fn granted(&self, owner: &str, id: i64, length: Duration) {
        if let Some(tenure) = self.table().tenures.get_mut(owner) {
            for lease in tenure.leases.iter_mut().filter(|lease| lease.id == id) {
                lease.length = length;
            }
        }
    }

    /// A lease was asked to run anew at that moment, and that was done.
    pub(super) fn renewed(&self, owner: &str, id: i64, since: Instant) {
        if let Some(tenure) = self.table().tenures.get_mut(owner) {
            for lease in tenure.leases.iter_mut().filter(|lease| lease.id == id) {
                lease.since = lease.since.max(since);
            }
        }
    }

    /// A claim's keys are under this lease, and under none before.
    pub(super) fn moved(&self, owner: &str, id: i64) -> Vec<LeaseRef> {
        let mut table = self.table();
        let Some(tenure) = table.tenures.get_mut(owner) else {
            return Vec::new();
        };
        let (kept, left) = tenure.leases.drain(..).partition(|lease| lease.id == id);
        tenure.leases = kept;
        left
    }

    /// A lease is not there any more.
    pub(super) fn remove(&self, owner: &str, id: i64) {
        let mut table = self.table();
        if let Some(tenure) = table.tenures.get_mut(owner) {
            tenure.leases.retain(|lease| lease.id != id);
            table.forget_if_over(owner);
        }
    }

    pub(super) fn place(&self, owner: &str) -> Option<Place> {
        self.table().tenures.get(owner)?.place
    }

    pub(super) fn set_place(&self, owner: &str, place: Option<Place>) {
        let mut table = self.table();
        if let Some(tenure) = table.tenures.get_mut(owner) {
            tenure.place = place;
        }
    }

    /// A claim was given back, or was never granted: nothing is under its lease. Answers those that are to be
    /// revoked, since something may come under them yet, or did.
    pub(super) fn end(&self, owner: &str) -> Vec<LeaseRef> {
        let mut table = self.table();
        let Some(tenure) = table.tenures.get_mut(owner) else {
            return Vec::new();
        };
        tenure.place = None;
        let is_certain = !tenure.in_doubt && !tenure.is_revoked && tenure.in_flight == 0;
        if let ([lease], true) = (&tenure.leases[..], is_certain) {
            let lease = *lease;
            table.tenures.remove(owner);
            let free = table.free.entry(lease.length.as_secs()).or_default();
            if free.len() < KEPT {
                free.push(lease);
            }
            return Vec::new();
        }
        tenure.is_revoked = true;
        let leases = tenure.leases.clone();
        table.forget_if_over(owner);
        leases
    }

    /// All leases of a claim, which are going to be revoked.
    pub(super) fn revoked(&self, owner: &str) -> Vec<LeaseRef> {
        let mut table = self.table();
        let Some(tenure) = table.tenures.get_mut(owner) else {
            return Vec::new();
        };
        tenure.is_revoked = true;
        tenure.leases.clone()
    }

    /// Whether a request of the claim was not answered.
    pub(super) fn is_in_doubt(&self, owner: &str) -> bool {
        let table = self.table();
        let tenure = table.tenures.get(owner);
        tenure.is_some_and(|tenure| tenure.in_doubt || tenure.in_flight > 0)
    }

    /// Whether the leases of a claim are being revoked.
    pub(super) fn is_given_back(&self, owner: &str) -> bool {
        let table = self.table();
        let tenure = table.tenures.get(owner);
        tenure.is_some_and(|tenure| tenure.is_revoked)
    }

    /// A request of a claim is sent. To be called with whether it is in doubt, once that is known.
    pub(super) fn sends(&self, owner: &str) -> impl FnOnce(bool) + Send + use<> {
        self.table().tenure(owner).in_flight += 1;
        let in_flight = InFlight {
            leases: self.clone(),
            owner: owner.to_owned(),
            in_doubt: true,
        };
        move |in_doubt| {
            let mut in_flight = in_flight;
            in_flight.in_doubt = in_doubt;
        }
    }

    /// Waits until no request of the claim is on its way.
    pub(super) async fn answered(&self, owner: &str) {
        loop {
            let over = self.0.over.notified();
            let in_flight = {
                let table = self.table();
                let tenure = table.tenures.get(owner);
                tenure.map_or(0, |tenure| tenure.in_flight)
            };
            if in_flight == 0 {
                return;
            }
            over.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is on its way; in doubt where it is not said otherwise.
struct InFlight {
    leases: Leases,
    owner: String,
    in_doubt: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut table = self.leases.table();
        if let Some(tenure) = table.tenures.get_mut(&self.owner) {
            tenure.in_flight -= 1;
            tenure.in_doubt |= self.in_doubt;
            table.forget_if_over(&self.owner);
        }
        drop(table);
        self.leases.0.over.notify_waiters();
    }
}

impl Table {
    fn tenure(&mut self, owner: &str) -> &mut Tenure {
        if self.tenures.len() >= self.sweep_at.max(SWEPT_FROM) {
            let now = Instant::now();
            // A lease may run anew when the leader changes.
            let may_live = |lease: &LeaseRef| now < lease.since + 2 * lease.length;
            self.tenures
                .retain(|_, tenure| tenure.in_flight > 0 || tenure.leases.iter().any(may_live));
            self.sweep_at = 2 * self.tenures.len();
        }
        self.tenures.entry(owner.to_owned()).or_default()
    }

    fn forget_if_over(&mut self, owner: &str) {
        let is_over = |tenure: &Tenure| {
            tenure.in_flight == 0 && tenure.leases.is_empty() && tenure.place.is_none()
        };
        if self.tenures.get(owner).is_some_and(is_over) {
            self.tenures.remove(owner);
        }
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenures = self.table().tenures.len();
        f.debug_struct("Leases")
            .field("claims", &tenures)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: i64) -> LeaseRef {
        LeaseRef {
            id,
            length: Duration::from_secs(33),
            since: Instant::now(),
        }
    }

    #[test]
    fn a_lease_outlasts_the_ttl_that_it_is_asked_for() {
        for (ttl, whole) in [(1_000, 2), (1_001, 3), (30_000, 33), (600_000, 660)] {
            let ttl = Duration::from_millis(ttl);
            assert_eq!(seconds(ttl), whole);
            let length = Duration::from_secs(whole);
            assert!(relied_on(length) >= ttl, "{ttl:?}");
        }
    }

    #[test]
    fn a_lease_of_an_ended_claim_serves_the_next() {
        let leases = Leases::default();
        leases.add("a", lease(7));
        leases.sends("a")(false);
        assert!(leases.end("a").is_empty());
        assert_eq!(leases.reuse("b", 33).map(|lease| lease.id), Some(7));
        assert!(leases.reuse("c", 33).is_none() && leases.current("a").is_none());
    }

    #[test]
    fn a_lease_in_doubt_serves_nobody_and_is_to_be_revoked() {
        let leases = Leases::default();
        leases.add("a", lease(7));
        leases.sends("a")(true);
        assert_eq!(leases.end("a").len(), 1);
        assert!(leases.reuse("b", 33).is_none());
        leases.remove("a", 7);
        assert!(leases.all("a").is_empty() && !leases.is_in_doubt("a"));
    }

    /// It is ended once more when the request is over, while its lease is still being revoked.
    #[test]
    fn a_request_on_its_way_keeps_the_lease_from_others() {
        for ends in [Leases::end, Leases::revoked] {
            let leases = Leases::default();
            leases.add("a", lease(7));
            let answered = leases.sends("a");
            assert_eq!(ends(&leases, "a").len(), 1);
            answered(false);
            assert_eq!(leases.end("a").len(), 1);
            assert!(leases.reuse("b", 33).is_none());
        }
    }
}
