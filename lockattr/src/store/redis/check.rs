//! What a client needs of its server, tried once when it connects.
//!
//! Every step goes through once on a throw-away key, so that a missing right, a server that cannot be
//! written to, or a proxy that knows not all commands is found before any job runs. All commands are
//! sent together, in one round trip beside those of the connections, and load the scripts on the way.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::Redis;
use super::fault::{Fault, Otherwise};
use super::names::lock;
use super::probe;
use super::renew::RenewedKey;
use super::reply::{found, integer, refusal, token, verdict};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, Found, Release, Token};

/// How long the throw-away key lives where nothing can be deleted.
const TTL: Duration = Duration::from_secs(10);

/// A command, and what is expected of its answer.
type Step = (Cmd, Expected);

#[derive(Clone, Copy)]
enum Expected {
    Anything,
    /// The number of keys that a script was given.
    TwoKeys,
    /// The key was free, and is written.
    Written,
    /// The key is there, under the owner.
    Renewed,
    Released,
    Token,
    /// The key is there, under another owner than the one that asks.
    Busy,
}

enum Meaning {
    AsExpected,
    /// What was written before is not there.
    Gone,
    Nonsense,
}

/// Why a check failed.
struct Refusal {
    error: StoreError,
    /// Whether something that speaks Redis's protocol said so.
    answered: bool,
    /// Another connection may help at once.
    transient: bool,
}

/// Why something cannot be had that a client goes without.
type Noted = Mutex<Option<StoreError>>;

type Checking<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

impl Redis {
    /// Checks all that is needed, and leaves nothing behind.
    pub(super) async fn check_server(&self, claim: Claim<'_>) -> Result<(), StoreError> {
        let claim = Claim {
            ttl: TTL,
            permits: 1,
            ..claim
        };
        let checked = match self.check_once(claim).await {
            Err(refusal) if refusal.transient => self.check_once(claim).await,
            checked => checked,
        };
        let Err(refusal) = checked else {
            return Ok(());
        };
        let why = probe::at(self.calls.server(), refusal.answered).await;
        Err(why.map_or(refusal.error, StoreError::refused))
    }

    async fn check_once(&self, claim: Claim<'_>) -> Result<(), Refusal> {
        // Without its channel a client works all the same, but nobody wakes its callers; and without
        // the right to publish it wakes nobody's.
        let (unheard, mute) = (Mutex::new(None), Mutex::new(None));
        let calls = async {
            let opened = self.calls.open(&mut self.step()).await;
            opened.map_err(|fault| Refusal::new(fault, false))?;
            self.check_steps(claim, &mute).await
        };
        let keys = [renewed(&claim)];
        // Whether the key is there by then does not matter: it is the connection that is checked.
        let watchdog = async {
            let command = Self::renew_call(self.scripts.renew.by_text(), &keys);
            let asked = self.watchdog.ask(command, self.reply_timeout).await;
            asked.map(drop).map_err(|fault| Refusal::new(fault, false))
        };
        let channel = async {
            let checked = self.subscriber.check().await;
            note(&unheard, checked.err());
            Ok(())
        };
        all(vec![Box::pin(calls), Box::pin(watchdog), Box::pin(channel)]).await?;
        if let Some(error) = noted(unheard) {
            self.subscriber.tell_unheard(&error);
        } else if let Some(error) = noted(mute) {
            self.subscriber.tell_mute(&error);
        }
        Ok(())
    }

