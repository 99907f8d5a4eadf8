//! Taking up a lease that another process has handed off: under a fresh owner, which the store puts in the place of
//! the one that has handed it off, so that of two that take it up one has it.

use std::time::Duration;

use super::{Call, Context, asking, check_sharing};
use crate::acquisition::{LeaseOptions, LockKeys};
use crate::call_site::CallSite;
use crate::error::Error;
use crate::key::{Key, Keys};
use crate::lease::{Lease, Terms};
use crate::limits;
use crate::store::Sharing;

impl Context {
    /// Cancel-safe: a future that is dropped at any point gives back what it may have taken over.
    pub(crate) async fn take_up(&self, terms: Terms) -> Result<Lease, Error> {
        let outcome = match self.call_of(&terms) {
            Ok(call) => self.take_over(call, &terms).await,
            Err(error) => Err(error),
        };
        self.count(CallSite::unnamed(), outcome.as_ref());
        let lease = outcome?;
        if let Some(token) = terms.token {
            let _ = lease.acquisition().shared().token.set(token);
        }
        Ok(lease)
    }

    /// Takes over what no local lease speaks against. That is looked at before, while nothing is lost by a refusal,
    /// and after, which is what counts.
    async fn take_over(&self, call: Call, terms: &Terms) -> Result<Lease, Error> {
        self.check_no_local(&call.keys, terms.slot)?;
        let lease = asking::take_over(&self.keeper, call, &terms.owner, terms.slot).await?;
        self.check_no_local(lease.keys(), terms.slot)?;
        Ok(lease)
    }

    fn call_of(&self, terms: &Terms) -> Result<Call, Error> {
        let keys = terms.keys.iter().map(|key| Key::new(key.as_str()));
        let keys = Keys::all(keys).map_err(Error::Key)?;
        let redactor = self.redaction.of_call(terms.redact.then_some(true));
        let keys = LockKeys::new(&self.prefix, keys, terms.sharing, redactor);
        let invalid = |reason| Error::Invalid {
            key: keys.label().to_owned(),
            reason,
        };
        if terms.prefix != self.prefix {
            return Err(invalid(
                "the client that has handed it off has another prefix".to_owned(),
            ));
        }
        let store = self.keeper.store.limits();
        if !store.hand_off {
            return Err(invalid("its store has no lease taken up".to_owned()));
        }
        if let Sharing::Permits { permits, weight } = terms.sharing {
            limits::permits(permits).map_err(invalid)?;
            limits::weight(weight, permits).map_err(invalid)?;
        }
        check_sharing(&store, terms.sharing, terms.keys.len() > 1).map_err(invalid)?;
        let ttl = limits::ttl(terms.ttl).map_err(invalid)?;
        self.keeper.check_process().map_err(invalid)?;
        self.check_open(keys.label())?;
        let clock = self.keeper.clock_of_caller();
        let options = LeaseOptions {
            site: CallSite::unnamed(),
            ttl,
            renew: terms.renew,
            min_hold: terms.min_hold.min(limits::MAX),
            max_hold: terms.max_hold.map(|max| max.min(limits::MAX)),
            once: terms.once.map(|once| once.min(limits::MAX)),
            once_from_begin: terms.once_from_begin,
            reply_limit: self.most_of_a_reply(&store),
            grace: Duration::ZERO,
        };
        Ok(Call {
            options,
            waits: false,
            clock,
            give_up: clock.now(),
            keys,
        })
    }
}
