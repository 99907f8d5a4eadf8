//! What harms locks on an ensemble: looked for where it can be found out, and told with what to do.
//!
//! # Rights
//! Those of a client, which are tried by its own steps on a key of its own of which nothing is left. Each server
//! is asked `srvr`, which servers answer everybody unless they are told not to.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::super::ZooKeeper;
use super::super::protocol::Request;
use super::super::step::ServerTime;
use super::super::url::Host;
use super::leader::leaders_time;
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all};
use crate::store::Claim;
use crate::store::inspect::{Finding, Severity};

mod servers;

use servers::{Member, Members};

/// How often the servers are asked, one question after the other, and how often they write.
const QUESTIONS: usize = 20;
const WRITES: usize = 5;

/// Slower answers take a part of each lock that matters.
const SLOW: Duration = Duration::from_millis(50);

/// Clocks that are further apart make what is told of ages wrong.
const APART: Duration = Duration::from_secs(1);

/// What is read of a server at most.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// Who tries: nobody else has this id.
const OWNER: &str = "00000000000000000000000000000001@diagnosis:0";

fn good(topic: &'static str, found: impl Into<String>) -> Finding {
    Finding::new("", topic, Severity::Good, found, "")
}

impl ZooKeeper {
    pub(super) async fn diagnosed(&self) -> Result<Vec<Finding>, StoreError> {
        let life = self.step().life().await?;
        let hosts = self.ensemble.hosts.iter();
        let asked = hosts.map(|host| Box::pin(self.member(host)) as Boxed<'_, Member>);
        let servers = all(asked.collect()).await;
        let config = self.step().get("/zookeeper/config", false).await;
        let config = config.ok().flatten().map(|(config, _)| config);
        let mut findings = Members::new(servers, config.as_deref()).findings();
        findings.push(good(
            "sessions",
            format!(
                "sessions of {:?}: a client that dies holds its locks for that long, and one that is cut off \
                 for less keeps them",
                life.timeout
            ),
        ));
        findings.push(self.latency().await?);
        findings.extend(self.writes().await?);
        findings.push(self.tried_rights(life.session, life.timeout).await);
        findings.push(self.removal());
        findings.extend(self.quota().await);
        findings.push(self.encryption());
        Ok(findings)
    }

    /// What a server says of itself.
    async fn member(&self, host: &Host) -> Member {
        let asking = async {
            let mut stream = self.ensemble.transport.stream(host).await?;
            stream.write_all(b"srvr").await?;
            stream.flush().await?;
            let mut answer = Vec::new();
            // Over TLS, a server may not say that it has said all.
            let read = stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await;
            if answer.is_empty() {
                read?;
            }
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        let bound = self.connect_timeout + self.reply_timeout;
        let answer = match timeout(bound, asking).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {bound:?}")),
        };
        Member {
            part: host.to_string(),
            answer,
        }
    }

    /// How fast the leader answers.
    async fn latency(&self) -> Result<Finding, StoreError> {
        let mut taken = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            let begun = Instant::now();
            self.step().ask(Request::sync()).await?;
            taken.push(begun.elapsed());
        }
        let advice = "each step of a lock takes that long: keep the servers near each other and the client, and \
                      look for garbage collections";
        Ok(speed("latency", "questions were answered", taken, advice))
    }

    /// How fast a majority has something on its disks, and how far the leader's clock is from ours.
    async fn writes(&self) -> Result<[Finding; 2], StoreError> {
        let mut told = Vec::with_capacity(WRITES);
        for _ in 0..WRITES {
            let begun = Instant::now();
            let time = leaders_time(&self.step()).await;
            match time {
                // Made and deleted.
                Ok(time) => told.push((begun.elapsed() / 2, time)),
                Err(failure) => {
                    let error = StoreError::from(failure).to_string();
                    let unknown = |topic| Finding::new("", topic, Severity::Unknown, &error, "");
                    return Ok([unknown("disks"), unknown("clock")]);
                }
            }
        }
        let taken = told.iter().map(|(taken, _)| *taken).collect();
        let advice = "each lock is written to the disks of a majority: give the transaction log a disk of its \
                      own (`dataLogDir`), one that is fast at fsync";
        let fastest = told.iter().min_by_key(|(taken, _)| *taken);
        let clock = fastest.map_or_else(
            || good("clock", "it was not told"),
            |(_, time)| clock(*time, SystemTime::now()),
        );
        Ok([speed("disks", "writes were done", taken, advice), clock])
    }

