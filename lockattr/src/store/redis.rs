//! Locks on one Redis or Valkey server.
//!
//! A lock is a string, `{prefix}{key}` → owner, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.
//!
//! Each step has a file: `acquire`, `renew`, `release`, `token` and `check`. What they share: `names` has
//! every name of the wire format, `script` calls scripts, `reply` reads what they answer, `fault` sorts
//! what went wrong. Below them are the connections, and beside them the channel of those who wait.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{
    Acquired, Attempt, Claim, Found, Held, Limits, Release, Renewed, Reply, Store, Token, WakeUps,
};
use crate::runtime::background::Background;

mod acquire;
mod check;
#[cfg(all(test, feature = "conformance"))]
mod conformance;
mod desk;
mod fault;
mod line;
mod link;
mod message;
mod names;
mod probe;
mod pulse;
mod release;
mod renew;
mod reply;
mod script;
mod subscriber;
mod subscription;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod unanswered;

use fault::Fault;
use line::Server;
use link::{Link, Watchdog};
use names::Names;
use pulse::Wait;
use script::Scripts;
use subscriber::Subscriber;
pub(crate) use target::{Target, target};

/// Locks on a single server.
pub(crate) struct Redis {
    names: Names,
    /// What callers ask: acquire, release, token. In one line, so that a release overtakes nothing.
    calls: Link,
    /// Renewals, which nothing that callers do can hold up.
    watchdog: Watchdog,
    reply_timeout: Duration,
    /// How long a step may take in all: for connecting and for the answer.
    step_timeout: Duration,
    subscriber: Subscriber,
    scripts: Scripts,
}

/// What a client needs to reach a server.
pub(crate) struct Settings {
    /// What every name starts with, and every helper key.
    pub(crate) prefix: String,
    /// Which client it is, among all.
    pub(crate) id: String,
    pub(crate) target: Target,
    pub(crate) name: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) reply_timeout: Duration,
}

impl Redis {
    pub(crate) fn new(settings: &Settings, background: &Background) -> Self {
        let server = Arc::new(Server {
            target: settings.target.clone(),
            name: settings.name.clone(),
            background: background.clone(),
            connect_timeout: settings.connect_timeout,
        });
        let names = Names::new(&settings.prefix, &settings.id);
        let calls = Link::new(&server, settings.reply_timeout);
        let step_timeout = settings.connect_timeout + settings.reply_timeout;
        let scripts = Scripts::new();
        let subscriber = Subscriber::new(
            Arc::clone(&server),
            names.channel().to_owned(),
            release::give_back_unclaimed(background, &calls, &scripts.release, step_timeout),
        );
        Self {
            names,
            calls,
            watchdog: Watchdog::new(&server),
            reply_timeout: settings.reply_timeout,
            step_timeout,
            subscriber,
            scripts,
        }
    }

    /// What one request may take in all: for connecting and for the answer.
    fn step(&self) -> Wait<'_> {
        self.calls.step(self.step_timeout)
    }

    /// What a request and its repetition may take.
    fn two_steps(&self) -> Wait<'_> {
        self.calls.step(2 * self.step_timeout)
    }

    fn nonsense(&self, answer: &Value) -> Fault {
        // Whatever this connection says from here on may belong to another question.
        self.calls.give_up_any();
        Fault::nonsense(answer)
    }
}

impl Store for Redis {
    fn limits(&self) -> Limits {
        Limits::default().longest_answer(2 * self.step_timeout)
    }

    fn check<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, ()> {
        Box::pin(self.check_server(claim))
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        Box::pin(self.acquire_locks(claim, attempt))
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(self.renew_leases(leases, patience).await) })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(self.release_locks(claim, release))
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        Box::pin(self.draw_token(lease))
    }

    fn wakeups<'a>(&'a self, claim: Claim<'_>) -> Box<dyn WakeUps + 'a> {
        Box::new(self.subscriber.hear(&claim))
    }

    fn settled<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(self.calls.settled(owner))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}
