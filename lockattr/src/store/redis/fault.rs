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

    /// The same before the command was sent.
    pub(super) fn unsent() -> Self {
        Self {
            soon: true,
            ..Self::fatal(StoreError::unreachable("the connection has ended"))
        }
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
        } else if self.code == "NOAUTH" {
            NO_PASSWORD
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

/// What to do where a server wants a login and was given none.
const NO_PASSWORD: &str = " (a login is given in the URL, as redis://:PASSWORD@HOST/ or redis://USER:PASSWORD@HOST/, or \
                           by `ClientBuilder::credentials`)";

/// The advice where the server does not know a command: it does not always say which.
const NOT_WHOLE: &str = " (a lock client needs a server of Redis 6 or Valkey 7 or later, and not a Sentinel or a proxy \
                         that lacks commands, with these under their own names: set get mget del pexpire pttl type \
                         time eval evalsha zadd zpopmin zrem zrank zrange zrangebyscore zscore zcard pexpireat \
                         publish subscribe pubsub)";

/// The most characters of a server's words that are told.
const LONGEST: usize = 400;

/// The rights that a client needs: a server does not always say which one is missing.
const RIGHTS: &str = " (a lock client needs +set +get +mget +del +pexpire +pttl +type +time +eval +evalsha +zadd +zpopmin \
                      +zrem +zrank +zrange +zrangebyscore +zscore +zcard \
                      +pexpireat +publish +subscribe +pubsub|numsub on the keys and the channels under its prefix, and \
                      +cluster|slots +cluster|info +asking on the nodes of a cluster)";

#[cfg(test)]
mod tests;
