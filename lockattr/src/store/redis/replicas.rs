//! Acknowledgements by replicas: a grant counts once so many of them have it.
//!
//! Callers whose grant was answered join the next *round*, which asks for all of them at once, on a
//! connection of its own: each grant is renewed there, and then `WAIT` tells how many replicas have
//! everything that the connection has written. A renewal writes nothing but under the grant's owner, so
//! that a server which has lost the grant, in a restart or a failover, acknowledges nothing in its place.
//!
//! Rounds follow one another. What has come in a later one has come in an earlier one too: replicas that
//! let a round wait would let the next one wait as well, and when they go on, so do both. Nobody else is
//! ever behind a `WAIT`: calls, renewals and releases have their own connections.
//!
//! To give back what was not acknowledged is left to the caller.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::batcher::Batcher;
use super::connection::Connection;
use super::connections::{classify, ended, silent};
use super::fault::{Fault, RetryWith};
use super::renew::RenewedKey;
use super::reply::{each, integer};
use super::script::{Form, Lua};
use super::server::Server;
use super::{Redis, millis};
use crate::error::StoreError;
use crate::runtime::background::{Background, Elapsed};
use crate::runtime::together::{Boxed, all};
use crate::store::{Found, Held};

/// So many grants at most are in one round; the others are in the next one.
const MOST_GRANTS: usize = 256;

/// So long at most is one `WAIT`, after which those who have time left are in the next round: a
/// connection that was lost without a word is not to be waited for until a long timeout is over.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How many replicas have to have a grant before it counts, and for how long that is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

/// Asks for the acknowledgements of one client's grants.
pub(super) struct Acknowledgements {
    replicas: Replicas,
    /// How long an answer may take that nothing holds up.
    reply_timeout: Duration,
    background: Background,
    joined: mpsc::UnboundedSender<UnacknowledgedGrant>,
    rounds: AbortHandle,
}

/// A grant whose caller waits for the acknowledgement.
struct UnacknowledgedGrant {
    locks: Vec<String>,
    owner: String,
    ttl: Duration,
    /// Whether nobody may hold them beside the owner.
    alone: bool,
    /// Whether the keys are on their way to this node of a cluster.
    asking: bool,
    /// Until when it is waited for.
    until: Instant,
    tell: oneshot::Sender<Acknowledged>,
}

/// Why a grant does not count, where it does not; and which node of a cluster has the keys by now, where this
/// one says so.
type Acknowledged = Result<(), Fault>;

impl Acknowledgements {
    pub(super) fn new(
        replicas: Replicas,
        server: &Arc<Server>,
        renew: &Arc<Lua>,
        reply_timeout: Duration,
    ) -> Self {
        let background = server.background.clone();
        let (joined, joining) = mpsc::unbounded_channel();
        let rounds = Rounds {
            replicas,
            reply_timeout,
            connection: Connection::new(server, background.runtime().clone()),
            renew: Arc::clone(renew),
        };
        let rounds = background.spawn(rounds.run(joining)).abort_handle();
        Self {
            replicas,
            reply_timeout,
            background,
            joined,
            rounds,
        }
    }

    /// How much longer an answer takes by this at most.
    pub(super) fn longest(&self) -> Duration {
        self.replicas.timeout + self.reply_timeout
    }

    /// What is said of a claim that would have ended before it counts.
    pub(super) fn refuse_short(&self, ttl: Duration) -> Result<(), StoreError> {
        too_short(self.replicas.timeout, ttl).map_or(Ok(()), |why| Err(StoreError::invalid(why)))
    }

    /// Waits until enough replicas have what was granted; `asking` where the keys are on their way here.
    pub(super) async fn acknowledge(&self, held: &Held<'_>, asking: bool) -> Acknowledged {
        let (tell, told) = oneshot::channel();
        let now = Instant::now();
        let grant = UnacknowledgedGrant {
            locks: held.claim.locks.to_vec(),
            alone: held.claim.sharing().is_alone(),
            owner: held.claim.owner.to_owned(),
            ttl: held.claim.ttl,
            asking,
            until: now + self.replicas.timeout,
            tell,
        };
        // Where the task is gone, `told` says so.
        let _ = self.joined.send(grant);
        match self.background.until(now + self.longest(), told).await {
            Ok(Ok(acknowledged)) => acknowledged,
            Ok(Err(_)) => Err(unasked(ended())),
            Err(Elapsed) => {
                let Replicas { count, timeout } = self.replicas;
                Err(refused(format!(
                    "granted, but not known to be acknowledged by {count} replicas within {timeout:?}: \
                     given back"
                )))
            }
        }
    }
}

