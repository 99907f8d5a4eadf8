//! Locks on one Redis or Valkey server: the wire format, and the commands of each step.
//!
//! A lock is a string, `{prefix}{key}` → owner, and always has an expiry in milliseconds. The
//! uncontended acquire is `SET … NX PX`, as the Redis documentation describes it for a single
//! instance; every other step is a script that compares the owner inside the server.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, Value};

use super::{
    Acquired, Ear, Found, Leave, Release, Renewal, Renewed, Reply, Request, Store, Token, Try, Want,
};
use crate::engine::Engine;
use crate::error::StoreError;

mod desk;
mod fault;
mod line;
mod link;
mod message;
mod pulse;
mod reply;
mod script;
mod subscriber;
mod subscription;
mod target;

use fault::{Fault, Otherwise};
use line::Server;
use link::{Answer, Link, Watchdog};
use pulse::Wait;
use reply::{Verdict, each, found, index, number, verdict};
use script::{Form, Lua, Queue};
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
            include_str!("redis/find.lua"),
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
                renew: Lua::new(concat!(
                    include_str!("redis/find.lua"),
                    include_str!("redis/renew.lua")
                )),
                release,
                token: Lua::new(concat!(
                    include_str!("redis/find.lua"),
                    include_str!("redis/token.lua")
                )),
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
            let mut renewed = self.renew(&[lease], self.reply_timeout).await?;
            renewed.pop().transpose()?;
            // A release goes on where this is refused, so it would not show.
            let mut pop = redis::cmd("ZPOPMIN");
            pop.arg(self.queue(name));
            // Only what is not a lock is asked for its kind.
            let mut kind = redis::cmd("TYPE");
            kind.arg(name);
            // One lock alone is read without this.
            let mut several = redis::cmd("MGET");
            several.arg(name);
            for command in [pop, kind, several] {
                let may = self.calls.ask(command, &mut self.step()).await;
                may.map_err(|fault| fault.error)?;
            }
            self.prove_channel().await;
            self.token(&names, &names, owner).await
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

    /// Without the right to its channel a client works all the same, but nobody wakes its callers; and
    /// without the right to publish it wakes nobody's.
    async fn prove_channel(&self) {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.subscriber.channel()).arg("");
        let published = self.calls.ask(publish, &mut self.step()).await;
        if let Err(error) = self.subscriber.prove().await {
            self.subscriber.tell_unheard(&error);
        } else if let Err(fault) = published {
            self.subscriber.tell_mute(&fault.error);
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
        let heard = !request.wait.is_zero()
            && self
                .subscriber
                .hears(request.owner, request.wait, &self.calls)
                .await;
        let call = |form: Form<'_>| self.contend_call(form, &request);
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
        if let Some(server) = server {
            self.subscriber
                .answered(request.owner, sent, server, one_is_all);
        }
        if let Acquired::Busy { place, .. } = &mut acquired {
            match place {
                Some(place) if heard => self.subscriber.queued(request.owner, *place),
                // It stands in the queue, but would be passed over.
                _ => *place = None,
            }
        }
        Ok(acquired)
    }

    fn contend_call(&self, form: Form<'_>, request: &Request<'_>) -> Cmd {
        let queues = self.queues(request.names, request.want);
        let mut command = form.call(request.names, &queues);
        command.arg(request.owner).arg(millis(request.ttl));
        command.arg(match request.want {
            Want::All => "all",
            Want::Any => "any",
        });
        // One that has never waited stands in no queue.
        if !request.wait.is_zero() || request.try_ == Try::Again {
            command.arg(self.entry(request.owner, request.ttl, request.names.len()));
            command.arg(millis(request.wait));
        }
        command
    }

    /// What takes a lock that is free; several locks take a script, the first of several slots does
    /// not.
    fn first_try(request: &Request<'_>) -> Option<Cmd> {
        let (([name], _) | ([name, ..], Want::Any)) = (request.names, request.want) else {
            return None;
        };
        let mut command = Cmd::with_capacity(6, name.len() + request.owner.len() + 32);
        command
            .arg("SET")
            .arg(name)
            .arg(request.owner)
            .arg("NX")
            .arg("PX")
            .arg(millis(request.ttl));
        Some(command)
    }

    /// Goes on where the first try was not granted, or there was none.
    async fn ask_on(
        &self,
        request: Request<'_>,
        first: Option<Answer>,
        step: &mut Wait<'_>,
    ) -> Result<Acquired, StoreError> {
        let first = match first {
            None | Some(Ok((Value::Nil, _))) => self.contend(request, false, step).await,
            Some(Ok((other, _))) => Err(self.nonsense(&other)),
            Some(Err(fault)) => Err(fault),
        };
        let answer = match first {
            Err(fault) if fault.is_transient() => {
                let in_doubt = fault.error.is_in_doubt();
                // The script recognises a grant whose answer never came.
                self.contend(request, in_doubt, step)
                    .await
                    .map_err(|fault| fault.after(in_doubt))
            }
            answer => answer,
        };
        answer.map_err(|fault| fault.error)
    }

    /// Renews together what may be; a key for which all were refused is found by halves.
    fn renew_each<'a>(
        &'a self,
        leases: &'a [Renewal<'a>],
        patience: Duration,
    ) -> Pin<Box<dyn Future<Output = Renewed> + Send + 'a>> {
        Box::pin(async move {
            match self.renew_together(leases, patience).await {
                Ok(each) => {
                    if each
                        .iter()
                        .any(|one| one.as_ref().is_err_and(Fault::is_transient))
                    {
                        self.watchdog.give_up_any();
                    }
                    each.into_iter()
                        .map(|one| one.map_err(|fault| fault.error))
                        .collect()
                }
                Err(fault) if fault.otherwise == Some(Otherwise::Apart) && leases.len() > 1 => {
                    let (left, right) = leases.split_at(leases.len() / 2);
                    let left = self.renew_each(left, patience);
                    let (mut left, right) = both(left, self.renew_each(right, patience)).await;
                    left.extend(right);
                    left
                }
                Err(fault) => leases.iter().map(|_| Err(fault.error.clone())).collect(),
            }
        })
    }

    async fn renew_together(
        &self,
        leases: &[Renewal<'_>],
        patience: Duration,
    ) -> Result<Vec<Result<Found, Fault>>, Fault> {
        let names: Vec<_> = leases.iter().map(|lease| lease.name).collect();
        let call = |form: Form<'_>| {
            let mut command = form.call(&names, &[]);
            for lease in leases {
                command.arg(lease.owner).arg(millis(lease.ttl));
            }
            command
        };
        let renew = &self.scripts.renew;
        let (answer, _) = renew
            .run_by_watchdog(&self.watchdog, call, patience)
            .await?;
        each(&answer, leases.len()).ok_or_else(|| {
            self.watchdog.give_up_any();
            Fault::nonsense(&answer)
        })
    }

    /// Goes on where a first call has not said what was found.
    async fn remove_on(
        &self,
        release: Release<'_>,
        first: Answer,
        step: &mut Wait<'_>,
    ) -> Result<Found, StoreError> {
        let (calls, script) = (&self.calls, &self.scripts.release);
        let call = |form: Form<'_>| self.release_call(form, &release);
        let found = |answer: Answer| {
            let (answer, _) = answer?;
            found(&answer).ok_or_else(|| self.nonsense(&answer))
        };
        let removed = match found(script.or_by_text(first, calls, call, step).await) {
            Err(fault) if fault.is_transient() => {
                let in_doubt = fault.error.is_in_doubt();
                match found(script.run(calls, call, step).await) {
                    // What was granted and is no longer there may have been removed by the first
                    // request.
                    Ok(_) if in_doubt && release.granted => Ok(Found::Ours),
                    // What was not may yet be, by a request on the connection before.
                    Ok(_) if fault.silent => Err(fault),
                    again => again,
                }
            }
            answer => answer,
        };
        removed.map_err(|fault| fault.error)
    }

    fn release_call(&self, form: Form<'_>, release: &Release<'_>) -> Cmd {
        let mut command = match release.want {
            Want::All if release.names.len() > 1 => {
                form.call(release.names, &self.queues(release.names, Want::All))
            }
            Want::All | Want::Any => form.call(release.names, &[self.queue(release.lock)]),
        };
        command.arg(release.owner);
        let one = release.names.len() == 1 && release.index == 0;
        if one && release.leave == Leave::Nothing && release.asked.is_none() {
            return command;
        }
        command.arg(release.names.len()).arg(release.index);
        match (release.asked, release.leave) {
            (Some((ttl, names)), _) => {
                command
                    .arg("gone")
                    .arg(self.entry(release.owner, ttl, names));
            }
            (None, Leave::Nothing) => {}
            (None, Leave::Closed(length)) => {
                command.arg("closed").arg(millis(length));
            }
            (None, Leave::Done(length)) => {
                command.arg("done").arg(millis(length));
            }
        }
        command
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
            let mut first = None;
            if request.try_ == Try::First
                && let Some(command) = Self::first_try(&request)
            {
                match self.calls.ask(command, &mut step).await {
                    Ok((Value::Okay, sent)) => {
                        return Ok(Acquired::Granted {
                            index: 0,
                            sent,
                            in_doubt: false,
                        });
                    }
                    answer => first = Some(answer),
                }
            }
            Box::pin(self.ask_on(request, first, &mut step)).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Renewal<'a>], patience: Duration) -> Reply<'a, Renewed> {
        Box::pin(async move { Ok(self.renew_each(leases, patience).await) })
    }

    fn release<'a>(&'a self, release: Release<'a>) -> Reply<'a, Found> {
        Box::pin(async move {
            let waited = release.asked.is_some();
            if waited {
                self.subscriber.gone(release.owner);
            }
            let mut step = self.step();
            let call = self.release_call(self.scripts.release.by_hash(), &release);
            let answer = self.calls.ask(call, &mut step).await;
            let removed = match answer.as_ref().ok().and_then(|(answer, _)| found(answer)) {
                Some(found) => Ok(found),
                None => Box::pin(self.remove_on(release, answer, &mut step)).await,
            };
            if waited && removed.is_ok() {
                self.subscriber.forgotten(release.owner);
            }
            removed
        })
    }

    fn token<'a>(
        &'a self,
        held: &'a [String],
        locks: &'a [String],
        owner: &'a str,
    ) -> Reply<'a, Token> {
        Box::pin(async move {
            let counters = locks.iter().map(|lock| self.counter(lock));
            let keys: Vec<_> = held.iter().cloned().chain(counters).collect();
            let mut step = self.two_steps();
            let draw = async |step: &mut Wait<'_>| {
                let call = |form: Form<'_>| {
                    let mut command = form.call(&keys, &[]);
                    command.arg(owner).arg(millis(COUNTER_TTL)).arg(held.len());
                    command
                };
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

/// Waits for both, which go on at the same time.
async fn both<F: Future + Unpin>(mut left: F, mut right: F) -> (F::Output, F::Output) {
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        for (future, output) in [(&mut left, &mut first), (&mut right, &mut second)] {
            if output.is_none()
                && let Poll::Ready(done) = Pin::new(future).poll(cx)
            {
                *output = Some(done);
            }
        }
        match (first.take(), second.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            waiting => {
                (first, second) = waiting;
                Poll::Pending
            }
        }
    })
    .await
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
            let call = |form: Form<'_>| {
                let mut command = form.call(&keys, &[]);
                command.arg(&owner).arg(1).arg(index);
                command
            };
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
