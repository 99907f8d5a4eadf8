//! The check of a server when a client connects.
//!
//! Every step is done once on a throw-away key. So a missing right, a server that is read-only, or a
//! proxy that lacks commands is found before any job runs. All commands are sent together, in one round
//! trip beside those that open the connections, and they load the scripts. Nothing is left behind.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::Redis;
use super::fault::{Fault, RetryWith};
use super::names::lock;
use super::probe;
use super::renew::RenewedKey;
use super::reply::{found, integer, outcome, refusal, token};
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all};
use crate::store::{Acquired, Attempt, Claim, Found, Release, Sharing, Token};

/// How long the throw-away key stays where nothing can be deleted.
const TTL: Duration = Duration::from_secs(10);

/// A command, and what is expected of its answer.
pub(super) type CheckStep = (Cmd, Expected);

/// What the answer to a command has to say.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    Anything,
    /// The number of keys that a script was given.
    TwoKeys,
    /// The key was free, and is written.
    Written,
    /// The key is there, under the owner.
    Renewed,
    Released,
    /// A token was drawn.
    Token,
    /// A place beside others is granted.
    Granted,
    /// The key is there, under another owner than the one that asks.
    Busy,
}

enum Meaning {
    AsExpected,
    /// What was written before is not there.
    NotKept,
    ProtocolError,
}

/// Why a check has failed.
pub(super) struct FailedCheck {
    pub(super) fault: Fault,
    /// Whether something that speaks Redis's protocol has answered so.
    answered: bool,
    /// Whether something was gone that a step before this one had written, or was refused to write.
    #[cfg_attr(
        not(feature = "inspect"),
        expect(dead_code, reason = "the first failure is the one that counts")
    )]
    pub(super) not_kept: bool,
}

impl FailedCheck {
    fn new(fault: Fault, answered: bool) -> Self {
        Self {
            fault,
            answered,
            not_kept: false,
        }
    }
}

/// Why something is not to be had that a client can do without.
type Noted = Mutex<Option<StoreError>>;

type Checking<'a> = Boxed<'a, Result<(), FailedCheck>>;

impl Redis {
    /// Checks everything that is needed, on the first lock of the claim.
    pub(super) async fn check_server(&self, claim: Claim<'_>) -> Result<(), Fault> {
        let claim = Claim {
            ttl: TTL,
            ..claim.with(Sharing::Alone)
        };
        let checked = match self.check_once(claim).await {
            Err(failed) if failed.fault.is_transient() => self.check_once(claim).await,
            checked => checked,
        };
        let Err(failed) = checked else {
            self.check_replicas(claim).await?;
            return self.check_restart().await;
        };
        let why = probe::at(self.connections.server(), failed.answered).await;
        Err(why.map_or(failed.fault, |why| Fault::last(StoreError::refused(why))))
    }

    /// Has a grant acknowledged, as each call has, and gives it back.
    async fn check_replicas(&self, claim: Claim<'_>) -> Result<(), Fault> {
        let Some(acknowledgements) = &self.acknowledgements else {
            return Ok(());
        };
        let claim = Claim {
            ttl: TTL + acknowledgements.longest(),
            ..claim
        };
        let acquired = self.acquire_locks(claim, Attempt::default()).await;
        let released = self.release_locks(claim, Release::whatever(false)).await;
        acquired.and(released).map(drop).map_err(Fault::last)
    }

    async fn check_once(&self, claim: Claim<'_>) -> Result<(), FailedCheck> {
        // A client works without its channel, but nobody wakes its callers. Without the right to publish
        // it does not wake those of other clients.
        let (no_channel, no_publish) = (Mutex::new(None), Mutex::new(None));
        let calls = async {
            let opened = self.connections.open(&mut self.deadline()).await;
            opened.map_err(|fault| FailedCheck::new(fault, false))?;
            self.check_steps(claim, &no_publish).await
        };
        let keys = [renewed(&claim)];
        // This checks the connection. The key may or may not be there by then.
        let watchdog = async {
            let command = Self::renew_call(self.scripts.renew.by_text(), &keys);
            let asked = self.watchdog.ask(command, self.reply_timeout).await;
            asked
                .map(drop)
                .map_err(|fault| FailedCheck::new(fault, false))
        };
        let channel = async {
            let checked = self.subscriber.check().await;
            note(&no_channel, checked.err());
            Ok(())
        };
        let parts: Vec<Checking<'_>> = vec![Box::pin(calls), Box::pin(watchdog), Box::pin(channel)];
        all(parts).await.into_iter().collect::<Result<(), _>>()?;
        if let Some(error) = noted(no_channel) {
            self.subscriber.warn_not_woken(&error);
        } else if let Some(error) = noted(no_publish) {
            self.subscriber.warn_cannot_wake(&error);
        }
        Ok(())
    }

