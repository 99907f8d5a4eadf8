//! What can go wrong, one variant a cause.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::key::KeyError;
use crate::listed::listed;
use crate::reply::{KeptReply, ReplyError};

#[cfg(feature = "axum")]
mod response;

/// Why a lock was not taken, not kept, or not asked for.
///
/// The variants never stand in for one another: an outage is never reported as
/// [`Busy`](Self::Busy), and a busy key never as an outage. `Display` is one line that names the
/// key (without the client's prefix) and the cause. Control characters in it are escaped; the fields
/// have keys as they are. Of a call with more than four keys the first three are named.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the key, and went on holding it for as long as the call would wait.
    Busy {
        /// The key, without the client's prefix.
        key: String,
        /// The holder as `host:pid`, or `unknown` where the value under the key is not of this
        /// library's form. Never the holder's whole owner id, which would let a reader of the log
        /// release the lock. Where the call held other keys itself while it waited, they are named
        /// in brackets: this is where two calls show that wait for what the other holds.
        holder: String,
        /// How long the holder's lease still runs unless it is renewed.
        remaining: Duration,
        /// Since when the holder has the key, as far as that is known: by the store's clock, by that of the
        /// holder where it did not have to wait, and by this machine's where this process holds the key
        /// itself. Clocks differ, so this may lie in the future. Where a lock stays closed for its
        /// `min_hold`, since when it is closed.
        since: Option<SystemTime>,
    },
    /// The work was done already: a call with `once` has left its mark, which stands for as long as
    /// that call asked for. It is not waited for, however long the call would wait: the mark ends
    /// when it would be time to run again, not when a holder is done.
    Done {
        /// The key, without the client's prefix.
        key: String,
        /// When it was done, by the store's clock.
        since: SystemTime,
        /// What was kept of it for later calls: `on_done = replay` reads it, and so does
        /// [`KeptReply::read`] with the feature `serde`.
        reply: Option<KeptReply>,
    },
    /// The work was done already, and `on_done = replay` has nothing to give back for it. It is not done again
    /// while its mark stands.
    NoReply {
        /// The key, without the client's prefix.
        key: String,
        /// When it was done, by the store's clock.
        since: SystemTime,
        /// Why there is no reply.
        cause: ReplyError,
    },
    /// The store could not be asked, or would not answer. Whether the key is free is not known.
    Unavailable {
        /// The key, without the client's prefix.
        key: String,
        /// What the store or the connection said.
        source: StoreError,
    },
    /// The lease ended before the work did.
    Lost {
        /// The key, without the client's prefix.
        key: String,
        /// How the lease ended.
        cause: LossCause,
        /// For how long the lease had been held when the loss was noticed.
        held: Duration,
    },
    /// Something that is not a lock sits under the key. It is neither overwritten nor deleted.
    Foreign {
        /// The key, without the client's prefix.
        key: String,
        /// What was found, for example `a hash` or `a string without expiry`.
        found: String,
    },
    /// The key could not be made from the arguments; the store was not asked.
    Key(KeyError),
    /// A ttl, wait or other setting of this call is out of bounds, of the library's or of its store's, or its
    /// thread may not [wait for it](crate::distributed_lock#blocking); nothing was asked for.
    Invalid {
        /// The key, without the client's prefix.
        key: String,
        /// The setting, its value and the rule; or what the store says.
        reason: String,
    },
    /// The client could not be set up: a URL, prefix or timeout that cannot work.
    Config(String),
    /// The call names no client, and none is installed or in scope.
    NotInstalled,
    /// [`Client::install`](crate::Client::install) was called a second time in this process.
    AlreadyInstalled,
}

listed! {
    /// How a lease ended before its holder gave it back.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum LossCause {
        /// Its time was over: it could not be renewed in time, or was not to be renewed.
        Expired,
        /// The key was gone from the store: deleted by hand, evicted, flushed, or lost in a restart.
        Deleted,
        /// The key stood under another owner, or under something that is not a lock.
        Taken,
        /// [`Client::shutdown`](crate::Client::shutdown) took it back.
        Shutdown,
        /// It was held for its `max_hold`.
        HeldTooLong,
    }
}

/// Why a store could not be asked, in one line. Cheap to clone.
#[derive(Clone)]
pub struct StoreError(Arc<Inner>);

struct Inner {
    message: Cow<'static, str>,
    kind: StoreErrorKind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreErrorKind {
    Refused,
    Unreachable,
    InDoubt,
    Invalid,
    Late,
    Unacknowledged,
}

impl StoreError {
    /// The store refused: it answered, and what was asked has not been done.
    pub fn refused(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(message.into(), StoreErrorKind::Refused)
    }

