//! Sorting what went wrong: what may be asked again, on which connection, and what to tell.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::StoreError;

/// A command that was not answered as it should be.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) error: StoreError,
    /// The connection is dead, half-dead or leads to a server that is no longer the master.
    pub(super) replace: bool,
    /// The server does not know the script by its hash.
    pub(super) no_script: bool,
    /// Nothing came in time: what was sent may be on its way yet. On a connection that has ended,
    /// nothing is.
    pub(super) silent: bool,
}

impl Fault {
    /// Nothing to be mended by another connection or by the script's text.
    pub(super) fn told(error: StoreError) -> Self {
        Self {
            error,
            replace: false,
            no_script: false,
            silent: false,
        }
    }

    pub(super) fn timed_out(what: String) -> Self {
        Self {
            replace: true,
            silent: true,
            ..Self::told(StoreError::in_doubt(what))
        }
    }

    /// Nothing will be heard on the connection any more.
    pub(super) fn closed() -> Self {
        Self {
            replace: true,
            ..Self::told(StoreError::in_doubt("the connection has ended"))
        }
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
        Self {
            replace: true,
            ..Self::told(StoreError::in_doubt(format!(
                "the server's answer makes no sense here: {shown}"
            )))
        }
    }
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        let kind = error.kind();
        // Whatever the server says in words, it did nothing, and will do nothing later.
        let answered = matches!(
            kind,
            ErrorKind::Server(_)
                | ErrorKind::Extension
                | ErrorKind::AuthenticationFailed
                | ErrorKind::InvalidClientConfig
                | ErrorKind::RESP3NotSupported
        );
        // Words that are no use on this connection: a master that has become a replica, or a
        // server that has forgotten who logged in.
        let misdirected = matches!(
            kind,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        ) || error.code() == Some("NOAUTH");
        let replace = !answered || misdirected;
        let no_script = kind == ErrorKind::Server(ServerErrorKind::NoScript);
        let message = message(&error);
        let error = if answered {
            StoreError::refused(message)
        } else {
            StoreError::in_doubt(message)
        };
        Self {
            error,
            replace,
            no_script,
            silent: false,
        }
    }
}

/// What a user needs, for a server that does not say which of them is missing.
const RIGHTS: &str = "a lock client needs +set +get +del +pexpire +pttl +type +time +eval +evalsha +zadd +zpopmin \
                      +zrem +zrank +zrange +publish +subscribe +pubsub|numsub on the keys and the channels under its prefix";

/// What somebody is told whose server is a part of a cluster.
const CLUSTER: &str = "it is a node of a Redis Cluster, which is not supported: use a single server, with \
                       `cluster-enabled no`, for the locks";

/// What somebody is told whose server does not know a command.
const NOT_WHOLE: &str = "a lock client needs a server of Redis 6 or Valkey 7 or later, with scripts, and not a \
                         Sentinel or a proxy that lacks commands";

/// So many characters of a server's words are told.
const LONGEST: usize = 400;

/// The server's own words where it said any: they name the missing right, the full memory, the
/// replica.
fn message(error: &RedisError) -> String {
    if error.kind() == ErrorKind::Parse {
        // What the parser says of it takes several lines.
        return "what answers there does not speak Redis's protocol: is it the right port, and plain \
                or TLS as the URL has it?"
            .to_owned();
    }
    let mut words = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    };
    if let Some((end, _)) = words.char_indices().nth(LONGEST) {
        words.truncate(end);
    }
    let crosses = error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot);
    if crosses || error.is_cluster_error() {
        format!("{words} ({CLUSTER})")
    } else if error.code() == Some("NOPERM") || words.contains("can't run this command") {
        format!("{words} ({RIGHTS})")
    } else if words.contains("unknown command") {
        format!("{words} ({NOT_WHOLE})")
    } else {
        words
    }
}
