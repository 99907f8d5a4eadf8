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

use super::fault::{Fault, Otherwise};
use super::probe;
use super::reply::{found, integer, refusal, token, verdict};
use super::{Redis, Want};
use crate::error::StoreError;
use crate::store::{Acquired, Found, Release, Renewal, Request, Token, Try};

/// How long the throw-away key lives where nothing can be deleted.
const TTL: Duration = Duration::from_secs(10);

/// A command, and what its answer means.
type Step = (Cmd, fn(&Value) -> Meaning);

#[derive(Clone, Copy)]
enum Meaning {
    AsItShould,
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
    /// Checks all that is needed, and leaves nothing behind. `name` is a key that is this client's
    /// alone.
    pub(crate) async fn check(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        let checked = match self.check_once(name, owner).await {
            Err(refusal) if refusal.transient => self.check_once(name, owner).await,
            checked => checked,
        };
        let Err(refusal) = checked else {
            return Ok(());
        };
        let why = probe::at(self.calls.server(), refusal.answered).await;
        Err(why.map_or(refusal.error, StoreError::refused))
    }

    async fn check_once(&self, name: &str, owner: &str) -> Result<(), Refusal> {
        // Without its channel a client works all the same, but nobody wakes its callers; and without
        // the right to publish it wakes nobody's.
        let (unheard, mute) = (Mutex::new(None), Mutex::new(None));
        let calls = async {
            let opened = self.calls.open(&mut self.step()).await;
            opened.map_err(|fault| Refusal::new(fault, false))?;
            self.check_steps(name, owner, &mute).await
        };
        let lease = [renewal(name, owner)];
        // Whether the key is there by then does not matter: it is the connection that is checked.
        let watchdog = async {
            let command = Self::renew_call(self.scripts.renew.by_text(), &lease);
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

    async fn check_steps(&self, name: &str, owner: &str, mute: &Noted) -> Result<(), Refusal> {
        let steps = self.steps(name, owner);
        let mut checks: Vec<Checking<'_>> = Vec::with_capacity(steps.len() + 1);
        for step in steps {
            checks.push(Box::pin(self.check_step(name, step)));
        }
        checks.push(Box::pin(async {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.subscriber.channel()).arg("");
            let asked = self.calls.ask(publish, &mut self.step()).await;
            note(mute, asked.err().map(|fault| fault.error));
            Ok(())
        }));
        all(checks).await
    }

    async fn check_step(&self, name: &str, (command, means): Step) -> Result<(), Refusal> {
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
        match means(&answer) {
            Meaning::AsItShould => Ok(()),
            Meaning::Gone => Err(Refusal {
                error: StoreError::refused(format!(
                    "the server does not keep what is written to it: the lock `{name}` was granted \
                     and then gone"
                )),
                answered: true,
                transient: false,
            }),
            Meaning::Nonsense => Err(Refusal::new(self.nonsense(&answer), true)),
        }
    }

    /// Everything that is asked of a server, in an order in which each shows what is missing.
    fn steps(&self, name: &str, owner: &str) -> Vec<Step> {
        let names = [name.to_owned()];
        let first = Request {
            names: &names,
            want: Want::All,
            owner,
            ttl: TTL,
            try_: Try::First,
            wait: Duration::ZERO,
        };
        // It waits, and then it waits no more.
        let waits = Request {
            owner: "another",
            try_: Try::Again,
            wait: TTL,
            ..first
        };
        let no_longer = Request {
            wait: Duration::ZERO,
            ..waits
        };
        let release = Release {
            names: &names,
            want: Want::All,
            index: 0,
            lock: name,
            owner,
            leave: &[],
            keep_marks: false,
            granted: true,
            asked: None,
        };
        let scripts = &self.scripts;
        let (contend, known) = (scripts.contend.by_text(), scripts.contend.by_hash());
        // Of two slots, since their names differ by a letter: a node of a cluster refuses that.
        let mut slots = redis::cmd("EVAL");
        slots.arg("return #KEYS").arg(2);
        slots.arg(format!("{name}:a")).arg(format!("{name}:b"));
        let mut delete = redis::cmd("DEL");
        delete
            .arg(name)
            .arg(self.counter(name))
            .arg(self.queue(name));
        // A release goes on where this is refused, so it would not show.
        let mut pop = redis::cmd("ZPOPMIN");
        pop.arg(self.queue(name));
        // Only what is not a lock is asked for its kind.
        let mut kind = redis::cmd("TYPE");
        kind.arg(name);
        // One lock alone is read without this.
        let mut several = redis::cmd("MGET");
        several.arg(name);
        let renew = Self::renew_call(scripts.renew.by_text(), &[renewal(name, owner)]);
        let token_call = self.token_call(scripts.token.by_text(), &names, &names, owner);
        let release = self.release_call(scripts.release.by_text(), &release);
        vec![
            (slots, |answer| (integer(answer) == Some(2)).into()),
            // What an attempt before this one may have left.
            (delete.clone(), any),
            (Self::take(&first, name), |answer| {
                matches!(answer, Value::Okay).into()
            }),
            (self.contend_call(contend, &waits), busy),
            (self.contend_call(known, &no_longer), busy),
            (renew, |answer| match answer {
                Value::Array(each) => each.first().map_or(Meaning::Nonsense, ours),
                _ => Meaning::Nonsense,
            }),
            (pop, any),
            (kind, any),
            (several, any),
            (token_call, |answer| match token(answer) {
                Some(Token::Drawn(_)) => Meaning::AsItShould,
                Some(Token::NotHeld(_)) => Meaning::Gone,
                None => Meaning::Nonsense,
            }),
            (release, ours),
            (delete, any),
        ]
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
    fn from(as_it_should: bool) -> Self {
        if as_it_should {
            Self::AsItShould
        } else {
            Self::Nonsense
        }
    }
}

fn renewal<'a>(name: &'a str, owner: &'a str) -> Renewal<'a> {
    Renewal {
        name,
        owner,
        ttl: TTL,
    }
}

fn note(noted: &Noted, error: Option<StoreError>) {
    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
    *noted = noted.take().or(error);
}

fn noted(noted: Noted) -> Option<StoreError> {
    noted.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn any(_: &Value) -> Meaning {
    Meaning::AsItShould
}

fn ours(answer: &Value) -> Meaning {
    match found(answer) {
        Some(Found::Ours) => Meaning::AsItShould,
        Some(Found::Nothing | Found::Another) => Meaning::Gone,
        None => Meaning::Nonsense,
    }
}

fn busy(answer: &Value) -> Meaning {
    match verdict(answer, Instant::now(), false).map(|verdict| verdict.acquired) {
        Some(Acquired::Busy { .. }) => Meaning::AsItShould,
        Some(_) => Meaning::Gone,
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
