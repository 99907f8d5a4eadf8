//! Locks on one Redis or Valkey server: the wire format, and the commands of each step.
//!
//! A lock is a string, `{prefix}{key}` → owner, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.

use std::fmt;
use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value};

use super::{Acquired, Found, Renewal, Reply, Store, Token, Try};
use crate::engine::{Elapsed, Engine};
use crate::error::StoreError;

mod fault;
mod link;
mod target;

use fault::Fault;
use link::Link;
pub(crate) use target::target;

/// How long a token counter outlives the last token drawn. Without the counter the server's clock
/// alone makes tokens grow, so it has to last longer than any step back that this clock may make.
const COUNTER_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Locks on a single server.
pub(crate) struct Redis {
    engine: Engine,
    prefix: String,
    /// What callers ask: acquire, release, token. In one line, so that a release overtakes nothing.
    calls: Link,
    /// Renewals, which nothing that callers do can hold up.
    watchdog: Link,
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
        let link = || {
            Link::new(
                settings.target.clone(),
                settings.name.clone(),
                engine.clone(),
                settings.connect_timeout,
            )
        };
        Self {
            engine: engine.clone(),
            prefix: settings.prefix.clone(),
            calls: link(),
            watchdog: link(),
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
        let steps = async {
            self.acquire(name, owner, TTL, Try::First).await?;
            self.acquire(name, "another", TTL, Try::Again).await?;
            let lease = Renewal {
                name,
                owner,
                ttl: TTL,
            };
            self.renew(&[lease], self.reply_timeout).await?;
            self.token(name, owner).await
        };
        let proved = steps.await;
        let released = self.release(name, owner).await;
        // Both keys are this client's alone; without the right to run scripts this is the only way.
        let mut delete = redis::cmd("DEL");
        delete.arg(name).arg(self.counter(name));
        let _ = self.calls.ask(&delete, self.reply_timeout).await;
        match (proved?, released?) {
            (Token::Drawn(_), Found::Ours) => Ok(()),
            _ => Err(StoreError::refused(format!(
                "the server does not keep what is written to it: the lock `{name}` was granted \
                 and then gone"
            ))),
        }
    }

    /// Runs a script by its hash; by its text where the server does not know it (any more).
    async fn run(
        &self,
        link: &Link,
        script: &Lua,
        call: &Call<'_>,
        patience: Duration,
    ) -> Result<(Value, Instant), Fault> {
        match link
            .ask(&call.command("EVALSHA", &script.hash), patience)
            .await
        {
            Err(fault) if fault.no_script => {
                link.ask(&call.command("EVAL", script.text), patience).await
            }
            answer => answer,
        }
    }

    async fn contend(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        in_doubt: bool,
    ) -> Result<Acquired, Fault> {
        let call = Call {
            keys: &[name],
            args: vec![Arg::Text(owner), Arg::Millis(ttl)],
        };
        let (answer, sent) = self
            .run(
                &self.calls,
                &self.scripts.contend,
                &call,
                self.reply_timeout,
            )
            .await?;
        let Value::Array(parts) = &answer else {
            return Err(self.nonsense(&answer));
        };
        match parts.as_slice() {
            [Value::Int(1)] => Ok(Acquired::Granted { sent, in_doubt }),
            [Value::Int(0), Value::BulkString(owner), Value::Int(left)] => Ok(Acquired::Busy {
                owner: String::from_utf8_lossy(owner).into_owned(),
                remaining: Duration::from_millis(u64::try_from(*left).unwrap_or(0)),
                in_doubt,
            }),
            [Value::Int(-1), Value::BulkString(found)] => Ok(Acquired::Foreign {
                found: String::from_utf8_lossy(found).into_owned(),
            }),
            _ => Err(self.nonsense(&answer)),
        }
    }

