//! How a lease is to be held.

use std::time::Duration;

use crate::call_site::CallSite;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseOptions {
    /// Which function it is for.
    pub(crate) site: &'static CallSite,
    pub(crate) ttl: Duration,
    /// Whether the keeper renews it.
    pub(crate) renew: bool,
    /// The key stays closed at least this long, counted from the grant.
    pub(crate) min_hold: Duration,
    /// The lease ends after this long.
    pub(crate) max_hold: Option<Duration>,
    /// How long a success keeps the key from running again.
    pub(crate) once: Option<Duration>,
    /// Whether that counts from the grant.
    pub(crate) once_from_begin: bool,
    /// The most bytes that are kept of the reply of a success.
    pub(crate) reply_limit: u32,
    /// How long a body may wind down after a loss.
    pub(crate) grace: Duration,
}

impl LeaseOptions {
    /// A lease of that ttl and nothing more.
    pub(crate) fn plain(site: &'static CallSite, ttl: Duration, renew: bool) -> Self {
        Self {
            site,
            ttl,
            renew,
            min_hold: Duration::ZERO,
            max_hold: None,
            once: None,
            once_from_begin: false,
            reply_limit: 0,
            grace: Duration::ZERO,
        }
    }

    /// Whether there is more to it.
    pub(crate) fn are_special(&self) -> bool {
        !self.min_hold.is_zero()
            || self.max_hold.is_some()
            || self.once.is_some()
            || !self.grace.is_zero()
    }
}