impl Drop for Acknowledgements {
    fn drop(&mut self) {
        self.rounds.abort();
    }
}

/// Asks for all who have joined, one round after another.
struct Rounds {
    replicas: Replicas,
    reply_timeout: Duration,
    connection: Connection,
    renew: Arc<Lua>,
}

/// What was answered in a round.
struct RoundAnswers {
    /// Whether each grant was still there.
    held: Vec<Result<bool, Fault>>,
    replicas: u32,
    /// How long that took.
    after: Duration,
}

impl Rounds {
    async fn run(self, mut joining: mpsc::UnboundedReceiver<UnacknowledgedGrant>) {
        let mut grants = Vec::new();
        loop {
            if grants.is_empty() && joining.recv_many(&mut grants, MOST_GRANTS).await == 0 {
                return;
            }
            while grants.len() < MOST_GRANTS
                && let Ok(grant) = joining.try_recv()
            {
                grants.push(grant);
            }
            // A caller that is gone has its keys given back.
            grants.retain(|grant| !grant.tell.is_closed());
            if !grants.is_empty() {
                let answers = self.ask(&grants).await;
                grants = self.tell(mem::take(&mut grants), answers);
            }
        }
    }

    /// Tells the callers what was answered. Those who wait yet are left.
    fn tell(
        &self,
        grants: Vec<UnacknowledgedGrant>,
        answers: Result<RoundAnswers, Fault>,
    ) -> Vec<UnacknowledgedGrant> {
        let RoundAnswers {
            held,
            replicas,
            after,
        } = match answers {
            Ok(answers) => answers,
            Err(fault) => {
                let fault = unasked(fault);
                for grant in grants {
                    let _ = grant.tell.send(Err(fault.clone()));
                }
                return Vec::new();
            }
        };
        let now = Instant::now();
        let mut left = Vec::new();
        for (grant, held) in grants.into_iter().zip(held) {
            let acknowledged = match held {
                Err(fault) => Err(unasked(fault)),
                Ok(false) => Err(refused(
                    "granted, and gone before its replicas had it: the server was restarted or \
                     replaced, or the key was deleted"
                        .to_owned(),
                )),
                Ok(true) if replicas >= self.replicas.count => Ok(()),
                Ok(true) if after >= LONGEST_WAIT && now < grant.until => {
                    left.push(grant);
                    continue;
                }
                Ok(true) => Err(self.by_fewer(replicas)),
            };
            // The caller may be gone.
            let _ = grant.tell.send(acknowledged);
        }
        left
    }

    fn by_fewer(&self, replicas: u32) -> Fault {
        let Replicas { count, timeout } = self.replicas;
        refused(format!(
            "granted, but acknowledged by {replicas} of {count} replicas within {timeout:?}: given \
             back (`INFO replication` on the server shows its replicas and which of them lag)"
        ))
    }

    /// One round. What a new connection may help is tried once more on one.
    async fn ask(&self, grants: &[UnacknowledgedGrant]) -> Result<RoundAnswers, Fault> {
        let mut form = self.renew.by_hash();
        let (mut by_text, mut again) = (false, false);
        loop {
            match self.ask_once(grants, form).await {
                Err(fault) if fault.retry == Some(RetryWith::ScriptText) && !by_text => {
                    by_text = true;
                    form = self.renew.by_text();
                }
                Err(fault) if fault.is_transient() && !again => again = true,
                answers => return answers,
            }
        }
    }

