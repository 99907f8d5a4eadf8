//! Locks on one Redis or Valkey server: the wire format, and the commands of each step.
//!
//! A lock is a string, `{prefix}{key}` → owner, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use redis::{Cmd, RedisWrite, Script, ToRedisArgs, Value};

use super::{
    Acquired, Ear, Found, Leave, Release, Renewal, Reply, Request, Store, Token, Try, Want,
};
use crate::engine::Engine;
use crate::error::StoreError;

mod desk;
mod fault;
mod line;
mod link;
mod pulse;
mod subscriber;
mod target;

use fault::Fault;
use line::Server;
use link::{Answer, Link, Watchdog};
use pulse::Wait;
use subscriber::{Subscriber, Unclaimed};
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
    subscriber: Subscriber,
    scripts: Scripts,
}

struct Scripts {
    contend: Lua,
    renew: Lua,
    release: Arc<Lua>,
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
    /// Which client it is, among all.
    pub(crate) id: String,
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
        let calls = Link::new(&server, settings.reply_timeout);
        let step_timeout = settings.connect_timeout + settings.reply_timeout;
        let release = Arc::new(Lua::new(concat!(
            include_str!("redis/free.lua"),
            include_str!("redis/queue.lua"),
            include_str!("redis/release.lua")
        )));
        let subscriber = Subscriber::new(
            Arc::clone(&server),
            format!("{}wake:{}", settings.prefix, settings.id),
            unclaimed(engine, &calls, &release, step_timeout),
        );
        Self {
            prefix: settings.prefix.clone(),
            calls,
            watchdog: Watchdog::new(&server),
            reply_timeout: settings.reply_timeout,
            step_timeout,
            subscriber,
            scripts: Scripts {
                contend: Lua::new(concat!(
                    include_str!("redis/queue.lua"),
                    include_str!("redis/contend.lua")
                )),
                renew: Lua::new(include_str!("redis/renew.lua")),
                release,
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
            wait: Duration::ZERO,
        };
        // It waits, and then it waits no more.
        let refused = Request {
            owner: "another",
            try_: Try::Again,
            wait: TTL,
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
            let wait = Duration::ZERO;
            self.acquire(Request { wait, ..refused }).await?;
            let lease = Renewal {
                name,
                owner,
                ttl: TTL,
            };
            self.renew(&[lease], self.reply_timeout).await?;
            // A release goes on where this is refused, so it would not show.
            let mut pop = redis::cmd("ZPOPMIN");
            pop.arg(self.queue(name));
            let may_pop = self.calls.ask(pop, &mut self.step()).await;
            may_pop.map_err(|fault| fault.error)?;
            self.prove_channel().await;
            self.token(name, &names, owner).await
        };
        let proved = steps.await;
        let release = Release {
            names: &names,
            want: Want::All,
            index: 0,
            lock: name,
            owner,
            leave: Leave::Nothing,
            granted: true,
            asked: None,
        };
        let released = self.release(release).await;
        // The keys are this client's alone; without the right to run scripts this is the only way.
        let mut delete = redis::cmd("DEL");
        delete
            .arg(name)
            .arg(self.counter(name))
            .arg(self.queue(name));
        let _ = self.calls.ask(delete, &mut self.step()).await;
        match (proved?, released?) {
            (Token::Drawn(_), Found::Ours) => Ok(()),
            _ => Err(StoreError::refused(format!(
                "the server does not keep what is written to it: the lock `{name}` was granted \
                 and then gone"
            ))),
        }
    }

