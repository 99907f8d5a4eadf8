//! Sorts what went wrong: whether a command may have been carried out, whether and how to ask again, and
//! what to tell the user.
//!
//! An error in the server's own words means that it did nothing; everything else is in doubt. No message
//! names a user or repeats a password. Asking again is left to the steps.

use redis::{ErrorKind, RedisError};

use crate::error::StoreError;

/// Why a command was not answered as expected.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) error: StoreError,
    /// The connection has failed, or leads to a server that is not the master any more.
    pub(super) replace: bool,
    /// No answer came in time, so the command may still be on its way. On a connection that has ended it
    /// is not.
    pub(super) silent: bool,
    /// How to ask again so that the command is not refused.
    pub(super) retry: Option<RetryWith>,
    /// Which other node of a cluster is to be asked.
    pub(super) redirect: Option<Box<Redirect>>,
    /// Whether a cluster may answer soon, by this node or by the one that takes its place.
    pub(super) soon: bool,
    /// What to do about it where it is said by a single server.
    advice: &'static str,
}

/// Where a node of a cluster sends those who ask for a hash slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) slot: u16,
    /// Empty where it is the host of the node that says so.
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether this holds for one command alone, which has to follow an `ASKING`: the slot's keys are on
    /// their way there.
    pub(super) ask: bool,
}

