//! The connections to one server: one on each runtime that calls, and one of the client's own.
//!
//! A connection is driven on the runtime whose tasks ask over it, as if the application had made it
//! itself: a command costs no hop to another thread and back. What is asked outside of every tokio
//! runtime goes over a connection that the background drives, and so does what the keeper asks.
//!
//! On one connection, commands reach the server in the order in which they were first polled, also
//! those of dropped futures. Between connections there is no order; what was asked on one and is
//! given back over another is looked for until it cannot come any more.
//!
//! A runtime that is blocked delays its own callers, and nobody else's. One that ends takes its
//! connection with it: what was not answered then fails in doubt, and is asked again on the
//! background's, where somebody still wants to know. A runtime that is not run at all, while its callers
//! are polled by another executor, is found out within the reply timeout, and passed by.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use super::desk::{Desk, Sending};
use super::fault::Fault;
use super::line::{Attempt, Here, Line, Server};
use super::pulse::{Pulse, Wait};
use super::unanswered::{OnItsWay, Unanswered};
use crate::error::StoreError;
use crate::runtime::background::Elapsed;
use crate::runtime::on_behalf;

/// A reply, and when its command was sent.
pub(super) type Answer = Result<(Value, Instant), Fault>;

/// A connection that only the keeper asks over, on the background.
pub(super) struct Watchdog(Line);

impl Watchdog {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self(Line::new(server, server.background.runtime().clone()))
    }

    /// Sends one command.
    ///
    /// The connect timeout bounds the connecting. `patience` is how long the connection may be
    /// silent: while other replies come in, this one is on its way.
    pub(super) async fn ask(&self, command: Cmd, patience: Duration) -> Answer {
        let desk = match self.0.here() {
            Here::Up(desk) => desk,
            Here::Connecting(mut attempt) => outcome(attempt.wait().await)?,
            Here::Unfit => return Err(ended()),
        };
        let sent = Instant::now();
        let mut sending = desk.send(command);
        let mut seen = sending.desk.replies();
        let answer = loop {
            let until = Instant::now() + patience;
            let answer = self.0.background().until(until, &mut sending).await;
            let now = sending.desk.replies();
            if answer.is_ok() || now == seen {
                break answer;
            }
            seen = now;
        };
        let answer = answer.unwrap_or_else(|Elapsed| Err(silent(patience)));
        judge(&self.0, &sending.desk, answer).map(|value| (value, sent))
    }

    pub(super) fn give_up_any(&self) {
        self.0.give_up_any();
    }
}

/// The connections that callers ask over.
#[derive(Clone)]
pub(super) struct Link(Arc<Lines>);

struct Lines {
    server: Arc<Server>,
    /// The background's own.
    home: Line,
    /// Those of the runtimes that have called and still run.
    away: Mutex<Vec<Away>>,
    pulse: Arc<Pulse>,
    unanswered: Arc<Unanswered>,
    /// How long a connection may be silent.
    patience: Duration,
}

struct Away {
    line: Line,
    /// Whoever waits for the runtime's end does so until this is dropped.
    _watched: oneshot::Sender<()>,
}

impl Link {
    pub(super) fn new(server: &Arc<Server>, patience: Duration) -> Self {
        Self(Arc::new(Lines {
            server: Arc::clone(server),
            home: Line::new(server, server.background.runtime().clone()),
            away: Mutex::default(),
            pulse: Pulse::start(&server.background, patience),
            unanswered: Unanswered::new(&server.background),
            patience,
        }))
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.0.server
    }

    /// Connects, if need be.
    pub(super) async fn open(&self, step: &mut Wait<'_>) -> Result<(), Fault> {
        self.connection(self.here(), step).await.map(drop)
    }

