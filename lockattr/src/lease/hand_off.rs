//! Handing a lease off to another process: its terms as a text, and what becomes of it here.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha1_smol::Sha1;

use super::Lease;
use crate::acquisition::Event;
use crate::error::{Error, StoreError};
use crate::limits;
use crate::percent;
use crate::store::Sharing;

/// What a text of this form begins with.
const FORM: &str = "lockattr-lease";

/// The version of the form that is written and read here.
const VERSION: &str = "1";

/// A lease on its way to another process, which takes it up by [`Client::take_up`](crate::Client::take_up).
///
/// It is one line of printable ASCII. **It is a secret**: whoever has the text can take the lease, and so release the
/// lock. `Display`, `to_string` and [`as_str`](Self::as_str) give it out, for a pipe, a queue or a header that others do
/// not read; `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a lease that nobody takes up ends with its ttl"]
pub struct HandedOff(String);

impl HandedOff {
    /// The text, a secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for HandedOff {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HandedOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HandedOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedOff").finish_non_exhaustive()
    }
}

impl Lease {
    /// Hands the lease off to another process, or to another client here, which goes on with it: it renews it and
    /// gives it back, and draws or knows the same [fencing token](Self::token). From here on this side does
    /// neither, and the key stays held; where nobody [takes it up](crate::Client::take_up), it is free when the
    /// rest of its ttl is over, of which two thirds at least are left while renewals go well.
    ///
    /// What is left of `min_hold` and `max_hold` goes along, and so do `once`, `permits` with `weight`, `shared`,
    /// `renew` and the ttl. Of `max_hold` the time on the way is taken off, by the clocks of the two machines.
    ///
    /// The store is not asked. In Redis and Valkey, a cluster included, in ZooKeeper, and in `memory:`; other stores
    /// refuse it. In ZooKeeper what nobody takes up is free with the session of this client at the latest, and with that
    /// alone where this client has ended.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// use lockattr::{Client, Error, Memory};
    ///
    /// # let memory = Memory::new();
    /// # let (client, elsewhere) = (Client::builder().store(memory.clone())?, Client::builder().store(memory)?);
    /// let lease = client.lock("import:7").acquire().await?;
    /// let token = lease.token().await?;
    /// let text = lease.hand_off()?.to_string();
    /// // … to the standard input of a child, which does this:
    /// let lease = elsewhere.take_up(&text).await?;
    /// assert_eq!(lease.token().await?, token);
    /// assert!(matches!(elsewhere.take_up(&text).await, Err(Error::Lost { .. })));
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The lease is given up as if it were dropped, with [`Error::Invalid`] where other handles of it live, which keep
    /// the key, where its call has joined another's lease, where its work is marked as done, or where its store does not have this; [`Error::Lost`] where it
    /// had ended; [`Error::Unavailable`] where a request of it was never answered and may still change it.
    pub fn hand_off(self) -> Result<HandedOff, Error> {
        self.check_process()?;
        self.check()?;
        let (keeper, lease) = (&self.handle.keeper, &self.handle.acquisition);
        let invalid = |reason: &str| Error::Invalid {
            key: self.label().to_owned(),
            reason: reason.to_owned(),
        };
        if lease.is_shared() {
            return Err(invalid(
                "a lease is handed off by its only handle, and this one has others",
            ));
        }
        if self.joined.is_some() {
            return Err(invalid(
                "its call has joined the lease of a call around it, and a lease is handed off whole: hand off that one",
            ));
        }
        if !keeper.store.limits().hand_off {
            return Err(invalid("its store has no lease taken up elsewhere"));
        }
        if lease.done_for().is_some() {
            return Err(invalid("its work is marked as done: give it back"));
        }
        if lease.is_unanswered() || lease.may_be_shortened() {
            let source = StoreError::in_doubt("a request of the lease was not answered yet");
            return Err(source.told_of(self.label()));
        }
        let text = Terms::of(&self).written();
        // Of an end that comes at the same time the first counts.
        lease.give_back();
        if !lease.is_given_back() || lease.happens(Event::HandOn).is_err() {
            self.check()?;
            return Err(invalid("it was given back meanwhile"));
        }
        keeper.forget(self.handle.key);
        keeper.left(lease);
        Ok(HandedOff(text))
    }
}