impl Redirect {
    /// Reads `MOVED slot host:port` and `ASK slot host:port`.
    fn read(code: &str, words: &str) -> Option<Box<Self>> {
        let ask = match code {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let (slot, address) = words.split_once(' ')?;
        let (host, port) = address.split_whitespace().next()?.rsplit_once(':')?;
        Some(Box::new(Self {
            slot: slot.parse().ok()?,
            host: host.to_owned(),
            port: port.parse().ok()?,
            ask,
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryWith {
    /// With the script's text: the server does not know the hash.
    ScriptText,
    /// With fewer keys: one of them is refused, or on another node.
    FewerKeys,
}

impl Fault {
    /// A fault after which asking again does not help.
    pub(super) fn last(error: StoreError) -> Self {
        Self {
            error,
            replace: false,
            silent: false,
            retry: None,
            redirect: None,
            soon: false,
            advice: "",
        }
    }

    /// Why no connection could be made. It is not worth a repetition, which would take as long; but a
    /// server that does not answer may be replaced by another node of its cluster.
    pub(super) fn not_connected(why: &Self, error: StoreError) -> Self {
        Self {
            soon: why.soon || why.error.is_in_doubt(),
            ..Self::last(error)
        }
    }

    /// The server cannot be reached.
    pub(super) fn unreachable(error: StoreError) -> Self {
        Self {
            soon: true,
            ..Self::last(error)
        }
    }

    /// A fault after which the connection is not used any more.
    fn fatal(error: StoreError) -> Self {
        Self {
            replace: true,
            ..Self::last(error)
        }
    }

    pub(super) fn timed_out(what: String) -> Self {
        Self {
            silent: true,
            ..Self::fatal(StoreError::in_doubt(what))
        }
    }

    /// The connection has ended with its runtime.
    pub(super) fn closed() -> Self {
        Self::fatal(StoreError::in_doubt("the connection has ended"))
    }

    /// What to tell of a single server: with what to do where it is a node of a cluster.
    pub(super) fn told(self) -> StoreError {
        if self.advice.is_empty() {
            return self.error;
        }
        let told = format!("{}{}", self.error, self.advice);
        self.saying(told).error
    }

    /// Whether a cluster may answer if it is asked again: elsewhere, or after a look at who keeps what.
    pub(super) fn is_steered(&self) -> bool {
        self.redirect.is_some() || self.soon || self.replace && self.error.is_in_doubt()
    }

    /// Whether only some of the keys are on this node, while their hash slot moves.
    pub(super) fn is_split(&self) -> bool {
        self.soon && self.retry == Some(RetryWith::FewerKeys)
    }

    /// The same told of a node of a cluster.
    pub(super) fn of_node(self, address: &str) -> Self {
        let text = self.error.to_string();
        if text.contains(address) {
            return self;
        }
        self.saying(format!("{address}: {text}"))
    }

    /// With advice for whoever is told these words.
    pub(super) fn advised(self, words: &str, advice: &str) -> Self {
        let text = self.error.to_string();
        if !text.contains(words) {
            return self;
        }
        self.saying(format!("{text}{advice}"))
    }

    fn saying(self, told: String) -> Self {
        Self {
            error: self.error.saying(told),
            ..self
        }
    }

    /// Whether asking again at once, on a new connection, may help.
    pub(super) fn is_transient(&self) -> bool {
        self.replace
    }

    /// The fault of a step whose earlier request may still be carried out.
    pub(super) fn after(mut self, in_doubt: bool) -> Self {
        if in_doubt && !self.error.is_in_doubt() {
            self.error = StoreError::in_doubt(self.error.to_string());
        }
        self
    }

    /// The answer is not of the form that the command has.
    pub(super) fn protocol_error(answer: &redis::Value) -> Self {
        let mut shown = format!("{answer:?}");
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
        // A server that answers with an error did nothing, and will do nothing later.
        let answered = matches!(
            error.kind(),
            ErrorKind::Server(_)
                | ErrorKind::Extension
                | ErrorKind::AuthenticationFailed
                | ErrorKind::InvalidClientConfig
                | ErrorKind::RESP3NotSupported
        );
        let Some(code) = error.code() else {
            // The parser's own message takes several lines.
            let message = if error.kind() == ErrorKind::Parse {
                NOT_REDIS.to_owned()
            } else {
                error.to_string()
            };
            return if answered {
                Self::last(StoreError::refused(message))
            } else {
                Self::fatal(StoreError::in_doubt(message))
            };
        };
        let said = Said::read(code, error.detail().unwrap_or_default());
        // A script that is sent on in its middle has begun its work.
        let begun = said.is_sent_on();
        Self {
            replace: !answered || said.is_misdirected(),
            retry: said.retry(),
            redirect: Redirect::read(&said.code, &said.words),
            soon: begun || said.is_passing(),
            advice: if begun || said.is_of_cluster() {
                CLUSTER
            } else {
                ""
            },
            ..Self::last(if answered && !begun {
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

    /// Whether another connection is needed: the master has become a replica, also while a command
    /// waited there, or the server has forgotten who logged in.
    fn is_misdirected(&self) -> bool {
        ["READONLY", "MASTERDOWN", "UNBLOCKED", "NOAUTH"].contains(&self.code.as_str())
    }

    /// Whether a right is missing.
    fn is_denied(&self) -> bool {
        // No server has a code for what a script may not do.
        let in_script = ["user executing the script can't", "ACL failure in script"];
        self.code == "NOPERM" || in_script.iter().any(|words| self.words.contains(words))
    }

    /// Whether the server lacks a command, or one of its subcommands: `unknown command 'get'`, and in a
    /// script without its name `Unknown Redis command called from script`.
    fn is_unknown(&self) -> bool {
        let words = self.words.to_ascii_lowercase();
        words.starts_with("unknown ") && words.contains("command")
    }

    fn retry(&self) -> Option<RetryWith> {
        match self.code.as_str() {
            "NOSCRIPT" => Some(RetryWith::ScriptText),
            "CROSSSLOT" | "TRYAGAIN" => Some(RetryWith::FewerKeys),
            _ if self.is_denied() && self.words.contains(" key") => Some(RetryWith::FewerKeys),
            _ => None,
        }
    }

    /// Whether the server, or the one that takes its place, may soon do what was asked.
    fn is_passing(&self) -> bool {
        self.is_misdirected()
            || ["TRYAGAIN", "CLUSTERDOWN", "LOADING"].contains(&self.code.as_str())
    }

    /// Whether a key went to another node while a script was working with it.
    fn is_sent_on(&self) -> bool {
        self.words.contains("access a non local key")
    }

    /// Whether only a node of a cluster says this.
    fn is_of_cluster(&self) -> bool {
        ["CROSSSLOT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"].contains(&self.code.as_str())
    }

    /// What to tell: the server's words, which name the cause, and advice where there is some.
    fn message(&self) -> String {
        let Self { code, words } = self;
        let gap = if words.is_empty() { "" } else { " " };
        let advice = if self.is_denied() {
            RIGHTS
        } else if self.is_unknown() {
            NOT_WHOLE
        } else {
            ""
        };
        let words: String = words.chars().take(LONGEST).collect();
        format!("{code}{gap}{words}{advice}")
    }
}

/// The error that a command within a script was answered with. Redis 6 wraps it: `ERR Error running
/// script (call to f_…): @user_script:7: @user_script: 7: -READONLY …`, or from `@user_script:` on where
/// the script itself has returned it. Newer servers append the place to the words.
fn within_script(whole: &str) -> Option<&str> {
    let (_, place) = whole.rsplit_once("user_script:")?;
    let (line, inner) = place.trim_start().split_once(": ")?;
    let is_line = !line.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit());
    is_line.then(|| inner.strip_prefix('-').unwrap_or(inner))
}

fn is_code(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|letter| letter.is_ascii_uppercase())
}

/// Leaves out the user, whom Redis 7.2 and later name: errors and logs are no place for half of the
/// credentials.
pub(super) fn without_name(words: &str) -> String {
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

/// The advice where a single server is a node of a cluster.
const CLUSTER: &str = " (it is a node of a Redis Cluster: write redis+cluster:// in place of redis://, or \
                       rediss+cluster:// in place of rediss://)";

/// The advice where the server does not know a command: it does not always say which.
const NOT_WHOLE: &str = " (a lock client needs a server of Redis 6 or Valkey 7 or later, and not a Sentinel or a proxy \
                         that lacks commands, with these under their own names: set get mget del pexpire pttl type \
                         time eval evalsha zadd zpopmin zrem zrank zrange publish subscribe pubsub)";

/// The most characters of a server's words that are told.
const LONGEST: usize = 400;

/// The rights that a client needs: a server does not always say which one is missing.
const RIGHTS: &str = " (a lock client needs +set +get +mget +del +pexpire +pttl +type +time +eval +evalsha +zadd +zpopmin \
                      +zrem +zrank +zrange +publish +subscribe +pubsub|numsub on the keys and the channels under its prefix, and \
                      +cluster|slots +cluster|info +asking on the nodes of a cluster)";

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

    const BARE: [&str; 10] = [
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOAUTH Authentication required.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
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
                assert_eq!(fault.retry, expected.retry, "{wrapped}");
                assert!(!fault.error.is_in_doubt(), "{wrapped}");
            }
        }
        for (misdirected, bare) in BARE.iter().enumerate() {
            assert_eq!(fault(bare).replace, misdirected < 4, "{bare}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_says_where_to_ask() {
        let at = |host: &str, ask| {
            let host = host.to_owned();
            let (slot, port) = (3999, 6381);
            Some(Box::new(Redirect {
                slot,
                host,
                port,
                ask,
            }))
        };
        for (said, redirect) in [
            ("MOVED 3999 127.0.0.1:6381", at("127.0.0.1", false)),
            ("ASK 3999 ::1:6381", at("::1", true)),
            ("MOVED 3999 :6381", at("", false)),
            ("MOVED nonsense", None),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                None,
            ),
        ] {
            let fault = fault(said);
            assert_eq!(fault.redirect, redirect, "{said}");
            assert!(
                !fault.error.to_string().contains("redis+cluster://"),
                "{said}"
            );
            assert!(
                fault.told().to_string().contains("redis+cluster://"),
                "{said}"
            );
        }
        let sent_on = "ERR Script attempted to access a non local key in a cluster node script: 00dd, on @user_script:1.";
        let fault = fault(sent_on);
        assert!(fault.soon && fault.error.is_in_doubt());
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
        let inner = "ACL failure in script: User jobs has no permissions to run the 'get' command";
        for place in [
            "script: a5260dd66ce02462c5b5231c727b3f7772c0bcc5, on @user_script:1.",
            "script: on @user_script:1.",
        ] {
            let told = fault(&format!("ERR {inner} {place}")).error.to_string();
            let named = inner.replace("User jobs", "this user");
            assert!(told.starts_with(&format!("ERR {named}")), "{told}");
            assert!(told.ends_with(RIGHTS), "{told}");
        }
    }

    #[test]
    fn a_command_that_the_server_does_not_know_says_which_server_is_needed() {
        let call = "ERR Error running script (call to f_6c6a69ca11192f3d524585b5d65b8e08d2d8dcc6)";
        for said in [
            "ERR unknown command `zpopmin`, with args beginning with: `a`, ".to_owned(),
            "ERR unknown command 'zpopmin', with args beginning with: 'a' ".to_owned(),
            "ERR Unknown subcommand or wrong number of arguments for 'numsub'. Try PUBSUB HELP."
                .to_owned(),
            "ERR unknown subcommand 'numsub'. Try PUBSUB HELP.".to_owned(),
            format!(
                "{call}: @user_script:1: @user_script: 1: Unknown Redis command called from Lua script"
            ),
            "ERR Unknown Redis command called from script script: 6c6a, on @user_script:1."
                .to_owned(),
            "ERR Unknown Redict command called from script script: 6c6a, on @user_script:1."
                .to_owned(),
            "ERR Unknown command called from script script: on @user_script:1.".to_owned(),
        ] {
            let told = fault(&said).error.to_string();
            assert!(told.ends_with(NOT_WHOLE), "{told}");
        }
        for other in [
            "ERR unknown option 'zpopmin'",
            "ERR the command is not allowed here",
        ] {
            assert_eq!(fault(other).error.to_string(), other);
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
                "ERR ACL failure in script: User billing-7 has no permissions to run the 'get' command",
                "ERR ACL failure in script: this user has no permissions to run the 'get' command",
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
    fn keys_that_are_refused_together_are_asked_for_in_parts() {
        for in_parts in [
            "NOPERM No permissions to access a key",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 00dd, on @user_script:1.",
            "ERR ACL failure in script: No permissions to access a key script: 00dd, on @user_script:1.",
            "ERR ACL failure in script: No permissions to access a key script: on @user_script:1.",
            "CROSSSLOT Keys in request don't hash to the same slot",
        ] {
            assert_eq!(
                fault(in_parts).retry,
                Some(RetryWith::FewerKeys),
                "{in_parts}"
            );
        }
        for whole in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert_eq!(fault(whole).retry, None, "{whole}");
        }
        let unknown = "NOSCRIPT No matching script. Please use EVAL.";
        assert_eq!(fault(unknown).retry, Some(RetryWith::ScriptText));
    }
}
