//! What a body runs on while the store cannot be asked, where its attribute says that it may.
//!
//! A fallback is another keeper with another store in the place of the first. What the one grants and
//! what the other grants exclude each other within this process: each grant is looked at when it is
//! known here, so that of two that meet at least one sees the other.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use super::{Call, Context, FIRST_PAUSE, Rare, WhenUnavailable, asking, growing, rare};
use crate::acquisition::{Acquisition, LockKeys};
use crate::call_site::CallSite;
use crate::error::{Error, StoreError};
use crate::keeper::{Keeper, SHUT_DOWN};
use crate::lease::Lease;
use crate::runtime::clock::Clock;
use crate::store::Sharing;
use crate::store::memory::{HeldElsewhere, Memory, Refusal, Standing};
use crate::store::unguarded::Unguarded;

/// Made when they are first needed.
#[derive(Default)]
pub(super) struct Fallbacks {
    /// `on_unavailable = run`.
    none: OnceLock<Arc<Keeper>>,
    /// `on_unavailable = local`.
    local: OnceLock<Local>,
}

/// Leases of this process alone.
pub(super) struct Local {
    keeper: Arc<Keeper>,
    memory: Memory,
}

impl Fallbacks {
    pub(super) async fn shut_down(&self) {
        let local = self.local.get().map(|local| &local.keeper);
        for keeper in self.none.get().into_iter().chain(local) {
            keeper.shut_down().await;
        }
    }

    /// Whether a lease is a local one.
    pub(super) fn has(&self, lease: &Lease) -> bool {
        self.local
            .get()
            .is_some_and(|local| lease.is_of(&local.keeper))
    }

    /// Local leases, if there ever was one.
    pub(super) fn local(&self) -> Option<&Local> {
        self.local.get()
    }
}

/// When it is looked at whether two stores contradict each other.
#[derive(Clone, Copy)]
enum Check {
    BeforeAsking,
    /// It was granted this slot, and keeps so many others for as long as it looks for one.
    AfterGrant {
        slot: usize,
        kept: usize,
    },
}

impl Check {
    fn granted(lease: &Lease) -> Self {
        Self::AfterGrant {
            slot: lease.slot(),
            kept: 0,
        }
    }
}

/// Why a grant of one store cannot stand beside those of the other.
struct Conflict {
    error: Error,
    /// Whether to wait helps.
    passes: bool,
}

/// A lease of the other store.
struct Theirs {
    slot: usize,
    sharing: Sharing,
    /// For how long it runs yet.
    remaining: Duration,
    since: SystemTime,
}

impl Context {
    /// Asks the store. What it grants is not to meet what runs on a local lock since it was away.
    pub(super) async fn take_from_store(&self, call: &mut Call) -> Result<Lease, Error> {
        if let Some(local) = self.fallbacks.local() {
            return self.take_beside_local(local, call.clone()).await;
        }
        let (waits, give_up) = (call.waits, call.give_up);
        let lease = asking::take(&self.keeper, call).await?;
        // The first local lease may have come in between.
        match self.fallbacks.local() {
            None => Ok(lease),
            Some(local) => self.check_beside_local(local, lease, waits, give_up).await,
        }
    }

