//! The nodes of a quorum, as they are named.
//!
//! An error never repeats a URL, which may hold a password.

use crate::error::Error;
use crate::store::quorum::NODES;

/// What follows the scheme of each node in the URL of a quorum.
const QUORUM: &str = "+quorum";

/// What the scheme of a URL that names sentinels ends in.
const SENTINEL: &str = "+sentinel";

/// The port of a URL that names none, and of one that names sentinels.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// The URLs of the nodes of `redis+quorum://[user:password@]h1,h2,h3[/…]`; `None` where it is no such URL.
/// What stands before and behind the hosts is each node's.
pub(super) fn of_url(url: &str) -> Result<Option<Vec<String>>, Error> {
    let scheme = url.split_once("://");
    let Some((scheme, rest)) = scheme.and_then(|(scheme, rest)| {
        let scheme = scheme.strip_suffix(QUORUM)?;
        Some((scheme, rest))
    }) else {
        return Ok(None);
    };
    if scheme == "unix" {
        return Err(Error::Config(
            "unix+quorum:// is no URL: sockets are on one machine, and the nodes of a quorum on several; \
             name them one by one with `ClientBuilder::quorum`"
                .to_owned(),
        ));
    }
    let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    };
    let url = |host: &str| {
        if host.is_empty() {
            return Err(Error::Config(format!(
                "the {scheme}{QUORUM}:// URL has an empty host: write its hosts as `h1:p,h2:p,h3:p`"
            )));
        }
        Ok(format!("{scheme}://{login}{host}{behind}"))
    };
    hosts
        .split(',')
        .map(url)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The same URLs in an order that does not depend on that in which they are named, so that all clients have
/// the same.
pub(super) fn in_order(urls: Vec<String>) -> Result<Vec<String>, Error> {
    let refuse = |reason: String| Err(Error::Config(reason));
    let (least, most) = (NODES.start(), NODES.end());
    match urls.len() {
        1 => {
            return refuse(format!(
                "a quorum has {least} to {most} nodes, not 1: connect to a single one by `connect`"
            ));
        }
        2 => {
            return refuse(format!(
                "a quorum of 2 nodes needs both, so that either of them stops all locks: name {least} or 5, or \
                 connect to one"
            ));
        }
        nodes if !NODES.contains(&nodes) => {
            return refuse(format!("a quorum has {least} to {most} nodes, not {nodes}"));
        }
        _ => {}
    }
    if urls.iter().any(|url| url == "memory:") {
        return refuse("`memory:` is this process alone, and no node of a quorum".to_owned());
    }
    let mut nodes: Vec<_> = urls
        .into_iter()
        .map(|url| (NodeAddress::of(&url), url))
        .collect();
    nodes.sort();
    for (index, (one, _)) in nodes.iter().enumerate() {
        let mut others = nodes[..index].iter().map(|(other, _)| other);
        if let Some(address) = others.find_map(|other| one.shares_with(other)) {
            return refuse(format!(
                "a quorum counts each node once, and {address} is named twice: leave one of them out"
            ));
        }
    }
    Ok(nodes.into_iter().map(|(_, url)| url).collect())
}

/// What a URL names, without what it logs in with or asks for there: two databases of a server are one node.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NodeAddress {
    /// Each host and port, in order; or the path of a socket.
    addresses: Vec<String>,
    /// Of the services that the same sentinels watch over; otherwise empty.
    service: String,
}

impl NodeAddress {
    fn of(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if scheme == "unix" {
            return Self {
                addresses: vec![rest.split('?').next().unwrap_or(rest).to_owned()],
                service: String::new(),
            };
        }
        let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let hosts = authority.rsplit('@').next().unwrap_or(authority);
        let (port, service) = if scheme.ends_with(SENTINEL) {
            let path = behind.trim_start_matches('/');
            (SENTINEL_PORT, path.split(['/', '?', '#']).next())
        } else {
            (PORT, None)
        };
        let mut addresses: Vec<_> = hosts.split(',').map(|host| address(host, port)).collect();
        addresses.sort();
        Self {
            addresses,
            service: service.unwrap_or_default().to_owned(),
        }
    }

