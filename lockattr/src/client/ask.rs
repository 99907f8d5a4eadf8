//! Asking for a call's keys: in the store, from the calls around it, or in its stead.

use std::fmt::Write;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::fallback::Fallback;
use super::settings::{Settings, WhenUnavailable};
use super::take::{self, Ask, Rare};
use super::{Client, Inner};
use crate::ambient;
use crate::clock::Clock;
use crate::engine::Elapsed;
use crate::error::{Error, StoreError};
use crate::hold::Names;
use crate::keeper::SHUT_DOWN;
use crate::key::Keys;
use crate::lease::Lease;
use crate::limits;

impl Client {
    /// Takes the lease of a call, or what its attribute says to run on while there is none to have.
    pub(crate) async fn enter(
        &self,
        keys: Result<Keys, Error>,
        settings: &Settings,
    ) -> Result<Lease, Error> {
        let keys = match keys {
            Ok(keys) => keys,
            Err(error) => return self.count(Err(error)),
        };
        // Only a call that may have to fall back needs them twice.
        let spare = settings.may_fall_back().then(|| keys.clone());
        let outcome = self.ask(keys, settings, Nesting::Joins).await;
        let outcome = match (outcome, spare) {
            (Err(error @ Error::Unavailable { .. }), Some(keys)) if !self.is_shut_down() => {
                self.fall_back(keys, settings, error).await
            }
            (outcome, _) => outcome,
        };
        self.count(outcome)
    }

    pub(crate) async fn acquire(
        &self,
        keys: Result<Keys, Error>,
        settings: &Settings,
    ) -> Result<Lease, Error> {
        let outcome = match keys {
            Ok(keys) => self.ask(keys, settings, Nesting::Asks).await,
            Err(error) => Err(error),
        };
        self.count(outcome)
    }

    fn count(&self, outcome: Result<Lease, Error>) -> Result<Lease, Error> {
        let counters = &self.0.keeper.counters;
        match &outcome {
            Ok(_) => counters.granted.up(),
            Err(Error::Busy { .. }) => counters.busy.up(),
            Err(Error::Done { .. }) => counters.done.up(),
            Err(_) => counters.unavailable.up(),
        }
        outcome
    }

    /// Asks for what the calls around this one do not hold already, and joins what they do.
    async fn ask(&self, keys: Keys, settings: &Settings, nesting: Nesting) -> Result<Lease, Error> {
        if self.0.disabled {
            self.0.keeper.counters.unguarded.up();
        }
        let keeper = &self.0.keeper;
        let ask = self.checked(keys, settings)?;
        self.refuse_when_shut_down(&ask.names)?;
        let around: Vec<_> = if self.0.disabled {
            Vec::new()
        } else {
            ambient::all()
                .into_iter()
                .filter(|lease| lease.is_of(keeper) || self.0.fallbacks.has(lease))
                .collect()
        };
        let lease = if nesting == Nesting::Joins && !around.is_empty() {
            self.ask_within(&around, ask, settings).await
        } else if let Some(local) = self.0.fallbacks.local_if_any() {
            self.ask_beside(local, ask).await
        } else {
            take::take(&self.0.keeper, ask).await
        };
        let lease = lease.map_err(|error| while_holding(error, &around))?;
        // It may have been shut down while the answer was on its way.
        if self.is_shut_down() {
            return Err(shut_down(lease.key()));
        }
        Ok(lease)
    }

    /// The request, with everything in bounds.
    fn checked(&self, keys: Keys, settings: &Settings) -> Result<Ask, Error> {
        let permits = settings.permits;
        let several = keys.are_several();
        let names = Names::new(&self.0.prefix, keys, permits.clamp(1, limits::MAX_PERMITS));
        let terms = settings.terms(self.0.ttl).and_then(|terms| {
            limits::permits(permits)?;
            limits::wait(settings.wait)?;
            if permits > 1 && several {
                return Err("permits are of one key, and there are several".to_owned());
            }
            Ok(terms)
        });
        match terms {
            Ok(terms) => Ok(Ask {
                wait: settings.wait,
                names,
                terms,
            }),
            Err(reason) => Err(Error::Invalid {
                key: names.label().to_owned(),
                reason,
            }),
        }
    }

    async fn ask_store(&self, ask: Ask) -> Result<Lease, Error> {
        match self.0.fallbacks.local_if_any() {
            None => take::take(&self.0.keeper, ask).await,
            Some(local) => self.ask_beside(local, ask).await,
        }
    }

    /// What runs on a local lock since the store was away is not to meet what the store grants.
    fn ask_beside<'a>(&'a self, local: &'a Fallback, ask: Ask) -> Rare<'a, Lease> {
        Box::pin(async move {
            let locks = ask.names.locks().to_vec();
            local.wait_until_free(&self.0, &ask).await?;
            let lease = take::take(&self.0.keeper, ask).await?;
            if let Some(remaining) = local.held(&locks) {
                return Err(self.0.busy_here(lease.key(), remaining));
            }
            Ok(lease)
        })
    }

