//! What harms locks in a database: looked for where every role may look, and told with what to do.

use std::time::{Duration, Instant, SystemTime};

use tokio_postgres::config::Host;

use super::{number, value};
use crate::error::StoreError;
use crate::owner::Origin;
use crate::store::Claim;
use crate::store::inspect::{Finding, Inspect, Severity};
use crate::store::postgres::Postgres;
use crate::store::postgres::standing::moment;

mod facts;

use facts::Facts;

/// How often the server is asked for its time, one question after the other.
const QUESTIONS: usize = 20;

/// Slower answers take a part of each lease that matters.
const SLOW: Duration = Duration::from_millis(50);

/// Clocks that are further apart make what is told of ages wrong.
const APART: Duration = Duration::from_secs(1);

/// How long what is tried stays where nothing can be deleted.
const TTL: Duration = Duration::from_secs(10);

/// The rights that the role does not have, one a row.
const MISSING_RIGHTS: &str = "SELECT 'USAGE on the schema lockattr' \
    WHERE NOT has_schema_privilege('lockattr', 'USAGE') \
    UNION ALL SELECT r || ' on lockattr.' || t \
    FROM unnest(ARRAY['locks', 'holders', 'waiters']) AS t, \
      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r \
    WHERE NOT has_table_privilege('lockattr.' || t, r) \
    UNION ALL SELECT 'EXECUTE on ' || p.oid::regprocedure \
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
    WHERE n.nspname = 'lockattr' AND NOT has_function_privilege(p.oid, 'EXECUTE')";

impl Postgres {
    pub(super) async fn diagnosed(&self) -> Result<Vec<Finding>, StoreError> {
        let part = self.part();
        let mut asked = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            asked.push(self.time().await?);
        }
        let (facts, _) = self.step(facts::ASK, None).await?;
        let facts = Facts::read(&facts)?;
        let (latency, clock) = times(&asked);
        let found = [
            facts.version(),
            facts.durability(),
            facts.standbys(),
            facts.clients(),
            facts.space(),
            facts.vacuum(),
            latency,
            clock,
            facts.encryption(self.is_local()),
        ];
        let mut findings: Vec<_> = found.map(|found| found.at(&part)).into();
        findings.extend(self.rights().await?.map(|found| found.at(&part)));
        Ok(findings)
    }

    /// The server's time, the local time when it came, and how long that took.
    async fn time(&self) -> Result<TimeAsked, StoreError> {
        let begun = Instant::now();
        let (answer, _) = self
            .step("SELECT lockattr.micros(clock_timestamp())", None)
            .await?;
        Ok(TimeAsked {
            theirs: moment(number(answer.text(0)?)?),
            ours: SystemTime::now(),
            taken: begun.elapsed(),
        })
    }

    /// What the role may do, by name, and whether every step works for it, as when a client connects.
    async fn rights(&self) -> Result<impl Iterator<Item = Found>, StoreError> {
        let (answer, _) = self.step(MISSING_RIGHTS, None).await?;
        let mut found = Vec::new();
        for row in &answer.rows {
            found.push(Found {
                topic: "rights",
                severity: Severity::Fault,
                text: format!("the role has no right to {}", value(row, 0)?),
                advice: "grant what the first lines of `lockattr::POSTGRES_SCHEMA` say",
            });
        }
        if found.is_empty() {
            // Of nobody else, and nothing is left of it.
            let locks = [format!("{}:diagnosis", self.registry.channel)];
            let origin = Origin::here();
            let owner = origin.owner(origin.new_id());
            found.push(
                match self.check_all(Claim::new(&locks, &owner, TTL)).await {
                    Ok(()) => Found::good("rights", "every step that a lock takes is allowed"),
                    Err(error) => Found {
                        topic: "rights",
                        severity: Severity::Fault,
                        text: format!(
                            "a lock of nobody else could not be taken and given back: {error}"
                        ),
                        advice: "no lock can be used before that is set right",
                    },
                },
            );
        }
        Ok(found.into_iter())
    }

    fn is_local(&self) -> bool {
        let mut hosts = self.commands.server.target.hosts.iter();
        hosts.all(|address| match (&address.host, address.at) {
            (_, Some(at)) => at.is_loopback(),
            (Host::Tcp(host), None) => {
                let address: Result<std::net::IpAddr, _> = host.parse();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
            #[cfg(unix)]
            (Host::Unix(_), None) => true,
        })
    }
}

/// What was found, before it is said where.
struct Found {
    topic: &'static str,
    severity: Severity,
    text: String,
    advice: &'static str,
}

impl Found {
    fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self {
            topic,
            severity: Severity::Good,
            text: found.into(),
            advice: "",
        }
    }

    /// The same where there is something to do about it.
    fn but(self, is_bad: bool, severity: Severity, advice: &'static str) -> Self {
        if !is_bad {
            return self;
        }
        Self {
            severity,
            advice,
            ..self
        }
    }

    fn at(self, part: &str) -> Finding {
        Finding::new(part, self.topic, self.severity, self.text, self.advice)
    }
}

struct TimeAsked {
    theirs: SystemTime,
    ours: SystemTime,
    taken: Duration,
}

/// How fast the server answers, and how far its clock is from ours, as well as the fastest answer tells.
fn times(asked: &[TimeAsked]) -> (Found, Found) {
    let mut asked: Vec<_> = asked.iter().collect();
    asked.sort_unstable_by_key(|asked| asked.taken);
    let (fastest, longest) = (asked[0], asked[asked.len() - 1].taken);
    let median = asked[asked.len() / 2].taken;
    let latency = format!(
        "{} questions were answered in {median:.1?} by the median, in {longest:.1?} at most",
        asked.len()
    );
    let ours = fastest.ours - fastest.taken / 2;
    let (apart, direction) = match fastest.theirs.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let clock = if apart <= APART {
        format!("the server's clock is within {APART:?} of this machine's")
    } else {
        format!("the server's clock is {apart:.1?} {direction} this machine's")
    };
    (
        Found::good("latency", latency).but(
            median > SLOW,
            Severity::Advice,
            "each step of a lock takes that long: keep the server near, and look what else it does",
        ),
        Found::good("clock", clock).but(
            apart > APART,
            Severity::Advice,
            "have both follow a time server: ages are shown by these clocks. Leases run by the server's alone, \
             and holders count by their own monotonic clocks",
        ),
    )
}
