//! What the scripts answer.

use std::time::{Duration, Instant, UNIX_EPOCH};

use redis::{RedisError, Value};

use super::fault::Fault;
use crate::store::{Acquired, Found};

pub(super) struct Verdict {
    pub(super) acquired: Acquired,
    /// The server's clock in microseconds, where the request was put into a queue.
    pub(super) server: Option<u64>,
}

/// What the script that contends has answered.
pub(super) fn verdict(answer: &Value, sent: Instant, in_doubt: bool) -> Option<Verdict> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [Value::Int(state), Value::Int(index), rest @ ..] = parts.as_slice() else {
        return None;
    };
    let index = usize::try_from(*index).ok()?;
    let mut server = None;
    let acquired = match (state, rest) {
        (1, []) => Acquired::Granted {
            index,
            sent,
            in_doubt,
        },
        (0, [Value::BulkString(owner), Value::Int(left), queued @ ..]) => Acquired::Busy {
            index,
            owner: String::from_utf8_lossy(owner).into_owned(),
            remaining: Duration::from_millis(u64::try_from(*left).unwrap_or(0)),
            place: match queued {
                [] => None,
                [Value::Int(place), Value::BulkString(time)] => {
                    server = Some(number(time)?);
                    Some(u64::try_from(*place).ok()?)
                }
                _ => return None,
            },
            in_doubt,
        },
        (2, [Value::BulkString(since)]) => Acquired::Done {
            index,
            since: UNIX_EPOCH.checked_add(Duration::from_millis(number(since)?))?,
            in_doubt,
        },
        (-1, [Value::BulkString(found)]) => Acquired::Foreign {
            index,
            found: String::from_utf8_lossy(found).into_owned(),
        },
        _ => return None,
    };
    Some(Verdict { acquired, server })
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn index(verdict: &Acquired) -> usize {
    match verdict {
        Acquired::Granted { index, .. }
        | Acquired::Busy { index, .. }
        | Acquired::Done { index, .. }
        | Acquired::Foreign { index, .. } => *index,
    }
}

pub(super) fn found(answer: &Value) -> Option<Found> {
    match answer {
        Value::Int(1) => Some(Found::Ours),
        Value::Int(0) => Some(Found::Nothing),
        Value::Int(2) => Some(Found::Another),
        _ => None,
    }
}

/// What a renewal has found of each lease.
pub(super) fn each(answer: &Value, leases: usize) -> Option<Vec<Result<Found, Fault>>> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let part = |part: &Value| match part {
        Value::ServerError(error) => Some(Err(RedisError::from(error.clone()).into())),
        part => found(part).map(Ok),
    };
    let each: Option<Vec<_>> = parts.iter().map(part).collect();
    each.filter(|each| each.len() == leases)
}
