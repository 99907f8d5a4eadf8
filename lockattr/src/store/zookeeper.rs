//! Locks on the servers of a ZooKeeper ensemble.
//!
//! # How a lock is held
//! Each lock has a container node, and each claim an ephemeral sequential node below it: its place in the
//! queue. The first place holds the lock, and each other waits for the one before it to go, by a watch of
//! it: a release wakes exactly one waiter, and nobody polls.
//!
//! Of those who share a lock, readers or holders of permits, the first places hold it, as many as fit beside all
//! before them, up to the first that does not. Whether one holds it so depends on nobody behind it, and stays as it
//! is when others before it go. A reader waits for the last place before it that is none of a reader, so that all are
//! woken at once. Of those who wait for permits the first watches the lock's node, and each other the one before
//! it, which writes to its place when it has come to hold the lock. A slot is a node of its own, of which two cannot have
//! the same. What a release leaves of a part of the lock counts where its place was.
//!
//! Whoever does not wait has a place for a moment as well, which says so. One that does not wait either, and is
//! kept out by nobody else, looks again until those are gone.
//!
//! | step | requests |
//! |---|---|
//! | a free lock is taken and given back | create, list, delete; the very first time its container as well |
//! | permits as well | one to take the slot, when the place is known to be among the first |
//! | the same after waiting | one to watch, and one to list again |
//! | a lease is renewed | none |
//! | a lease is held for longer than 0.4 s | one to watch its node |
//! | a token is drawn | one write for each lock, and one read |
//! | the session, while something is held or waited for | one `sync` each twentieth of its timeout |
//!
//! # How long a lease lives
//! A client has one session, whose timeout is the client's ttl ([`ClientBuilder::ttl`](crate::ClientBuilder::ttl)),
//! or the nearest that the servers allow: from 2 to 20 of their ticks unless they are set otherwise. The nodes
//! of a client go with its session. So:
//!
//! - **A client that dies holds its locks for as long as its session**, whatever their ttls.
//! - A lease that is not renewed ends with its own ttl: its client deletes its node then, on its own thread, which
//!   no application blocks.
//! - A ttl that is longer than the session is refused, when the client connects or the call is made: nothing
//!   would keep such a promise. With renewals a lease lives for as long as it is held.
//! - A lease is relied on for the timeout from when a request was sent that the leader has answered last, less
//!   4 %. Not for longer, whatever a server says later: a client that was cut off for longer has lost all,
//!   ends that session, and begins another.
//!
//! # Handing on
//! A node goes with its session, so whoever takes a lease up makes one in the place of each, with the same number and in
//! the same step in which that is deleted. The client that has handed a lease off deletes its nodes, by their names, when
//! the ttl is over and nobody has; when it ends before, it leaves its session to the servers, which end it in time.
//!
//! # What it survives
//! The loss of a minority of the servers, the leader included, and of the connection to any one of them for
//! less than the timeout: the session moves to another server with all leases, places and their order.
//! Locks of a majority that is restarted are held on, too, as they are on disk.
//!
//! What it does not: a server that was cut off from the others, and does not know it yet, can answer for
//! a moment in the name of sessions that the others end: for half a tick where it follows, and up to a tick
//! where it leads, of which the 4 % cover a part. What must not happen twice needs a fencing token,
//! [`Lease::token`](crate::Lease::token). A majority that loses its disks forgets everything, tokens
//! included.
//!
//! # Marks
//! What `once` and `min_hold` leave are nodes whose data says for how many milliseconds they stand from when
//! they were written, both by the leader's clock. Where the servers know nodes with a ttl
//! (`extendedTypesEnabled=true`), they remove them when they are over. Elsewhere the client removes those that it
//! has left for at most an hour, and whoever finds one that is over removes it: the mark of a key that nobody
//! asks for again stays.

mod acquire;
mod check;
mod claims;
#[cfg(all(test, feature = "conformance"))]
mod conformance;
mod connection;
mod fault;
#[cfg(feature = "inspect")]
mod inspect;
mod jute;
mod listing;
mod names;
mod protocol;
mod release;
mod renew;
mod session;
mod standing;
mod step;
mod take_over;
mod token;
mod url;
mod wakeups;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use self::protocol::{Acl, Request};
use self::session::{Session, SessionConfig};
use self::step::Step;
pub(crate) use self::url::{Ensemble, ensemble};
use self::wakeups::OfOwner;
use super::{
    Acquired, Attempt, Claim, Found, Held, HeldLeases, Limits, Listed, Release, Renewal, Renewed,
    Reply, Store, Token, WakeUps,
};
use crate::runtime::background::Background;