    async fn first_try(&self, name: &str, owner: &str, ttl: Duration) -> Result<Acquired, Fault> {
        let mut command = redis::cmd("SET");
        command
            .arg(name)
            .arg(owner)
            .arg("NX")
            .arg("PX")
            .arg(millis(ttl));
        match self.calls.ask(&command, self.reply_timeout).await? {
            (Value::Okay, sent) => Ok(Acquired::Granted {
                sent,
                in_doubt: false,
            }),
            (Value::Nil, _) => self.contend(name, owner, ttl, false).await,
            (other, _) => Err(self.nonsense(&other)),
        }
    }

    async fn remove(&self, name: &str, owner: &str) -> Result<Found, Fault> {
        let call = Call {
            keys: &[name],
            args: vec![Arg::Text(owner)],
        };
        let (answer, _) = self
            .run(
                &self.calls,
                &self.scripts.release,
                &call,
                self.reply_timeout,
            )
            .await?;
        found(&answer).ok_or_else(|| self.nonsense(&answer))
    }

    /// Bounds a step whose requests are each bounded, but may be several.
    async fn within<T>(
        &self,
        bound: Duration,
        step: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, StoreError> {
        match self.engine.until(Instant::now() + bound, step).await {
            Ok(answer) => answer.map_err(|fault| fault.error),
            Err(Elapsed) => Err(StoreError::in_doubt(format!("no answer within {bound:?}"))),
        }
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
    fn acquire<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
        try_: Try,
    ) -> Reply<'a, Acquired> {
        Box::pin(self.within(2 * self.step_timeout, async move {
            let first = match try_ {
                Try::First => self.first_try(name, owner, ttl).await,
                Try::Again => self.contend(name, owner, ttl, false).await,
            };
            match first {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // The script recognises a grant whose answer never came.
                    self.contend(name, owner, ttl, in_doubt)
                        .await
                        .map_err(|fault| fault.after(in_doubt))
                }
                answer => answer,
            }
        }))
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], patience: Duration) -> Reply<'a, Vec<Found>> {
        Box::pin(async move {
            let names: Vec<&str> = leases.iter().map(|lease| lease.name).collect();
            let call = Call {
                keys: &names,
                args: leases
                    .iter()
                    .flat_map(|lease| [Arg::Text(lease.owner), Arg::Millis(lease.ttl)])
                    .collect(),
            };
            let (answer, _) = self
                .run(&self.watchdog, &self.scripts.renew, &call, patience)
                .await
                .map_err(|fault| fault.error)?;
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

    fn release<'a>(&'a self, name: &'a str, owner: &'a str) -> Reply<'a, Found> {
        Box::pin(self.within(self.step_timeout, async move {
            match self.remove(name, owner).await {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // What is no longer there may have been removed by the first request.
                    self.remove(name, owner)
                        .await
                        .map(|found| if in_doubt { Found::Ours } else { found })
                }
                answer => answer,
            }
        }))
    }

    fn token<'a>(&'a self, name: &'a str, owner: &'a str) -> Reply<'a, Token> {
        Box::pin(self.within(2 * self.step_timeout, async move {
            let counter = self.counter(name);
            let call = Call {
                keys: &[name, &counter],
                args: vec![Arg::Text(owner), Arg::Millis(COUNTER_TTL)],
            };
            let draw = || self.run(&self.calls, &self.scripts.token, &call, self.reply_timeout);
            let answer = match draw().await {
                // A token drawn twice is merely a larger one.
                Err(fault) if fault.is_transient() => draw().await,
                answer => answer,
            };
            let (answer, _) = answer?;
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
            .ok_or_else(|| self.nonsense(&answer))
        }))
    }
}

/// One script call, with what goes into it.
struct Call<'a> {
    keys: &'a [&'a str],
    args: Vec<Arg<'a>>,
}

enum Arg<'a> {
    Text(&'a str),
    Millis(Duration),
}

impl Call<'_> {
    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len()).arg(self.keys);
        for arg in &self.args {
            match arg {
                Arg::Text(text) => command.arg(text),
                Arg::Millis(duration) => command.arg(millis(*duration)),
            };
        }
        command
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
