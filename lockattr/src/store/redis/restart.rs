//! Whether a node of a quorum was started anew too early.
//!
//! A server that keeps nothing on disk has forgotten, after a restart, to whom it has given its vote. The
//! description of Redlock lets it stay away for the longest ttl in use, in which every lease ends that it
//! may have forgotten ("delayed restarts"). Whether it did can be seen from how long it runs.

use std::time::Duration;

use redis::Value;

use super::Redis;
use super::fault::Fault;
use super::reply::text;
use crate::error::StoreError;

impl Redis {
    /// Refuses a server that keeps nothing on disk and was started lately, where that is to be checked.
    pub(super) async fn check_restart(&self) -> Result<(), Fault> {
        let Some(longest_ttl) = self.delayed_restart else {
            return Ok(());
        };
        let mut deadline = self.deadline();
        let asked = self.connections.ask(redis::cmd("INFO"), &mut deadline);
        let (answer, _) = asked.await.map_err(|fault| {
            let advice = ": a `delayed_restart` needs the right `+info`";
            let why = format!("{}{advice}", fault.error);
            Fault::last(fault.error.saying(why))
        })?;
        let why = Uptime::read(&answer)
            .ok_or_else(|| self.protocol_error(&answer))?
            .too_early(longest_ttl);
        why.map_or(Ok(()), |why| {
            let address = self.connections.server().address();
            let why = format!("the node at {address} {why}");
            Err(Fault::last(StoreError::invalid(why)))
        })
    }
}

/// What a server says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Uptime {
    since: Duration,
    writes_down: bool,
}

impl Uptime {
    fn read(info: &Value) -> Option<Self> {
        let text = text(info)?;
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        let seconds = value("uptime_in_seconds")?.parse().ok()?;
        Some(Self {
            since: Duration::from_secs(seconds),
            writes_down: value("aof_enabled")? != "0",
        })
    }

    /// What is wrong, and what to do, where it runs for less than that and keeps nothing.
    fn too_early(&self, longest_ttl: Duration) -> Option<String> {
        let left = longest_ttl.checked_sub(self.since)?;
        // It tells whole seconds.
        let left = left.as_secs() + 1;
        (!self.writes_down).then(|| {
            format!(
                "was started {:?} ago and keeps nothing on disk: it may have forgotten whom it gave its vote; \
                 connect again in {left} s, or have it keep what it is told (`appendonly yes`, `appendfsync \
                 always`)",
                self.since
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(seconds: u64, writes_down: bool) -> Uptime {
        let aof = u8::from(writes_down);
        let info = format!(
            "# Server\r\nuptime_in_seconds:{seconds}\r\n# Persistence\r\naof_enabled:{aof}\r\n"
        );
        Uptime::read(&Value::BulkString(info.into_bytes())).expect("both are told")
    }

    #[test]
    fn a_server_that_keeps_nothing_has_to_run_for_the_longest_ttl() {
        let ttl = Duration::from_secs(30);
        for (seconds, writes_down, early) in [
            (0, false, true),
            (30, false, true),
            (31, false, false),
            (0, true, false),
            (1_000_000, false, false),
        ] {
            let why = running(seconds, writes_down).too_early(ttl);
            assert_eq!(why.is_some(), early, "{seconds} {writes_down}: {why:?}");
        }
        let why = running(7, false).too_early(ttl).unwrap_or_default();
        assert!(why.contains("7s ago") && why.contains("in 24 s"), "{why}");
    }

    #[test]
    fn what_does_not_say_it_is_no_answer() {
        for text in [
            "",
            "uptime_in_seconds:7\r\n",
            "uptime_in_seconds:x\r\naof_enabled:0\r\n",
        ] {
            let info = Value::BulkString(text.as_bytes().to_vec());
            assert_eq!(Uptime::read(&info), None, "{text}");
        }
    }
}