    /// A call that needs keys which the calls around it hold joins them, instead of waiting for
    /// itself. Side by side under one call, such calls take turns.
    fn ask_within<'a>(
        &'a self,
        around: &'a [Lease],
        mut ask: Ask,
        settings: &'a Settings,
    ) -> Rare<'a, Lease> {
        Box::pin(async move {
            let terms = ask.terms;
            let mut to_join: Vec<&Lease> = Vec::new();
            let mut missing = Vec::new();
            for lock in ask.names.locks() {
                let covers = |lease: &&Lease| lease.covers(lock, settings.permits);
                match around.iter().rev().find(covers) {
                    Some(lease) if to_join.iter().any(|known| known.is_same_grant(lease)) => {}
                    Some(lease) => to_join.push(lease),
                    None => missing.push(lock.clone()),
                }
            }
            let Some(first) = to_join.first() else {
                return self.ask_store(ask).await;
            };
            let clock = self.0.keeper.clock_of_caller();
            let give_up = clock.now() + ask.wait;
            let mut places = Vec::new();
            for lease in &to_join {
                let place = self.place_under(lease, clock, give_up).await?;
                places.push(place);
            }
            if missing.is_empty() {
                if let (Some(_), Some(since)) = (terms.once, first.done_since()) {
                    let key = ask.names.label().to_owned();
                    return Err(Error::Done { key, since });
                }
                return Ok(first.share().joined(terms, places));
            }
            ask.names = ask.names.only(|lock| missing.contains(lock));
            ask.wait = give_up.saturating_duration_since(clock.now());
            Ok(self.ask_store(ask).await?.joined(terms, places))
        })
    }

    async fn place_under(
        &self,
        lease: &Lease,
        clock: Clock,
        give_up: Instant,
    ) -> Result<OwnedMutexGuard<()>, Error> {
        let engine = &self.0.keeper.engine;
        let place = clock.until(engine, give_up, lease.place_under()).await;
        place.map_err(|Elapsed| self.0.busy_here(lease.key(), lease.remaining()))
    }

    /// `on_unavailable = run` and `local`.
    fn fall_back<'a>(
        &'a self,
        keys: Keys,
        settings: &'a Settings,
        error: Error,
    ) -> Rare<'a, Lease> {
        Box::pin(async move {
            let inner = &self.0;
            let ask = self.checked(keys, settings)?;
            let lease = match settings.when_unavailable {
                WhenUnavailable::Fail => return Err(error),
                WhenUnavailable::Run => inner.fallbacks.none(inner).acquire(ask).await?,
                WhenUnavailable::Local => {
                    let locks = ask.names.locks().to_vec();
                    let lease = inner.fallbacks.local(inner).acquire(ask).await?;
                    // A lease that the store granted before it went away counts as well.
                    if let Some(remaining) = inner.keeper.held(&locks) {
                        return Err(inner.busy_here(lease.key(), remaining));
                    }
                    lease
                }
            };
            inner.keeper.counters.unguarded.up();
            tracing::warn!(%error, "{}", settings.when_unavailable.told());
            Ok(lease)
        })
    }

    fn is_shut_down(&self) -> bool {
        self.0.keeper.is_closed()
    }

    fn refuse_when_shut_down(&self, names: &Names) -> Result<(), Error> {
        if self.is_shut_down() {
            return Err(shut_down(names.label()));
        }
        Ok(())
    }
}

fn shut_down(key: &str) -> Error {
    Error::Unavailable {
        key: key.to_owned(),
        source: StoreError::refused(SHUT_DOWN),
    }
}

/// What a request does about keys that the calls around it hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    /// A locked function is part of the one that calls it.
    Joins,
    /// A request by hand is for a lease of its own.
    Asks,
}

/// Says in a busy error what its call holds itself.
fn while_holding(mut error: Error, around: &[Lease]) -> Error {
    if let Error::Busy { key, holder, .. } = &mut error {
        let mut held: Vec<_> = around
            .iter()
            .map(Lease::key)
            .filter(|held| held != key)
            .collect();
        held.dedup();
        if !held.is_empty() {
            let held = held.join("`, `");
            // Writing to a string does not fail.
            let _ = write!(holder, " (waited for while holding `{held}`)");
        }
    }
    error
}

impl Inner {
    /// This process itself holds the key.
    pub(super) fn busy_here(&self, key: &str, remaining: Duration) -> Error {
        Error::Busy {
            key: key.to_owned(),
            holder: self.keeper.origin().shown(),
            remaining,
        }
    }
}
