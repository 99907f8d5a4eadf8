//! Locks on one Redis or Valkey server: the wire format, and the commands of each step.
//!
//! A lock is a string, `{prefix}{key}` → owner, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use redis::{Cmd, Script, Value};

use super::{Acquired, Found, Leave, Renewal, Reply, Request, Store, Token, Try, Want};
use crate::engine::Engine;
use crate::error::StoreError;

mod desk;
mod fault;
mod line;
mod link;
mod pulse;
mod target;

use fault::Fault;
use line::Server;
use link::{Answer, Link, Watchdog};
use pulse::Wait;
pub(crate) use target::target;

/// How long a token counter outlives the last token drawn. Without the counter the server's clock
/// alone makes tokens grow, so it has to last longer than any step back that this clock may make.
const COUNTER_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Locks on a single server.
pub(crate) struct Redis {
    prefix: String,
    /// What callers ask: acquire, release, token. In one line, so that a release overtakes nothing.
    calls: Link,
    /// Renewals, which nothing that callers do can hold up.
    watchdog: Watchdog,
    reply_timeout: Duration,
    /// How long a step may take in all: for connecting and for the answer.
    step_timeout: Duration,
    scripts: Scripts,
}

struct Scripts {
    contend: Lua,
    renew: Lua,
    release: Lua,
    token: Lua,
}

/// A script, and the hash by which a server that has seen it knows it.
struct Lua {
    text: &'static str,
    hash: String,
}

impl Lua {
    fn new(text: &'static str) -> Self {
        let hash = Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// What a client needs to reach a server.
pub(crate) struct Settings {
    /// What every name starts with, and every helper key.
    pub(crate) prefix: String,
    pub(crate) target: redis::Client,
    pub(crate) name: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) reply_timeout: Duration,
}

impl Redis {
    pub(crate) fn new(settings: &Settings, engine: &Engine) -> Self {
        let server = Arc::new(Server {
            target: settings.target.clone(),
            name: settings.name.clone(),
            engine: engine.clone(),
            connect_timeout: settings.connect_timeout,
        });
        Self {
            prefix: settings.prefix.clone(),
            calls: Link::new(&server, settings.reply_timeout),
            watchdog: Watchdog::new(&server),
            reply_timeout: settings.reply_timeout,
            step_timeout: settings.connect_timeout + settings.reply_timeout,
            scripts: Scripts {
                contend: Lua::new(include_str!("redis/contend.lua")),
                renew: Lua::new(include_str!("redis/renew.lua")),
                release: Lua::new(include_str!("redis/release.lua")),
                token: Lua::new(include_str!("redis/token.lua")),
            },
        }
    }

