//! Which server it is, and what it loses: by a restart, or a failover.

use super::facts::Facts;
use crate::store::inspect::{Finding, Severity};

/// A replica that is so many seconds behind has stopped following.
const BEHIND: u64 = 10;

pub(super) fn server(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(version) = facts.info("redis_version") {
        findings.push(of_version(facts, version));
    }
    match facts.info("role") {
        Some("master") => {
            findings.push(facts.finding("role", Severity::Good, "it is a primary", ""));
        }
        Some(_) => findings.push(facts.finding(
            "role",
            Severity::Fault,
            "it is a replica, which takes no locks",
            "connect to its primary, or by sentinels that know which one that is",
        )),
        None => {}
    }
    if facts.info("loading") == Some("1") {
        let found = "it is loading its data";
        let advice = "it answers once that is done";
        findings.push(facts.finding("loading", Severity::Warning, found, advice));
    }
    findings
}

fn of_version(facts: &Facts, version: &str) -> Finding {
    if let Some(version) = facts.info("valkey_version") {
        return facts.finding("server", Severity::Good, format!("Valkey {version}"), "");
    }
    let name = facts.info("server_name").unwrap_or("redis");
    let found = match name {
        "redis" => format!("Redis {version}"),
        name => format!("{name}, as Redis {version}"),
    };
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let (major, minor): (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (severity, advice) = match (major, minor) {
        (..6, _) => (Severity::Fault, "locks need Redis 6 or later, or Valkey"),
        (6, ..2) => (
            Severity::Advice,
            "it has no rights to channels, so that every user may publish to those who wait: use Redis 6.2 or \
             later, or Valkey",
        ),
        _ => (Severity::Good, ""),
    };
    facts.finding("server", severity, found, advice)
}

pub(super) fn persistence(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let failed = ["rdb_last_bgsave_status", "aof_last_write_status"];
    if failed.iter().any(|name| facts.info(name) == Some("err")) {
        findings.push(facts.finding(
            "disk",
            Severity::Warning,
            "the last attempt to write to disk has failed",
            "look at the server's log and its disk: it may refuse all writes until it can save again",
        ));
    }
    let Some(aof) = facts.info("aof_enabled") else {
        return findings;
    };
    let (severity, found, lost) = match (aof, facts.setting("appendfsync"), facts.setting("save")) {
        ("1", Some("always"), _) => (
            Severity::Good,
            "every write is on disk before it is answered",
            "",
        ),
        ("1", Some("everysec"), _) => (
            Severity::Advice,
            "writes are on disk within a second (appendonly yes, appendfsync everysec)",
            "a crash of its machine frees the locks of the last second",
        ),
        ("1", ..) => (
            Severity::Advice,
            "writes are in a file, and on disk at some time (appendonly yes)",
            "a crash of its machine frees the locks that are not on disk",
        ),
        (_, _, Some("")) => (
            Severity::Advice,
            "nothing is kept on disk",
            "a restart frees all locks",
        ),
        _ => (
            Severity::Advice,
            "snapshots alone are kept on disk, if anything (appendonly no)",
            "a restart frees the locks since the last snapshot",
        ),
    };
    let advice = match severity {
        Severity::Good => String::new(),
        _ => format!(
            "{lost}: their holders are told when it answers again, and until then another may hold the lock. As \
             a node of a quorum it has to stay away for the longest ttl before it starts again. `appendonly yes` \
             with `appendfsync always` loses nothing, and is slower"
        ),
    };
    findings.push(facts.finding("persistence", severity, found, advice));
    findings
}

pub(super) fn replicas(facts: &Facts) -> Vec<Finding> {
    let Some(count) = facts.number("connected_slaves") else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for number in 0..count {
        let line = facts.info(&format!("slave{number}")).unwrap_or_default();
        let field = |name: &str| {
            let mut fields = line.split(',').filter_map(|field| field.split_once('='));
            fields.find(|(of, _)| *of == name).map(|(_, value)| value)
        };
        let lag: Option<u64> = field("lag").and_then(|lag| lag.parse().ok());
        let is_online = field("state").is_none_or(|state| state == "online");
        if !is_online || lag.is_some_and(|lag| lag >= BEHIND) {
            let (ip, port) = (field("ip").unwrap_or("?"), field("port").unwrap_or("?"));
            let state = field("state").unwrap_or("?");
            findings.push(facts.finding(
                "replicas",
                Severity::Warning,
                format!(
                    "the replica {ip}:{port} is not in step: {state}, last heard of {} s ago",
                    lag.unwrap_or(0)
                ),
                "look at that server: a failover to it would lose every lock that it has not heard of",
            ));
        }
    }
    let writes = facts.setting("min-replicas-to-write").unwrap_or("0");
    let (severity, found, advice) = match count {
        0 if facts.in_cluster => (
            Severity::Advice,
            "it has no replica".to_owned(),
            "add one: while this node is down, so are the locks of its hash slots",
        ),
        0 => (Severity::Good, "it has no replica".to_owned(), ""),
        count if facts.is_acknowledged => (
            Severity::Good,
            format!("it has {count}, and grants count once they are acknowledged"),
            "",
        ),
        count => (
            Severity::Advice,
            format!(
                "it has {count}, which are told of a lock after its grant (min-replicas-to-write {writes})"
            ),
            "a failover loses what the replica had not heard yet, and then two may hold a lock: have the client \
             wait for replicas (`replicas`), fence with tokens, and set `min-replicas-to-write 1` to bound how \
             long a primary that is cut off goes on",
        ),
    };
    findings.push(facts.finding("replicas", severity, found, advice));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(findings: Vec<Finding>) -> Option<Severity> {
        findings.into_iter().map(|finding| finding.severity).max()
    }

    #[test]
    fn versions_and_roles_are_told() {
        for (info, severity) in [
            ("redis_version:7.0.15\nrole:master", Severity::Good),
            (
                "redis_version:7.2.4\nvalkey_version:8.0.1\nrole:master",
                Severity::Good,
            ),
            ("redis_version:6.0.16\nrole:master", Severity::Advice),
            ("redis_version:5.0.3", Severity::Fault),
            ("redis_version:7.0.15\nrole:slave", Severity::Fault),
            ("loading:1", Severity::Warning),
        ] {
            assert_eq!(
                worst(server(&Facts::of(info, &[]))),
                Some(severity),
                "{info}"
            );
        }
    }

    #[test]
    fn what_a_restart_loses_is_told() {
        for (aof, fsync, save, words) in [
            ("1", "always", "", "before it is answered"),
            ("1", "everysec", "", "within a second"),
            ("1", "no", "", "at some time"),
            ("0", "everysec", "", "nothing"),
            ("0", "everysec", "3600 1", "snapshots"),
        ] {
            let facts = Facts::of(
                &format!("aof_enabled:{aof}"),
                &[("appendfsync", fsync), ("save", save)],
            );
            let found = persistence(&facts);
            assert!(found[0].found.contains(words), "{found:?}");
        }
        let failed = Facts::of("aof_enabled:1\nrdb_last_bgsave_status:err", &[]);
        assert_eq!(worst(persistence(&failed)), Some(Severity::Warning));
    }

    #[test]
    fn replicas_that_do_not_follow_are_told() {
        for (info, severity) in [
            ("connected_slaves:0", Severity::Good),
            (
                "connected_slaves:1\nslave0:ip=h,port=1,state=online,offset=1,lag=0",
                Severity::Advice,
            ),
            (
                "connected_slaves:1\nslave0:ip=h,port=1,state=online,offset=1,lag=11",
                Severity::Warning,
            ),
            (
                "connected_slaves:1\nslave0:ip=h,port=1,state=wait_bgsave,offset=1,lag=0",
                Severity::Warning,
            ),
        ] {
            assert_eq!(
                worst(replicas(&Facts::of(info, &[]))),
                Some(severity),
                "{info}"
            );
        }
    }
}