/// A lease, as a text tells it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) prefix: String,
    /// Without the prefix.
    pub(crate) keys: Vec<String>,
    pub(crate) redact: bool,
    pub(crate) owner: String,
    pub(crate) slot: usize,
    pub(crate) sharing: Sharing,
    pub(crate) ttl: Duration,
    pub(crate) renew: bool,
    /// What is left of it.
    pub(crate) min_hold: Duration,
    /// What is left of it.
    pub(crate) max_hold: Option<Duration>,
    /// What is left of it, where it counts from the grant.
    pub(crate) once: Option<Duration>,
    pub(crate) once_from_begin: bool,
    pub(crate) token: Option<u64>,
}

impl Terms {
    fn of(lease: &Lease) -> Self {
        let acquisition = lease.acquisition();
        let (keys, options) = (&acquisition.keys, acquisition.options());
        let now = acquisition.clock.now();
        let last = acquisition.last_moment();
        Self {
            prefix: keys.prefix().to_owned(),
            keys: keys.unprefixed().map(str::to_owned).collect(),
            redact: keys.redactor().is_some(),
            owner: acquisition.owner(),
            slot: acquisition.slot(),
            sharing: keys.sharing(),
            ttl: acquisition.ttl(),
            renew: acquisition.renews(),
            min_hold: acquisition.closed(),
            max_hold: last.map(|last| last.saturating_duration_since(now)),
            once: lease.once_left(),
            once_from_begin: options.once_from_begin,
            token: acquisition.drawn_token(),
        }
    }

    /// `lockattr-lease:VERSION:CHECK:FIELD=VALUE&…`
    fn written(&self) -> String {
        let mut fields = String::new();
        let mut field = |name: &str, value: &str| {
            if !fields.is_empty() {
                fields.push('&');
            }
            fields.push_str(name);
            fields.push('=');
            encode(value, &mut fields);
        };
        field("prefix", &self.prefix);
        for key in &self.keys {
            field("key", key);
        }
        field("owner", &self.owner);
        let millis = |length: Duration| length.as_millis().to_string();
        let flag = |flag: bool| u8::from(flag).to_string();
        let (permits, shared) = match self.sharing {
            Sharing::Alone => (None, false),
            Sharing::Readers => (None, true),
            Sharing::Permits { permits, weight } => (Some((permits, weight)), false),
        };
        let numbers = [
            ("redact", Some(flag(self.redact))),
            ("slot", Some(self.slot.to_string())),
            ("permits", permits.map(|(permits, _)| permits.to_string())),
            ("weight", permits.map(|(_, weight)| weight.to_string())),
            ("shared", shared.then(|| flag(true))),
            ("ttl", Some(millis(self.ttl))),
            ("renew", Some(flag(self.renew))),
            ("min_hold", Some(millis(self.min_hold))),
            ("max_hold", self.max_hold.map(millis)),
            ("once", self.once.map(millis)),
            ("once_from_begin", Some(flag(self.once_from_begin))),
            ("token", self.token.map(|token| token.to_string())),
            ("at", Some(millis(since_epoch()))),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                field(name, &value);
            }
        }
        format!("{FORM}:{VERSION}:{}:{fields}", check(&fields))
    }
}

impl FromStr for Terms {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const CHANGED: &str = "the text of the lease was changed on its way, or cut off";
        let text = text.trim();
        let rest = text
            .strip_prefix(FORM)
            .and_then(|rest| rest.strip_prefix(':'));
        let rest = rest.ok_or("it is not the text of a lease that was handed off")?;
        let (version, rest) = rest.split_once(':').ok_or(CHANGED)?;
        if version != VERSION {
            return Err("the text of the lease is of another version of this library");
        }
        let (told, fields) = rest.split_once(':').ok_or(CHANGED)?;
        if told != check(fields) {
            return Err(CHANGED);
        }
        Self::read(fields).ok_or(CHANGED)
    }
}

