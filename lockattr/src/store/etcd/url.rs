//! `etcd://[user:password@]h1[:port],h2[:port]…`, and `etcds://` with TLS. An error never repeats a URL, which
//! may hold a password.

use std::fmt;

use crate::error::Error;

const PORT: u16 = 2379;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(super) tls: bool,
    /// Each with its port.
    pub(super) hosts: Vec<String>,
    /// Name and password.
    pub(super) login: Option<(String, String)>,
}

/// Passwords do not belong into a log.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Location").field(&self.hosts).finish()
    }
}

pub(crate) fn location(url: &str) -> Result<Location, Error> {
    let refuse = |why: &str| {
        Err(Error::Config(format!(
            "the etcd URL cannot be used: {why}; it is `etcd://[user:password@]h1[:port],h2[:port]`, or `etcds://` \
             with TLS"
        )))
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let tls = scheme == "etcds";
    if tls && !cfg!(feature = "tls") {
        return Err(Error::Config(
            "etcds:// URLs need the feature `tls` of lockattr".to_owned(),
        ));
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return refuse(
            "nothing may follow the hosts, and `/`, `?` and `#` are written as %2F, %3F and %23",
        );
    }
    let (login, hosts) = match rest.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, rest),
    };
    let login = match login.map(|login| login.split_once(':')) {
        None => None,
        Some(Some((user, password))) if !user.is_empty() => {
            match (decoded(user), decoded(password)) {
                (Some(user), Some(password)) => Some((user, password)),
                _ => {
                    return refuse(
                        "a `%` in the user or the password is not followed by two digits",
                    );
                }
            }
        }
        Some(_) => return refuse("a user has a name and a password, with a `:` between them"),
    };
    let mut with_ports: Vec<String> = Vec::new();
    for host in hosts.split(',') {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
            _ => (host, Some(PORT)),
        };
        let Some(port) = port.filter(|port| *port != 0) else {
            return refuse("a port is a number from 1 to 65535");
        };
        let is_address = name.starts_with('[') && name.ends_with(']');
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        if !is_address && !is_name {
            return refuse(
                "a host is empty or no host name, or an IPv6 address stands without brackets",
            );
        }
        let host = format!("{name}:{port}");
        if with_ports.contains(&host) {
            return refuse(&format!("{host} is named twice"));
        }
        with_ports.push(host);
    }
    Ok(Location {
        tls,
        hosts: with_ports,
        login,
    })
}

/// Text in which characters are written as `%` and two hexadecimal digits.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'%' {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_logins_are_read() {
        let plain = location("etcd://h1,h2:7,[::1]:8,[::1]/").expect("a URL");
        assert_eq!(plain.hosts, ["h1:2379", "h2:7", "[::1]:8", "[::1]:2379"]);
        assert!(!plain.tls && plain.login.is_none());
        let user = location("etcd://jobs:a%40b:c@h1").expect("a URL");
        assert_eq!(user.login, Some(("jobs".to_owned(), "a@b:c".to_owned())));
    }

    #[test]
    fn an_error_names_the_slip_and_no_password() {
        for (url, slip) in [
            ("etcd://", "a host is empty"),
            ("etcd://h1,,h2", "a host is empty"),
            ("etcd://u:secret@h1:x", "a port"),
            ("etcd://u:secret@h1:0", "a port"),
            ("etcd://secret@h1", "a user has a name and a password"),
            ("etcd://:secret@h1", "a user has a name and a password"),
            ("etcd://u:secret%4@h1", "two digits"),
            ("etcd://u:secret@h1/2", "nothing may follow"),
            ("etcd://u:secret@h1,h1:2379", "h1:2379 is named twice"),
            ("etcd://u:secret@::1", "without brackets"),
        ] {
            let error = location(url).expect_err("a slip").to_string();
            assert!(error.contains(slip), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
