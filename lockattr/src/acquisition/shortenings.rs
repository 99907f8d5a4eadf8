//! Requests to shorten the ttl of a lease, and what they say of the answers to its other requests.
//!
//! In which order the store carries out two requests that are on their way at the same time is not
//! known: a ttl that is confirmed may have been shortened since by one that was asked for before.

use std::time::Duration;

#[derive(Debug)]
pub(super) struct Shortenings {
    /// The ttls of those that are waited for.
    awaited: Vec<Duration>,
    /// The ttls of those that nobody waits for any more, and that may yet be carried out.
    given_up: Vec<Duration>,
    /// For how many of them the store is yet to say that nothing can come any more. It says so of all
    /// requests of an owner together, and tells one of those who ask for how long it is not sure.
    unsettled: u32,
    /// The ttl and the deadline without those that are outstanding, if there are any.
    pub(super) kept_ttl: Duration,
    pub(super) kept_deadline: u64,
    /// How many extends are under way, those that shorten nothing included.
    extending: u32,
    /// How many have come to an end, and may have been carried out.
    ended: u32,
    /// The shortest of those, as far as other requests were on their way then.
    shortest_ended: Duration,
}

impl Default for Shortenings {
    fn default() -> Self {
        Self {
            awaited: Vec::new(),
            given_up: Vec::new(),
            unsettled: 0,
            kept_ttl: Duration::ZERO,
            kept_deadline: 0,
            extending: 0,
            ended: 0,
            shortest_ended: Duration::MAX,
        }
    }
}

impl Shortenings {
    /// An extend begins, beside a renewal or not.
    pub(super) fn begin(&mut self, renewing: bool) {
        if self.extending == 0 && !self.are_outstanding() && !renewing {
            self.shortest_ended = Duration::MAX;
        }
        self.extending += 1;
    }

    pub(super) fn end(&mut self) {
        self.extending -= 1;
    }

    pub(super) fn are_outstanding(&self) -> bool {
        self.shortest().is_some()
    }

    /// The shortest of those that are outstanding.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.awaited.iter().chain(&self.given_up).min().copied()
    }

    /// How many have come to an end: to be kept with each request that is sent.
    pub(super) fn ended(&self) -> u32 {
        self.ended
    }

    /// The longest that a request may have been confirmed for which was sent when so many had ended,
    /// whatever is outstanding.
    pub(super) fn longest_since(&self, ended: u32) -> Duration {
        if ended == self.ended {
            Duration::MAX
        } else {
            self.shortest_ended
        }
    }

    pub(super) fn ask(&mut self, ttl: Duration) {
        self.awaited.push(ttl);
    }

    /// The store has refused one, which is carried out no more.
    pub(super) fn refused(&mut self, ttl: Duration) {
        if let Some(index) = self.awaited.iter().position(|awaited| *awaited == ttl) {
            self.awaited.swap_remove(index);
        }
    }

    pub(super) fn carried_out(&mut self, ttl: Duration) {
        self.refused(ttl);
        self.count_ended(ttl);
    }

    /// Nobody waits for one any more.
    pub(super) fn give_up(&mut self, ttl: Duration) {
        self.refused(ttl);
        self.given_up.push(ttl);
        self.unsettled += 1;
    }

    /// The store has settled one of those that were given up; says whether it was the last of them.
    pub(super) fn settled(&mut self) -> bool {
        self.unsettled -= 1;
        if self.unsettled > 0 {
            return false;
        }
        for ttl in std::mem::take(&mut self.given_up) {
            self.count_ended(ttl);
        }
        true
    }

    fn count_ended(&mut self, ttl: Duration) {
        self.ended = self.ended.wrapping_add(1);
        self.shortest_ended = self.shortest_ended.min(ttl);
    }
}
