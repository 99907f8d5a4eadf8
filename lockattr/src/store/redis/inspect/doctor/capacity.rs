//! Whether the server has room: for keys, which it must not evict, and for clients.

use super::facts::Facts;
use crate::store::inspect::{Finding, Severity};

/// Above so many percent something is nearly full.
const NEARLY_FULL: u64 = 90;

/// Connections that may be idle for less than so many seconds are made anew again and again.
const SHORT_TIMEOUT: u64 = 60;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let told = facts.refused.iter().map(|(right, words)| {
        let advice = format!("grant `{right}` to whoever runs this, to have it looked at");
        facts.finding("rights to look", Severity::Unknown, words.clone(), advice)
    });
    let found = [
        eviction(facts),
        memory(facts),
        clients(facts),
        timeout(facts),
    ];
    told.chain(found.into_iter().flatten()).collect()
}

fn eviction(facts: &Facts) -> Option<Finding> {
    let (limit, policy) = (facts.number("maxmemory")?, facts.info("maxmemory_policy")?);
    if limit == 0 || policy == "noeviction" {
        let found = format!("nothing is evicted (maxmemory {limit}, maxmemory-policy {policy})");
        return Some(facts.finding("eviction", Severity::Good, found, ""));
    }
    let which = if policy.starts_with("volatile-") {
        "keys with an expiry, which all locks have and other keys may not"
    } else {
        "any key, locks too"
    };
    Some(facts.finding(
        "eviction",
        Severity::Warning,
        format!("with its memory full the server evicts {which} (maxmemory-policy {policy})"),
        "set `maxmemory-policy noeviction`, or keep locks on a server of their own: a lock that is evicted is \
         free while its holder works",
    ))
}

fn memory(facts: &Facts) -> Option<Finding> {
    let (limit, used) = (facts.number("maxmemory")?, facts.number("used_memory")?);
    let found = |percent| format!("{used} of {limit} bytes are used ({percent} %)");
    match percent(used, limit) {
        None => Some(facts.finding(
            "memory",
            Severity::Good,
            format!("{used} bytes are used, without a limit of the server's"),
            "",
        )),
        Some(percent) if percent >= NEARLY_FULL => Some(facts.finding(
            "memory",
            Severity::Warning,
            found(percent),
            "make room or raise `maxmemory`: a full server refuses every acquire, or evicts",
        )),
        Some(percent) => Some(facts.finding("memory", Severity::Good, found(percent), "")),
    }
}

fn clients(facts: &Facts) -> Option<Finding> {
    let limit = facts.number("maxclients");
    let limit = limit.or_else(|| facts.setting("maxclients")?.parse().ok())?;
    let connected = facts.number("connected_clients")?;
    let found = format!("{connected} of {limit} clients are connected");
    Some(if percent(connected, limit)? >= NEARLY_FULL {
        let advice =
            "raise `maxclients`, or look who connects: a server that is full turns clients away";
        facts.finding("clients", Severity::Warning, found, advice)
    } else {
        facts.finding("clients", Severity::Good, found, "")
    })
}

fn timeout(facts: &Facts) -> Option<Finding> {
    let seconds: u64 = facts.setting("timeout")?.parse().ok()?;
    let (severity, found, advice) = match seconds {
        0 => (Severity::Good, "idle connections stay open".to_owned(), ""),
        seconds if seconds >= SHORT_TIMEOUT => (
            Severity::Good,
            format!(
                "idle connections are closed after {seconds} s, and made anew when they are needed"
            ),
            "",
        ),
        seconds => (
            Severity::Advice,
            format!("idle connections are closed after {seconds} s"),
            "raise `timeout`, or set it to 0: the next call on such a connection has to connect first",
        ),
    };
    Some(facts.finding("timeout", severity, found, advice))
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(100).checked_div(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_evicts_or_is_full_is_told() {
        let told = |info: &str, settings: &[(&str, &str)], topic: &str| {
            let found = findings(&Facts::of(info, settings));
            let mut found = found.into_iter().filter(|finding| finding.topic == topic);
            found.next().map(|finding| finding.severity)
        };
        for (info, topic, severity) in [
            (
                "maxmemory:0\nmaxmemory_policy:allkeys-lru",
                "eviction",
                Severity::Good,
            ),
            (
                "maxmemory:9\nmaxmemory_policy:noeviction",
                "eviction",
                Severity::Good,
            ),
            (
                "maxmemory:9\nmaxmemory_policy:volatile-ttl",
                "eviction",
                Severity::Warning,
            ),
            (
                "maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n",
                "eviction",
                Severity::Warning,
            ),
            ("maxmemory:100\nused_memory:90", "memory", Severity::Warning),
            ("maxmemory:100\nused_memory:89", "memory", Severity::Good),
            ("maxmemory:0\nused_memory:89", "memory", Severity::Good),
            (
                "maxclients:10\nconnected_clients:9",
                "clients",
                Severity::Warning,
            ),
            (
                "maxclients:10\nconnected_clients:8",
                "clients",
                Severity::Good,
            ),
        ] {
            assert_eq!(told(info, &[], topic), Some(severity), "{info}");
        }
        for (seconds, severity) in [
            ("0", Severity::Good),
            ("30", Severity::Advice),
            ("300", Severity::Good),
        ] {
            assert_eq!(told("", &[("timeout", seconds)], "timeout"), Some(severity));
        }
        assert_eq!(told("", &[], "eviction"), None);
    }
}