    /// The store could not be reached: it was not asked, and nothing has been done.
    ///
    /// Like no answer, and unlike a refusal, this is an outage, which
    /// [`fail_fast`](crate::ClientBuilder::fail_fast) spares other calls.
    pub fn unreachable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(message.into(), StoreErrorKind::Unreachable)
    }

    /// The store did not answer: what was asked may have been done, or may still be.
    ///
    /// After an acquire that failed so, the key is given back in case it was granted.
    pub fn in_doubt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(message.into(), StoreErrorKind::InDoubt)
    }

    /// The store takes no such request from this caller, whatever its state: a key that is too long for
    /// it, for example. Becomes [`Error::Invalid`]: no fallback runs, and others who wait for the same
    /// lock go on waiting.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(message.into(), StoreErrorKind::Invalid)
    }

    /// What a call is told that has asked for this key.
    pub(crate) fn told_of(self, key: &str) -> Error {
        let key = key.to_owned();
        if self.is_invalid() {
            let reason = self.to_string();
            Error::Invalid { key, reason }
        } else {
            Error::Unavailable { key, source: self }
        }
    }

    pub(crate) fn is_invalid(&self) -> bool {
        self.0.kind == StoreErrorKind::Invalid
    }

    /// The store granted, and the grant came when its ttl was over.
    pub(crate) fn late() -> Self {
        let message = "the grant came when its ttl was over: the ttl is too short for this store";
        Self::new(message.into(), StoreErrorKind::Late)
    }

    /// The store is away, as far as is known.
    pub(crate) fn is_outage(&self) -> bool {
        let kinds = [StoreErrorKind::Unreachable, StoreErrorKind::InDoubt];
        kinds.contains(&self.0.kind)
    }

    pub(crate) fn is_late(&self) -> bool {
        self.0.kind == StoreErrorKind::Late
    }

    /// The store granted, and its replicas have not acknowledged the grant.
    pub(crate) fn unacknowledged(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(message.into(), StoreErrorKind::Unacknowledged)
    }

    /// Whether the key was granted, and given back because not enough replicas have acknowledged that in
    /// time; see [`ClientBuilder::replicas`](crate::ClientBuilder::replicas).
    #[must_use]
    pub fn is_unacknowledged(&self) -> bool {
        self.0.kind == StoreErrorKind::Unacknowledged
    }

    /// The same in other words.
    pub(crate) fn saying(&self, message: String) -> Self {
        Self::new(message.into(), self.0.kind)
    }

    /// The error below this one, for [`std::error::Error::source`].
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            message: self.0.message.clone(),
            kind: self.0.kind,
            source: Some(Box::new(source)),
        }))
    }

    /// Whether what was asked may have been done all the same.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(
            self.0.kind,
            StoreErrorKind::InDoubt | StoreErrorKind::Unacknowledged
        )
    }

    fn new(message: Cow<'static, str>, kind: StoreErrorKind) -> Self {
        Self(Arc::new(Inner {
            message,
            kind,
            source: None,
        }))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(f).write_str(&self.0.message)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({:?})", self.0.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out",
            Self::Deleted => "the key was gone from the store",
            Self::Taken => "the key stood under another owner",
            Self::Shutdown => "the client was shut down",
            Self::HeldTooLong => "it was held for as long as its max_hold allows",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(&mut OneLine(f))
    }
}

