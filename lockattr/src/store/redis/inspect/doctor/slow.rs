//! Commands that kept the server from everything else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use super::told;
use crate::store::inspect::{Finding, Severity};
use crate::store::redis::fault::Fault;
use crate::store::redis::reply::{integer, text};

/// How many entries of the slow log are looked at.
pub(super) const ENTRIES: usize = 50;

/// From so long on, other clients notice.
const LONG: Duration = Duration::from_millis(100);

pub(super) fn finding(part: &str, log: Result<Value, Fault>) -> Finding {
    let finding = |severity, found: String, advice: &str| {
        Finding::new(part, "slow commands", severity, found, advice)
    };
    let log = match log {
        Ok(Value::Array(entries)) => entries,
        Ok(_) => Vec::new(),
        Err(fault) => {
            let advice = "grant `+slowlog|get` to whoever runs this, to have it looked at";
            return finding(Severity::Unknown, told(&fault.error).0, advice);
        }
    };
    let longest = log.iter().filter_map(read).max_by_key(|entry| entry.taken);
    match longest {
        Some(entry) if entry.taken >= LONG => {
            let ago = entry.at.elapsed().unwrap_or_default().as_secs();
            finding(
                Severity::Advice,
                format!("`{}` took {:.1?}, {ago} s ago", entry.command, entry.taken),
                "nobody else is answered for as long: renewals wait, and short leases end. Look at `SLOWLOG GET`",
            )
        }
        _ => finding(
            Severity::Good,
            format!("none of those that the server remembers took {LONG:?}"),
            "",
        ),
    }
}

struct SlowCommand {
    at: SystemTime,
    taken: Duration,
    /// Without what it was about, which may be secret.
    command: String,
}

fn read(entry: &Value) -> Option<SlowCommand> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let [_, at, micros, Value::Array(words), ..] = parts.as_slice() else {
        return None;
    };
    let at = Duration::from_secs(u64::try_from(integer(at)?).ok()?);
    Some(SlowCommand {
        at: UNIX_EPOCH.checked_add(at)?,
        taken: Duration::from_micros(u64::try_from(integer(micros)?).ok()?),
        command: text(words.first()?)?.chars().take(32).collect(),
    })
}