    /// Goes through every step once on a throw-away key, so that a missing right or a server that
    /// cannot be written to is found before any job runs. Loads the scripts on the way.
    pub(crate) async fn prove(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        const TTL: Duration = Duration::from_secs(10);
        let names = [name.to_owned()];
        let first = Request {
            names: &names,
            want: Want::All,
            owner,
            ttl: TTL,
            try_: Try::First,
        };
        let refused = Request {
            owner: "another",
            try_: Try::Again,
            ..first
        };
        // A server that knows the scripts already would hide that their texts may not be sent.
        let mut eval = redis::cmd("EVAL");
        eval.arg("return #KEYS").arg(1).arg(name);
        let steps = async {
            let may_eval = self.calls.ask(eval, &mut self.step()).await;
            may_eval.map_err(|fault| fault.error)?;
            self.acquire(first).await?;
            self.acquire(refused).await?;
            let lease = Renewal {
                name,
                owner,
                ttl: TTL,
            };
            self.renew(&[lease], self.reply_timeout).await?;
            self.token(name, &names, owner).await
        };
        let proved = steps.await;
        let released = self.release(&names, owner, Leave::Nothing).await;
        // Both keys are this client's alone; without the right to run scripts this is the only way.
        let mut delete = redis::cmd("DEL");
        delete.arg(name).arg(self.counter(name));
        let _ = self.calls.ask(delete, &mut self.step()).await;
        match (proved?, released?) {
            (Token::Drawn(_), Found::Ours) => Ok(()),
            _ => Err(StoreError::refused(format!(
                "the server does not keep what is written to it: the lock `{name}` was granted \
                 and then gone"
            ))),
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

    /// Runs a script by its hash; by its text where the server does not know it (any more).
    async fn run(
        &self,
        script: &Lua,
        call: Call<'_, impl AsRef<str>, impl Fn(&mut Cmd)>,
        step: &mut Wait<'_>,
    ) -> Answer {
        let answer = self.calls.ask(call.by_hash(script), step).await;
        if answer.as_ref().is_err_and(|fault| fault.no_script) {
            // Boxed, as everything rare: every call's future holds this one.
            return Box::pin(self.calls.ask(call.by_text(script), step)).await;
        }
        answer
    }

    async fn contend(
        &self,
        request: Request<'_>,
        in_doubt: bool,
        step: &mut Wait<'_>,
    ) -> Result<Acquired, Fault> {
        let any = request.want == Want::Any;
        let call = Call::new(request.names, |command| {
            command.arg(request.owner).arg(millis(request.ttl));
            if any {
                command.arg("any");
            }
        });
        let (answer, sent) = self.run(&self.scripts.contend, call, step).await?;
        verdict(&answer, sent, in_doubt)
            .filter(|verdict| index(verdict) < request.names.len())
            .ok_or_else(|| self.nonsense(&answer))
    }

    async fn first_try(
        &self,
        request: Request<'_>,
        step: &mut Wait<'_>,
    ) -> Result<Acquired, Fault> {
        // All of several locks take a script; the first of several slots does not.
        let (([name], _) | ([name, ..], Want::Any)) = (request.names, request.want) else {
            return Box::pin(self.contend(request, false, step)).await;
        };
        let mut command = Cmd::with_capacity(6, name.len() + request.owner.len() + 32);
        command
            .arg("SET")
            .arg(name)
            .arg(request.owner)
            .arg("NX")
            .arg("PX")
            .arg(millis(request.ttl));
        match self.calls.ask(command, step).await? {
            (Value::Okay, sent) => Ok(Acquired::Granted {
                index: 0,
                sent,
                in_doubt: false,
            }),
            (Value::Nil, _) => Box::pin(self.contend(request, false, step)).await,
            (other, _) => Err(self.nonsense(&other)),
        }
    }

    async fn remove(
        &self,
        names: &[String],
        owner: &str,
        leave: Leave,
        step: &mut Wait<'_>,
    ) -> Result<Found, Fault> {
        let call = Call::new(names, |command| {
            command.arg(owner);
            match leave {
                Leave::Nothing => {}
                Leave::Closed(length) => {
                    command.arg("closed").arg(millis(length));
                }
                Leave::Done(length) => {
                    command.arg("done").arg(millis(length));
                }
            }
        });
        let (answer, _) = self.run(&self.scripts.release, call, step).await?;
        found(&answer).ok_or_else(|| self.nonsense(&answer))
    }

    /// The counter of a lock's tokens: a helper key under the client's prefix, whose hash tag is the
    /// whole lock key, so that a cluster keeps both in one slot.
    fn counter(&self, name: &str) -> String {
        format!("{}token:{{{name}}}", self.prefix)
    }

    fn nonsense(&self, answer: &Value) -> Fault {
        // Whatever this connection says from here on may belong to another question.
        self.calls.give_up_any();
        Fault::nonsense(answer)
    }
}

impl Store for Redis {
    fn acquire<'a>(&'a self, request: Request<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move {
            let mut step = self.two_steps();
            let first = match request.try_ {
                Try::First => self.first_try(request, &mut step).await,
                Try::Again => Box::pin(self.contend(request, false, &mut step)).await,
            };
            let answer = match first {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // The script recognises a grant whose answer never came.
                    Box::pin(self.contend(request, in_doubt, &mut step))
                        .await
                        .map_err(|fault| fault.after(in_doubt))
                }
                answer => answer,
            };
            answer.map_err(|fault| fault.error)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], patience: Duration) -> Reply<'a, Vec<Found>> {
        Box::pin(async move {
            let names: Vec<_> = leases.iter().map(|lease| lease.name).collect();
            let call = Call::new(&names, |command| {
                for lease in leases {
                    command.arg(lease.owner).arg(millis(lease.ttl));
                }
            });
            let renew = &self.scripts.renew;
            let mut answer = self.watchdog.ask(&call.by_hash(renew), patience).await;
            if answer.as_ref().is_err_and(|fault| fault.no_script) {
                answer = self.watchdog.ask(&call.by_text(renew), patience).await;
            }
            let (answer, _) = answer.map_err(|fault| fault.error)?;
            let each = match &answer {
                Value::Array(each) => each.iter().map(found).collect::<Option<Vec<_>>>(),
                _ => None,
            };
            each.filter(|each| each.len() == leases.len())
                .ok_or_else(|| {
                    self.watchdog.give_up_any();
                    Fault::nonsense(&answer).error
                })
        })
    }

