//! What harms locks on a server: looked for where it can be found out, and told with what to do.
//!
//! # Rights
//! `+info +config|get +slowlog|get`; without one of them the diagnosis says what it could not find out. The
//! rights of a client are tried by its own steps, on a key of its own of which nothing is left.

use std::time::{Instant, SystemTime};

use redis::{Cmd, ConnectionAddr, Value};

use super::{Redis, lacks_right};
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all};
use crate::store::inspect::{Finding, Severity};
use crate::store::redis::fault::Fault;

mod capacity;
mod clock;
mod durability;
mod facts;
mod rights;
mod slow;

use clock::TimeAsked;
use facts::Facts;

/// How often the server is asked for its time, one question after the other.
const QUESTIONS: usize = 20;

/// The settings that matter.
const SETTINGS: [&str; 6] = [
    "save",
    "appendfsync",
    "timeout",
    "maxclients",
    "min-replicas-to-write",
    "cluster-node-timeout",
];

impl Redis {
    /// Looks at the server; `lock` is one that is nobody's, and of which nothing is left.
    pub(in crate::store::redis) async fn diagnosed(
        &self,
        lock: &str,
    ) -> Result<Vec<Finding>, Fault> {
        let mut asked = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            let begun = Instant::now();
            let answer = match self.ask_twice(redis::cmd("TIME")).await {
                // The steps of a lock, which are tried below, need the right as well.
                Err(fault) if lacks_right(&fault) => break,
                answer => answer?,
            };
            asked.push(TimeAsked {
                answer,
                taken: begun.elapsed(),
                at: SystemTime::now(),
            });
        }
        let facts = self.facts().await;
        let mut findings = durability::server(&facts);
        findings.extend(durability::persistence(&facts));
        findings.extend(durability::replicas(&facts));
        findings.extend(capacity::findings(&facts));
        findings.extend(clock::latency(&facts.part, &asked));
        findings.extend(clock::clock(&facts.part, &asked));
        findings.push(slow::finding(&facts.part, self.slow_log().await));
        findings.extend(self.encryption(&facts.part));
        findings.extend(self.tried_rights(&facts.part, lock).await);
        if let Some(sentinels) = self.connections.server().sentinels() {
            findings.extend(sentinels.findings());
        }
        if let Err(fault) = self.check_restart().await {
            let advice = "its votes count again then";
            findings.push(facts.finding(
                "restart",
                Severity::Fault,
                fault.error.to_string(),
                advice,
            ));
        }
        Ok(findings)
    }

    async fn facts(&self) -> Facts {
        let info = self.ask_twice(redis::cmd("INFO")).await;
        let settings = SETTINGS.map(|name| {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            Box::pin(self.ask_twice(command)) as Boxed<'_, Result<Value, Fault>>
        });
        let settings = all(settings.into()).await;
        Facts::read(
            self.address(),
            info.map_err(|fault| fault.error),
            settings
                .into_iter()
                .map(|answer| answer.map_err(|fault| fault.error)),
            self.in_cluster,
            self.acknowledgements.is_some(),
        )
    }

    async fn slow_log(&self) -> Result<Value, Fault> {
        let mut command = redis::cmd("SLOWLOG");
        command.arg("GET").arg(slow::ENTRIES);
        self.ask_twice(command).await
    }

    async fn ask_twice(&self, command: Cmd) -> Result<Value, Fault> {
        let mut deadline = self.deadline();
        self.ask_again(&command, &mut deadline).await
    }

    /// Nothing where sentinels name the server, whose addresses say little.
    fn encryption(&self, part: &str) -> Option<Finding> {
        let target = self.connections.server().fixed()?;
        let is_local = match target.address() {
            ConnectionAddr::Tcp(host, _) => {
                let address: Result<std::net::IpAddr, _> = host.parse();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
            _ => true,
        };
        let (severity, found, advice) = if target.is_tls() {
            (Severity::Good, "the connections are encrypted", "")
        } else if is_local {
            (Severity::Good, "the server is on this machine", "")
        } else {
            (
                Severity::Advice,
                "the connections are not encrypted, and the server is on another machine",
                "use TLS (rediss://), or a network that nobody else can listen to: whoever reads an owner can \
                 end its lock",
            )
        };
        Some(Finding::new(part, "encryption", severity, found, advice))
    }
}

/// What was refused, without where in a script; and the advice that an error ends in.
fn told(error: &StoreError) -> (String, String) {
    let error = error.to_string();
    let (words, advice) = match error.split_once(" (") {
        Some((words, advice)) => (words, advice.trim_end_matches(')')),
        None => (error.as_str(), "no lock can be used without it"),
    };
    let words = words.split(" script: ").next().unwrap_or(words);
    (words.to_owned(), advice.to_owned())
}
