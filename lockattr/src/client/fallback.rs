//! What a body runs on while the store cannot be asked, where its attribute says that it may.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Inner;
use super::take::{self, Ask};
use crate::error::Error;
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::store::Store;
use crate::store::memory::Memory;
use crate::store::nowhere::Nowhere;

/// Made when they are first needed.
#[derive(Default)]
pub(super) struct Fallbacks {
    none: OnceLock<Fallback>,
    local: OnceLock<Fallback>,
}

/// A keeper of leases that are not the store's.
pub(super) struct Fallback(Arc<Keeper>);

impl Fallbacks {
    /// `on_unavailable = run`.
    pub(super) fn none(&self, inner: &Inner) -> &Fallback {
        self.none
            .get_or_init(|| Fallback::start(inner, Arc::new(Nowhere)))
    }

    /// `on_unavailable = local`.
    pub(super) fn local(&self, inner: &Inner) -> &Fallback {
        self.local
            .get_or_init(|| Fallback::start(inner, Arc::new(Memory::new())))
    }

    pub(super) async fn shut_down(&self) {
        for fallback in [self.none.get(), self.local.get()].into_iter().flatten() {
            fallback.0.shut_down().await;
        }
    }

    /// Whether a lease is a local one.
    pub(super) fn has(&self, lease: &Lease) -> bool {
        self.local.get().is_some_and(|local| lease.is_of(&local.0))
    }

    /// Local leases, if there ever was one.
    pub(super) fn local_if_any(&self) -> Option<&Fallback> {
        self.local.get()
    }
}

impl Fallback {
    /// A keeper on the client's thread, with the client's counters, for a store that answers at once.
    fn start(inner: &Inner, store: Arc<dyn Store>) -> Self {
        let keeper = &inner.keeper;
        let (origin, counters) = (keeper.origin().clone(), Arc::clone(&keeper.counters));
        Self(Keeper::start(
            &keeper.engine,
            store,
            counters,
            origin,
            Duration::ZERO,
        ))
    }

    pub(super) async fn acquire(&self, ask: Ask) -> Result<Lease, Error> {
        take::take(&self.0, ask).await
    }

    /// For how long a local lease of any of these locks runs, if there is one.
    pub(super) fn held(&self, locks: &[String]) -> Option<Duration> {
        self.0.held(locks)
    }

    /// Waits for what runs on local leases of these locks, for as long as the call would wait.
    pub(super) async fn wait_until_free(&self, inner: &Inner, ask: &Ask) -> Result<(), Error> {
        let clock = inner.keeper.clock_of_caller();
        let give_up = clock.now() + ask.wait;
        let mut pause = take::FIRST_PAUSE;
        while let Some(remaining) = self.held(ask.names.locks()) {
            let now = clock.now();
            if now >= give_up {
                return Err(inner.busy_here(ask.names.label(), remaining));
            }
            let next = give_up.min(now + take::growing(&mut pause));
            clock.sleep_until(&inner.keeper.engine, next).await;
        }
        Ok(())
    }
}