    /// Without the right to its channel a client works all the same, but nobody wakes its callers.
    async fn prove_channel(&self) {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.subscriber.channel()).arg("");
        let published = self.calls.ask(publish, &mut self.step()).await;
        let proved = match published {
            Ok(_) => self.subscriber.prove().await,
            Err(fault) => Err(fault.error),
        };
        if let Err(error) = proved {
            self.subscriber.tell_unheard(&error);
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

    async fn contend(
        &self,
        request: Request<'_>,
        in_doubt: bool,
        step: &mut Wait<'_>,
    ) -> Result<Acquired, Fault> {
        let waits = !request.wait.is_zero();
        let heard = waits && self.subscriber.hears(request.owner);
        let queues = self.queues(request.names, request.want);
        // One that has never waited stands in no queue.
        let entry = (waits || request.try_ == Try::Again)
            .then(|| self.entry(request.owner, request.ttl, request.names.len()));
        let call = Call::new(request.names, &queues, |command| {
            command.arg(request.owner).arg(millis(request.ttl));
            command.arg(match request.want {
                Want::All => "all",
                Want::Any => "any",
            });
            if let Some(entry) = &entry {
                command.arg(entry).arg(millis(request.wait));
            }
        });
        let contend = &self.scripts.contend;
        let (answer, sent) = contend.run(&self.calls, call, step).await?;
        let Verdict {
            mut acquired,
            server,
        } = verdict(&answer, sent, in_doubt)
            .filter(|verdict| index(&verdict.acquired) < request.names.len())
            .ok_or_else(|| self.nonsense(&answer))?;
        // Of several locks one is given at a time, which is no grant yet: the owner has to look.
        let one_is_all = request.want == Want::Any || request.names.len() == 1;
        if let Some(server) = server.filter(|_| one_is_all) {
            self.subscriber.tie(request.owner, sent, server);
        }
        if let Acquired::Busy { place, .. } = &mut acquired
            && !heard
        {
            // It stands in the queue, but would be passed over.
            *place = None;
        }
        Ok(acquired)
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

    async fn remove(&self, release: Release<'_>, step: &mut Wait<'_>) -> Result<Found, Fault> {
        let lock = [self.queue(release.lock)];
        let more = match release.want {
            Want::All if release.names.len() > 1 => self.queues(release.names, Want::All),
            Want::All | Want::Any => Vec::new(),
        };
        let queues = if more.is_empty() { &lock[..] } else { &more };
        let entry = release
            .asked
            .map(|(ttl, names)| self.entry(release.owner, ttl, names));
        let plain = release.names.len() == 1
            && release.index == 0
            && release.leave == Leave::Nothing
            && entry.is_none();
        let call = Call::new(release.names, queues, |command| {
            command.arg(release.owner);
            if !plain {
                command.arg(release.names.len()).arg(release.index);
            }
            match (&entry, release.leave) {
                (Some(entry), _) => {
                    command.arg("gone").arg(entry);
                }
                (None, Leave::Nothing) => {}
                (None, Leave::Closed(length)) => {
                    command.arg("closed").arg(millis(length));
                }
                (None, Leave::Done(length)) => {
                    command.arg("done").arg(millis(length));
                }
            }
        });
        let (answer, _) = self.scripts.release.run(&self.calls, call, step).await?;
        found(&answer).ok_or_else(|| self.nonsense(&answer))
    }

    /// How a request stands in a queue. Of a lock it may be given each of as many slots as it asks
    /// for; of several locks, each.
    fn entry(&self, owner: &str, ttl: Duration, names: usize) -> String {
        let channel = self.subscriber.channel();
        format!("{owner} {} {names} {channel}", millis(ttl))
    }

    /// Who waits for a lock.
    fn queue<'a>(&'a self, lock: &'a str) -> Queue<'a> {
        let prefix = &self.prefix;
        Queue { prefix, lock }
    }

    fn queues<'a>(&'a self, names: &'a [String], want: Want) -> Vec<Queue<'a>> {
        let locks = match want {
            Want::All => names,
            // The first slot is the lock.
            Want::Any => &names[..1],
        };
        locks.iter().map(|lock| self.queue(lock)).collect()
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
            let call = Call::new(&names, NO_QUEUE, |command| {
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

    fn release<'a>(&'a self, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(async move {
            let waited = release.asked.is_some();
            if waited {
                self.subscriber.gone(release.owner);
            }
            let mut step = self.step();
            let released = match self.remove(release, &mut step).await {
                Err(fault) if fault.is_transient() => {
                    let in_doubt = fault.error.is_in_doubt();
                    // What was granted and is no longer there may have been removed by the first
                    // request.
                    let excused = in_doubt && release.granted;
                    Box::pin(self.remove(release, &mut step))
                        .await
                        .map(|found| if excused { Found::Ours } else { found })
                }
                answer => answer,
            };
            if waited && released.is_ok() {
                self.subscriber.forgotten(release.owner);
            }
            released.map_err(|fault| fault.error)
        })
    }

    fn token<'a>(&'a self, held: &'a str, locks: &'a [String], owner: &'a str) -> Reply<'a, Token> {
        Box::pin(async move {
            let counters = locks.iter().map(|lock| self.counter(lock));
            let keys: Vec<_> = [held.to_owned()].into_iter().chain(counters).collect();
            let mut step = self.two_steps();
            let draw = async |step: &mut Wait<'_>| {
                let call = Call::new(&keys, NO_QUEUE, |command| {
                    command.arg(owner).arg(millis(COUNTER_TTL));
                });
                self.scripts.token.run(&self.calls, call, step).await
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
                Value::BulkString(digits) => number(digits).map(Token::Drawn),
                _ => None,
            }
            .ok_or_else(|| self.nonsense(&answer).error)
        })
    }

    fn ear<'a>(&'a self, owner: &'a str) -> Box<dyn Ear + 'a> {
        Box::new(self.subscriber.hear(owner))
    }
}

/// Gives back what was passed to a request that nobody waits for any more.
fn unclaimed(
    engine: &Engine,
    calls: &Link,
    release: &Arc<Lua>,
    bound: Duration,
) -> Box<dyn Fn(Unclaimed) + Send + Sync> {
    let (engine, calls, release) = (engine.clone(), calls.clone(), Arc::clone(release));
    Box::new(move |unclaimed| {
        let (calls, release) = (calls.clone(), Arc::clone(&release));
        engine.spawn(async move {
            let Unclaimed {
                lock,
                queue,
                owner,
                index,
            } = unclaimed;
            let keys = [lock, queue];
            let call = Call::new(&keys, NO_QUEUE, |command| {
                command.arg(&owner).arg(1).arg(index);
            });
            let mut step = calls.step(bound);
            let released = release.run(&calls, call, &mut step).await;
            if let Err(fault) = released {
                tracing::warn!(
                    lock = keys[0], error = %fault.error,
                    "a lock that came too late could not be given back; it ends with its ttl"
                );
            }
        });
    })
}

impl Lua {
    /// Runs the script by its hash; by its text where the server does not know it (any more).
    async fn run(
        &self,
        calls: &Link,
        call: Call<'_, impl AsRef<str>, impl Fn(&mut Cmd)>,
        step: &mut Wait<'_>,
    ) -> Answer {
        let answer = calls.ask(call.by_hash(self), step).await;
        if answer.as_ref().is_err_and(|fault| fault.no_script) {
            // Boxed, as everything rare: every call's future holds this one.
            return Box::pin(calls.ask(call.by_text(self), step)).await;
        }
        answer
    }
}

/// The helper key of those who wait for a lock.
struct Queue<'a> {
    prefix: &'a str,
    lock: &'a str,
}

impl ToRedisArgs for Queue<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let Self { prefix, lock } = self;
        out.write_arg_fmt(format_args!("{prefix}wait:{{{lock}}}"));
    }
}

