//! What a call asks for, beside its keys.

use std::time::Duration;

use crate::acquisition::LeaseOptions;
use crate::call_site::CallSite;
use crate::limits;
use crate::store::{Claim, Sharing};

/// How a key is asked for.
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct CallOptions {
    pub(super) site: &'static CallSite,
    ttl: Option<Duration>,
    pub(super) wait: Duration,
    renew: bool,
    min_hold: Option<Duration>,
    max_hold: Option<Duration>,
    once: Option<Duration>,
    grace: Option<Duration>,
    pub(super) permits: u32,
    pub(super) weight: u32,
    pub(super) shared: bool,
    pub(crate) redact: Option<bool>,
    pub(super) when_unavailable: WhenUnavailable,
}

/// What a call does while the store cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenUnavailable {
    Fail,
    Run,
    Local,
}

impl CallOptions {
    /// For a call from there: the client's ttl, one try, renewed, one holder.
    pub const fn at(site: &'static CallSite) -> Self {
        Self {
            site,
            ttl: None,
            wait: Duration::ZERO,
            renew: true,
            min_hold: None,
            max_hold: None,
            once: None,
            grace: None,
            permits: 1,
            weight: 1,
            shared: false,
            redact: None,
            when_unavailable: WhenUnavailable::Fail,
        }
    }

    /// The same for a call from elsewhere.
    pub(crate) const fn of_site(mut self, site: &'static CallSite) -> Self {
        self.site = site;
        self
    }

    pub(crate) fn site(&self) -> &'static CallSite {
        self.site
    }

    /// The lease's length.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// For how long a busy key is waited for.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Whether the lease is renewed.
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// How long the key stays closed at least.
    pub const fn min_hold(mut self, length: Duration) -> Self {
        self.min_hold = Some(length);
        self
    }

    /// How long the lease lasts at most.
    pub const fn max_hold(mut self, length: Duration) -> Self {
        self.max_hold = Some(length);
        self
    }

    /// How long a success keeps the key from running again.
    pub const fn once(mut self, length: Duration) -> Self {
        self.once = Some(length);
        self
    }

    /// How long a body may wind down after a loss.
    pub const fn grace(mut self, length: Duration) -> Self {
        self.grace = Some(length);
        self
    }

    /// How many permits the key has.
    pub const fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// How many of the permits are taken.
    pub const fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Whether others may hold the key beside it that say so as well.
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Whether a hash is shown in the place of the key; the client's setting where it is not called.
    pub const fn redact(mut self, redact: bool) -> Self {
        self.redact = Some(redact);
        self
    }

    /// Runs without a lock while the store cannot be asked.
    pub const fn run_when_unavailable(mut self) -> Self {
        self.when_unavailable = WhenUnavailable::Run;
        self
    }

    /// Excludes within this process while the store cannot be asked.
    pub const fn local_when_unavailable(mut self) -> Self {
        self.when_unavailable = WhenUnavailable::Local;
        self
    }

    /// Who may hold the key at the same time, if everything is in bounds.
    pub(super) fn sharing(&self) -> Result<Sharing, String> {
        limits::permits(self.permits)?;
        limits::weight(self.weight, self.permits)?;
        if self.shared && self.permits > 1 {
            return Err(
                "`shared` and `permits` contradict each other: readers are not counted".to_owned(),
            );
        }
        let claim = Claim::new(&[], "", Duration::ZERO);
        let claim = claim.permits(self.permits).weight(self.weight);
        let sharing = claim.shared(self.shared).sharing();
        if !sharing.is_alone() && self.once.is_some() {
            return Err(
                "`once` is of a key with one holder at a time: work that is done is done for all of them"
                    .to_owned(),
            );
        }
        Ok(sharing)
    }

    /// How a lease is held, if everything is in bounds.
    pub(super) fn lease_options(&self, default_ttl: Duration) -> Result<LeaseOptions, String> {
        let length = |what, length: Option<Duration>| {
            length
                .map(|length| limits::length(what, length))
                .transpose()
        };
        let options = LeaseOptions {
            site: self.site,
            ttl: limits::ttl(self.ttl.unwrap_or(default_ttl))?,
            renew: self.renew,
            min_hold: length("a min_hold", self.min_hold)?.unwrap_or_default(),
            max_hold: length("a max_hold", self.max_hold)?,
            once: length("a once", self.once)?,
            grace: length("a grace", self.grace)?.unwrap_or_default(),
        };
        match options.max_hold {
            Some(max) if max < options.min_hold => Err(format!(
                "a min_hold of {:?} is longer than the max_hold of {max:?}",
                options.min_hold
            )),
            _ => Ok(options),
        }
    }
}
