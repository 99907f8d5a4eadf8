//! Locks on one Redis or Valkey server: the wire format, and the commands of each step.
//!
//! A lock is a string, `{prefix}{key}` → owner, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.

use std::fmt;
use std::time::{Duration, Instant, UNIX_EPOCH};

use redis::{Cmd, Script, Value};

use super::{Acquired, Found, Leave, Renewal, Reply, Request, Store, Token, Try, Want};
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
            let may_eval = self.calls.ask(&eval, self.reply_timeout).await;
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

    async fn contend(&self, request: Request<'_>, in_doubt: bool) -> Result<Acquired, Fault> {
        let mut args = vec![Arg::Text(request.owner), Arg::Millis(request.ttl)];
        if request.want == Want::Any {
            args.push(Arg::Text("any"));
        }
        let call = Call {
            keys: request.names.iter().map(String::as_str).collect(),
            args,
        };
        let (answer, sent) = self
            .run(
                &self.calls,
                &self.scripts.contend,
                &call,
                self.reply_timeout,
            )
            .await?;
        verdict(&answer, sent, in_doubt)
            .filter(|verdict| index(verdict) < request.names.len())
            .ok_or_else(|| self.nonsense(&answer))
    }

    async fn first_try(&self, request: Request<'_>) -> Result<Acquired, Fault> {
        // All of several locks take a script; the first of several slots does not.
        let (([name], _) | ([name, ..], Want::Any)) = (request.names, request.want) else {
            return self.contend(request, false).await;
        };
        let mut command = redis::cmd("SET");
        command
            .arg(name)
            .arg(request.owner)
            .arg("NX")
            .arg("PX")
            .arg(millis(request.ttl));
        match self.calls.ask(&command, self.reply_timeout).await? {
            (Value::Okay, sent) => Ok(Acquired::Granted {
                index: 0,
                sent,
                in_doubt: false,
            }),
            (Value::Nil, _) => self.contend(request, false).await,
            (other, _) => Err(self.nonsense(&other)),
        }
    }

    async fn remove(&self, names: &[String], owner: &str, leave: Leave) -> Result<Found, Fault> {
        let mut args = vec![Arg::Text(owner)];
        match leave {
            Leave::Nothing => {}
            Leave::Closed(length) => args.extend([Arg::Text("closed"), Arg::Millis(length)]),
            Leave::Done(length) => args.extend([Arg::Text("done"), Arg::Millis(length)]),
        }
        let call = Call {
            keys: names.iter().map(String::as_str).collect(),
            args,
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
    fn acquire<'a>(&'a self, request: Request<'a>) -> Reply<'a, Acquired> {
        Box::pin(self.within(2 * self.step_timeout, async move {
            let first = match request.try_ {
                Try::First => self.first_try(request).await,
                Try::Again => self.contend(request, false).await,
            };
            match first {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // The script recognises a grant whose answer never came.
                    self.contend(request, in_doubt)
                        .await
                        .map_err(|fault| fault.after(in_doubt))
                }
                answer => answer,
            }
        }))
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], patience: Duration) -> Reply<'a, Vec<Found>> {
        Box::pin(async move {
            let call = Call {
                keys: leases.iter().map(|lease| lease.name).collect(),
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

    fn release<'a>(
        &'a self,
        names: &'a [String],
        owner: &'a str,
        leave: Leave,
    ) -> Reply<'a, Found> {
        Box::pin(self.within(self.step_timeout, async move {
            match self.remove(names, owner, leave).await {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // What is no longer there may have been removed by the first request.
                    self.remove(names, owner, leave)
                        .await
                        .map(|found| if in_doubt { Found::Ours } else { found })
                }
                answer => answer,
            }
        }))
    }

    fn token<'a>(&'a self, held: &'a str, locks: &'a [String], owner: &'a str) -> Reply<'a, Token> {
        Box::pin(self.within(2 * self.step_timeout, async move {
            let counters: Vec<_> = locks.iter().map(|lock| self.counter(lock)).collect();
            let call = Call {
                keys: [held]
                    .into_iter()
                    .chain(counters.iter().map(String::as_str))
                    .collect(),
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
    keys: Vec<&'a str>,
    args: Vec<Arg<'a>>,
}

enum Arg<'a> {
    Text(&'a str),
    Millis(Duration),
}

impl Call<'_> {
    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len()).arg(&self.keys);
        for arg in &self.args {
            match arg {
                Arg::Text(text) => command.arg(text),
                Arg::Millis(duration) => command.arg(millis(*duration)),
            };
        }
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