    /// An address at which both are, if they are the same: sentinels and nodes of a cluster are known by any
    /// of them.
    fn shares_with(&self, other: &Self) -> Option<&str> {
        let mut shared = self.addresses.iter();
        let shared = shared.find(|address| other.addresses.contains(address));
        shared
            .filter(|_| self.service == other.service)
            .map(String::as_str)
    }
}

/// Host and port.
fn address(host: &str, default: u16) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = host.to_ascii_lowercase();
    if has_port {
        host
    } else {
        format!("{host}:{default}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(url: &str) -> Vec<String> {
        of_url(url).expect("a URL").expect("a quorum")
    }

    fn refused(urls: &[&str]) -> String {
        let urls = urls.iter().map(ToString::to_string).collect();
        in_order(urls).expect_err("it cannot be used").to_string()
    }

    #[test]
    fn what_stands_around_the_hosts_is_each_nodes() {
        assert_eq!(
            named("redis+quorum://h1:1,h2:2,h3"),
            ["redis://h1:1", "redis://h2:2", "redis://h3"]
        );
        assert_eq!(
            named("rediss+quorum://user:a,b@h1,h2:7,[::1]:8/2?protocol=resp3"),
            [
                "rediss://user:a,b@h1/2?protocol=resp3",
                "rediss://user:a,b@h2:7/2?protocol=resp3",
                "rediss://user:a,b@[::1]:8/2?protocol=resp3"
            ]
        );
        assert!(of_url("redis://h1").expect("a URL").is_none());
        assert!(of_url("memory:").expect("a URL").is_none());
    }

    #[test]
    fn an_error_names_the_slip_and_no_password() {
        for url in ["redis+quorum://:secret@h1,,h2", "unix+quorum:///secret,/b"] {
            let error = of_url(url).expect_err("it cannot be used").to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let twice = refused(&["redis://:secret@h1/1", "redis://h2", "redis://H1:6379/2"]);
        assert!(twice.contains("h1:6379 is named twice"), "{twice}");
        assert!(!twice.contains("secret"), "{twice}");
    }

    #[test]
    fn a_node_is_told_from_another_by_all_that_makes_it_one() {
        for nodes in [
            ["one", "two", "three"].map(|service| format!("redis+sentinel://a,b/{service}")),
            ["a,b", "c,d", "e"].map(|hosts| format!("redis+cluster://{hosts}")),
            ["a", "b", "c"].map(|socket| format!("unix:///run/{socket}?db=1")),
        ] {
            assert!(in_order(nodes.to_vec()).is_ok(), "{nodes:?}");
        }
        for [one, other] in [
            [
                "redis+sentinel://a,b:26379/one/1",
                "redis+sentinel://:secret@B,a/one?sentinel_password=secret",
            ],
            [
                "redis+cluster://a,b:7",
                "valkey+cluster://:secret@b:7,A:6379",
            ],
            ["unix:///run/a?db=1", "unix:///run/a?pass=secret"],
            ["redis://[::1]", "redis://[::1]:6379/2"],
        ] {
            let told = refused(&["redis://c", one, other]);
            assert!(
                told.contains("named twice") && !told.contains("secret"),
                "{told}"
            );
        }
    }

    #[test]
    fn all_clients_have_the_same_order() {
        let urls = ["redis://u:p@c", "redis://a:7/1", "redis://b"].map(str::to_owned);
        let mut reversed = urls.to_vec();
        reversed.reverse();
        let ordered = in_order(urls.to_vec()).expect("three nodes");
        assert_eq!(ordered, ["redis://a:7/1", "redis://b", "redis://u:p@c"]);
        assert_eq!(in_order(reversed).expect("three nodes"), ordered);
    }

    #[test]
    fn a_quorum_has_from_three_to_nine_nodes() {
        let urls: Vec<_> = (0..10).map(|node| format!("redis://h{node}")).collect();
        for count in 0..=10 {
            let made = in_order(urls[..count].to_vec());
            assert_eq!(made.is_ok(), NODES.contains(&count), "{count}: {made:?}");
        }
        assert!(refused(&["redis://a", "redis://b"]).contains("needs both"));
        assert!(refused(&["redis://a"]).contains("by `connect`"));
        assert!(refused(&["redis://a", "memory:", "redis://b"]).contains("this process alone"));
    }
}