    fn check_beside_local<'a>(
        &'a self,
        local: &'a Local,
        lease: Lease,
        waits: bool,
        give_up: Instant,
    ) -> Rare<'a, Lease> {
        rare(&self.keeper, async move {
            let call = Call {
                keys: lease.keys().clone(),
                options: lease.options(),
                waits,
                clock: lease.clock(),
                give_up,
            };
            if self
                .beside_local(local, &call.keys, Check::granted(&lease))
                .is_none()
            {
                return Ok(lease);
            }
            // It was counted as this process's own, and is given back like any other.
            let _ = lease.release().await;
            self.take_beside_local(local, call).await
        })
    }

    fn take_beside_local<'a>(&'a self, local: &'a Local, call: Call) -> Rare<'a, Lease> {
        let conflict = |keys: &LockKeys, check| self.beside_local(local, keys, check);
        rare(&self.keeper, take_beside(&self.keeper, call, conflict))
    }

    /// `on_unavailable = run` and `local`.
    pub(super) fn fall_back(
        &self,
        mut call: Call,
        when_unavailable: WhenUnavailable,
        error: Error,
    ) -> Rare<'_, Lease> {
        rare(&self.keeper, async move {
            // A fallback lives in its caller's time, as the store may not.
            let (left, site) = (call.left(), call.options.site);
            call.clock = Clock::of_caller();
            call.give_up = call.clock.now() + left;
            let lease = match when_unavailable {
                WhenUnavailable::Fail => return Err(error),
                WhenUnavailable::Run => asking::take(self.unguarded(), &mut call).await?,
                WhenUnavailable::Local => {
                    let local = self.local();
                    take_beside(&local.keeper, call, |keys, check| {
                        self.beside_store(local, keys, check)
                    })
                    .await?
                }
            };
            self.keeper.counters.unguarded(site);
            tell(when_unavailable, site, &error);
            Ok(lease)
        })
    }

    fn unguarded(&self) -> &Arc<Keeper> {
        self.fallbacks.none.get_or_init(|| {
            let keeper = &self.keeper;
            let (origin, counters) = (keeper.origin().clone(), Arc::clone(&keeper.counters));
            Keeper::start_unguarded(&keeper.background, Arc::new(Unguarded), counters, origin)
        })
    }

    fn local(&self) -> &Local {
        self.fallbacks.local.get_or_init(|| {
            // A token of this process alone would be smaller than the store's last.
            let memory = Memory::without_tokens();
            let store = Arc::new(memory.clone());
            let keeper = &self.keeper;
            // Who waits for a slot that a lease of the store's has held may have it then.
            let ends = memory.clone();
            keeper.at_each_end(move |lease| ends.no_longer_elsewhere(&lease.owner()));
            let (origin, counters) = (keeper.origin().clone(), Arc::clone(&keeper.counters));
            Local {
                keeper: Keeper::start(&keeper.background, store, counters, origin),
                memory,
            }
        })
    }

    /// What local leases, and what they have left under their keys, say to a lease of the store's.
    fn beside_local(&self, local: &Local, keys: &LockKeys, check: Check) -> Option<Conflict> {
        let standing = local.memory.standing(keys.locks());
        let done = |standing: &Standing| match standing.what {
            Refusal::Done(since) => Some(since),
            Refusal::Held(..) => None,
        };
        if let Some(since) = standing.iter().find_map(done) {
            let key = keys.label().to_owned();
            return Some(Conflict {
                error: Error::Done { key, since },
                passes: false,
            });
        }
        let theirs = standing.into_iter().filter_map(|one| match one.what {
            Refusal::Held(remaining, since) => Some(Theirs {
                slot: one.slot,
                sharing: one.sharing,
                remaining,
                since,
            }),
            Refusal::Done(_) => None,
        });
        self.conflict(&self.keeper, keys, check, &theirs.collect::<Vec<_>>())
    }

    /// What leases that the store has granted before it went away say to a local one. Their slots are
    /// not given to anybody else.
    fn beside_store(&self, local: &Local, keys: &LockKeys, check: Check) -> Option<Conflict> {
        let theirs = self.keeper.holding(keys.locks());
        let left = |lease: &Acquisition| lease.end().saturating_duration_since(lease.clock.now());
        if matches!(check, Check::BeforeAsking) {
            let held = theirs.iter().flat_map(|lease| {
                let wanted = keys.locks().iter().enumerate();
                let held = wanted.filter(|(_, lock)| lease.keys.locks().contains(lock));
                held.map(|(lock, _)| HeldElsewhere {
                    lock,
                    slot: lease.slot(),
                    sharing: lease.keys.sharing(),
                    owner: lease.owner(),
                    since: lease.since(),
                    remaining: left(lease),
                })
            });
            local.memory.hold_elsewhere(keys.locks(), held);
            return None;
        }
        let theirs: Vec<_> = theirs
            .iter()
            .map(|lease| Theirs {
                slot: lease.slot(),
                sharing: lease.keys.sharing(),
                remaining: left(lease),
                since: lease.since(),
            })
            .collect();
        self.conflict(&local.keeper, keys, check, &theirs)
    }

    /// Whether what is held in the other store leaves nothing to this call, or is also what this keeper was
    /// granted.
    fn conflict(
        &self,
        keeper: &Keeper,
        keys: &LockKeys,
        check: Check,
        theirs: &[Theirs],
    ) -> Option<Conflict> {
        // Where the other store holds nothing of it, this one's leases are not gone through.
        let first = theirs.iter().min_by_key(|theirs| theirs.remaining)?;
        let sharing = keys.sharing();
        let others = theirs.iter().map(|theirs| theirs.sharing);
        let ours = || {
            let ours = keeper.holding(keys.locks());
            ours.into_iter().map(|lease| lease.keys.sharing())
        };
        let is_same = |slot| theirs.iter().any(|theirs| theirs.slot == slot);
        let conflicts = match (sharing, check) {
            (Sharing::Alone, _) => true,
            (Sharing::Readers, _) => !sharing.fits_beside(others),
            (Sharing::Permits { .. }, Check::AfterGrant { slot, .. }) if is_same(slot) => true,
            (Sharing::Permits { permits, weight }, Check::AfterGrant { kept, .. }) => {
                // Its own grant is among what this keeper holds, and so is what it gives back.
                let kept = weight.saturating_mul(u32::try_from(kept).unwrap_or(u32::MAX));
                let permits = permits.saturating_add(kept);
                let nothing = Sharing::Permits { permits, weight: 0 };
                !nothing.fits_beside(others.chain(ours()))
            }
            (Sharing::Permits { .. }, Check::BeforeAsking) => {
                !sharing.fits_beside(others.chain(ours()))
            }
        };
        conflicts.then(|| Conflict {
            error: self.busy_here(keys.label(), first.remaining, first.since),
            passes: true,
        })
    }
}