impl Terms {
    fn read(fields: &str) -> Option<Self> {
        let mut terms = Self {
            prefix: String::new(),
            keys: Vec::new(),
            redact: false,
            owner: String::new(),
            slot: 0,
            sharing: Sharing::Alone,
            ttl: Duration::ZERO,
            renew: true,
            min_hold: Duration::ZERO,
            max_hold: None,
            once: None,
            once_from_begin: false,
            token: None,
        };
        let (mut permits, mut weight, mut shared) = (1, 1, false);
        let mut at = None;
        for field in fields.split('&') {
            let (name, value) = field.split_once('=')?;
            let value = percent::decoded(value)?;
            let millis = || value.parse().ok().map(Duration::from_millis);
            match name {
                "prefix" => terms.prefix = value,
                "key" => terms.keys.push(value),
                "owner" => terms.owner = value,
                "redact" => terms.redact = value == "1",
                "slot" => terms.slot = value.parse().ok()?,
                "permits" => permits = value.parse().ok()?,
                "weight" => weight = value.parse().ok()?,
                "shared" => shared = value == "1",
                "ttl" => terms.ttl = millis()?,
                "renew" => terms.renew = value == "1",
                "min_hold" => terms.min_hold = millis()?,
                "max_hold" => terms.max_hold = Some(millis()?),
                "once_from_begin" => terms.once_from_begin = value == "1",
                "once" => terms.once = Some(millis()?),
                "token" => terms.token = Some(value.parse().ok()?),
                "at" => at = Some(millis()?),
                _ => return None,
            }
        }
        terms.sharing = match (shared, permits) {
            (true, _) => Sharing::Readers,
            (false, 1) => Sharing::Alone,
            (false, permits) => Sharing::Permits { permits, weight },
        };
        // Clocks differ: what it was under way is no less than nothing.
        let under_way = since_epoch().saturating_sub(at?);
        terms.max_hold = terms.max_hold.map(|max| max.saturating_sub(under_way));
        let is_whole = !terms.keys.is_empty() && !terms.owner.is_empty();
        (is_whole && terms.slot < limits::MAX_PERMITS as usize).then_some(terms)
    }
}

fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// What tells that a text was changed by chance. It keeps nobody from changing it who knows how it is made.
fn check(fields: &str) -> String {
    let digest = Sha1::from(fields).digest().to_string();
    digest[..16].to_owned()
}

fn encode(value: &str, out: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@/:".contains(&byte);
    percent::encode(value, is_plain, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms {
            prefix: "lock:".to_owned(),
            keys: vec!["größe 1&2=3".to_owned(), "a%b\n".to_owned()],
            redact: true,
            owner: "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-3:7".to_owned(),
            slot: 2,
            sharing: Sharing::Permits {
                permits: 7,
                weight: 3,
            },
            ttl: Duration::from_secs(30),
            renew: false,
            min_hold: Duration::from_millis(7),
            max_hold: None,
            once: Some(Duration::from_secs(60)),
            once_from_begin: true,
            token: Some(u64::MAX),
        }
    }

    #[test]
    fn what_is_written_is_read_and_is_one_line_of_printable_characters() {
        let text = terms().written();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert!(text.parse::<Terms>() == Ok(terms()));
        assert!(format!(" {text}\n").parse::<Terms>() == Ok(terms()));
        for sharing in [Sharing::Alone, Sharing::Readers] {
            let terms = || Terms { sharing, ..terms() };
            assert!(terms().written().parse::<Terms>() == Ok(terms()));
        }
    }

    #[test]
    fn the_time_on_the_way_is_taken_off_max_hold() {
        let max_hold = Some(Duration::from_secs(5));
        let terms = Terms {
            max_hold,
            ..terms()
        };
        let read: Terms = terms.written().parse().ok().unwrap();
        assert!(read.max_hold <= max_hold && read.max_hold > Some(Duration::from_secs(1)));
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        let text = terms().written();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(changed.parse::<Terms>().is_err(), "{changed}");
            assert!(text[..at].parse::<Terms>().is_err());
        }
        for other in ["", "lockattr-lease", "lockattr-lease:2:x:y", "redis://x/"] {
            assert!(other.parse::<Terms>().is_err(), "{other}");
        }
    }

    #[test]
    fn nothing_that_is_shown_for_debugging_tells_the_text() {
        let handed = HandedOff(terms().written());
        assert!(!format!("{handed:?}").contains("019a"));
    }
}