    async fn ask_once(
        &self,
        grants: &[UnacknowledgedGrant],
        form: Form<'_>,
    ) -> Result<RoundAnswers, Fault> {
        let batcher = self.connection.connected().await?;
        let now = Instant::now();
        let left = grants.iter().map(|grant| grant.until).max();
        let left = left.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(now).min(LONGEST_WAIT)
        });
        // In this order.
        let send = |command, asking| Arc::clone(&batcher).send(command, asking);
        let renewals: Vec<_> = grants
            .iter()
            .map(|grant| {
                let renewing = send(grant.renewal(form), grant.asking);
                Box::pin(renewing) as Boxed<'_, _>
            })
            .collect();
        let mut renewals = pin!(all(renewals));
        let mut wait = redis::cmd("WAIT");
        // In whole milliseconds, of which 0 would be without end.
        wait.arg(self.replicas.count).arg(millis(left) + 1);
        let mut waiting = send(wait, false);
        let mut waited = None;
        let renewed = poll_fn(|cx| {
            let renewed = renewals.as_mut().poll(cx);
            if waited.is_none()
                && let Poll::Ready(answer) = Pin::new(&mut waiting).poll(cx)
            {
                waited = Some(answer);
            }
            renewed
        });
        let background = &self.connection.server().background;
        let mut held = Vec::with_capacity(grants.len());
        let answers = background.until(now + self.reply_timeout, renewed).await;
        let answers = answers.map_err(|Elapsed| self.failed(&batcher, silent(self.reply_timeout)));
        for (grant, answer) in grants.iter().zip(answers?) {
            match self.is_held(&batcher, grant, answer) {
                Err(fault)
                    if fault.is_transient() || fault.retry == Some(RetryWith::ScriptText) =>
                {
                    return Err(fault);
                }
                answer => held.push(answer),
            }
        }
        let answer = match waited {
            None => {
                let longest = left + self.reply_timeout;
                let answer = background.until(now + longest, waiting).await;
                answer.unwrap_or_else(|Elapsed| Err(silent(longest)))
            }
            Some(answer) => answer,
        };
        let (answer, _) = classify(&self.connection, &batcher, now, answer).map_err(no_wait)?;
        match integer(&answer).and_then(|count| u32::try_from(count).ok()) {
            Some(replicas) => Ok(RoundAnswers {
                held,
                replicas,
                after: now.elapsed(),
            }),
            None => Err(self.failed(&batcher, Fault::protocol_error(&answer))),
        }
    }

    /// Whether a grant was found under its owner.
    fn is_held(
        &self,
        batcher: &Arc<Batcher>,
        grant: &UnacknowledgedGrant,
        answer: Result<Value, Fault>,
    ) -> Result<bool, Fault> {
        let (answer, _) = classify(&self.connection, batcher, Instant::now(), answer)?;
        let Some(found) = each(&answer, grant.locks.len()) else {
            return Err(self.failed(batcher, Fault::protocol_error(&answer)));
        };
        let found: Result<Vec<_>, _> = found.into_iter().collect();
        match found {
            Ok(found) => Ok(found.iter().all(|found| *found == Found::Ours)),
            Err(fault) if fault.replace => Err(self.failed(batcher, fault)),
            Err(fault) => Err(fault),
        }
    }

    /// Drops the connection for a fault.
    fn failed(&self, batcher: &Arc<Batcher>, fault: Fault) -> Fault {
        self.connection.discard(batcher);
        fault
    }
}

impl UnacknowledgedGrant {
    fn renewal(&self, form: Form<'_>) -> Cmd {
        let keys: Vec<_> = self.locks.iter().map(|lock| self.key(lock)).collect();
        Redis::renew_call(form, &keys)
    }

    fn key<'a>(&'a self, name: &'a str) -> RenewedKey<'a> {
        RenewedKey {
            name,
            owner: &self.owner,
            ttl: self.ttl,
            shortens: false,
            alone: self.alone,
        }
    }
}

/// Why a ttl is too short, if it is: a grant would have ended before it counts.
pub(crate) fn too_short(timeout: Duration, ttl: Duration) -> Option<String> {
    (ttl <= timeout).then(|| {
        format!(
            "its ttl of {ttl:?} may be over before its replicas have acknowledged it: ask for a longer \
             one, or give `replicas` a timeout below it, which is {timeout:?}"
        )
    })
}

/// It is not known whether replicas have the grant. The round has tried again by itself what a new connection
/// may help.
fn unasked(mut fault: Fault) -> Fault {
    fault.error = StoreError::unacknowledged(format!(
        "granted, but its replicas could not be asked, and given back: {}",
        fault.error
    ));
    fault.replace = false;
    fault
}

fn refused(why: String) -> Fault {
    Fault::last(StoreError::unacknowledged(why))
}

/// Says what is needed where the server takes no `WAIT`.
fn no_wait(fault: Fault) -> Fault {
    let said = fault.error.to_string();
    if !said.starts_with("NOPERM") && !said.contains("unknown command") {
        return fault;
    }
    Fault::last(StoreError::refused(format!(
        "{said}; `replicas` needs the command WAIT of the server and the right +wait for it"
    )))
}
