//! A connection after its login: commands out, and replies in.
//!
//! Connecting, encryption and the login are done before. Commands are written and replies are read in the
//! redis client's form; its parser costs more than the whole of a call besides, so the two replies that
//! calls have, `+OK` and a number, are read here. Which reply answers which command, and for how long it is
//! waited for, is left to the callers.

use std::future::poll_fn;
use std::io::{self, Read};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::{Cmd, Parser, PushKind, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::transport::Stream;

/// How much is read at a time.
const READ_SIZE: usize = 16 * 1024;

/// While as many bytes wait to be written, no more commands are to be added.
const FULL: usize = 64 * 1024;

pub(super) struct Wire {
    stream: Stream,
    unwritten: Vec<u8>,
    /// How much of it is written.
    written: usize,
    parser: Parser,
    received: Received,
    /// Whether the parser has taken a part of a reply.
    is_within: bool,
    /// Takes what the server tells beside its replies.
    told: Option<Told>,
}

/// Takes what a server tells unasked, over RESP3.
pub(super) type Told = Box<dyn Fn(&PushKind, &[Value]) + Send>;

/// What was read, for the parser to take.
struct Received {
    bytes: Box<[u8; READ_SIZE]>,
    start: usize,
    end: usize,
}

impl Wire {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            unwritten: Vec::new(),
            written: 0,
            parser: Parser::new(),
            received: Received {
                bytes: Box::new([0; READ_SIZE]),
                start: 0,
                end: 0,
            },
            is_within: false,
            told: None,
        }
    }

    /// Has somebody told from now on what the server says unasked.
    pub(super) fn tell(&mut self, told: Told) {
        self.told = Some(told);
    }

    /// What it stands on, where no reply is outstanding.
    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Whether commands are to be added.
    pub(super) fn has_room(&self) -> bool {
        self.unwritten.len() - self.written < FULL
    }

    /// Adds a command to those that are to be written.
    pub(super) fn add(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.unwritten);
    }

    /// Writes what was added.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.unwritten.len() {
            if self.written >= FULL {
                self.unwritten.drain(..mem::take(&mut self.written));
            }
            let rest = &self.unwritten[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.unwritten.clear();
        self.written = 0;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// The next reply. Where none is to come, the end of the connection, or what answers nothing.
    pub(super) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<Value>> {
        loop {
            if !self.received.is_empty() {
                if !self.is_within
                    && let Some(reply) = self.received.short_reply()
                {
                    return Poll::Ready(Ok(reply));
                }
                let reply = self.parser.parse_value(&mut self.received);
                self.is_within = reply.as_ref().is_err_and(RedisError::is_io_error);
                match reply {
                    Ok(Value::Push { kind, data }) => {
                        if let Some(told) = &self.told {
                            told(&kind, &data);
                        }
                        continue;
                    }
                    Err(_) if self.is_within => {}
                    reply => return Poll::Ready(reply),
                }
            }
            ready!(self.poll_read(cx))?;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = ReadBuf::new(&mut *self.received.bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let count = buffer.filled().len();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        (self.received.start, self.received.end) = (0, count);
        Poll::Ready(Ok(()))
    }

    /// Sends commands, and waits for their replies. Where it is dropped before its end, replies are yet to
    /// come, and the connection is of no use.
    pub(super) async fn ask(
        &mut self,
        commands: impl IntoIterator<Item = &Cmd>,
    ) -> RedisResult<Vec<Value>> {
        let mut count = 0;
        for command in commands {
            self.add(command);
            count += 1;
        }
        let mut failed = poll_fn(|cx| self.poll_write(cx)).await.err();
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            match poll_fn(|cx| self.poll_reply(cx)).await {
                Ok(reply) => replies.push(reply),
                Err(error) => {
                    return Err(match (replies.pop(), failed.take()) {
                        // A server that turns a client away says why before it closes.
                        (Some(Value::ServerError(why)), _) => why.into(),
                        (_, Some(failed)) => failed.into(),
                        _ => error,
                    });
                }
            }
        }
        Ok(replies)
    }
}

impl Received {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// How long the rest of the line is, with its end, where that has come.
    fn line(&self) -> Option<usize> {
        let rest = &self.bytes[self.start..self.end];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        Some(end + 1)
    }

    /// The next reply, if it is one that calls have.
    fn short_reply(&mut self) -> Option<Value> {
        let line = &self.bytes[self.start..self.start + self.line()?];
        let reply = match line.strip_suffix(b"\r\n")? {
            b"+OK" => Value::Okay,
            [b':', number @ ..] => Value::Int(str::from_utf8(number).ok()?.parse().ok()?),
            _ => return None,
        };
        self.start += line.len();
        Some(reply)
    }
}

impl Read for Received {
    /// A line at most, so that the parser is never given more than a reply. An error where there is nothing
    /// more, after which the parser goes on with what comes next.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let rest = self.end - self.start;
        let count = into.len().min(self.line().unwrap_or(rest));
        into[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
