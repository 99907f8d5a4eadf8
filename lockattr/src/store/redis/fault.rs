//! Sorting what went wrong: what may be asked again, on which connection, and what to tell.

use redis::{ErrorKind, RedisError};

use crate::error::StoreError;

/// A command that was not answered as it should be.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) error: StoreError,
    /// The connection is dead, half-dead or leads to a server that is no longer the master.
    pub(super) replace: bool,
    /// Nothing came in time: what was sent may be on its way yet. On a connection that has ended,
    /// nothing is.
    pub(super) silent: bool,
    /// How it may be asked again so that it is not refused.
    pub(super) otherwise: Option<Otherwise>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Otherwise {
    /// With the script's text: the server does not know it by its hash.
    ByText,
    /// Without the other keys: one of them is refused, or in another slot.
    Apart,
}

impl Fault {
    /// Nothing to be mended by another connection or by the script's text.
    pub(super) fn told(error: StoreError) -> Self {
        Self {
            error,
            replace: false,
            silent: false,
            otherwise: None,
        }
    }

    /// Something after which nothing more is to be asked on the connection.
    fn fatal(error: StoreError) -> Self {
        Self {
            replace: true,
            ..Self::told(error)
        }
    }

    pub(super) fn timed_out(what: String) -> Self {
        Self {
            silent: true,
            ..Self::fatal(StoreError::in_doubt(what))
        }
    }

    /// Nothing will be heard on the connection any more.
    pub(super) fn closed() -> Self {
        Self::fatal(StoreError::in_doubt("the connection has ended"))
    }

    /// Asking once more, on a new connection, may help at once.
    pub(super) fn is_transient(&self) -> bool {
        self.replace
    }

    /// What is to be told when an earlier request of the same step may still be carried out.
    pub(super) fn after(mut self, in_doubt: bool) -> Self {
        if in_doubt && !self.error.is_in_doubt() {
            self.error = StoreError::in_doubt(self.error.to_string());
        }
        self
    }

    pub(super) fn nonsense(what: &redis::Value) -> Self {
        let mut shown = format!("{what:?}");
        if let Some((cut, _)) = shown.char_indices().nth(80) {
            shown.truncate(cut);
        }
        Self::fatal(StoreError::in_doubt(format!(
            "the server's answer makes no sense here: {shown}"
        )))
    }
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        // Whatever the server says in words, it did nothing, and will do nothing later.
        let answered = matches!(
            error.kind(),
            ErrorKind::Server(_)
                | ErrorKind::Extension
                | ErrorKind::AuthenticationFailed
                | ErrorKind::InvalidClientConfig
                | ErrorKind::RESP3NotSupported
        );
        let Some(code) = error.code() else {
            // What a parser says of something else takes several lines.
            let message = if error.kind() == ErrorKind::Parse {
                NOT_REDIS.to_owned()
            } else {
                error.to_string()
            };
            return if answered {
                Self::told(StoreError::refused(message))
            } else {
                Self::fatal(StoreError::in_doubt(message))
            };
        };
        let said = Said::read(code, error.detail().unwrap_or_default());
        Self {
            replace: !answered || said.is_misdirected(),
            otherwise: said.otherwise(),
            ..Self::told(if answered {
                StoreError::refused(said.message())
            } else {
                StoreError::in_doubt(said.message())
            })
        }
    }
}

/// An error in the server's own words.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    code: String,
    words: String,
}

impl Said {
    fn read(code: &str, detail: &str) -> Self {
        let whole = format!("{code} {detail}");
        let (code, words) = match within_script(&whole) {
            Some(inner) => match inner.split_once(' ') {
                Some((code, words)) if is_code(code) => (code, words),
                _ => ("ERR", inner),
            },
            None => (code, detail),
        };
        Self {
            code: code.to_owned(),
            words: without_name(words.trim()),
        }
    }

    /// Words that are no use on this connection: a master that has become a replica, or a server that
    /// has forgotten who logged in.
    fn is_misdirected(&self) -> bool {
        ["READONLY", "MASTERDOWN", "NOAUTH"].contains(&self.code.as_str())
    }

    /// Whether a right is missing.
    fn is_denied(&self) -> bool {
        // Older servers have no code for what a script may not do.
        self.code == "NOPERM" || self.words.contains("user executing the script can't")
    }

    fn otherwise(&self) -> Option<Otherwise> {
        match self.code.as_str() {
            "NOSCRIPT" => Some(Otherwise::ByText),
            "CROSSSLOT" => Some(Otherwise::Apart),
            _ if self.is_denied() && self.words.contains(" key") => Some(Otherwise::Apart),
            _ => None,
        }
    }

    /// Whether it is what a part of a cluster says.
    fn is_of_cluster(&self) -> bool {
        ["CROSSSLOT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"].contains(&self.code.as_str())
    }

    /// They name the missing right, the full memory, the replica.
    fn message(&self) -> String {
        let Self { code, words } = self;
        let gap = if words.is_empty() { "" } else { " " };
        let advice = if self.is_denied() {
            RIGHTS
        } else if self.is_of_cluster() {
            CLUSTER
        } else if words.contains("unknown command") {
            NOT_WHOLE
        } else {
            ""
        };
        let words: String = words.chars().take(LONGEST).collect();
        format!("{code}{gap}{words}{advice}")
    }
}