fn tell(fallback: WhenUnavailable, site: &CallSite, error: &Error) {
    let (function, template) = (site.told_function(), site.told_template());
    let key = error.key();
    match fallback {
        WhenUnavailable::Fail => {}
        WhenUnavailable::Run => tracing::warn!(
            target: "lockattr", function, template, key, %error,
            "a locked function runs without a lock: the store could not be asked"
        ),
        WhenUnavailable::Local => tracing::warn!(
            target: "lockattr", function, template, key, %error,
            "a locked function runs on a lock of this process alone: the store could not be asked"
        ),
    }
}

/// Takes what nothing of the other store speaks against: looked at before it is asked for, to spare
/// that, and after it was granted, which is what counts.
async fn take_beside(
    keeper: &Arc<Keeper>,
    call: Call,
    conflict: impl Fn(&LockKeys, Check) -> Option<Conflict>,
) -> Result<Lease, Error> {
    let mut pause = FIRST_PAUSE;
    let _open = keeper.ask();
    loop {
        let mut found = conflict(&call.keys, Check::BeforeAsking);
        if found.is_none() {
            let lease = asking::take(keeper, &mut call.clone()).await?;
            found = conflict(&call.keys, Check::granted(&lease));
            if found.is_none() {
                return Ok(lease);
            }
            if !matches!(call.keys.sharing(), Sharing::Permits { .. }) {
                let _ = lease.release().await;
            } else if let Some(lease) = take_another_slot(keeper, &call, lease, &conflict).await? {
                return Ok(lease);
            }
        }
        let Some(found) = found else { continue };
        let now = call.clock.now();
        if !found.passes || now >= call.give_up {
            return Err(found.error);
        }
        let next = call.give_up.min(now + growing(&mut pause));
        let closed = keeper.queues.closed();
        if call
            .clock
            .until(&keeper.background, next, closed)
            .await
            .is_ok()
        {
            return Err(call.unavailable(StoreError::refused(SHUT_DOWN)));
        }
    }
}

/// Takes another slot than this one, which is held in the other store: the first that is free is what a
/// store grants, so this one is kept until there is another. That is not waited for, since this one may
/// become free before.
async fn take_another_slot(
    keeper: &Arc<Keeper>,
    call: &Call,
    taken: Lease,
    conflict: &impl Fn(&LockKeys, Check) -> Option<Conflict>,
) -> Result<Option<Lease>, Error> {
    let mut kept = vec![taken];
    let found = loop {
        match asking::take(keeper, &mut call.clone().at_once()).await {
            Ok(lease) => {
                let check = Check::AfterGrant {
                    slot: lease.slot(),
                    kept: kept.len(),
                };
                if conflict(&call.keys, check).is_none() {
                    break Ok(Some(lease));
                }
                kept.push(lease);
            }
            Err(Error::Busy { .. }) => break Ok(None),
            Err(error) => break Err(error),
        }
    };
    for lease in kept {
        let _ = lease.release().await;
    }
    found
}