    /// What a client may do, tried step by step as when it connects.
    async fn tried_rights(&self, session: i64, ttl: Duration) -> Finding {
        let locks = [format!("diagnosis:{session:x}")];
        match self.prove(Claim::new(&locks, OWNER, ttl)).await {
            Ok(()) => good("rights", "every step that a lock takes is allowed"),
            Err(error) => {
                let advice = "no lock can be used without it: give the user of the URL `cdrw` on its node and \
                              below, `setAcl` in zkCli.sh";
                Finding::new("", "rights", Severity::Fault, error.to_string(), advice)
            }
        }
    }

    /// Whether marks go by themselves, which is known once one was left.
    fn removal(&self) -> Finding {
        if self.knows_no_ttls.load(Ordering::Relaxed) {
            let found = "the servers know no nodes with a ttl: marks of `once` and `min_hold` stay until somebody asks \
                         for their key again";
            let advice =
                "start each server with `extendedTypesEnabled=true` if keys with marks are many";
            return Finding::new("", "marks", Severity::Advice, found, advice);
        }
        good("marks", "the servers remove marks that are over")
    }

    /// `None` where there is none.
    async fn quota(&self) -> Option<Finding> {
        let root = &self.ensemble.root;
        let node = format!("/zookeeper/quota{root}/zookeeper_limits");
        let (limits, _) = self.step().get(&node, false).await.ok()??;
        Some(Finding::new(
            "",
            "quota",
            Severity::Advice,
            format!("there is a quota of the node of the locks: {limits}"),
            "each holder and each waiter is a node: no lock is granted once it is used up where the servers \
             enforce it (`enforceQuota=true`); raise it by `setquota` in zkCli.sh",
        ))
    }

    fn encryption(&self) -> Finding {
        #[cfg(feature = "tls")]
        if self.ensemble.transport.tls.is_some() {
            return good("encryption", "the connections are encrypted");
        }
        let is_local = |host: &Host| {
            let address: Result<std::net::IpAddr, _> = host.name.parse();
            host.name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        if self.ensemble.hosts.iter().all(is_local) {
            return good("encryption", "the servers are on this machine");
        }
        Finding::new(
            "",
            "encryption",
            Severity::Advice,
            "the connections are not encrypted, and servers are on other machines",
            "use TLS (zookeeper+tls://), or a network that nobody else can listen to: whoever reads the names of \
             nodes can end locks",
        )
    }
}

fn speed(topic: &'static str, what: &str, mut taken: Vec<Duration>, advice: &str) -> Finding {
    taken.sort_unstable();
    let median = taken.get(taken.len() / 2).copied().unwrap_or_default();
    let longest = taken.last().copied().unwrap_or_default();
    let found = format!(
        "{} {what} in {median:.1?} by the median, in {longest:.1?} at most",
        taken.len()
    );
    if median > SLOW {
        Finding::new("", topic, Severity::Advice, found, advice)
    } else {
        good(topic, found)
    }
}

/// The leader's time is as late as told at least.
fn clock(theirs: ServerTime, ours: SystemTime) -> Finding {
    let (apart, direction) = match theirs.now().duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if apart <= APART {
        return good(
            "clock",
            format!("the leader's clock is within {APART:?} of this machine's"),
        );
    }
    Finding::new(
        "",
        "clock",
        Severity::Advice,
        format!("the leader's clock is {apart:.1?} {direction} this machine's"),
        "have all servers follow a time server: ages are shown by the leader's clock, and marks are over by it, \
         sooner or later where another server leads. Leases are timed by no clock of a server, and end in time",
    )
}
