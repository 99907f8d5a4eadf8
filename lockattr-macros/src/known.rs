//! The names of arguments, and the names that people try instead.

use proc_macro2::Ident;
use syn::Error;

use crate::suggest::{list, nearest};

/// Every argument there is, with a value that it may have, in the order of the documentation. What stands alone
/// has none.
const ARGUMENTS: [(&str, &str); 18] = [
    ("key", "\"sync:<user_id>\""),
    ("ttl", "\"30s\""),
    ("wait", "\"5s\""),
    ("on_busy", "skip"),
    ("on_unavailable", "error"),
    ("on_lost", "cancel"),
    ("renew", "true"),
    ("min_hold", "\"1s\""),
    ("max_hold", "\"10m\""),
    ("once", "\"24h\""),
    ("on_done", "skip"),
    ("permits", "3"),
    ("weight", "2"),
    ("shared", ""),
    ("bind", "lease"),
    ("client", "self.locks"),
    ("redact", "true"),
    ("crate", "::lockattr"),
];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ARGUMENTS.into_iter().map(|(name, _)| name)
}

/// Synonyms of arguments, whose spelling is not near the name itself.
pub(crate) const MEANINGS: [(&[&str], &str); 15] = [
    (
        &["timeout", "time_out", "deadline"],
        "`wait` says how long a busy key is waited for, `ttl` how long a crashed holder blocks \
         others",
    ),
    (
        &[
            "expire",
            "expires",
            "expiry",
            "expiration",
            "lease",
            "lease_time",
            "duration",
            "px",
        ],
        "did you mean `ttl`?",
    ),
    (
        &[
            "retry",
            "retries",
            "max_wait",
            "block",
            "blocking",
            "acquire_timeout",
            "wait_time",
        ],
        "did you mean `wait`?",
    ),
    (
        &["name", "id", "lock", "resource", "template", "keys"],
        "did you mean `key`?",
    ),
    (
        &["lock_at_least_for", "at_least", "cooldown", "min_ttl"],
        "did you mean `min_hold`?",
    ),
    (
        &["lock_at_most_for", "at_most", "max_ttl", "max_duration"],
        "did you mean `max_hold`?",
    ),
    (
        &["dedup", "idempotent", "run_once", "unique"],
        "did you mean `once`?",
    ),
    (
        &[
            "limit",
            "slots",
            "concurrency",
            "max",
            "holders",
            "semaphore",
        ],
        "did you mean `permits`?",
    ),
    (
        &["cost", "units", "amount", "share"],
        "did you mean `weight`?",
    ),
    (
        &["read", "reader", "readers", "read_lock", "rw", "rwlock"],
        "did you mean `shared`?",
    ),
    (
        &[
            "busy",
            "on_locked",
            "on_conflict",
            "on_fail",
            "skip",
            "or_else",
            "if_busy",
        ],
        "did you mean `on_busy`?",
    ),
    (
        &["on_error", "on_down", "on_outage", "on_failure"],
        "did you mean `on_unavailable`?",
    ),
    (
        &[
            "watchdog",
            "auto_renew",
            "heartbeat",
            "extend",
            "keep_alive",
        ],
        "did you mean `renew`?",
    ),
    (
        &[
            "redis",
            "store",
            "pool",
            "conn",
            "connection",
            "backend",
            "url",
            "with",
        ],
        "did you mean `client`?",
    ),
    (
        &[
            "sensitive",
            "secret",
            "private",
            "personal",
            "pii",
            "hide",
            "mask",
            "anonymize",
        ],
        "did you mean `redact`?",
    ),
];

/// Input:  `ttl`
/// Output: `ttl = "30s"`
pub(crate) fn example(name: &str) -> String {
    let known = ARGUMENTS.iter().find(|(known, _)| *known == name);
    let value = known.map_or("…", |(_, value)| value);
    if value.is_empty() {
        return name.to_owned();
    }
    format!("{name} = {value}")
}

/// The argument that has a word among its values.
pub(crate) fn argument_with(word: &str) -> Option<&'static str> {
    match word {
        "skip" | "error" => Some("on_busy"),
        "run" | "local" => Some("on_unavailable"),
        "cancel" | "continue" => Some("on_lost"),
        _ => None,
    }
}

/// The argument that an unknown name most likely means.
pub(crate) fn meant(written: &str) -> Option<&'static str> {
    nearest(written, names()).or_else(|| {
        let (_, advice) = MEANINGS
            .iter()
            .find(|(words, _)| words.contains(&written))?;
        names().find(|name| advice.contains(&format!("mean `{name}`")))
    })
}

pub(crate) fn unknown(name: &Ident) -> Error {
    let written = name.to_string();
    let by_meaning = MEANINGS
        .iter()
        .find(|(words, _)| words.contains(&&*written));
    let advice = match (by_meaning, meant(&written)) {
        (Some((_, advice)), _) => format!(": {advice}"),
        (None, Some(name)) => format!(": did you mean `{name}`?"),
        (None, None) => String::new(),
    };
    let known = list(names());
    Error::new_spanned(
        name,
        format!("there is no argument `{written}`{advice}\nthe arguments are {known}"),
    )
}
