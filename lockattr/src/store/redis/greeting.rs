//! What is said first on every connection: who connects, for the server's `CLIENT LIST`.
//!
//! The library is named where the server knows how (Redis 7.2 and later) and lets its user do it. A refusal
//! means nothing, and it is not tried again, since servers log refusals. The application's name is wanted,
//! so its refusal fails the connection. All of it goes out together with what is asked anyway, and costs
//! no round trip; before a subscription, which asks nothing, it costs one.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Pipeline, RedisResult, Value};

use super::wire::Wire;

/// What a client says of itself.
pub(super) struct Greeting {
    /// `CLIENT SETNAME`, where the application gave a name.
    name: Option<String>,
    names_library: AtomicBool,
}

impl Greeting {
    pub(super) fn new(name: Option<&str>) -> Self {
        Self {
            name: name.map(str::to_owned),
            names_library: AtomicBool::new(true),
        }
    }

    /// The application's name first, where there is one, and then the library's.
    pub(super) fn commands(&self) -> Pipeline {
        let mut greeting = Pipeline::new();
        if let Some(name) = &self.name {
            greeting.cmd("CLIENT").arg("SETNAME").arg(name);
        }
        if self.names_library.load(Ordering::Relaxed) {
            for (what, value) in [
                ("LIB-NAME", env!("CARGO_PKG_NAME")),
                ("LIB-VER", env!("CARGO_PKG_VERSION")),
            ] {
                greeting.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
            }
        }
        greeting
    }

    /// Takes in what was answered to the commands.
    pub(super) fn answered(&self, answers: impl IntoIterator<Item = Value>) -> RedisResult<()> {
        let mut answers = answers.into_iter();
        let named = match &self.name {
            Some(_) => answers.next().map_or(Ok(Value::Nil), Value::extract_error),
            None => Ok(Value::Nil),
        };
        if answers.any(|answer| matches!(answer, Value::ServerError(_))) {
            self.names_library.store(false, Ordering::Relaxed);
        }
        named.map(drop)
    }

    /// Introduces the client on a new connection, and asks one thing.
    pub(super) async fn with_question(
        &self,
        wire: &mut Wire,
        question: &Cmd,
    ) -> RedisResult<Value> {
        let greeting = self.commands();
        // First, since a server that turns clients away says why in its first answer.
        let all = iter::once(question).chain(greeting.cmd_iter());
        let mut answers = wire.ask(all).await?.into_iter();
        let answer = answers.next().unwrap_or(Value::Nil);
        self.answered(answers)?;
        Ok(answer)
    }

    /// Introduces the client on a connection that is about to subscribe.
    pub(super) async fn alone(&self, wire: &mut Wire) -> RedisResult<()> {
        self.answered(wire.ask(self.commands().cmd_iter()).await?)
    }
}