/// The shortest ttl: a grant is written to the disks of a majority.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The longest session that can be asked for, in milliseconds of 31 bits.
const LONGEST_SESSION: Duration = Duration::from_secs(24 * 24 * 60 * 60);

pub(crate) struct ZooKeeperConfig {
    pub(crate) ensemble: Ensemble,
    /// The client's ttl, which is what a session is for.
    pub(crate) ttl: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) reply_timeout: Duration,
}

/// The servers of an ensemble, as one store.
pub(crate) struct ZooKeeper {
    session: Session,
    ensemble: Ensemble,
    acl: Acl,
    /// The timeout that is asked for.
    timeout: Duration,
    connect_timeout: Duration,
    reply_timeout: Duration,
    /// Whether the servers have refused a node with a ttl.
    knows_no_ttls: AtomicBool,
}

impl ZooKeeper {
    pub(crate) fn new(config: ZooKeeperConfig, background: &Background) -> Self {
        let ZooKeeperConfig {
            ensemble,
            ttl,
            connect_timeout,
            reply_timeout,
        } = config;
        let timeout = ttl.clamp(SHORTEST_TTL, LONGEST_SESSION);
        Self {
            ensemble: ensemble.clone(),
            acl: Acl(ensemble.transport.login.is_some()),
            timeout,
            connect_timeout,
            reply_timeout,
            knows_no_ttls: AtomicBool::new(false),
            session: Session::start(
                SessionConfig {
                    ensemble,
                    timeout,
                    connect_timeout,
                    reply_timeout,
                },
                background,
            ),
        }
    }

    /// Until when the requests of a step are sent: a server that does not answer is found out, and another is
    /// asked.
    fn longest_step(&self) -> Duration {
        2 * self.connect_timeout + self.reply_timeout
    }

    fn step(&self) -> Step<'_> {
        Step {
            session: &self.session,
            root: &self.ensemble.root,
            acl: self.acl,
            deadline: Instant::now() + self.longest_step(),
        }
    }
}

impl Store for ZooKeeper {
    fn limits(&self) -> Limits {
        Limits::default()
            .shortest_ttl(SHORTEST_TTL)
            .several_in_one_step(false)
            .most_permits(u32::MAX)
            .weights(true)
            .shared(true)
            .hand_off(true)
            // Half of what a server takes in one request.
            .longest_reply(512 * 1024)
            .longest_answer(self.longest_step() + self.reply_timeout + Duration::from_millis(250))
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(self.prove(claim))
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(self.take(claim, attempt))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.renew_all(leases, patience))
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.give_back(claim, release))
    }

    fn take_over<'a>(&'a self, lease: Held<'a>, new_owner: &'a str) -> Reply<'a, Renewal> {
        Box::pin(self.replace(lease, new_owner))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(self.draw(lease))
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        Box::new(OfOwner::new(self, claim.owner))
    }

    fn settled<'a>(&'a self, _: &'a str) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(async {
            let before = self.session.life().map(|life| life.session);
            let answered = self.step().ask(Request::sync()).await;
            // What is answered now was carried out after everything that was asked of its session.
            match answered {
                Ok(answer) if Some(answer.session) == before => Duration::ZERO,
                // What comes late of an earlier session goes with it.
                _ => self
                    .session
                    .life()
                    .map_or(self.timeout, |life| life.timeout),
            }
        })
    }

    fn tell_ended(&self, leases: HeldLeases) {
        self.session.claims().tell_ended(leases);
    }

    fn status<'a>(&'a self, lock: &'a str) -> Reply<'a, Listed> {
        Box::pin(async move { Ok(self.standing(lock).await?) })
    }

    #[cfg(feature = "inspect")]
    fn inspect(&self) -> Option<&dyn super::inspect::Inspect> {
        Some(self)
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("root", &self.ensemble.root)
            .finish_non_exhaustive()
    }
}
