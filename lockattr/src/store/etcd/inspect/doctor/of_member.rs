//! What one member says of itself.

use std::net::IpAddr;

use crate::store::etcd::fault::Fault;
use crate::store::etcd::inspect::proto::Status;
use crate::store::etcd::members::Found;
use crate::store::inspect::{Finding, Severity};

/// What a member takes that was given no quota, in bytes.
const DEFAULT_QUOTA: i64 = 2 << 30;

/// Above so many percent it is nearly full.
const NEARLY_FULL: i64 = 80;

pub(super) fn findings(part: &str, answer: &Result<Status, Fault>) -> Vec<Finding> {
    let status = match answer {
        Ok(status) => status,
        Err(fault) => {
            return vec![Finding::new(
                part,
                "server",
                Severity::Fault,
                fault.error.to_string(),
                "start it, or take it out of the URL: clients go on to the next member, and locks live as long as a \
                 majority does",
            )];
        }
    };
    let mut findings = vec![
        version(part, &status.version),
        role(part, status),
        space(part, status),
    ];
    let alarms = status.errors.iter().map(|error| alarm(part, error));
    findings.extend(alarms);
    findings
}

fn version(part: &str, version: &str) -> Finding {
    let found = format!("etcd {version}");
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let mut next = || numbers.next().unwrap_or(0);
    let numbers: (u32, u32, u32) = (next(), next(), next());
    let (severity, advice) = match numbers {
        (..3, ..) | (3, ..4, _) => (
            Severity::Warning,
            "use 3.4.31, 3.5.13 or later: nothing before 3.4 is tested with locks",
        ),
        (3, 4, ..31) | (3, 5, ..13) => (
            Severity::Warning,
            "use 3.4.31, 3.5.13 or later: a leader of an earlier one that stood still for longer than a lease ends \
             it though it was renewed meanwhile, and two may hold its lock until the first is told, at its next \
             renewal",
        ),
        _ => (Severity::Good, ""),
    };
    Finding::new(part, "server", severity, found, advice)
}

fn role(part: &str, status: &Status) -> Finding {
    let own = status.header.as_ref().map(|header| header.member);
    let (severity, found, advice) = if status.is_learner {
        (
            Severity::Fault,
            "it is a learner, which takes no locks",
            "take it out of the URL until it is promoted (`etcdctl member promote`)",
        )
    } else if own == Some(status.leader) {
        (Severity::Good, "it leads", "")
    } else {
        (Severity::Good, "it follows", "")
    };
    Finding::new(part, "role", severity, found, advice)
}

fn space(part: &str, status: &Status) -> Finding {
    let Status {
        size, used, quota, ..
    } = *status;
    let known = (quota > 0).then_some(quota);
    let percent = size.saturating_mul(100) / known.unwrap_or(DEFAULT_QUOTA);
    let of = match known {
        Some(quota) => format!("of {quota} that it may take"),
        None => format!("of {DEFAULT_QUOTA} that it may take where no quota is set"),
    };
    let found = format!("its data take {size} bytes {of} ({percent} %), with {used} in use");
    let (severity, advice) = if percent >= NEARLY_FULL {
        (
            Severity::Warning,
            "compact and `etcdctl defrag`, or raise `--quota-backend-bytes`: a full cluster refuses every acquire",
        )
    } else {
        (Severity::Good, "")
    };
    Finding::new(part, "space", severity, found, advice)
}

/// What a member says is wrong.
fn alarm(part: &str, error: &str) -> Finding {
    let (severity, advice) = if error.contains("NOSPACE") {
        (
            Severity::Fault,
            "no lock is granted: compact, `etcdctl defrag`, and then `etcdctl alarm disarm`",
        )
    } else if error.contains("CORRUPT") {
        (
            Severity::Fault,
            "its data differ from the others': replace the member, and then `etcdctl alarm disarm`",
        )
    } else {
        (
            Severity::Warning,
            "look at its log, and at `etcdctl alarm list`",
        )
    };
    Finding::new(part, "alarm", severity, error, advice)
}

pub(super) fn encryption(member: &Found) -> Finding {
    let (severity, found, advice) = if member.is_encrypted {
        (Severity::Good, "the connections are encrypted", "")
    } else if is_local(&member.name) {
        (Severity::Good, "the server is on this machine", "")
    } else {
        (
            Severity::Advice,
            "the connections are not encrypted, and the server is on another machine",
            "use TLS (etcds://), or a network that nobody else can listen to: passwords and owners are readable",
        )
    };
    Finding::new(&member.name, "encryption", severity, found, advice)
}

/// Whether `host:port` is of this machine.
fn is_local(name: &str) -> bool {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<IpAddr, _> = host.parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;

    fn worst(status: Status) -> Severity {
        let findings = findings("h:1", &Ok(status)).into_iter();
        let worst = findings.map(|finding| finding.severity).max();
        worst.expect("findings")
    }

    #[test]
    fn members_are_judged() {
        let healthy = Status {
            version: "3.5.13".to_owned(),
            size: 20_480,
            leader: 7,
            ..Status::default()
        };
        let but = |change: fn(&mut Status)| {
            let mut status = healthy.clone();
            change(&mut status);
            worst(status)
        };
        assert_eq!(but(|_| {}), Severity::Good);
        let versions = [
            ("3.3.27", Severity::Warning),
            ("3.4.30", Severity::Warning),
            ("3.4.31", Severity::Good),
            ("3.5.12", Severity::Warning),
            ("3.6.0", Severity::Good),
        ];
        for (version, severity) in versions {
            let mut status = healthy.clone();
            version.clone_into(&mut status.version);
            assert_eq!(worst(status), severity, "{version}");
        }
        assert_eq!(but(|it| it.is_learner = true), Severity::Fault);
        assert_eq!(but(|it| it.size = 2_000_000_000), Severity::Warning);
        let roomy = |it: &mut Status| (it.size, it.quota) = (2_000_000_000, 8 << 30);
        assert_eq!(but(roomy), Severity::Good);
        let full = |it: &mut Status| it.errors = vec!["memberID:7 alarm:NOSPACE ".to_owned()];
        assert_eq!(but(full), Severity::Fault);
        let away = Err(Fault::last(StoreError::unreachable("away")));
        assert_eq!(findings("h:1", &away)[0].severity, Severity::Fault);
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        for (name, local) in [
            ("localhost:2379", true),
            ("127.0.0.1:2379", true),
            ("[::1]:2379", true),
            ("10.0.0.7:2379", false),
            ("etcd.example:2379", false),
        ] {
            assert_eq!(is_local(name), local, "{name}");
        }
    }
}