    async fn check_steps(&self, claim: Claim<'_>, mute: &Noted) -> Result<(), Refusal> {
        let steps = self.steps(claim);
        let mut checks: Vec<Checking<'_>> = Vec::with_capacity(steps.len() + 1);
        for step in steps {
            checks.push(Box::pin(self.check_step(claim, step)));
        }
        checks.push(Box::pin(async {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.names.channel()).arg("");
            let asked = self.calls.ask(publish, &mut self.step()).await;
            note(mute, asked.err().map(|fault| fault.error));
            Ok(())
        }));
        all(checks).await
    }

    async fn check_step(&self, claim: Claim<'_>, (command, expected): Step) -> Result<(), Refusal> {
        let (answer, _) = match self.calls.ask(command, &mut self.step()).await {
            // It knows the command, and another server behind the same address the script.
            Err(fault) if fault.otherwise == Some(Otherwise::ByText) => return Ok(()),
            // What is refused was refused in words.
            Err(fault) => {
                let answered = !fault.error.is_in_doubt();
                return Err(Refusal::new(fault, answered));
            }
            Ok(answer) => answer,
        };
        if let Some(fault) = refusal(&answer) {
            return Err(Refusal::new(fault, true));
        }
        match expected.meaning(&answer, &claim) {
            Meaning::AsExpected => Ok(()),
            Meaning::Gone => Err(Refusal {
                error: StoreError::refused(format!(
                    "the server does not keep what is written to it: the lock `{}` was granted and \
                     then gone",
                    lock(&claim)
                )),
                answered: true,
                transient: false,
            }),
            Meaning::Nonsense => Err(Refusal::new(self.nonsense(&answer), true)),
        }
    }

    /// Everything that is asked of a server, in an order in which each shows what is missing.
    fn steps(&self, claim: Claim<'_>) -> Vec<Step> {
        let lock = lock(&claim);
        let waits = Claim {
            owner: "another",
            ..claim
        };
        let queue = self.names.queue(lock);
        let scripts = &self.scripts;
        let (contend, known) = (scripts.contend.by_text(), scripts.contend.by_hash());
        let held = claim.held(0);
        let release = Release::held(0, &[]);
        // Of two slots, since their names differ by a letter: a node of a cluster refuses that.
        let mut slots = redis::cmd("EVAL");
        slots.arg("return #KEYS").arg(2);
        slots.arg(format!("{lock}:a")).arg(format!("{lock}:b"));
        let mut delete = redis::cmd("DEL");
        delete.arg(lock).arg(self.names.counter(lock)).arg(&queue);
        // A release goes on where this is refused, so it would not show.
        let mut pop = redis::cmd("ZPOPMIN");
        pop.arg(&queue);
        // Only what is not a lock is asked for its kind.
        let mut kind = redis::cmd("TYPE");
        kind.arg(lock);
        // One lock alone is read without this.
        let mut several = redis::cmd("MGET");
        several.arg(lock);
        // It waits, and then it waits no more.
        let queue_up = self.contend_call(contend, &waits, Attempt::again(TTL));
        let no_longer = self.contend_call(known, &waits, Attempt::again(Duration::ZERO));
        let renew = Self::renew_call(scripts.renew.by_text(), &[renewed(&claim)]);
        let draw = self.token_call(scripts.token.by_text(), &held);
        let give_back = self.release_call(scripts.release.by_text(), &claim, &release);
        vec![
            (slots, Expected::TwoKeys),
            // What an attempt before this one may have left.
            (delete.clone(), Expected::Anything),
            (Self::set_call(&claim), Expected::Written),
            (queue_up, Expected::Busy),
            (no_longer, Expected::Busy),
            (renew, Expected::Renewed),
            (pop, Expected::Anything),
            (kind, Expected::Anything),
            (several, Expected::Anything),
            (draw, Expected::Token),
            (give_back, Expected::Released),
            (delete, Expected::Anything),
        ]
    }
}

impl Expected {
    fn meaning(self, answer: &Value, claim: &Claim<'_>) -> Meaning {
        match self {
            Self::Anything => Meaning::AsExpected,
            Self::TwoKeys => (integer(answer) == Some(2)).into(),
            Self::Written => matches!(answer, Value::Okay).into(),
            Self::Renewed => match answer {
                Value::Array(each) => each.first().map_or(Meaning::Nonsense, ours),
                _ => Meaning::Nonsense,
            },
            Self::Released => ours(answer),
            Self::Token => match token(answer) {
                Some(Token::Drawn(_)) => Meaning::AsExpected,
                Some(Token::NotHeld(_)) => Meaning::Gone,
                None => Meaning::Nonsense,
            },
            Self::Busy => match verdict(answer, claim, Instant::now(), false) {
                Some(verdict) if matches!(verdict.acquired, Acquired::Busy { .. }) => {
                    Meaning::AsExpected
                }
                Some(_) => Meaning::Gone,
                None => Meaning::Nonsense,
            },
        }
    }
}

impl Refusal {
    fn new(fault: Fault, answered: bool) -> Self {
        Self {
            transient: fault.is_transient(),
            error: fault.error,
            answered,
        }
    }
}

impl From<bool> for Meaning {
    fn from(as_expected: bool) -> Self {
        if as_expected {
            Self::AsExpected
        } else {
            Self::Nonsense
        }
    }
}

/// What renews the key.
fn renewed<'a>(claim: &Claim<'a>) -> RenewedKey<'a> {
    RenewedKey {
        name: lock(claim),
        owner: claim.owner,
        ttl: claim.ttl,
        shortens: false,
    }
}

fn note(noted: &Noted, error: Option<StoreError>) {
    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
    *noted = noted.take().or(error);
}

fn noted(noted: Noted) -> Option<StoreError> {
    noted.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn ours(answer: &Value) -> Meaning {
    match found(answer) {
        Some(Found::Ours) => Meaning::AsExpected,
        Some(Found::Nothing | Found::Another) => Meaning::Gone,
        None => Meaning::Nonsense,
    }
}

/// Runs futures side by side, each begun before the next one: their commands are sent in this order.
/// The answer is the first refusal in it.
async fn all(mut futures: Vec<Checking<'_>>) -> Result<(), Refusal> {
    let mut outcomes: Vec<_> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, outcome) in futures.iter_mut().zip(&mut outcomes) {
            if outcome.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(cx)
            {
                *outcome = Some(done);
            }
        }
        if outcomes.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
