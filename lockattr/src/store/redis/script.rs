//! The scripts, and how they are called.
//!
//! A script is called by its hash, and by its text where the server does not know the hash, which loads
//! it. What the keys and arguments of each script are is said in the script, and written by its step.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Script};

use super::connections::{Answer, Connections};
use super::fault::RetryWith;
use super::names::QueueName;
use super::timeouts::Deadline;
use super::watchdog::Watchdog;

/// The scripts of a store.
pub(super) struct Scripts {
    pub(super) contend: Lua,
    pub(super) share: Lua,
    /// Shared with the task that has grants acknowledged.
    pub(super) renew: Arc<Lua>,
    /// Shared with the task that gives back grants that nobody waits for.
    pub(super) release: Arc<Lua>,
    pub(super) token: Lua,
    pub(super) status: Lua,
    pub(super) take_over: Lua,
    #[cfg(feature = "inspect")]
    pub(super) inspect: Lua,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            contend: Lua::new(concat!(
                include_str!("holders.lua"),
                include_str!("queue.lua"),
                include_str!("contend.lua")
            )),
            share: Lua::new(concat!(
                include_str!("holders.lua"),
                include_str!("queue.lua"),
                include_str!("share.lua")
            )),
            renew: Arc::new(Lua::new(concat!(
                include_str!("find.lua"),
                include_str!("renew.lua")
            ))),
            release: Arc::new(Lua::new(concat!(
                include_str!("free.lua"),
                include_str!("find.lua"),
                include_str!("holders.lua"),
                include_str!("queue.lua"),
                include_str!("release.lua")
            ))),
            token: Lua::new(concat!(include_str!("find.lua"), include_str!("token.lua"))),
            take_over: Lua::new(concat!(
                include_str!("find.lua"),
                include_str!("holders.lua"),
                include_str!("take_over.lua")
            )),
            status: Lua::new(concat!(
                include_str!("look.lua"),
                include_str!("status.lua")
            )),
            #[cfg(feature = "inspect")]
            inspect: Lua::new(concat!(
                include_str!("look.lua"),
                include_str!("inspect.lua")
            )),
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

    /// Runs the script.
    pub(super) async fn run(
        &self,
        connections: &Connections,
        make: impl Fn(Form<'_>) -> Cmd,
        deadline: &mut Deadline<'_>,
    ) -> Answer {
        let answer = connections.ask(make(self.by_hash()), deadline).await;
        self.or_by_text(answer, connections, make, deadline).await
    }

    /// Runs a script that may acquire keys for this owner.
    pub(super) async fn run_for(
        &self,
        owner: &str,
        connections: &Connections,
        make: impl Fn(Form<'_>) -> Cmd,
        deadline: &mut Deadline<'_>,
    ) -> Answer {
        let answer = connections
            .ask_for(owner, make(self.by_hash()), deadline)
            .await;
        if is_unknown(&answer) {
            return connections
                .ask_for(owner, make(self.by_text()), deadline)
                .await;
        }
        answer
    }

    /// Goes on after a call by hash: calls by text where that is needed.
    pub(super) async fn or_by_text(
        &self,
        answer: Answer,
        connections: &Connections,
        make: impl Fn(Form<'_>) -> Cmd,
        deadline: &mut Deadline<'_>,
    ) -> Answer {
        if is_unknown(&answer) {
            return connections.ask(make(self.by_text()), deadline).await;
        }
        answer
    }

    /// Runs the script over the connection for renewals.
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

/// Whether the server does not know the script's hash.
fn is_unknown(answer: &Answer) -> bool {
    let by_text = Some(RetryWith::ScriptText);
    answer.as_ref().is_err_and(|fault| fault.retry == by_text)
}

impl Form<'_> {
    /// A call with these keys, to which the arguments are yet to be added.
    pub(super) fn call<S: AsRef<str>>(self, keys: &[S], queues: &[QueueName<'_>]) -> Cmd {
        // Room for the arguments too: at most an owner and a ttl for each key.
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
