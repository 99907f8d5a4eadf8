//! Scripts, and the calls of them.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Script};

use super::fault::Otherwise;
use super::link::{Answer, Link, Watchdog};
use super::names::QueueName;
use super::pulse::Wait;

/// The scripts of a store.
pub(super) struct Scripts {
    pub(super) contend: Lua,
    pub(super) renew: Lua,
    /// Shared with those who give back what came too late.
    pub(super) release: Arc<Lua>,
    pub(super) token: Lua,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            contend: Lua::new(concat!(
                include_str!("queue.lua"),
                include_str!("contend.lua")
            )),
            renew: Lua::new(concat!(include_str!("find.lua"), include_str!("renew.lua"))),
            release: Arc::new(Lua::new(concat!(
                include_str!("find.lua"),
                include_str!("free.lua"),
                include_str!("queue.lua"),
                include_str!("release.lua")
            ))),
            token: Lua::new(concat!(include_str!("find.lua"), include_str!("token.lua"))),
        }
    }
}

/// A script, and the hash by which a server that has seen it knows it.
pub(super) struct Lua {
    text: &'static str,
    hash: String,
}

/// How a script is named in a call.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    verb: &'static str,
    script: &'a str,
}

impl Lua {
    pub(super) fn new(text: &'static str) -> Self {
        let hash = Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(super) fn by_hash(&self) -> Form<'_> {
        Form {
            verb: "EVALSHA",
            script: &self.hash,
        }
    }

    pub(super) fn by_text(&self) -> Form<'_> {
        Form {
            verb: "EVAL",
            script: self.text,
        }
    }

    /// Runs the script by its hash; by its text where the server does not know it (any more).
    pub(super) async fn run(
        &self,
        calls: &Link,
        make: impl Fn(Form<'_>) -> Cmd,
        step: &mut Wait<'_>,
    ) -> Answer {
        let answer = calls.ask(make(self.by_hash()), step).await;
        self.or_by_text(answer, calls, make, step).await
    }

    /// The same for a script that may get keys for this owner.
    pub(super) async fn run_for(
        &self,
        owner: &str,
        calls: &Link,
        make: impl Fn(Form<'_>) -> Cmd,
        step: &mut Wait<'_>,
    ) -> Answer {
        let answer = calls.ask_for(owner, make(self.by_hash()), step).await;
        if is_unknown(&answer) {
            return calls.ask_for(owner, make(self.by_text()), step).await;
        }
        answer
    }

    /// The answer to a call by hash, or to one by text where there has to be one.
    pub(super) async fn or_by_text(
        &self,
        answer: Answer,
        calls: &Link,
        make: impl Fn(Form<'_>) -> Cmd,
        step: &mut Wait<'_>,
    ) -> Answer {
        if is_unknown(&answer) {
            return calls.ask(make(self.by_text()), step).await;
        }
        answer
    }

    /// The same over the keeper's own connection.
    pub(super) async fn run_by_watchdog(
        &self,
        watchdog: &Watchdog,
        make: impl Fn(Form<'_>) -> Cmd,
        patience: Duration,
    ) -> Answer {
        let answer = watchdog.ask(make(self.by_hash()), patience).await;
        if is_unknown(&answer) {
            return watchdog.ask(make(self.by_text()), patience).await;
        }
        answer
    }
}

/// Whether the server does not know the script that it was to run.
fn is_unknown(answer: &Answer) -> bool {
    let by_text = Some(Otherwise::ByText);
    answer
        .as_ref()
        .is_err_and(|fault| fault.otherwise == by_text)
}

impl Form<'_> {
    /// A call with these keys, to which the values are yet to be added.
    pub(super) fn call<S: AsRef<str>>(self, keys: &[S], queues: &[QueueName<'_>]) -> Cmd {
        // Each key comes with an owner and a ttl, or one of both for all of them, or a queue.
        let names: usize = keys.iter().map(|key| key.as_ref().len()).sum();
        let waits: usize = queues.iter().map(QueueName::len).sum();
        let count = keys.len() + queues.len();
        let size = self.script.len() + names + waits + keys.len() * 96 + 32;
        let mut command = Cmd::with_capacity(6 + 3 * count, size);
        command.arg(self.verb).arg(self.script).arg(count);
        for key in keys {
            command.arg(key.as_ref());
        }
        for queue in queues {
            command.arg(queue);
        }
        command
    }
}