/// One script call, with what goes into it.
struct Call<'a, S, F> {
    keys: &'a [S],
    /// Keys as well.
    queues: &'a [Queue<'a>],
    args: F,
}

const NO_QUEUE: &[Queue<'static>] = &[];

impl<'a, S: AsRef<str>, F: Fn(&mut Cmd)> Call<'a, S, F> {
    fn new(keys: &'a [S], queues: &'a [Queue<'a>], args: F) -> Self {
        Self { keys, queues, args }
    }

    fn by_hash(&self, script: &Lua) -> Cmd {
        self.command("EVALSHA", &script.hash)
    }

    fn by_text(&self, script: &Lua) -> Cmd {
        self.command("EVAL", script.text)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        // Each key comes with an owner and a ttl, or one of both for all of them, or a queue.
        let names: usize = self.keys.iter().map(|key| key.as_ref().len()).sum();
        let queues = self.queues.iter();
        let queues: usize = queues.map(|of| of.prefix.len() + of.lock.len() + 8).sum();
        let count = self.keys.len() + self.queues.len();
        let size = names + queues + self.keys.len() * 96;
        let mut command = Cmd::with_capacity(6 + 3 * count, script.len() + size + 32);
        command.arg(verb).arg(script).arg(count);
        for key in self.keys {
            command.arg(key.as_ref());
        }
        for queue in self.queues {
            command.arg(queue);
        }
        (self.args)(&mut command);
        command
    }
}

struct Verdict {
    acquired: Acquired,
    /// The server's clock in microseconds, where the request was put into a queue.
    server: Option<u64>,
}

/// What the script that contends has answered.
fn verdict(answer: &Value, sent: Instant, in_doubt: bool) -> Option<Verdict> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [Value::Int(state), Value::Int(index), rest @ ..] = parts.as_slice() else {
        return None;
    };
    let index = usize::try_from(*index).ok()?;
    let mut server = None;
    let acquired = match (state, rest) {
        (1, []) => Acquired::Granted {
            index,
            sent,
            in_doubt,
        },
        (0, [Value::BulkString(owner), Value::Int(left), queued @ ..]) => Acquired::Busy {
            index,
            owner: String::from_utf8_lossy(owner).into_owned(),
            remaining: Duration::from_millis(u64::try_from(*left).unwrap_or(0)),
            place: match queued {
                [] => None,
                [Value::Int(place), Value::BulkString(time)] => {
                    server = Some(number(time)?);
                    Some(u64::try_from(*place).ok()?)
                }
                _ => return None,
            },
            in_doubt,
        },
        (2, [Value::BulkString(since)]) => Acquired::Done {
            index,
            since: UNIX_EPOCH.checked_add(Duration::from_millis(number(since)?))?,
            in_doubt,
        },
        (-1, [Value::BulkString(found)]) => Acquired::Foreign {
            index,
            found: String::from_utf8_lossy(found).into_owned(),
        },
        _ => return None,
    };
    Some(Verdict { acquired, server })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
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
