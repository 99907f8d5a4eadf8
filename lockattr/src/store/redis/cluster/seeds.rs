//! Reads the URL of a cluster: the nodes that are asked first which nodes there are.

use crate::error::Error;
use crate::store::redis::access::Access;
use crate::store::redis::target::{Target, target};

/// What the scheme of a single server's URL has added to it for a cluster.
const SUFFIX: &str = "+cluster";

/// The seeds of a cluster that a URL names; `None` where it names none. All have the credentials of the
/// URL.
pub(crate) fn seeds(url: &str, access: &Access) -> Option<Result<Vec<Target>, Error>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.strip_suffix(SUFFIX)?;
    Some(read(scheme, rest, access))
}

fn read(scheme: &str, rest: &str, access: &Access) -> Result<Vec<Target>, Error> {
    let refuse = |reason: &str| {
        Err(Error::Config(format!(
            "the {scheme}{SUFFIX}:// URL {reason}"
        )))
    };
    if scheme == "unix" {
        return refuse("cannot be used: the nodes of a cluster are reached over TCP alone");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let database = path.split(['?', '#']).next().unwrap_or_default();
    // What has an `@` is the rest of a password, which the reading of each host finds.
    if !["", "/", "/0"].contains(&database) && !path.contains('@') {
        return refuse("names a database, and a cluster has database 0 alone: leave it out");
    }
    if hosts.split(',').any(str::is_empty) {
        return refuse("has an empty host: write them as host:port,host:port");
    }
    hosts
        .split(',')
        .map(|host| target(&format!("{scheme}://{login}{host}{path}"), access))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Vec<String>, String> {
        let seeds = seeds(url, &Access::default()).expect("a cluster's");
        let seeds = seeds.map_err(|error| error.to_string())?;
        Ok(seeds
            .iter()
            .map(|seed| seed.address().to_string())
            .collect())
    }

    #[test]
    fn every_host_is_a_seed() {
        let two = ["a:6379", "b:7001"].map(str::to_owned);
        for url in [
            "redis+cluster://a,b:7001",
            "redis+cluster://a:6379,b:7001/",
            "valkey+cluster://user:p%40ss@a,b:7001/0",
            "redis+cluster://:pass@a,b:7001?protocol=resp3",
        ] {
            assert_eq!(read(url).unwrap(), two, "{url}");
        }
        assert_eq!(read("redis+cluster://[::1]:7001").unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_used_says_why_and_tells_no_secret() {
        for (url, why) in [
            ("redis+cluster://:secret@a,b/1", "database 0 alone"),
            ("redis+cluster://:secret@a,,b", "empty host"),
            ("redis+cluster://", "empty host"),
            ("unix+cluster:///secret", "over TCP alone"),
            ("redis+cluster://:sec/ret@a", "percent-encode"),
        ] {
            let told = read(url).unwrap_err();
            assert!(
                told.contains(why) && !told.contains("secret"),
                "{url}: {told}"
            );
        }
        assert!(
            ["redis://a", "memory:"]
                .iter()
                .all(|url| seeds(url, &Access::default()).is_none())
        );
    }
}