/// What a script was told, out of what Redis 6 makes of it: `ERR Error running script (call to f_…):
/// @user_script:7: @user_script: 7: -READONLY …`, or from `@user_script:` on where the script itself
/// has answered it. Newer servers say the place behind the words.
fn within_script(whole: &str) -> Option<&str> {
    let (_, place) = whole.rsplit_once("user_script:")?;
    let (line, inner) = place.trim_start().split_once(": ")?;
    let is_line = !line.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit());
    is_line.then(|| inner.strip_prefix('-').unwrap_or(inner))
}

fn is_code(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|letter| letter.is_ascii_uppercase())
}

/// Redis 7.2 and later name the user. The words go into errors and logs, where half of a password's
/// pair is of no use.
fn without_name(words: &str) -> String {
    let named = words.split_once("User ").and_then(|(before, rest)| {
        let (name, rest) = rest.split_once(' ')?;
        (rest.starts_with("has no permissions") && !name.is_empty()).then_some((before, rest))
    });
    match named {
        Some((before, rest)) => format!("{before}this user {rest}"),
        None => words.to_owned(),
    }
}

const NOT_REDIS: &str = "what answers there does not speak Redis's protocol: is it the right port, and plain or TLS \
                         as the URL has it?";

/// What somebody is told whose server is a part of a cluster.
const CLUSTER: &str = " (it is a node of a Redis Cluster, which is not supported: use a single server, with \
                       `cluster-enabled no`, for the locks)";

/// What somebody is told whose server does not know a command.
const NOT_WHOLE: &str = " (a lock client needs a server of Redis 6 or Valkey 7 or later, with scripts, and not a \
                         Sentinel or a proxy that lacks commands)";

/// So many characters of a server's words are told.
const LONGEST: usize = 400;

/// What a user needs, for a server that does not say which of them is missing.
const RIGHTS: &str = " (a lock client needs +set +get +mget +del +pexpire +pttl +type +time +eval +evalsha +zadd +zpopmin \
                      +zrem +zrank +zrange +publish +subscribe +pubsub|numsub on the keys and the channels under its prefix)";

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    fn fault(line: &str) -> Fault {
        match parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => RedisError::from(error).into(),
            other => panic!("{line}: {other:?}"),
        }
    }

    const BARE: [&str; 9] = [
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOAUTH Authentication required.",
        "LOADING Redis is loading the dataset in memory",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
        "NOREPLICAS Not enough good replicas to write.",
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        "CROSSSLOT Keys in request don't hash to the same slot",
    ];

    #[test]
    fn what_a_script_was_told_is_what_the_server_said() {
        let call = "ERR Error running script (call to f_82cdd3d7ab6b96f9a5947917c9f163ca06cc907a)";
        for bare in BARE {
            let expected = fault(bare);
            assert!(expected.error.to_string().starts_with(bare), "{expected:?}");
            assert!(!expected.error.is_in_doubt());
            for wrapped in [
                format!("{call}: @user_script:7: @user_script: 7: -{bare} "),
                format!("{call}: @user_script:7: {bare}"),
                format!("@user_script: 12: -{bare}"),
                format!("user_script:12: @user_script: 12: -{bare}"),
            ] {
                let fault = fault(&wrapped);
                assert_eq!(
                    fault.error.to_string(),
                    expected.error.to_string(),
                    "{wrapped}"
                );
                assert_eq!(fault.replace, expected.replace, "{wrapped}");
                assert_eq!(fault.otherwise, expected.otherwise, "{wrapped}");
                assert!(!fault.error.is_in_doubt(), "{wrapped}");
            }
        }
        for (misdirected, bare) in BARE.iter().enumerate() {
            assert_eq!(fault(bare).replace, misdirected < 3, "{bare}");
        }
    }

    #[test]
    fn what_a_script_may_not_do_says_what_is_needed() {
        let inner = "The user executing the script can't run this command or subcommand";
        for wrapped in [
            format!(
                "ERR Error running script (call to f_d3c2): @user_script:1: @user_script: 1: {inner}"
            ),
            format!("@user_script: 1: {inner}"),
            format!(
                "ERR {inner} script: d3c21d0c2b9ca22f82737626a27bcaf5d288f99f, on @user_script:1."
            ),
        ] {
            let told = fault(&wrapped).error.to_string();
            assert!(told.starts_with(&format!("ERR {inner}")), "{told}");
            assert!(told.ends_with(RIGHTS), "{told}");
        }
    }

    #[test]
    fn a_user_is_not_named() {
        for (said, told) in [
            (
                "NOPERM User billing-7 has no permissions to run the 'get' command",
                "NOPERM this user has no permissions to run the 'get' command",
            ),
            (
                "NOPERM ACL failure in script: User billing-7 has no permissions to run the 'get' command",
                "NOPERM ACL failure in script: this user has no permissions to run the 'get' command",
            ),
            (
                "NOPERM User billing-7 has no permissions to access the 'lock:a' key",
                "NOPERM this user has no permissions to access the 'lock:a' key",
            ),
        ] {
            assert_eq!(fault(said).error.to_string(), format!("{told}{RIGHTS}"));
        }
        let other = "ERR User defined function failed";
        assert_eq!(fault(other).error.to_string(), other);
    }

    #[test]
    fn keys_that_are_refused_together_are_asked_for_apart() {
        for apart in [
            "NOPERM No permissions to access a key",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 00dd, on @user_script:1.",
            "CROSSSLOT Keys in request don't hash to the same slot",
        ] {
            assert_eq!(fault(apart).otherwise, Some(Otherwise::Apart), "{apart}");
        }
        for whole in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert_eq!(fault(whole).otherwise, None, "{whole}");
        }
        let unknown = "NOSCRIPT No matching script. Please use EVAL.";
        assert_eq!(fault(unknown).otherwise, Some(Otherwise::ByText));
    }
}