    /// A step begins that may last so long, with all its commands.
    pub(super) fn step(&self, bound: Duration) -> Wait<'_> {
        self.0.pulse.wait(bound)
    }

    /// Sends one command.
    ///
    /// The connect timeout bounds the connecting. The reply timeout is how long the connection may
    /// be silent: while other replies come in, this one is on its way, and the step's bound counts.
    pub(super) fn ask<'a>(
        &'a self,
        command: Cmd,
        step: &'a mut Wait<'_>,
    ) -> impl Future<Output = Answer> {
        self.ask_as(None, command, step)
    }

    /// The same for a command that may get keys for this owner: what becomes of it is listened for,
    /// also where nobody waits for it any more.
    pub(super) fn ask_for<'a>(
        &'a self,
        owner: &'a str,
        command: Cmd,
        step: &'a mut Wait<'_>,
    ) -> impl Future<Output = Answer> {
        self.ask_as(Some(owner), command, step)
    }

    fn ask_as<'a>(
        &'a self,
        owner: Option<&'a str>,
        command: Cmd,
        step: &'a mut Wait<'_>,
    ) -> impl Future<Output = Answer> {
        // Here, so that the future, which every call's holds, has no room for what is on its way
        // already.
        let line = self.here();
        let sending = match line.up() {
            Some(desk) => Ok(send(&desk, command, step)),
            None => Err(Box::new(command)),
        };
        async move {
            let (line, (sending, sent)) = match sending {
                Ok(sending) => (line, sending),
                // Boxed, as everything rare.
                Err(command) => Box::pin(self.connect(line, *command, step)).await?,
            };
            let desk = Arc::clone(&sending.desk);
            let of = owner.map(|owner| (&self.0.unanswered, owner));
            let mut on_its_way = OnItsWay::new(sending, sent, of);
            let mut seen = desk.replies();
            let mut quiet = Duration::ZERO;
            let answer = poll_fn(|cx| {
                if let Some(sending) = on_its_way.sending()
                    && let Poll::Ready(answer) = Pin::new(sending).poll(cx)
                {
                    drop(on_its_way.answered());
                    return Poll::Ready(answer);
                }
                quiet += step.look(cx);
                let now = desk.replies();
                if now != seen {
                    (seen, quiet) = (now, Duration::ZERO);
                }
                if quiet >= self.0.patience {
                    return Poll::Ready(Err(silent(self.0.patience)));
                }
                over(step)
            });
            let answer = answer.await;
            judge(&line, &desk, answer).map(|value| (value, sent))
        }
    }

    /// Waits until nothing of this owner's requests can come any more; see [`Unanswered::settled`].
    pub(super) async fn settled(&self, owner: &str) -> Duration {
        self.0.unanswered.settled(owner).await
    }

    /// The caller's runtime, where a connection is driven on it.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let here = self.here();
        let is_up = here.up().is_some() && !here.is(&self.0.home);
        is_up.then(|| here.runtime().clone())
    }

    /// For an answer that showed the connection of whoever polls this to be out of step.
    pub(super) fn give_up_any(&self) {
        self.here().give_up_any();
        self.0.home.give_up_any();
    }

    /// Connects, here or on the background, and has a command ready to be sent.
    async fn connect(
        &self,
        here: Line,
        command: Cmd,
        step: &mut Wait<'_>,
    ) -> Result<(Line, (Sending, Instant)), Fault> {
        let (line, desk) = self.connection(here, step).await?;
        Ok((line, send(&desk, command, step)))
    }

    async fn connection(
        &self,
        here: Line,
        step: &mut Wait<'_>,
    ) -> Result<(Line, Arc<Desk>), Fault> {
        let away = match here.here() {
            Here::Up(desk) => return Ok((here, desk)),
            Here::Connecting(attempt) => connected(attempt, step, !here.is(&self.0.home)).await?,
            Here::Unfit => None,
        };
        if let Some(desk) = away {
            return Ok((here, desk));
        }
        // Not to be had on this runtime.
        let home = self.0.home.clone();
        let desk = match home.here() {
            Here::Up(desk) => Some(desk),
            Here::Connecting(attempt) => connected(attempt, step, false).await?,
            Here::Unfit => None,
        };
        desk.map(|desk| (home, desk)).ok_or_else(ended)
    }

    /// The line of the runtime that polls this.
    fn here(&self) -> Line {
        let Lines { home, server, .. } = &*self.0;
        let Some(runtime) = on_behalf::caller() else {
            return home.clone();
        };
        let id = runtime.id();
        if id == home.runtime().id() {
            return home.clone();
        }
        let mut away = self.0.away();
        if let Some(known) = away.iter().find(|away| away.line.runtime().id() == id) {
            return known.line.clone();
        }
        let line = Line::new(server, runtime.clone());
        let (watched, forgotten) = oneshot::channel();
        away.push(Away {
            line: line.clone(),
            _watched: watched,
        });
        // A runtime that is about to end drops the task here and now, which looks at the lines.
        drop(away);
        let end = End {
            lines: Arc::downgrade(&self.0),
            runtime: id,
        };
        runtime.spawn(async move {
            let _end = end;
            let _ = forgotten.await;
        });
        line
    }
}