    fn release<'a>(
        &'a self,
        names: &'a [String],
        owner: &'a str,
        leave: Leave,
    ) -> Reply<'a, Found> {
        Box::pin(async move {
            let mut step = self.step();
            let answer = match self.remove(names, owner, leave, &mut step).await {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // What is no longer there may have been removed by the first request.
                    Box::pin(self.remove(names, owner, leave, &mut step))
                        .await
                        .map(|found| if in_doubt { Found::Ours } else { found })
                }
                answer => answer,
            };
            answer.map_err(|fault| fault.error)
        })
    }

    fn token<'a>(&'a self, held: &'a str, locks: &'a [String], owner: &'a str) -> Reply<'a, Token> {
        Box::pin(async move {
            let counters = locks.iter().map(|lock| self.counter(lock));
            let keys: Vec<_> = [held.to_owned()].into_iter().chain(counters).collect();
            let mut step = self.two_steps();
            let draw = async |step: &mut Wait<'_>| {
                let call = Call::new(&keys, |command| {
                    command.arg(owner).arg(millis(COUNTER_TTL));
                });
                self.run(&self.scripts.token, call, step).await
            };
            let answer = match draw(&mut step).await {
                // A token drawn twice is merely a larger one.
                Err(fault) if fault.is_transient() => draw(&mut step).await,
                answer => answer,
            };
            let (answer, _) = answer.map_err(|fault| fault.error)?;
            if let Some(found) = found(&answer).filter(|found| *found != Found::Ours) {
                return Ok(Token::NotHeld(found));
            }
            match &answer {
                Value::BulkString(digits) => std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| digits.parse().ok())
                    .map(Token::Drawn),
                _ => None,
            }
            .ok_or_else(|| self.nonsense(&answer).error)
        })
    }
}

/// One script call, with what goes into it.
struct Call<'a, S, F> {
    keys: &'a [S],
    args: F,
}

impl<'a, S: AsRef<str>, F: Fn(&mut Cmd)> Call<'a, S, F> {
    fn new(keys: &'a [S], args: F) -> Self {
        Self { keys, args }
    }

    fn by_hash(&self, script: &Lua) -> Cmd {
        self.command("EVALSHA", &script.hash)
    }

    fn by_text(&self, script: &Lua) -> Cmd {
        self.command("EVAL", script.text)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        // Each key comes with an owner and a ttl, or one of both for all of them.
        let names: usize = self.keys.iter().map(|key| key.as_ref().len()).sum();
        let (count, size) = (self.keys.len(), names + self.keys.len() * 96);
        let mut command = Cmd::with_capacity(6 + 3 * count, script.len() + size + 32);
        command.arg(verb).arg(script).arg(count);
        for key in self.keys {
            command.arg(key.as_ref());
        }
        (self.args)(&mut command);
        command
    }
}

/// What the script that contends has answered.
fn verdict(answer: &Value, sent: Instant, in_doubt: bool) -> Option<Acquired> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [Value::Int(state), Value::Int(index), rest @ ..] = parts.as_slice() else {
        return None;
    };
    let index = usize::try_from(*index).ok()?;
    match (state, rest) {
        (1, []) => Some(Acquired::Granted {
            index,
            sent,
            in_doubt,
        }),
        (0, [Value::BulkString(owner), Value::Int(left)]) => Some(Acquired::Busy {
            index,
            owner: String::from_utf8_lossy(owner).into_owned(),
            remaining: Duration::from_millis(u64::try_from(*left).unwrap_or(0)),
            in_doubt,
        }),
        (2, [Value::BulkString(since)]) => {
            let since = Duration::from_millis(std::str::from_utf8(since).ok()?.parse().ok()?);
            Some(Acquired::Done {
                index,
                since: UNIX_EPOCH.checked_add(since)?,
                in_doubt,
            })
        }
        (-1, [Value::BulkString(found)]) => Some(Acquired::Foreign {
            index,
            found: String::from_utf8_lossy(found).into_owned(),
        }),
        _ => None,
    }
}

fn index(verdict: &Acquired) -> usize {
    match verdict {
        Acquired::Granted { index, .. }
        | Acquired::Busy { index, .. }
        | Acquired::Done { index, .. }
        | Acquired::Foreign { index, .. } => *index,
    }
}

fn found(answer: &Value) -> Option<Found> {
    match answer {
        Value::Int(1) => Some(Found::Ours),
        Value::Int(0) => Some(Found::Nothing),
        Value::Int(2) => Some(Found::Another),
        _ => None,
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
