//! What is said first on every connection: who connects, for the server's `CLIENT LIST`.
//!
//! The library is named where the server knows how (Redis 7.2 and later) and lets its user do it. A refusal
//! means nothing, and it is not tried again, since servers log refusals. The application's name is wanted,
//! so its refusal fails the connection. All of it goes out together with what is asked anyway, and costs
//! no round trip; before a subscription, which asks nothing, it goes out with the login.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::transport::Stream;

/// The most bytes of answers that are read before a connection counts as something else's.
const LONGEST: usize = 16 * 1024;

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
        redis: &MultiplexedConnection,
        question: &Cmd,
    ) -> RedisResult<Value> {
        let greeting = self.commands();
        let (mut asking, mut introducing) = (redis.clone(), redis.clone());
        // Not one pipeline: a server that turns clients away says why in its first answer alone.
        let mut asked = pin!(asking.send_packed_command(question));
        let count = greeting.len();
        let mut introduced = pin!(introducing.send_packed_commands(&greeting, 0, count));
        // No commands are no pipeline.
        let (mut answer, mut answers) = (None, (count == 0).then(|| Ok(Vec::new())));
        let (answer, answers) = poll_fn(|cx| {
            if answer.is_none()
                && let Poll::Ready(done) = asked.as_mut().poll(cx)
            {
                answer = Some(done);
            }
            if answers.is_none()
                && let Poll::Ready(done) = introduced.as_mut().poll(cx)
            {
                answers = Some(done);
            }
            match (answer.take(), answers.take()) {
                (Some(answer), Some(answers)) => Poll::Ready((answer, answers)),
                waiting => {
                    (answer, answers) = waiting;
                    Poll::Pending
                }
            }
        })
        .await;
        let answer = answer?;
        match answers {
            Ok(answers) => self.answered(answers).map(|()| answer),
            Err(ended) => answer.extract_error().and(Err(ended)),
        }
    }

    /// Logs in and introduces the client on a connection that is about to subscribe.
    pub(super) async fn on_stream(
        &self,
        stream: &mut Stream,
        login: &RedisConnectionInfo,
    ) -> RedisResult<()> {
        let mut greeting = Pipeline::new();
        if let Some(password) = login.password() {
            let auth = greeting.cmd("AUTH");
            if let Some(user) = login.username() {
                auth.arg(user);
            }
            auth.arg(password);
        }
        let of_login = greeting.len();
        for command in self.commands().cmd_iter() {
            greeting.add_command(command.clone());
        }
        stream.write_all(&greeting.get_packed_pipeline()).await?;
        stream.flush().await?;
        let mut answers = lines(stream, greeting.len()).await?.into_iter();
        for login in answers.by_ref().take(of_login) {
            login.extract_error()?;
        }
        self.answered(answers)
    }
}

/// Reads so many answers of a line each.
async fn lines(stream: &mut Stream, count: usize) -> RedisResult<Vec<Value>> {
    let mut read = Vec::new();
    while read.split(|byte| *byte == b'\n').count() <= count {
        // Nothing comes behind the last answer before the client subscribes.
        if stream.read_buf(&mut read).await? == 0 || read.len() > LONGEST {
            return Err(RedisError::from((
                ErrorKind::UnexpectedReturnType,
                "the connection was closed while it was opened",
            )));
        }
    }
    let lines = read.split_inclusive(|byte| *byte == b'\n');
    lines.map(redis::parse_redis_value).collect()
}