impl Lines {
    fn away(&self) -> MutexGuard<'_, Vec<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped by a runtime that ends: its connection is forgotten.
struct End {
    lines: Weak<Lines>,
    runtime: Id,
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(lines) = self.lines.upgrade() else {
            return;
        };
        let mut away = lines.away();
        let ended = away
            .iter()
            .position(|away| away.line.runtime().id() == self.runtime);
        let ended = ended.map(|index| away.swap_remove(index));
        drop(away);
        // What hangs on it may come back here.
        drop(ended);
    }
}

/// Waits for an attempt; `None` where it ended with its runtime, or that runtime does not run.
async fn connected(
    mut attempt: Attempt,
    step: &mut Wait<'_>,
    away: bool,
) -> Result<Option<Arc<Desk>>, Fault> {
    let stuck = attempt.stuck();
    let mut end = pin!(attempt.wait());
    let end = poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(end) => Poll::Ready(Ok(end)),
        Poll::Pending => {
            step.look(cx);
            if away && stuck() {
                return Poll::Ready(Ok(None));
            }
            over(step)
        }
    });
    match end.await? {
        None => Ok(None),
        end => outcome(end).map(Some),
    }
}

/// Sends a command; and a moment before it was, from which a lease may count. Another thread may
/// send it while this one is kept from going on.
fn send(desk: &Arc<Desk>, command: Cmd, step: &mut Wait<'_>) -> (Sending, Instant) {
    let sent = step.begin();
    (Arc::clone(desk).send(command), sent)
}

fn over<T>(step: &Wait<'_>) -> Poll<Result<T, Fault>> {
    if step.is_over() {
        let error = StoreError::in_doubt("no answer within the bound of the step");
        return Poll::Ready(Err(Fault::told(error)));
    }
    Poll::Pending
}

fn outcome(end: Option<Result<Arc<Desk>, StoreError>>) -> Result<Arc<Desk>, Fault> {
    // A further attempt would only take as long.
    end.ok_or_else(ended)?.map_err(Fault::told)
}

fn ended() -> Fault {
    Fault::told(StoreError::refused("the client's thread has ended"))
}

fn silent(patience: Duration) -> Fault {
    Fault::timed_out(format!("no answer within {patience:?}"))
}

/// What has come of a command; a connection that is not to be trusted any more is given up.
fn judge(line: &Line, desk: &Arc<Desk>, answer: Result<Value, Fault>) -> Result<Value, Fault> {
    // An error within an answer concerns a part of it alone.
    let answer = answer.and_then(|value| match value {
        Value::ServerError(error) => Err(RedisError::from(error).into()),
        value => Ok(value),
    });
    if let Err(fault) = &answer
        && fault.replace
    {
        line.give_up(desk);
    }
    answer
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.home.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::super::target::target;
    use super::*;
    use crate::runtime::background::Background;

    /// A server that says OK to everything. The answer is where it listens, and when `PING` came.
    fn agreeable() -> (String, Arc<Mutex<Vec<Instant>>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let pings = Arc::new(Mutex::new(Vec::new()));
        let came = Arc::clone(&pings);
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let input = BufReader::new(stream.try_clone().unwrap());
            for line in input.lines().map_while(Result::ok) {
                if line == "PING" {
                    came.lock().unwrap().push(Instant::now());
                }
                if line.starts_with('*') {
                    stream.write_all(b"+OK\r\n").unwrap();
                }
            }
        });
        (url, pings)
    }

    #[tokio::test]
    async fn what_is_sent_counts_from_before_it_was() {
        const BOUND: Duration = Duration::from_secs(10);
        let (url, pings) = agreeable();
        let server = Arc::new(Server {
            target: target(&url, None).unwrap(),
            name: None,
            background: Background::start().unwrap(),
            connect_timeout: BOUND,
        });
        let link = Link::new(&server, BOUND);
        // The first one has to connect.
        for count in 1..=3 {
            let mut step = link.step(BOUND);
            let mut asking = pin!(link.ask(redis::cmd("PING"), &mut step));
            let polled = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
            if count > 1 {
                // Whoever asks is kept from going on, and the command goes out all the same.
                while pings.lock().unwrap().len() < count {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            let Ok((_, sent)) = asking.await else {
                panic!("no answer")
            };
            let came = pings.lock().unwrap()[count - 1];
            assert!(sent <= came, "{:?} after it came", sent - came);
        }
    }
}
