//! `on_busy = rerun`: of the calls that come while one runs, one waits and runs after it, and the others are
//! skipped.
//!
//! Who waits holds a lock beside that of the key, its *place*, and gives that back before its body begins. So
//! who is refused the place was refused by a call whose body had not begun when the refused one had. That is
//! the only reason for which a call is skipped.

use std::time::Instant;

use super::{
    Call, CallOptions, Context, FIRST_PAUSE, Nesting, Rare, WhenUnavailable, asking, growing, rare,
};
use crate::acquisition::{Acquisition, LeaseOptions};
use crate::call_site::CallSite;
use crate::error::{Error, StoreError};
use crate::keeper::SHUT_DOWN;
use crate::key::{KeyError, Keys};
use crate::lease::Lease;
use crate::runtime::clock::Clock;

/// What has become of a call that was neither unavailable, nor waited in vain.
pub(crate) enum InTurn {
    Held(Lease),
    /// Another one waits, which runs in its stead.
    Skipped(Error),
}

/// What a call has of the place.
enum Place {
    Held(Lease),
    /// There are no places while the store is away, and the call may run all the same.
    None,
    Another,
}

impl Context {
    /// Takes the lease of a call, for which it waits where it is the first to.
    ///
    /// Cancel-safe: a future that is dropped at any point gives back what it may have got, its place
    /// included.
    pub(crate) fn acquire_in_turn<'a>(
        &'a self,
        keys: Result<Keys, KeyError>,
        options: &'a CallOptions,
    ) -> Rare<'a, InTurn> {
        rare(&self.keeper, async move {
            let site = options.site;
            let waiting = site.observed.waits(|| self.keeper.clock_of_caller());
            let outcome = match self.checked(keys, options) {
                Ok(call) => self.take_in_turn(&call, options).await,
                Err(error) => Err(error),
            };
            let told = match &outcome {
                Ok(InTurn::Held(lease)) => Ok(lease),
                Ok(InTurn::Skipped(busy)) | Err(busy) => Err(busy),
            };
            self.count(site, told);
            waiting.over();
            outcome
        })
    }

    async fn take_in_turn(&self, call: &Call, options: &CallOptions) -> Result<InTurn, Error> {
        let when_unavailable = options.when_unavailable;
        let mut now = call.clone().at_once();
        let busy = match self.take(&mut now, when_unavailable, Nesting::Joins).await {
            Err(busy @ Error::Busy { .. }) => busy,
            outcome => return outcome.map(InTurn::Held),
        };
        let mut may_stand_until = None;
        let place = call.place(options.reruns);
        let place = self.take_place(call, place, when_unavailable, &mut may_stand_until);
        let place = match place.await? {
            Place::Held(place) => Some(place),
            Place::None => None,
            Place::Another => return Ok(InTurn::Skipped(busy)),
        };
        let mut waits = call.clone();
        let lease = self.take(&mut waits, when_unavailable, Nesting::Joins);
        let lease = lease.await;
        // While the place may stand there calls are skipped, which the body would not see; and where there is no
        // body, it is this call's own repetition that would be.
        let mut left = None;
        if let Some(place) = place {
            let acquisition = place.acquisition_kept();
            if let Err(source) = place.end_for_certain().await {
                if lease.is_ok() && when_unavailable == WhenUnavailable::Fail {
                    return Err(call.unavailable(source));
                }
                may_stand_until = Some(call.clock.now() + acquisition.ttl());
                left = Some(acquisition);
            }
        }
        let lease = lease?;
        let Some(until) = may_stand_until else {
            return Ok(InTurn::Held(lease));
        };
        self.outlast(left.as_deref(), until, call).await?;
        if lease.check_loss().is_ok() {
            return Ok(InTurn::Held(lease));
        }
        drop(lease);
        let mut again = call.clone();
        let lease = self.take(&mut again, when_unavailable, Nesting::Joins);
        lease.await.map(InTurn::Held)
    }

    /// Waits until a place is gone that could not be given back: by one of the releases that follow, or with its ttl.
    async fn outlast(
        &self,
        place: Option<&Acquisition>,
        until: Instant,
        call: &Call,
    ) -> Result<(), Error> {
        let clock = call.clock;
        let mut pause = FIRST_PAUSE;
        while clock.now() < until && !place.is_some_and(Acquisition::is_known_to_be_gone) {
            let next = until.min(clock.now() + growing(&mut pause));
            let closed = self.keeper.queues.closed();
            let waited = clock.until(&self.keeper.background, next, closed).await;
            if waited.is_ok() {
                return Err(call.unavailable(StoreError::refused(SHUT_DOWN)));
            }
        }
        Ok(())
    }

    async fn take_place(
        &self,
        call: &Call,
        place: Call,
        when_unavailable: WhenUnavailable,
        may_stand_until: &mut Option<Instant>,
    ) -> Result<Place, Error> {
        let error = match asking::take_now(&self.keeper, place.clone()).await {
            Ok(place) => return Ok(Place::Held(place)),
            Err(error) => error,
        };
        if matches!(&error, Error::Unavailable { source, .. } if source.is_in_doubt()) {
            *may_stand_until = Some(call.clock.now() + call.options.ttl);
        }
        match (error, when_unavailable) {
            (Error::Busy { .. }, _) => Ok(Place::Another),
            (error @ Error::Unavailable { .. }, WhenUnavailable::Run)
                if self.may_fall_back(&error) =>
            {
                Ok(Place::None)
            }
            (error @ Error::Unavailable { .. }, WhenUnavailable::Local)
                if self.may_fall_back(&error) =>
            {
                let clock = Clock::of_caller();
                let place = Call {
                    clock,
                    give_up: clock.now(),
                    ..place
                };
                match asking::take_now(self.local_keeper(), place).await {
                    Ok(place) => Ok(Place::Held(place)),
                    Err(Error::Busy { .. }) => Ok(Place::Another),
                    Err(error) => Err(error),
                }
            }
            (Error::Unavailable { source, .. }, _) => Err(call.unavailable(source)),
            (error, _) => Err(error),
        }
    }
}

impl Call {
    /// The call for the place of those that wait for this one's key: of one function, since a run of another
    /// one does not see what this one is for.
    fn place(&self, line: Option<u32>) -> Self {
        let options = &self.options;
        let function = fingerprint(options.site.function(), line.unwrap_or_default());
        Self {
            keys: self.keys.beside(&format!("%{function:016x}%rerun")),
            options: LeaseOptions::plain(CallSite::unnamed(), options.ttl, true),
            ..self.clone().at_once()
        }
    }
}

/// The FNV-1a hash of a function: the same in every program that it is compiled into.
fn fingerprint(name: &str, line: u32) -> u64 {
    fnv_1a(name.bytes().chain(line.to_be_bytes()))
}

fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the description of FNV.
    #[test]
    fn fingerprints_are_fnv_1a() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv_1a(text.bytes()), hash);
        }
    }
}