    async fn check_steps(&self, claim: Claim<'_>, no_publish: &Noted) -> Result<(), FailedCheck> {
        let steps = self.steps(claim);
        let mut checks: Vec<Checking<'_>> = Vec::with_capacity(steps.len() + 1);
        for step in steps {
            checks.push(Box::pin(self.check_step(claim, step)));
        }
        checks.push(Box::pin(async {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.names.channel()).arg("");
            let asked = self.connections.ask(publish, &mut self.deadline()).await;
            note(no_publish, asked.err().map(|fault| fault.error));
            Ok(())
        }));
        // The first failure in this order is the cause of others.
        all(checks).await.into_iter().collect()
    }

    pub(super) async fn check_step(
        &self,
        claim: Claim<'_>,
        (command, expected): CheckStep,
    ) -> Result<(), FailedCheck> {
        let (answer, _) = match self.connections.ask(command, &mut self.deadline()).await {
            // The right is there. Another server behind the same address was given the script.
            Err(fault) if fault.retry == Some(RetryWith::ScriptText) => return Ok(()),
            // A refusal is an answer, and doubt is none.
            Err(fault) => {
                let answered = !fault.error.is_in_doubt();
                return Err(FailedCheck::new(fault, answered));
            }
            Ok(answer) => answer,
        };
        if let Some(fault) = refusal(&answer) {
            return Err(FailedCheck::new(fault, true));
        }
        match expected.meaning(&answer, &claim) {
            Meaning::AsExpected => Ok(()),
            Meaning::NotKept => Err(FailedCheck {
                fault: Fault::last(StoreError::refused(format!(
                    "the server does not keep what is written to it: the lock `{}` was granted and \
                     then gone",
                    lock(&claim)
                ))),
                answered: true,
                not_kept: true,
            }),
            Meaning::ProtocolError => Err(FailedCheck::new(self.protocol_error(&answer), true)),
        }
    }

    /// Every command that a client uses, in an order in which each has the effect that is expected.
    pub(super) fn steps(&self, claim: Claim<'_>) -> Vec<CheckStep> {
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
        let place = if self.in_cluster {
            // Used while a hash slot moves to this node.
            (redis::cmd("ASKING"), Expected::Anything)
        } else {
            // Two keys that differ by a letter are in different hash slots, which a node of a cluster
            // refuses.
            let mut slots = redis::cmd("EVAL");
            slots.arg("return #KEYS").arg(2);
            slots.arg(format!("{lock}:a")).arg(format!("{lock}:b"));
            (slots, Expected::TwoKeys)
        };
        let mut delete = redis::cmd("DEL");
        delete.arg(lock).arg(self.names.counter(lock)).arg(&queue);
        // A release goes on where this is refused, so it is tried by itself.
        let mut pop = redis::cmd("ZPOPMIN");
        pop.arg(&queue);
        // Used where something that is not a lock is found.
        let mut kind = redis::cmd("TYPE");
        kind.arg(lock);
        // Used for several locks.
        let mut several = redis::cmd("MGET");
        several.arg(lock);
        // Joins the queue, and leaves it.
        let queue_up = self.contend_call(contend, &waits, Attempt::again(TTL));
        let no_longer = self.contend_call(known, &waits, Attempt::again(Duration::ZERO));
        let renew = Self::renew_call(scripts.renew.by_text(), &[renewed(&claim)]);
        let draw = self.token_call(scripts.token.by_text(), &held);
        let give_back = self.release_call(scripts.release.by_text(), &claim, &release);
        // The same of a lock that several may hold, one after the other, of whom the last is gone.
        let [one, two] = [claim, waits].map(|claim| claim.permits(2));
        let together =
            |claim| self.contend_call(scripts.share.by_text(), claim, Attempt::default());
        let [first, second] = [together(&one), together(&two)];
        let ends = self.release_call(scripts.release.by_hash(), &two, &Release::held(1, &[]));
        vec![
            place,
            // A check before this one may have left something.
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
            (first, Expected::Granted),
            (second, Expected::Granted),
            (ends, Expected::Released),
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
                Value::Array(each) => each.first().map_or(Meaning::ProtocolError, ours),
                _ => Meaning::ProtocolError,
            },
            Self::Released => ours(answer),
            Self::Token => match token(answer) {
                Some(Token::Drawn(_)) => Meaning::AsExpected,
                Some(Token::NotHeld(_)) => Meaning::NotKept,
                None => Meaning::ProtocolError,
            },
            Self::Granted => match outcome(answer, &claim.permits(2), Instant::now(), false) {
                Some(outcome) if matches!(outcome.acquired, Acquired::Granted { .. }) => {
                    Meaning::AsExpected
                }
                Some(_) => Meaning::NotKept,
                None => Meaning::ProtocolError,
            },
            Self::Busy => match outcome(answer, claim, Instant::now(), false) {
                Some(outcome) if matches!(outcome.acquired, Acquired::Busy { .. }) => {
                    Meaning::AsExpected
                }
                Some(_) => Meaning::NotKept,
                None => Meaning::ProtocolError,
            },
        }
    }
}

impl From<bool> for Meaning {
    fn from(as_expected: bool) -> Self {
        if as_expected {
            Self::AsExpected
        } else {
            Self::ProtocolError
        }
    }
}

/// The renewal of the key.
fn renewed<'a>(claim: &Claim<'a>) -> RenewedKey<'a> {
    RenewedKey {
        name: lock(claim),
        owner: claim.owner,
        ttl: claim.ttl,
        shortens: false,
        alone: true,
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
        Some(Found::Nothing | Found::Another) => Meaning::NotKept,
        None => Meaning::ProtocolError,
    }
}
