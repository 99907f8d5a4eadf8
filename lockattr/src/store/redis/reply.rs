//! What the scripts answer.

use std::time::{Duration, Instant, UNIX_EPOCH};

use redis::{RedisError, Value};

use super::fault::Fault;
use super::names::{count, has_slots};
use crate::store::{Acquired, Claim, Found, Token, relied_on_until};

pub(super) struct Verdict {
    pub(super) acquired: Acquired,
    /// The server's clock in microseconds, where the request was put into a queue.
    pub(super) server: Option<u64>,
}

/// What the script that contends has answered.
pub(super) fn verdict(
    answer: &Value,
    claim: &Claim<'_>,
    sent: Instant,
    in_doubt: bool,
) -> Option<Verdict> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [state, index, rest @ ..] = parts.as_slice() else {
        return None;
    };
    let state = integer(state)?;
    let index = usize::try_from(integer(index)?).ok()?;
    if index >= count(claim) {
        return None;
    }
    // It counts slots where there are some.
    let (lock, slot) = if has_slots(claim) {
        (0, index)
    } else {
        (index, 0)
    };
    let mut server = None;
    let acquired = match (state, rest) {
        (1, []) => Acquired::Granted {
            slot,
            until: relied_on_until(sent, claim.ttl),
            in_doubt,
        },
        (0, [owner, left, queued @ ..]) => Acquired::Busy {
            lock,
            owner: text(owner)?,
            remaining: Duration::from_millis(u64::try_from(integer(left)?).unwrap_or(0)),
            place: match queued {
                [] => None,
                [place, time] => {
                    server = Some(number(time)?);
                    Some(number(place)?)
                }
                _ => return None,
            },
            in_doubt,
        },
        (2, [since]) => Acquired::Done {
            lock,
            since: UNIX_EPOCH.checked_add(Duration::from_millis(number(since)?))?,
            in_doubt,
        },
        (-1, [found]) => Acquired::Foreign {
            lock,
            found: text(found)?,
        },
        _ => return None,
    };
    Some(Verdict { acquired, server })
}

/// A string in whatever form: stand-in servers answer some as simple strings, or numbers as such.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
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

pub(super) fn found(answer: &Value) -> Option<Found> {
    match integer(answer)? {
        1 => Some(Found::Ours),
        0 => Some(Found::Nothing),
        2 => Some(Found::Another),
        _ => None,
    }
}

/// The first error within an answer, which concerns a part of it.
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

pub(super) fn token(answer: &Value) -> Option<Token> {
    match found(answer) {
        // A clock says more than that.
        Some(Found::Ours) => None,
        Some(found) => Some(Token::NotHeld(found)),
        None => number(answer).map(Token::Drawn),
    }
}