impl Error {
    /// The key as it is shown.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Busy { key, .. }
            | Self::Done { key, .. }
            | Self::NoReply { key, .. }
            | Self::Unavailable { key, .. }
            | Self::Lost { key, .. }
            | Self::Foreign { key, .. }
            | Self::Invalid { key, .. } => Some(key),
            Self::Key(_) | Self::Config(_) | Self::NotInstalled | Self::AlreadyInstalled => None,
        }
    }

    pub(crate) fn holder(&self) -> Option<&str> {
        match self {
            Self::Busy { holder, .. } => Some(holder),
            _ => None,
        }
    }

    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Busy { remaining, .. } => Some(*remaining),
            _ => None,
        }
    }

    pub(crate) fn cause(&self) -> Option<LossCause> {
        match self {
            Self::Lost { cause, .. } => Some(*cause),
            _ => None,
        }
    }

    pub(crate) fn held(&self) -> Option<Duration> {
        match self {
            Self::Lost { held, .. } => Some(*held),
            _ => None,
        }
    }

    fn write(&self, f: &mut impl Write) -> fmt::Result {
        match self {
            Self::Busy {
                key,
                holder,
                remaining,
                since,
            } => {
                write!(f, "`{key}` is busy: held by {holder}")?;
                if let Some(since) = since {
                    write!(f, " for {}", Age::of(*since))?;
                }
                write!(f, ", whose lease runs for another {remaining:?}")
            }
            Self::Done { key, since, .. } => {
                let ago = Age::of(*since);
                write!(f, "`{key}` was done {ago} ago and is not to run again yet")
            }
            Self::NoReply { key, since, cause } => {
                let ago = Age::of(*since);
                write!(
                    f,
                    "`{key}` was done {ago} ago, and its reply is not to be had: {cause}"
                )
            }
            Self::Unavailable { key, source } if source.is_unacknowledged() => {
                write!(f, "`{key}` was not taken: {source}")
            }
            Self::Unavailable { key, source } => {
                write!(f, "the store could not be asked for `{key}`: {source}")
            }
            Self::Lost { key, cause, held } => {
                write!(f, "`{key}` was lost after {held:?}: {cause}")
            }
            Self::Foreign { key, found } => write!(
                f,
                "`{key}` cannot be locked: {found} that is not a lock is stored under it; \
                 delete it or use another key or prefix"
            ),
            Self::Key(error) => write!(f, "{error}"),
            Self::Invalid { key, reason } => write!(f, "`{key}` was not asked for: {reason}"),
            Self::Config(reason) => f.write_str(reason),
            Self::NotInstalled => f.write_str(
                "no client: call `Client::connect(…).await?.install()?` when the program starts, \
                 run the call in `client.scope(…)`, or name one with `client = …`",
            ),
            Self::AlreadyInstalled => f.write_str(
                "a client is installed already: install one for the process, and name others \
                 with `client = …` or `client.scope(…)`",
            ),
        }
    }
}

/// How long ago something was, in its two largest units; nothing where the clock it was read from is ahead.
struct Age(Duration);

impl Age {
    fn of(since: SystemTime) -> Self {
        Self(since.elapsed().unwrap_or_default())
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        const DAY: u64 = 24 * HOUR;
        let seconds = self.0.as_secs();
        let (large, small, of_large, of_small) = match seconds {
            0 => return write!(f, "{}ms", self.0.as_millis()),
            1..MINUTE => return write!(f, "{seconds}s"),
            MINUTE..HOUR => ("m", "s", MINUTE, 1),
            HOUR..DAY => ("h", "m", HOUR, MINUTE),
            DAY.. => ("d", "h", DAY, HOUR),
        };
        let rest = seconds % of_large / of_small;
        write!(f, "{}{large} {rest}{small}", seconds / of_large)
    }
}

/// Escapes what would break or reorder the line that it stands in: keys by hand, and what a store
/// says, may hold anything.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let breaks = |c: char| {
            c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        for part in text.split_inclusive(breaks) {
            let end = part.char_indices().next_back().filter(|(_, c)| breaks(*c));
            let plain = end.map_or(part, |(at, _)| &part[..at]);
            self.0.write_str(plain)?;
            if let Some((_, c)) = end {
                write!(self.0, "{}", c.escape_default())?;
            }
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // `Display` has said what the store error says, so the chain goes on below it.
            Self::Unavailable { source, .. } => source.source(),
            _ => None,
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_its_two_largest_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (59_999, "59s"),
            (60_000, "1m 0s"),
            (123_000, "2m 3s"),
            (3_600_000, "1h 0m"),
            (86_399_000, "23h 59m"),
            (90_000_000, "1d 1h"),
            (400 * 86_400_000, "400d 0h"),
        ] {
            assert_eq!(Age(Duration::from_millis(ms)).to_string(), text);
        }
    }

    #[test]
    fn who_is_busy_is_told_with_since_when_where_that_is_known() {
        let told = |since| {
            let (key, holder) = ("sync:1".to_owned(), "web-3:4711".to_owned());
            let remaining = Duration::from_secs(12);
            let busy = Error::Busy {
                key,
                holder,
                remaining,
                since,
            };
            busy.to_string()
        };
        let ago = |seconds| Some(SystemTime::now() - Duration::from_secs(seconds));
        let ahead = Some(SystemTime::now() + Duration::from_secs(60));
        for (since, expected) in [(ago(7_260), " for 2h 1m"), (ahead, " for 0ms"), (None, "")] {
            let text = format!(
                "`sync:1` is busy: held by web-3:4711{expected}, whose lease runs for another 12s"
            );
            assert_eq!(told(since), text);
        }
    }
}
