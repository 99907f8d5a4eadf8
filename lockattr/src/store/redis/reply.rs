//! Reads what the scripts answer.
//!
//! An answer of another form is `None`, which is a protocol error: it says nothing about any lock.

use std::time::{Duration, Instant, SystemTime};

use redis::{RedisError, Value};

use super::fault::Fault;
use super::stored::Stored;
use crate::reply::KeptReply;
use crate::store::{Acquired, Claim, Found, Token, relied_on_until};

/// The outcome of an acquire.
pub(super) struct Outcome {
    pub(super) acquired: Acquired,
    /// The server's clock in microseconds, where the claim was put into a queue.
    pub(super) server_micros: Option<u64>,
}

/// What `contend.lua` or `share.lua` has answered to a claim.
pub(super) fn outcome(
    answer: &Value,
    claim: &Claim<'_>,
    sent: Instant,
    in_doubt: bool,
) -> Option<Outcome> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [state, index, rest @ ..] = parts.as_slice() else {
        return None;
    };
    let state = integer(state)?;
    let index = usize::try_from(integer(index)?).ok()?;
    // A grant tells the slot, and everything else of which lock it is.
    let (lock, slot) = match state {
        1 => (0, index),
        _ => (index, 0),
    };
    let places = if claim.sharing().is_alone() {
        1
    } else {
        usize::MAX
    };
    if lock >= claim.locks.len() || slot >= places {
        return None;
    }
    let mut server_micros = None;
    let acquired = match (state, rest) {
        (1, []) => Acquired::Granted {
            slot,
            until: relied_on_until(sent, claim.ttl),
            in_doubt,
        },
        (0, [value, left, queued @ ..]) => {
            let (owner, since) = holder(&text(value)?);
            Acquired::Busy {
                lock,
                owner,
                remaining: Duration::from_millis(u64::try_from(integer(left)?).unwrap_or(0)),
                since,
                place: match queued {
                    [] => None,
                    [place, time] => {
                        server_micros = Some(number(time)?);
                        Some(number(place)?)
                    }
                    _ => return None,
                },
                in_doubt,
            }
        }
        (2, [value]) => match Stored::read(&text(value)?) {
            Stored::Done { since, reply } => Acquired::Done {
                lock,
                since,
                reply: reply.map(KeptReply::new),
                in_doubt,
            },
            _ => return None,
        },
        (-1, [found]) => Acquired::Foreign {
            lock,
            found: text(found)?,
        },
        _ => return None,
    };
    Some(Outcome {
        acquired,
        server_micros,
    })
}

/// Whose a value is, and since when. One of another form is its own owner, which nobody is shown.
fn holder(value: &str) -> (String, Option<SystemTime>) {
    match Stored::read(value) {
        Stored::Held { owner, since } | Stored::Closed { owner, since } => {
            (owner.to_owned(), since)
        }
        Stored::Done { .. } | Stored::Other => (value.to_owned(), None),
    }
}

/// A string in any form: other servers than Redis answer some as simple strings, or as numbers.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        // RESP3 has one for texts of several lines.
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

fn number(value: &Value) -> Option<u64> {
    u64::try_from(integer(value)?).ok()
}

/// What a release has found.
pub(super) fn found(answer: &Value) -> Option<Found> {
    match integer(answer)? {
        1 => Some(Found::Ours),
        0 => Some(Found::Nothing),
        2 => Some(Found::Another),
        _ => None,
    }
}

/// The first error within an answer.
pub(super) fn refusal(answer: &Value) -> Option<Fault> {
    let Value::Array(parts) = answer else {
        return None;
    };
    parts.iter().find_map(|part| match part {
        Value::ServerError(error) => Some(RedisError::from(error.clone()).into()),
        _ => None,
    })
}

/// What a renewal has found under each key: as many answers as keys, or none at all.
pub(super) fn each(answer: &Value, keys: usize) -> Option<Vec<Result<Found, Fault>>> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let part = |part: &Value| match part {
        Value::ServerError(error) => Some(Err(RedisError::from(error.clone()).into())),
        part => found(part).map(Ok),
    };
    let each: Option<Vec<_>> = parts.iter().map(part).collect();
    each.filter(|each| each.len() == keys)
}

/// A token, or what was found where none was drawn.
pub(super) fn token(answer: &Value) -> Option<Token> {
    match found(answer) {
        // A token is never as small as that.
        Some(Found::Ours) => None,
        Some(found) => Some(Token::NotHeld(found)),
        None => number(answer).map(Token::Drawn),
    }
}
