//! What is said first on every connection: who connects, for the server's `CLIENT LIST`.
//!
//! The library is named where the server knows how (Redis 7.2 and later) and lets its user do it; a
//! refusal means nothing. The application's name is wanted, so its refusal fails the connection. All of
//! it goes out together with what is asked anyway, and costs no round trip.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::transport::Stream;

/// The most bytes of answers that are read before a connection counts as something else's.
const LONGEST: usize = 16 * 1024;

/// Names the library and, last and where there is one, the application.
pub(super) fn introduction(name: Option<&str>) -> Pipeline {
    let mut introduction = Pipeline::new();
    for (what, value) in [
        ("LIB-NAME", env!("CARGO_PKG_NAME")),
        ("LIB-VER", env!("CARGO_PKG_VERSION")),
    ] {
        introduction
            .cmd("CLIENT")
            .arg("SETINFO")
            .arg(what)
            .arg(value);
    }
    if let Some(name) = name {
        introduction.cmd("CLIENT").arg("SETNAME").arg(name);
    }
    introduction
}

/// Introduces the client on a new connection, and asks one thing.
pub(super) async fn with_question(
    redis: &MultiplexedConnection,
    name: Option<&str>,
    question: &Cmd,
) -> RedisResult<Value> {
    let introduction = introduction(name);
    let (mut asking, mut introducing) = (redis.clone(), redis.clone());
    // Not one pipeline: a server that turns clients away says why in its first answer alone.
    let mut asked = pin!(asking.send_packed_command(question));
    let count = introduction.len();
    let mut introduced = pin!(introducing.send_packed_commands(&introduction, 0, count));
    let (mut answer, mut answers) = (None, None);
    let (answer, mut answers) = poll_fn(|cx| {
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
            (Some(Ok(answer)), Some(Ok(answers))) => Poll::Ready(Ok((answer, answers))),
            (Some(Err(error)), _) | (_, Some(Err(error))) => Poll::Ready(Err(error)),
            waiting => {
                (answer, answers) = waiting;
                Poll::Pending
            }
        }
    })
    .await?;
    is_named(name, answers.pop())?;
    Ok(answer)
}

/// Logs in and introduces the client on a connection that is about to subscribe.
pub(super) async fn on_stream(
    stream: &mut Stream,
    login: &RedisConnectionInfo,
    name: Option<&str>,
) -> RedisResult<()> {
    let mut greeting = Pipeline::new();
    if let Some(password) = login.password() {
        let auth = greeting.cmd("AUTH");
        if let Some(user) = login.username() {
            auth.arg(user);
        }
        auth.arg(password);
    }
    let has_login = greeting.len();
    for command in introduction(name).cmd_iter() {
        greeting.add_command(command.clone());
    }
    stream.write_all(&greeting.get_packed_pipeline()).await?;
    stream.flush().await?;
    let mut answers = lines(stream, greeting.len()).await?;
    let last = answers.pop();
    if has_login > 0
        && let Some(login) = answers.into_iter().next()
    {
        login.extract_error()?;
    }
    is_named(name, last)
}

/// Whether the application's name was taken, by the last answer to an introduction.
fn is_named(name: Option<&str>, last: Option<Value>) -> RedisResult<()> {
    match (name, last) {
        (Some(_), Some(answer)) => answer.extract_error().map(drop),
        _ => Ok(()),
    }
}

/// Reads so many answers of a line each.
async fn lines(stream: &mut Stream, count: usize) -> RedisResult<Vec<Value>> {
    let mut read = Vec::new();
    while read.iter().filter(|byte| **byte == b'\n').count() < count {
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
