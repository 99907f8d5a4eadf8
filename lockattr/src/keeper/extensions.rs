//! Extending: a lease is given a ttl of another length, while it goes on being renewed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Keeper;
use super::renewals::{next_look, only, patience};
use super::schedule::ScheduleKey;
use crate::acquisition::{Acquisition, Confirmed, Extension};
use crate::error::{Error, LossCause, StoreError};
use crate::runtime::background::Elapsed;
use crate::runtime::clock::Clock;
use crate::store::Renewal;

impl Keeper {
    /// Gives a lease a ttl of another length from now on. It is renewed meanwhile: this may not be
    /// polled any more.
    pub(crate) async fn extend(
        self: &Arc<Self>,
        key: ScheduleKey,
        lease: &Arc<Acquisition>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let give_up = Instant::now() + self.patience;
        loop {
            let mut extending = Extending::begin(self, key, lease, ttl);
            let asked = lease.ttl_to_ask(ttl);
            let cause = match extending.ask(asked, give_up).await {
                None => LossCause::Expired,
                Some(Ok(Renewal::Until(until))) => {
                    let in_full = extending.confirmed(Confirmed { asked, until });
                    drop(extending);
                    if let Some(cause) = lease.loss() {
                        return Err(lease.lost(cause));
                    }
                    // It is asked again where that helps, once a shorter one is out of the way.
                    if in_full || !self.may_ask_again(lease, give_up).await {
                        return Ok(());
                    }
                    continue;
                }
                Some(Ok(Renewal::Taken)) => LossCause::Taken,
                Some(Ok(Renewal::Gone)) => LossCause::Deleted,
                Some(Err(source)) => {
                    if !source.is_in_doubt() {
                        extending.refused();
                    }
                    return Err(source.told_of(lease.keys.label()));
                }
            };
            drop(extending);
            lease.lose(cause);
            return Err(lease.lost(lease.loss().unwrap_or(cause)));
        }
    }

    /// Waits until nothing that is outstanding may shorten a lease, while there is time to ask the store
    /// once more after that.
    async fn may_ask_again(&self, lease: &Acquisition, give_up: Instant) -> bool {
        let left = lease
            .end()
            .saturating_duration_since(lease.clock.now())
            .min(give_up.saturating_duration_since(Instant::now()));
        let over = Instant::now() + left / 2;
        let waiting = Box::pin(self.background.until(over, lease.not_to_be_shortened()));
        waiting.await.is_ok() && !lease.has_ended()
    }

    /// A ttl that was to be shortened by a request that was never answered is that short until nothing
    /// of the request can come any more.
    async fn lengthen_again(self: Arc<Self>, key: ScheduleKey, lease: Arc<Acquisition>) {
        let owner = lease.owner();
        let may_come = self.store.settled(&owner).await;
        let over = Instant::now() + may_come.min(lease.ttl() * 10);
        self.background.sleep_until(over).await;
        lease.extension_settled();
        self.schedule.look(key, next_look(&lease));
    }
}

/// A lease whose ttl is being changed, also by a future that is dropped.
struct Extending<'a> {
    keeper: &'a Arc<Keeper>,
    key: ScheduleKey,
    lease: &'a Arc<Acquisition>,
    extension: Extension,
    /// Whether it may yet shorten the lease.
    outstanding: bool,
}

impl<'a> Extending<'a> {
    fn begin(
        keeper: &'a Arc<Keeper>,
        key: ScheduleKey,
        lease: &'a Arc<Acquisition>,
        ttl: Duration,
    ) -> Self {
        let extension = lease.begin_extension(ttl);
        let extending = Self {
            keeper,
            key,
            lease,
            extension,
            outstanding: extension.shortens,
        };
        extending.look_again();
        extending
    }

    /// Asks the store; the answer is `None` where the lease ends before there is one.
    async fn ask(&self, asked: Duration, give_up: Instant) -> Option<Result<Renewal, StoreError>> {
        let (keeper, lease) = (self.keeper, self.lease);
        let owner = lease.owner();
        let mut held = lease.claim(&owner, asked).held(lease.slot());
        if self.extension.shortens {
            held = held.shortening();
        }
        let held = [held];
        let patience = patience(lease).min(keeper.patience / 2);
        // A store may never answer. In a box, since few calls extend and all would have the room.
        let asking = Box::pin(keeper.background.until(
            give_up,
            keeper.ask_store(keeper.store.renew(&held, patience)),
        ));
        let answer = lease.while_it_lasts(asking).await?;
        let answer = answer.unwrap_or_else(|Elapsed| {
            Err(StoreError::in_doubt("the lease was not extended in time"))
        });
        Some(answer.and_then(|answers| only(&answers)))
    }

    fn confirmed(&mut self, confirmed: Confirmed) -> bool {
        self.outstanding = false;
        self.lease.extended(self.extension, confirmed)
    }

    fn refused(&mut self) {
        self.outstanding = false;
        self.lease.extension_refused(self.extension);
    }

    fn look_again(&self) {
        self.keeper.schedule.look(self.key, next_look(self.lease));
        if self.lease.clock == Clock::Tokio {
            self.lease.wake();
        }
    }
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        if !self.keeper.process().is_here() {
            return;
        }
        self.lease.end_extension();
        if self.outstanding {
            self.lease.give_up_extension(self.extension);
            let (keeper, lease) = (Arc::clone(self.keeper), Arc::clone(self.lease));
            self.keeper
                .background
                .spawn(keeper.lengthen_again(self.key, lease));
        }
        self.look_again();
    }
}
